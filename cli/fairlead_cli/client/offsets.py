"""Oldest and next offsets of partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_cli.client.connection import REQUEST_TIMEOUT_S, wait_for

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient


def read_ends(admin: AdminClient, topic: str, partitions: list[int]) -> dict[int, tuple[int, int]]:
    """(log start offset, high watermark) by partition; all of them in two requests a broker.

    Only partitions that have a leader may be asked for: the others would never answer.
    """
    from confluent_kafka.admin import OffsetSpec

    starts = list_offsets(admin, topic, dict.fromkeys(partitions, OffsetSpec.earliest()))
    ends = list_offsets(admin, topic, dict.fromkeys(partitions, OffsetSpec.latest()))
    return {partition: (starts[partition], ends[partition]) for partition in partitions}


def find_times(
    admin: AdminClient, topic: str, partitions: list[int], timestamp_ms: int
) -> dict[int, int]:
    """First offset at or after a time, -1 where every record is older."""
    from confluent_kafka.admin import OffsetSpec

    spec = OffsetSpec.for_timestamp(timestamp_ms)
    return list_offsets(admin, topic, dict.fromkeys(partitions, spec))


def list_offsets(admin: AdminClient, topic: str, specs: dict[int, object]) -> dict[int, int]:
    """One ListOffsets call."""
    from confluent_kafka import TopicPartition

    if not specs:
        return {}
    request = {TopicPartition(topic, partition): spec for partition, spec in specs.items()}
    futures = admin.list_offsets(request, request_timeout=REQUEST_TIMEOUT_S)
    what = f"cannot read the offsets of topic '{topic}'"
    return {int(at.partition): int(wait_for(f, what).offset) for at, f in futures.items()}
