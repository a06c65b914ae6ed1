"""Writes of transactions to the offsets topic: staged offsets, and their markers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from fairlead_broker.coordinator.record_batching import build_batch
from fairlead_broker.coordinator.shard import SeparateWrite
from fairlead_broker.group.writes import CommittingWrite
from fairlead_broker.replication.acks import ALL_IN_SYNC
from fairlead_wire.errors import ErrorCode
from fairlead_wire.record_batch import TRANSACTIONAL_MASK

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairlead_broker.group.coordinated_group import CoordinatedGroup
    from fairlead_broker.group.shard_groups import ShardGroups
    from fairlead_broker.group.writes import CommitWaiter
    from fairlead_broker.log.log import AppendResult
    from fairlead_broker.log.producers.end_marker import EndMarker
    from fairlead_broker.log.producers.verification import VerificationGuard
    from fairlead_broker.replication.partition import Partition

_TO_ANOTHER_LEADER: Final = {
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}


class StagingProducer(NamedTuple):
    """In whose transaction offsets are committed.

    `guard` is that of its verification; None if the transaction is open in the log.
    """

    producer_id: int
    producer_epoch: int
    guard: VerificationGuard | None


class StagedOffsetsWrite(CommittingWrite, SeparateWrite):
    """Offsets in a transaction: a batch of their own, with the producer's id and epoch."""

    __slots__ = ("_batch_offset", "_groups", "_producer")

    def __init__(
        self,
        groups: ShardGroups,
        group: CoordinatedGroup,
        producer: StagingProducer,
        waiter: CommitWaiter,
        offsets: list[tuple[str, int, bytes]],
        *,
        held_bytes: int,
    ) -> None:
        super().__init__(group, waiter, offsets, held_bytes=held_bytes)
        self._groups = groups
        self._producer = producer
        self._batch_offset = -1

    def append_to(self, partition: Partition, now_ms: int) -> AppendResult:
        batch = build_batch(
            self.bodies,
            timestamp_ms=now_ms,
            attributes=TRANSACTIONAL_MASK,
            producer_id=self._producer.producer_id,
            producer_epoch=self._producer.producer_epoch,
        )
        result = partition.append_as_leader(
            memoryview(batch),
            required_acks=ALL_IN_SYNC,
            now_ms=now_ms,
            has_keys=True,
            guard=self._producer.guard,
            is_from_coordinator=True,
        )
        self._batch_offset = result.first_offset
        return result

    def committed(self) -> None:
        group, producer_id = self.group, self._producer.producer_id
        for name, index, value in self.offsets:
            group.offsets.staged(producer_id, name, index, self._batch_offset, value)
        self.settled()
        self._groups.note_transaction(producer_id, group)
        self._finish(ErrorCode.NONE)


class EndMarkerWrite(SeparateWrite):
    """The end of a producer's transaction, for all groups of the partition (G21).

    Its codes are those of a partition's leader, which the sender of the marker expects.
    """

    __slots__ = ("_answer", "_groups", "_marker")

    def __init__(
        self, groups: ShardGroups, marker: EndMarker, answer: Callable[[ErrorCode], None]
    ) -> None:
        self._groups = groups
        self._marker = marker
        self._answer: Callable[[ErrorCode], None] | None = answer

    def append_to(self, partition: Partition, now_ms: int) -> AppendResult:
        return partition.append_end_marker(self._marker, now_ms=now_ms)

    def committed(self) -> None:
        marker = self._marker
        self._groups.transaction_ended(marker.producer_id, is_commit=marker.is_commit)
        self._finish(ErrorCode.NONE)

    def failed(self, code: ErrorCode) -> None:
        self._finish(as_of_leader(code))

    def timed_out(self) -> None:
        self._finish(ErrorCode.REQUEST_TIMED_OUT)

    def _finish(self, code: ErrorCode) -> None:
        answer, self._answer = self._answer, None
        if answer is not None:
            answer(code)


def as_of_leader(code: ErrorCode) -> ErrorCode:
    """Return what a partition's leader says where a group coordinator has other words for it."""
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if code in _TO_ANOTHER_LEADER else code
