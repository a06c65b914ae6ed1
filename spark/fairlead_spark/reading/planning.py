"""The offsets of a batch, and their division into tasks. Pure.

The rules are those of Spark's Kafka source, so a query keeps its batches when its format changes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fairlead_spark.offsets import NO_TOPIC_ID, PartitionValues, TopicPartition


@dataclass(frozen=True)
class OffsetRange:
    """Offsets `[start, until)` of one partition, for one task: a range, not a count of records.

    `is_from_earliest`: the query wants the earliest record, so records that retention deletes
    before the task runs are no loss.
    """

    topic: str
    partition: int
    start: int
    until: int
    topic_id: bytes = NO_TOPIC_ID
    is_from_earliest: bool = False

    @property
    def size(self) -> int:
        return self.until - self.start

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.until})"


def build_ranges(
    start: PartitionValues,
    until: PartitionValues,
    *,
    topic_ids: Mapping[str, bytes],
    from_earliest: frozenset[TopicPartition] = frozenset(),
) -> list[OffsetRange]:
    """Return one range for each partition that has something to read."""
    return [
        OffsetRange(
            each.topic,
            each.partition,
            start[each],
            until[each],
            topic_ids.get(each.topic, NO_TOPIC_ID),
            each in from_earliest,
        )
        for each in sorted(until)
        if start[each] < until[each]
    ]


def split_ranges(
    ranges: Sequence[OffsetRange],
    *,
    min_partitions: int | None,
    max_records: int | None,
) -> list[OffsetRange]:
    """Split ranges until none is above `max_records` and there are about `min_partitions`."""
    parts = [1 if max_records is None else -(-each.size // max_records) for each in ranges]
    if min_partitions is not None and sum(parts) < min_partitions:
        total = sum(each.size for each in ranges)
        wanted = [max(1, round(each.size / total * min_partitions)) for each in ranges]
        parts = [max(pair) for pair in zip(parts, wanted, strict=True)]
    return [
        piece
        for each, count in zip(ranges, parts, strict=True)
        for piece in _cut(each, min(count, each.size))
    ]


def limit_positions(
    start: PartitionValues, latest: PartitionValues, *, records_max: int
) -> dict[TopicPartition, int]:
    """Return the ends of a batch of about `records_max` offsets, in proportion to the backlog.

    Each partition with a backlog advances by at least one, or a small one might never be read.
    """
    backlog = {each: max(0, latest[each] - start[each]) for each in latest}
    total = sum(backlog.values())
    if total <= records_max:
        return dict(latest)
    ends = {}
    for each, waiting in backlog.items():
        share = waiting * records_max // total
        ends[each] = start[each] + max(share, 1) if waiting else latest[each]
    return ends


def cap_positions(
    latest: PartitionValues,
    target: PartitionValues,
    *,
    start: PartitionValues,
    read: PartitionValues,
) -> dict[TopicPartition, int]:
    """Return `latest`, but at most `target`, and without partitions not in `target`.

    A partition that was `read` before stays where it is: if it were left out, it would be new
    again, and read twice. The target may come from a new leader that knew less than was already
    read: the result is never below `start`.
    """
    held = {each: start[each] for each in latest if each in read and each not in target}
    return held | {
        each: min(position, max(target[each], start.get(each, target[each])))
        for each, position in latest.items()
        if each in target
    }


def count_new(start: PartitionValues, latest: PartitionValues) -> int:
    """Return the number of offsets between the two."""
    return sum(max(0, latest[each] - start.get(each, latest[each])) for each in latest)


def find_regressions(start: PartitionValues, latest: PartitionValues) -> list[TopicPartition]:
    """Return partitions whose latest offset is lower than one that was already reached."""
    return sorted(each for each in latest if each in start and latest[each] < start[each])


def _cut(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    cuts = [whole.start + whole.size * index // parts for index in range(parts + 1)]
    return [
        OffsetRange(
            whole.topic,
            whole.partition,
            cuts[index],
            cuts[index + 1],
            whole.topic_id,
            # A later part of the log misses nothing only if the parts before it do not.
            whole.is_from_earliest,
        )
        for index in range(parts)
    ]
