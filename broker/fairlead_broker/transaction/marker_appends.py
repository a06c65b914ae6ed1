"""Writes markers to partitions that this broker leads, and tells when they are committed.

It serves WriteTxnMarkers of other brokers and of tools, and this broker's own coordinator. As after
a produce with acks=all, markers that are not committed at once wait in the purgatory, but only for
a short time, because all markers of a request are answered together. The sender of a marker that
was not committed in time sends it again, and a repeated marker does no harm (KIP-890).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from fairlead_broker.replication.acknowledgement import (
    acknowledgement,
    time_out_code,
)
from fairlead_broker.replication.acks import ALL_IN_SYNC
from fairlead_broker.replication.leader_epoch_check import LATEST_KNOWN_EPOCH
from fairlead_model.ids import CONSUMER_OFFSETS
from fairlead_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from fairlead_broker.clock import Clock
    from fairlead_broker.group.coordinator import GroupCoordinator
    from fairlead_broker.log.producers.end_marker import EndMarker
    from fairlead_broker.replication.partition import Partition
    from fairlead_broker.replication.purgatory import ParkedOperation, Purgatory
    from fairlead_broker.transaction.ending import TopicPartition

COMMIT_WAIT_MS: Final = 250

Codes = list[dict["TopicPartition", ErrorCode]]
"""In the order of the markers: the result of each in its partitions."""


class LeadingBroker(Protocol):
    """`Broker`, as far as markers need it."""

    clock: Clock
    produce_purgatory: Purgatory
    group_coordinator: GroupCoordinator

    def leading(self, key: TopicPartition, /) -> Partition:
        """Return a partition that this broker leads; KafkaError with the right code otherwise."""
        ...


def append_markers(
    broker: LeadingBroker,
    markers: Sequence[tuple[EndMarker, Mapping[TopicPartition, int]]],
    done: Callable[[Codes], None],
) -> ParkedOperation | None:
    """Write markers, each to its partitions; `done` is called once, in this call or later.

    Each partition has the leader epoch for which the marker is meant, or LATEST_KNOWN_EPOCH. The
    returned operation exists until `done` is called, and can be cancelled.
    """
    appends = MarkerAppends(broker, done)
    for marker, partitions in markers:
        appends.append(marker, partitions)
    return appends.park()


class _Uncommitted(NamedTuple):
    partition: Partition
    leader_epoch: int
    end_offset: int
    codes: dict[TopicPartition, ErrorCode]


class MarkerAppends:
    """One request's markers; a code that is missing from `_codes` is not known yet."""

    def __init__(self, broker: LeadingBroker, done: Callable[[Codes], None]) -> None:
        self._broker = broker
        self._done = done
        self._codes: Codes = []
        self._uncommitted: list[_Uncommitted] = []
        self._unanswered: set[tuple[int, TopicPartition]] = set()
        self._parked: ParkedOperation | None = None
        self._is_complete = False

    def append(self, marker: EndMarker, partitions: Mapping[TopicPartition, int]) -> None:
        """Write a marker to each of its partitions.

        A marker for an earlier reign of this broker may be about a transaction that another leader
        has ended since: the producer's next transaction may have the same epoch (T8).
        """
        codes: dict[TopicPartition, ErrorCode] = {}
        number = len(self._codes)
        self._codes.append(codes)
        for key, meant_epoch in partitions.items():
            try:
                partition = self._broker.leading(key)
                if LATEST_KNOWN_EPOCH < meant_epoch < partition.leader_epoch:
                    raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
                if partition.topic == CONSUMER_OFFSETS:
                    self._append_to_groups(marker, number, key)
                    continue
                result = partition.append_end_marker(marker, now_ms=self._broker.clock.now_ms())
            except KafkaError as error:
                codes[key] = error.code
                continue
            end_offset = result.last_offset + 1
            self._uncommitted.append(
                _Uncommitted(partition, partition.leader_epoch, end_offset, codes)
            )

    def park(self) -> ParkedOperation | None:
        """Answer if all results are known; otherwise wait for them."""
        if self.try_complete():
            return None
        broker = self._broker
        keys = [(each.partition.topic, each.partition.index) for each in self._uncommitted]
        deadline_ms = broker.clock.monotonic_ms() + COMMIT_WAIT_MS
        self._parked = broker.produce_purgatory.park(self, keys, deadline_ms)
        if self._parked is None:
            self.on_expire()
        return self._parked

    def try_complete(self) -> bool:
        self._uncommitted = [each for each in self._uncommitted if not _is_settled(each)]
        if self._uncommitted or self._unanswered:
            return False
        self._complete()
        return True

    def on_expire(self) -> None:
        for each in self._uncommitted:
            if not _is_settled(each):
                each.codes[_key(each)] = time_out_code(each.partition, ALL_IN_SYNC)
        for number, key in self._unanswered:
            self._codes[number][key] = ErrorCode.REQUEST_TIMED_OUT
        self._complete()

    def on_fault(self) -> None:
        """Have the coordinator send again the markers that are not known to be written."""
        for each in self._uncommitted:
            each.codes[_key(each)] = ErrorCode.UNKNOWN_SERVER_ERROR
        for number, key in self._unanswered:
            self._codes[number][key] = ErrorCode.UNKNOWN_SERVER_ERROR
        self._complete()

    def _append_to_groups(self, marker: EndMarker, number: int, key: TopicPartition) -> None:
        """Have the group coordinator write it, in order with the records of groups."""

        def settle(code: ErrorCode) -> None:
            self._unanswered.discard((number, key))
            if self._is_complete:
                return
            self._codes[number][key] = code
            if self._parked is not None and self.try_complete():
                self._parked.cancel()

        self._unanswered.add((number, key))
        self._broker.group_coordinator.end_transaction(key[1], marker, settle)

    def _complete(self) -> None:
        self._is_complete = True
        self._done(self._codes)


def _key(waiting: _Uncommitted) -> TopicPartition:
    return (waiting.partition.topic, waiting.partition.index)


def _is_settled(waiting: _Uncommitted) -> bool:
    code = acknowledgement(waiting.partition, ALL_IN_SYNC, waiting.leader_epoch, waiting.end_offset)
    if code is not None:
        waiting.codes[_key(waiting)] = code
    return code is not None
