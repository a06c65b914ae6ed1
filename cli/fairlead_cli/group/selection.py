"""`--topic T`, `--topic T:0,2`: the partitions that a verb is for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from fairlead_cli.advice import cluster_arguments
from fairlead_cli.client.places import build_no_partition_error
from fairlead_cli.errors import CliError
from fairlead_cli.options import INT32_MAX, parse_numbers

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """A topic, and some of its partitions, or all (None)."""

    topic: str
    partitions: tuple[int, ...] | None


def parse_selections(texts: Iterable[str]) -> list[TopicSelection]:
    """Return one selection for each topic, which may be named twice. BadParameter if malformed."""
    chosen: dict[str, set[int] | None] = {}
    for text in texts:
        topic, separator, numbers = text.partition(":")
        wanted = parse_numbers(numbers, INT32_MAX) if separator else None
        if not topic or (separator and wanted is None):
            raise click.BadParameter(
                f"'{text}' is not TOPIC or TOPIC:PARTITION,PARTITION", param_hint="--topic"
            )
        known = chosen.get(topic, set())
        chosen[topic] = None if wanted is None or known is None else known | wanted
    return [
        TopicSelection(topic, None if numbers is None else tuple(sorted(numbers)))
        for topic, numbers in chosen.items()
    ]


def expand_selection(
    selection: TopicSelection, leaders: Mapping[int, int]
) -> list[tuple[str, int]]:
    """Return the partitions; CliError unless all exist and have a leader.

    `leaders`: the leader of each partition of the topic, -1 if there is none.
    """
    known = sorted(leaders)
    wanted = known if selection.partitions is None else list(selection.partitions)
    missing = [number for number in wanted if number not in leaders]
    if missing:
        raise build_no_partition_error(selection.topic, join(missing), known)
    offline = [number for number in wanted if leaders[number] < 0]
    if offline:
        raise CliError(
            f"partition {join(offline)} of topic '{selection.topic}' has no leader, "
            "so that nobody knows its offsets",
            hint=f"See which brokers run:  fairlead status{cluster_arguments()}\n"
            f"or name the other partitions: --topic {selection.topic}:0,1,…",
        )
    return [(selection.topic, number) for number in wanted]


def join(numbers: Iterable[int]) -> str:
    """Return `0, 2`."""
    return ", ".join(str(number) for number in numbers)
