"""Convert the value of an option (earliest, a time, offsets) to an offset for each partition."""

from collections.abc import Collection

from fairlead_spark.cluster import Cluster, Topic
from fairlead_spark.errors import OptionError, SourceError
from fairlead_spark.offsets import (
    EARLIEST,
    LATEST,
    PartitionValues,
    TopicPartition,
    check_same_partitions,
)
from fairlead_spark.options import Boundary, SourceOptions, Subscription
from fairlead_spark.reading.pushed_filters import Narrowing


def find_partitions(
    subscription: Subscription, topics: dict[str, Topic]
) -> frozenset[TopicPartition]:
    """Return the partitions that a query reads now; OptionError for a named one that is missing."""
    missing = sorted(set(subscription.topics) - topics.keys())
    if missing:
        raise OptionError(
            f"topic {', '.join(missing)} does not exist: create it, or correct {subscription.text}"
        )
    existing = frozenset(
        TopicPartition(topic.name, partition)
        for topic in topics.values()
        for partition in topic.leaders
    )
    if not subscription.assigned:
        return existing
    absent = [each for each in subscription.assigned if each not in existing]
    if absent:
        raise OptionError(f"assign names {absent[0]}, which does not exist")
    return frozenset(subscription.assigned)


def resolve_start(
    cluster: Cluster, options: SourceOptions, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the first offset of each partition."""
    boundary = options.starting
    found = _resolve(cluster, options, boundary, partitions)
    late = sorted(each for each, offset in found.items() if offset < 0)
    if not late:
        return found
    if not options.is_latest_without_timestamp:
        where = late[0]
        raise SourceError(
            f"{boundary.option}: no record of {where} is that young; choose an earlier time, or "
            "set startingOffsetsByTimestampStrategy to latest"
        )
    return found | _sentinel(cluster, options, late, LATEST)


def check_start(options: SourceOptions, latest: PartitionValues) -> None:
    """Raise OptionError if a new query should begin at an offset that its log never had.

    The topic was created again, or the offset is wrong. An empty result would look like success.
    """
    asked = options.starting.offsets
    # `resolve_start` reports partitions that are not read.
    beyond = sorted(each for each, offset in asked.items() if offset > latest.get(each, offset))
    if beyond and options.fail_on_data_loss:
        where = beyond[0]
        raise OptionError(
            f"{options.starting.option} asks for {where} from offset {asked[where]}, its log ends "
            f"at {latest[where]}: correct it, or set failOnDataLoss to false to read what is there"
        )


def resolve_end(
    cluster: Cluster,
    options: SourceOptions,
    partitions: Collection[TopicPartition],
    latest: PartitionValues,
) -> dict[TopicPartition, int]:
    """Return the offset after the last one of each partition; the end of the log is `latest`.

    An offset that does not exist yet is refused, because a task would wait for it.
    """
    if options.ending.everywhere == LATEST:
        return dict(latest)
    found = _resolve(cluster, options, options.ending, partitions)
    # Only offsets in the option: others were looked up, and may be newer than `latest`.
    asked = options.ending.offsets
    beyond = sorted(each for each, offset in asked.items() if offset > latest[each])
    if beyond and options.fail_on_data_loss:
        where = beyond[0]
        raise OptionError(
            f"{options.ending.option} asks for {where} up to offset {asked[where]}, its log ends "
            f"at {latest[where]}: correct it, or set failOnDataLoss to false to read what is there"
        )
    return {
        each: latest[each] if offset < 0 else min(offset, latest[each])
        for each, offset in found.items()
    }


def narrow(
    cluster: Cluster,
    options: SourceOptions,
    narrowing: Narrowing,
    start: PartitionValues,
    until: PartitionValues,
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Return the starts and ends after filters.

    The ends must have been looked up before: a record that arrives now may match a time, and must
    be after the ends.
    """
    start, until = narrowing.narrow_start(start), narrowing.narrow_until(until)
    if narrowing.since_ms is None:
        return start, until
    first = _ask(cluster, options, dict.fromkeys(start, narrowing.since_ms))
    # -1: no record is so new.
    return {
        each: until[each] if first[each] < 0 else max(offset, first[each])
        for each, offset in start.items()
    }, until


def read_latest(
    cluster: Cluster, options: SourceOptions, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return each partition's end for this reader: the last stable offset if read_committed."""
    return _sentinel(cluster, options, partitions, LATEST)


def read_earliest(
    cluster: Cluster, options: SourceOptions, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the first offset of each partition."""
    return _sentinel(cluster, options, partitions, EARLIEST)


def _resolve(
    cluster: Cluster,
    options: SourceOptions,
    boundary: Boundary,
    partitions: Collection[TopicPartition],
) -> dict[TopicPartition, int]:
    if boundary.everywhere is not None:
        return _sentinel(cluster, options, partitions, boundary.everywhere)
    if boundary.timestamp_ms is not None:
        return _ask(cluster, options, dict.fromkeys(partitions, boundary.timestamp_ms))
    if boundary.timestamps_ms:
        check_same_partitions(boundary.timestamps_ms, set(partitions), option=boundary.option)
        return _ask(cluster, options, boundary.timestamps_ms)
    check_same_partitions(boundary.offsets, set(partitions), option=boundary.option)
    named = {each: offset for each, offset in boundary.offsets.items() if offset < 0}
    return dict(boundary.offsets) | _ask(cluster, options, named)


def _sentinel(
    cluster: Cluster,
    options: SourceOptions,
    partitions: Collection[TopicPartition],
    sentinel: int,
) -> dict[TopicPartition, int]:
    return _ask(cluster, options, dict.fromkeys(partitions, sentinel))


def _ask(
    cluster: Cluster, options: SourceOptions, times: PartitionValues
) -> dict[TopicPartition, int]:
    if not times:
        return {}
    return cluster.list_offsets(times, is_committed=options.client.is_read_committed)
