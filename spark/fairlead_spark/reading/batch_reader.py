"""`spark.read.format("fairlead")`: the driver determines all ranges before any task runs."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from fairlead_spark.cluster import keep_cluster
from fairlead_spark.offsets import EARLIEST, TopicPartition
from fairlead_spark.options import Boundary, SourceOptions
from fairlead_spark.reading.boundaries import (
    check_start,
    find_partitions,
    narrow,
    read_latest,
    resolve_end,
    resolve_start,
)
from fairlead_spark.reading.planning import OffsetRange, build_ranges, split_ranges
from fairlead_spark.reading.pushed_filters import Narrowing, take_filters

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass
class RangePartition(InputPartition):
    """One task: a range of one partition."""

    range: OffsetRange


class FairleadBatchReader(DataSourceReader):
    """Reads the records between two boundaries."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._narrowing = Narrowing()

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks; Spark calls this on the driver."""
        options = self._options
        cluster = keep_cluster(options.client)
        topics = cluster.find_topics(options.subscription)
        partitions = find_partitions(options.subscription, topics)
        latest = read_latest(cluster, options, partitions)
        check_start(options, latest)
        start = resolve_start(cluster, options, partitions)
        until = resolve_end(cluster, options, partitions, latest)
        start, until = narrow(cluster, options, self._narrowing, start, until)
        ranges = build_ranges(
            start,
            until,
            topic_ids={topic.name: topic.topic_id for topic in topics.values()},
            from_earliest=begins_earliest(options.starting, partitions),
        )
        pieces = split_ranges(
            ranges,
            min_partitions=options.min_partitions,
            max_records=options.max_records_per_partition,
        )
        return [RangePartition(piece) for piece in pieces]

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """Yield the task's batches; Spark calls this in a task."""
        return read_partition(self._options, partition)


class FilteringBatchReader(FairleadBatchReader):
    """Reads less if filters allow it.

    A session must allow it: Spark refuses a reader that has `pushFilters`, with or without filters,
    unless Spark's setting for them is on, which a reader cannot see.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  # Spark's name.
        """Take filters; return those that Spark still has to apply (called on the driver)."""
        self._narrowing, kept = take_filters(filters)
        return kept


def read_partition(
    options: SourceOptions, partition: InputPartition | None
) -> "Iterator[pa.RecordBatch]":
    """Yield a task's Arrow batches, over the connections of this worker.

    A read without partitions still has one task, for which Spark passes None.
    """
    if not isinstance(partition, RangePartition):
        return iter(())
    # The driver does not need the modules that decode records, and starts a process for each plan.
    from fairlead_spark.reading.range_reader import RangeReader, ReadSettings

    settings = ReadSettings(
        fail_on_data_loss=options.fail_on_data_loss,
        include_headers=options.include_headers,
        poll_timeout_s=options.poll_timeout_ms / 1000,
    )
    return RangeReader(keep_cluster(options.client), partition.range, settings).batches()


def begins_earliest(
    boundary: Boundary, partitions: frozenset[TopicPartition]
) -> frozenset[TopicPartition]:
    """Return the partitions from which the query wants every existing record."""
    if boundary.everywhere is not None:
        return partitions if boundary.everywhere == EARLIEST else frozenset()
    return frozenset(each for each, offset in boundary.offsets.items() if offset == EARLIEST)
