"""The partitions that a consumer reads, and which of them it has read to the end."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click

from fairlead_cli.advice import cluster_arguments
from fairlead_cli.client.places import Place, build_no_partition_error
from fairlead_cli.errors import CliError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from confluent_kafka import Consumer

    from fairlead_cli.records.start import Start


# Members with a cooperative assignor get partitions only after others have given them up, which
# they learn from a heartbeat every 3 s.
IDLE_PATIENCE_S = 10.0


@dataclass(slots=True)
class Assignment:
    """The partitions that the group has assigned to this member.

    `places` is None until the group has assigned partitions. `changed_at` is a monotonic time:
    silence is counted from then, because no record can arrive earlier.
    """

    places: set[Place] | None = None
    ended: set[Place] = field(default_factory=set)
    changed_at: float = field(default_factory=time.monotonic)

    def add(self, places: Iterable[Place]) -> None:
        """Add partitions that are assigned to this member."""
        added = set(places)
        self.places = (self.places or set()) | added
        self.ended -= added
        self.changed_at = time.monotonic()

    def remove(self, places: Iterable[Place]) -> None:
        """Remove partitions that are not assigned to this member any more."""
        removed = set(places)
        self.places = (self.places or set()) - removed
        self.ended -= removed
        self.changed_at = time.monotonic()

    def is_at_end(self, now: float) -> bool:
        """Tell whether each partition was read to an end that it had at some moment.

        A member without partitions may get some in the next rebalance, so it waits for a while.
        """
        if not self.places:
            return self.places is not None and now - self.changed_at >= IDLE_PATIENCE_S
        return self.places <= self.ended


def choose_partitions(metadata: Any, topic: str, partition: int | None) -> list[int]:
    """Return the partitions to read; those without a leader are reported and left out."""
    known = sorted(metadata.partitions)
    if partition is not None and partition not in known:
        raise build_no_partition_error(topic, str(partition), known)
    chosen = known if partition is None else [partition]
    offline = [number for number in chosen if metadata.partitions[number].leader < 0]
    if offline and len(offline) == len(chosen):
        raise CliError(
            f"no partition of topic '{topic}' that was asked for has a leader",
            hint=f"See which brokers run:  fairlead status{cluster_arguments()}",
        )
    if offline:
        names = ", ".join(str(number) for number in offline)
        click.echo(f"Without a leader, not read: partition {names} of {topic}.", err=True)
    return [number for number in chosen if number not in offline]


def assign(consumer: Consumer, bootstrap: str, places: list[Place], start: Start) -> Assignment:
    """Assign partitions, at offsets that are determined before the first fetch.

    "End" means the present end: if the first fetch determined it, records written in between would
    be skipped.
    """
    from confluent_kafka import OFFSET_BEGINNING, TopicPartition

    from fairlead_cli.client.connection import build_admin
    from fairlead_cli.client.offsets import find_times_of, read_ends_of
    from fairlead_cli.records.start import FromBeginning, FromOffset, FromTime

    begins: dict[Place, int]
    if isinstance(start, FromBeginning):
        begins = dict.fromkeys(places, OFFSET_BEGINNING)
    else:
        admin = build_admin(bootstrap)
        ends = {Place(*at): pair for at, pair in read_ends_of(admin, places).items()}
        match start:
            case FromOffset(offset):
                begins = {place: clip_offset(place, offset, ends) for place in places}
            case FromTime(timestamp_ms):
                found = find_times_of(admin, places, timestamp_ms)
                begins = {at: found[at] if found[at] >= 0 else ends[at][1] for at in places}
            case _:
                begins = {place: end for place, (_, end) in ends.items()}
    consumer.assign([TopicPartition(*place, offset) for place, offset in begins.items()])
    return Assignment(set(places))


def clip_offset(place: Place, offset: int, ends: dict[Place, tuple[int, int]]) -> int:
    """Return the offset if the partition has it.

    With several partitions, one without the offset begins at its nearer end. With a single one,
    CliError.
    """
    first, end = ends[place]
    if first <= offset <= end:
        return offset
    if len(ends) > 1:
        return first if offset < first else end
    raise CliError(
        f"offset {offset} is not in partition {place.partition} of topic '{place.topic}'",
        hint=f"It holds offsets {first} to {end - 1}."
        if end > first
        else f"It is empty; the next record gets offset {end}.",
    )
