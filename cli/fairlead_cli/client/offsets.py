"""Log start offsets and high watermarks of partitions."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from fairlead_cli.client.connection import REQUEST_TIMEOUT_S, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterable

    from confluent_kafka.admin import AdminClient

LEADER_PATIENCE_S: Final = 5.0
LEADER_POLL_S: Final = 0.1


def read_ends(admin: AdminClient, topic: str, partitions: list[int]) -> dict[int, tuple[int, int]]:
    """Return (log start offset, high watermark) by partition, with two requests to each broker.

    The partitions must have a leader: there would be no answer for the others.
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
    """Return the first offset at or after a time; -1 if every record is older."""
    found = find_times_of(admin, [(topic, partition) for partition in partitions], timestamp_ms)
    return {partition: offset for (_, partition), offset in found.items()}


def find_times_of(
    admin: AdminClient, places: Iterable[tuple[str, int]], timestamp_ms: int
) -> dict[tuple[str, int], int]:
    """Return the first offset at or after a time, for partitions of several topics."""
    from confluent_kafka.admin import OffsetSpec

    return list_offsets(admin, list(places), OffsetSpec.for_timestamp(timestamp_ms))


def list_offsets(
    admin: AdminClient, places: list[tuple[str, int]], spec: object
) -> dict[tuple[str, int], int]:
    """Return the results of ListOffsets, by (topic, partition).

    If a leader has just moved, librdkafka asks the previous leader and returns its refusal. The
    request for these partitions is repeated for at most `LEADER_PATIENCE_S`.
    """
    found: dict[tuple[str, int], int] = {}
    deadline_s: float | None = None
    while asked := [place for place in places if place not in found]:
        is_last = deadline_s is not None and time.monotonic() > deadline_s
        found |= _ask_once(admin, asked, spec, is_last=is_last)
        # From the first answer on: a slow broker may take longer for it than all the rest.
        deadline_s = deadline_s or time.monotonic() + LEADER_PATIENCE_S
        if not found.keys() >= set(places):
            time.sleep(LEADER_POLL_S)
    return found


def _ask_once(
    admin: AdminClient, places: list[tuple[str, int]], spec: object, *, is_last: bool
) -> dict[tuple[str, int], int]:
    """Make one ListOffsets call; unless it is the last, leave out partitions that have moved."""
    from confluent_kafka import TopicPartition

    request = {TopicPartition(topic, partition): spec for topic, partition in places}
    futures = admin.list_offsets(request, request_timeout=REQUEST_TIMEOUT_S)
    return {
        (str(at.topic), int(at.partition)): int(
            wait_for(future, f"cannot read the offsets of topic '{at.topic}'").offset
        )
        for at, future in futures.items()
        if is_last or not _has_moved(future.exception())
    }


def _has_moved(error: BaseException | None) -> bool:
    """Tell whether the broker that was asked does not lead the partition any more, or not yet."""
    from confluent_kafka import KafkaError, KafkaException

    return isinstance(error, KafkaException) and error.args[0].code() in (
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
    )
