"""Oldest and next offsets of partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_cli.client.connection import REQUEST_TIMEOUT_S, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterable

    from confluent_kafka.admin import AdminClient


def read_ends(admin: AdminClient, topic: str, partitions: list[int]) -> dict[int, tuple[int, int]]:
    """(log start offset, high watermark) by partition; all of them in two requests a broker.

    Only partitions that have a leader may be asked for: the others would never answer.
    """
    ends = read_ends_of(admin, [(topic, partition) for partition in partitions])
    return {partition: pair for (_, partition), pair in ends.items()}


def read_ends_of(
    admin: AdminClient, places: Iterable[tuple[str, int]]
) -> dict[tuple[str, int], tuple[int, int]]:
    """Return the ends of partitions of several topics, by (topic, partition)."""
    from confluent_kafka.admin import OffsetSpec

    wanted = list(places)
    starts = list_offsets(admin, wanted, OffsetSpec.earliest())
    ends = list_offsets(admin, wanted, OffsetSpec.latest())
    return {place: (starts[place], ends[place]) for place in wanted}


def find_times(
    admin: AdminClient, topic: str, partitions: list[int], timestamp_ms: int
) -> dict[int, int]:
    """Return first offset at or after a time, -1 where every record is older."""
    found = find_times_of(admin, [(topic, partition) for partition in partitions], timestamp_ms)
    return {partition: offset for (_, partition), offset in found.items()}


def find_times_of(
    admin: AdminClient, places: Iterable[tuple[str, int]], timestamp_ms: int
) -> dict[tuple[str, int], int]:
    """Return the first offsets of a time in partitions of several topics."""
    from confluent_kafka.admin import OffsetSpec

    return list_offsets(admin, list(places), OffsetSpec.for_timestamp(timestamp_ms))


def list_offsets(
    admin: AdminClient, places: list[tuple[str, int]], spec: object
) -> dict[tuple[str, int], int]:
    """Make one ListOffsets call."""
    from confluent_kafka import TopicPartition

    if not places:
        return {}
    request = {TopicPartition(topic, partition): spec for topic, partition in places}
    futures = admin.list_offsets(request, request_timeout=REQUEST_TIMEOUT_S)
    return {
        (str(at.topic), int(at.partition)): int(
            wait_for(future, f"cannot read the offsets of topic '{at.topic}'").offset
        )
        for at, future in futures.items()
    }
