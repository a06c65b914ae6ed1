"""Sums up lines of the live log about single partitions. Pure.

A broker that dies or comes back changes hundreds of partitions at once. Controller and leaders log
a line for each (the controller for the first twenty of a decision). A few lines of one kind are
shown unchanged; more become one line with counts. The log files have all of them.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

SHOWN_SINGLY_MAX: Final = 3
TOPICS_NAMED_MAX: Final = 4
# A burst is shown when a poll finds no more of its lines, and after this many polls at the latest.
LOOKS_HELD_MAX: Final = 10
INFO: Final = "INFO"

# The text of `PartitionMove.sentence` of the controller, and the end of a long decision.
MOVE = re.compile(
    r"(?P<topic>\S+)-\d+: (?P<leader>(?:no )?leader [^;(]+)?(?:; )?"
    r"(?P<members>(?:isr|elr|last_known_elr) [^(]+)?\((?P<cause>[^()]*)\)"
)
MORE = re.compile(r"… and (?P<count>\d+) more partitions")
# Lines of brokers about single partitions, and the texts for many.
BROKER_LINES = (
    (
        re.compile(r"in-sync replicas of (?P<topic>\S+)-\d+: \[[\d, ]*\]"),
        "{count} partitions have other in-sync replicas: {topics}",
    ),
    (
        re.compile(r"coordinating (?P<groups>\d+) groups of (?P<topic>\S+)-\d+: .*"),
        "coordinating {groups} groups of {count} partitions: {topics}",
    ),
    (
        re.compile(r"no longer coordinating (?P<groups>\d+) groups of (?P<topic>\S+)-\d+"),
        "no longer coordinating {groups} groups of {count} partitions: {topics}",
    ),
    (
        re.compile(r"replica (?P<topic>\S+)-\d+ is deleted"),
        "{count} replicas are deleted: {topics}",
    ),
)


class LogLine(NamedTuple):
    """A message of the process `name`."""

    name: str
    level: str
    message: str


@dataclass(slots=True)
class Burst:
    """Lines of one process and one cause, while more may follow.

    The cause is the controller's, or for a broker's lines the text for many partitions.
    """

    lines: list[LogLine] = field(default_factory=list)
    topics: Counter[str] = field(default_factory=Counter)
    unnamed: int = 0
    """Partitions that the controller has counted but not named."""
    groups: int = 0
    """Consumer groups, if the lines count them."""
    changes: set[str] = field(default_factory=set)
    has_leaderless: bool = False
    looks: int = 0
    is_growing: bool = True


class PartitionDigest:
    """Holds lines about partitions back until their burst is over; others pass at once."""

    def __init__(self) -> None:
        self._bursts: dict[tuple[str, str], Burst] = {}
        self._last_cause: dict[str, str] = {}

    def take(self, lines: Iterable[LogLine]) -> list[LogLine]:
        """Take newly read lines; return the lines to show now."""
        shown = [line for line in lines if not self._hold(line)]
        ended = []
        for key, burst in self._bursts.items():
            burst.looks += 1
            if not burst.is_growing or burst.looks >= LOOKS_HELD_MAX:
                ended.append(key)
            burst.is_growing = False
        for key in ended:
            shown += sum_up(key, self._bursts.pop(key))
        return shown

    def settle(self) -> list[LogLine]:
        """Return all lines that are still held back."""
        bursts, self._bursts = self._bursts, {}
        return [line for key, burst in bursts.items() for line in sum_up(key, burst)]

    def _hold(self, line: LogLine) -> bool:
        if line.level != INFO:
            return False
        if (more := MORE.fullmatch(line.message)) is not None:
            burst = self._bursts.get((line.name, self._last_cause.get(line.name, "")))
            if burst is None:
                return False
            burst.unnamed += int(more["count"])
            burst.is_growing = True
            return True
        if (move := MOVE.match(line.message)) is not None:
            self._last_cause[line.name] = move["cause"]
            burst = self._extend(line, move["cause"], move["topic"])
            burst.changes |= {"leaders"} if move["leader"] else set()
            burst.has_leaderless |= (move["leader"] or "").startswith("no leader")
            burst.changes |= {"in-sync replicas"} if move["members"] else set()
            return True
        for pattern, template in BROKER_LINES:
            if (match := pattern.fullmatch(line.message)) is not None:
                burst = self._extend(line, template, match["topic"])
                burst.groups += int(match.groupdict().get("groups", 0))
                return True
        return False

    def _extend(self, line: LogLine, cause: str, topic: str) -> Burst:
        burst = self._bursts.setdefault((line.name, cause), Burst())
        burst.lines.append(line)
        burst.topics[topic] += 1
        burst.is_growing = True
        return burst


def sum_up(key: tuple[str, str], burst: Burst) -> list[LogLine]:
    """Return the lines themselves if they are few, else one line."""
    name, cause = key
    count = len(burst.lines) + burst.unnamed
    if count <= SHOWN_SINGLY_MAX:
        return burst.lines
    # If the controller has not named all partitions, only topics are known, not their counts.
    named = [
        topic if burst.unnamed else f"{topic} {share}"
        for topic, share in burst.topics.most_common(TOPICS_NAMED_MAX)
    ]
    if burst.unnamed or len(burst.topics) > TOPICS_NAMED_MAX:
        named.append("…")
    topics = ", ".join(named)
    if not burst.changes:
        message = cause.format(count=count, groups=burst.groups, topics=topics)
    else:
        what = " or ".join(sorted(burst.changes, reverse=True))
        message = f"{count} partitions have other {what} ({cause}): {topics}"
    if burst.has_leaderless:
        message += "; some have no leader now"
    return [LogLine(name, INFO, message)]
