"""Partitions with transactions: a simple leader, and what readers see in its log.

The leader's rules are KIP-890 (a batch that begins a transaction needs verification) and KIP-1228
(how strictly a marker's epoch is checked).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fairlead_broker.log.producers.end_marker import TRANSACTION_VERSION_2
from fairlead_wire.errors import ErrorCode

if TYPE_CHECKING:
    from fairlead_broker.log.producers.end_marker import EndMarker

FENCING_EPOCH = 32_767


class Data(NamedTuple):
    """A record; `transaction` is the one that its client meant."""

    producer_id: int
    transaction: tuple[int, int]


class Marker(NamedTuple):
    producer_id: int
    is_commit: bool


class Producer:
    """What a leader knows about a producer id."""

    def __init__(self) -> None:
        self.epoch = -1
        self.coordinator_epoch = -1
        self.is_open = False
        self.guard: object | None = None
        self.guard_epoch = -1


class Partition:
    def __init__(self) -> None:
        self.entries: list[Data | Marker] = []
        self.producers: dict[int, Producer] = {}

    def producer(self, producer_id: int) -> Producer:
        return self.producers.setdefault(producer_id, Producer())

    def is_open_for(self, producer_id: int, epoch: int) -> bool:
        producer = self.producer(producer_id)
        return producer.is_open and producer.epoch == epoch

    def begin_verification(self, producer_id: int, epoch: int) -> object:
        producer = self.producer(producer_id)
        if producer.guard is None or producer.guard_epoch != epoch:
            producer.guard, producer.guard_epoch = object(), epoch
        return producer.guard

    def append(self, data: Data, epoch: int, guard: object | None) -> ErrorCode:
        producer = self.producer(data.producer_id)
        if data in self.entries:
            return ErrorCode.NONE
        if epoch < producer.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if not self.is_open_for(data.producer_id, epoch):
            if guard is None or guard is not producer.guard:
                return ErrorCode.INVALID_TXN_STATE
            assert not producer.is_open, "an open transaction of an older epoch"
        producer.epoch, producer.is_open, producer.guard = epoch, True, None
        self.entries.append(data)
        return ErrorCode.NONE

    def end(self, marker: EndMarker) -> ErrorCode:
        producer = self.producer(marker.producer_id)
        if marker.coordinator_epoch < producer.coordinator_epoch:
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        epoch = marker.producer_epoch
        is_version_2 = marker.transaction_version >= TRANSACTION_VERSION_2
        if epoch < producer.epoch or (
            is_version_2 and epoch == producer.epoch != FENCING_EPOCH and producer.is_open
        ):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if not (is_version_2 and producer.guard_epoch == epoch):
            producer.guard = None
        producer.epoch, producer.is_open = epoch, False
        producer.coordinator_epoch = marker.coordinator_epoch
        self.entries.append(Marker(marker.producer_id, marker.is_commit))
        return ErrorCode.NONE

    def outcomes(self) -> dict[tuple[int, int], bool | None]:
        """Return for each transaction whether readers see it; None while it is open."""
        found: dict[tuple[int, int], bool | None] = {}
        open_now: dict[int, set[tuple[int, int]]] = {}
        for entry in self.entries:
            if isinstance(entry, Data):
                assert found.get(entry.transaction) is None, (
                    f"{entry.transaction} goes on after its end"
                )
                found[entry.transaction] = None
                open_now.setdefault(entry.producer_id, set()).add(entry.transaction)
            else:
                for transaction in open_now.pop(entry.producer_id, ()):
                    found[transaction] = entry.is_commit
        for transactions in open_now.values():
            assert len(transactions) == 1, f"{transactions} are open at one time"
        return found
