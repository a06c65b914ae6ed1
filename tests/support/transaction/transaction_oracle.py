"""What a log with transactions means, worked out from its list of batches and nothing else.

Slow and obvious, and no line of it is the product's: every answer walks the whole list again.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

PLAIN, TRANSACTIONAL, ABORT, COMMIT = "plain", "transactional", "abort", "commit"


class Batch(NamedTuple):
    """A batch, or a marker: that has one offset and no sequence."""

    first_offset: int
    last_offset: int
    kind: str = PLAIN
    producer_id: int = -1
    epoch: int = -1
    first_sequence: int = -1
    coordinator_epoch: int = -1
    timestamp: int = -1

    @property
    def last_sequence(self) -> int:
        return self.first_sequence + self.last_offset - self.first_offset


class Transaction(NamedTuple):
    """One of a log. `marker` is None while it is open."""

    producer_id: int
    batches: list[Batch]
    marker: Batch | None

    @property
    def first_offset(self) -> int:
        return self.batches[0].first_offset


class KnownProducer(NamedTuple):
    """What a log has to know of a producer."""

    epoch: int
    last_sequence: int
    coordinator_epoch: int
    timestamp: int
    transaction_first_offset: int


def transactions(log: Iterable[Batch]) -> list[Transaction]:
    """Return all transactions of a log, ended ones first."""
    ended: list[Transaction] = []
    begun: dict[int, list[Batch]] = {}
    for batch in log:
        if batch.kind == TRANSACTIONAL:
            begun.setdefault(batch.producer_id, []).append(batch)
        elif batch.kind in (ABORT, COMMIT) and batch.producer_id in begun:
            ended.append(Transaction(batch.producer_id, begun.pop(batch.producer_id), batch))
    return ended + [Transaction(producer, batches, None) for producer, batches in begun.items()]


def last_stable_offset(log: list[Batch], high_watermark: int) -> int:
    """Return where the first transaction begins that may yet end in any way, or the mark."""
    undecided = [
        each.first_offset
        for each in transactions(log)
        if each.marker is None or each.marker.first_offset >= high_watermark
    ]
    return min([high_watermark, *undecided])


def committed(log: list[Batch], start: int, end: int) -> list[int]:
    """Return the offsets of a range that a reader of committed records must see."""
    hidden = {
        batch
        for each in transactions(log)
        if each.marker is None or each.marker.kind == ABORT
        for batch in each.batches
    }
    return [
        offset
        for batch in log
        if batch.kind in (PLAIN, TRANSACTIONAL) and batch not in hidden
        for offset in range(batch.first_offset, batch.last_offset + 1)
        if start <= offset < end
    ]


def consumed(
    log: list[Batch], start: int, end: int, aborted: Iterable[tuple[int, int]]
) -> Iterator[int]:
    """Yield the offsets that a Java consumer hands on, given the list of its fetch.

    Its `CompletedFetch`: a producer is left out from the first offset in the list up to its next
    abort marker.
    """
    waiting = sorted(aborted, key=lambda each: each[1])
    left_out = set()
    for batch in log:
        if batch.last_offset < start or batch.last_offset >= end:
            continue
        while waiting and waiting[0][1] <= batch.last_offset:
            left_out.add(waiting.pop(0)[0])
        if batch.kind == ABORT:
            left_out.discard(batch.producer_id)
        is_left_out = batch.kind == TRANSACTIONAL and batch.producer_id in left_out
        if batch.kind in (PLAIN, TRANSACTIONAL) and not is_left_out:
            yield from range(max(batch.first_offset, start), batch.last_offset + 1)


def producers(log: list[Batch]) -> dict[int, KnownProducer]:
    """Return what has to be known of each producer at the end of a log."""
    known = {}
    for producer_id in {batch.producer_id for batch in log if batch.producer_id >= 0}:
        own = [batch for batch in log if batch.producer_id == producer_id]
        epoch = own[-1].epoch
        sequences = [-1]
        for batch in own:
            if batch.epoch != epoch:
                sequences = [-1]
            elif batch.first_sequence >= 0:
                sequences.append(batch.last_sequence)
        coordinators = [-1, *(b.coordinator_epoch for b in own if b.kind in (ABORT, COMMIT))]
        begun = [-1]
        begun += [
            each.first_offset
            for each in transactions(log)
            if each.producer_id == producer_id and each.marker is None
        ]
        known[producer_id] = KnownProducer(
            epoch, sequences[-1], coordinators[-1], own[-1].timestamp, begun[-1]
        )
    return known
