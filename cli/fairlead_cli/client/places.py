"""Partitions of topics, and short texts for many of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fairlead_cli.errors import CliError
from fairlead_cli.output import format_count

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


class Place(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def format_places(places: Iterable[Place]) -> str:
    """Return `orders: 0-3, 7; payments: 1`: a member of a large group has hundreds."""
    by_topic: dict[str, list[int]] = {}
    for place in sorted(places):
        by_topic.setdefault(place.topic, []).append(place.partition)
    return "; ".join(f"{topic}: {format_ranges(ids)}" for topic, ids in by_topic.items())


def build_no_partition_error(topic: str, wanted: str, known: Collection[int]) -> CliError:
    """Return the error for partition numbers (`wanted`) that the topic does not have."""
    count = format_count(len(known), "partition")
    return CliError(
        f"topic '{topic}' has no partition {wanted}",
        hint=f"It has {count}: {format_ranges(sorted(known))}.",
    )


def format_ranges(numbers: list[int]) -> str:
    """Return `0-3, 7` for ascending numbers."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in ranges)
