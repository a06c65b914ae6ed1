"""The verdict on an output: each expected record once, in order, and nothing else.

Pure. It shares no code with the brokers, the clients or the applications. Its input was read by a
plain consumer, or from the brokers' files (`segment_files.py`).
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from workload import DOOMED, Values


class Found(NamedTuple):
    """A record as a reader received it."""

    partition: int
    offset: int
    key: bytes
    value: bytes


@dataclass
class Findings:
    """Everything that is wrong; the output is right if all lists are empty."""

    lost: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    """Records that no application should have written: a wrong copy, an unknown key."""
    misplaced: list[str] = field(default_factory=list)
    """Out of order within its key, or one key in two partitions."""
    changed: list[str] = field(default_factory=list)
    """Differences between two readers, or between a reader and the files."""

    def __bool__(self) -> bool:
        return any(vars(self).values())

    def __str__(self) -> str:
        parts = [
            f"{len(each)} {name}: {', '.join(each[:3])}"
            for name, each in vars(self).items()
            if each
        ]
        return "; ".join(parts) or "nothing"


def check_output(expected: Values, found: Sequence[Found], findings: Findings) -> None:
    """Compare an output, sorted by partition and offset, with the expected values."""
    partition_of: dict[bytes, int] = {}
    values: Values = {}
    for partition, offset, key, value in found:
        place = f"{key.decode()}={value.decode()} at {partition}:{offset}"
        if value.startswith(DOOMED):
            findings.aborted.append(place)
            continue
        if partition_of.setdefault(key, partition) != partition:
            findings.misplaced.append(f"{place}, the key was in {partition_of[key]}")
        values.setdefault(key, []).append(value)
    for key in expected.keys() | values.keys():
        _check_key(key, expected.get(key, []), values.get(key, []), findings)


def _check_key(key: bytes, expected: list[bytes], values: list[bytes], findings: Findings) -> None:
    counts = Counter(values)
    known = set(expected)
    name = key.decode()
    findings.lost += [f"{name}={value.decode()}" for value in expected if not counts[value]]
    for value, count in counts.items():
        if value not in known:
            findings.foreign.append(f"{name}={value.decode()}")
        elif count > 1:
            findings.twice.append(f"{name}={value.decode()} {count} times")
    # Only the first of equal values counts here: a later one is reported as `twice`.
    ranks = {value: rank for rank, value in enumerate(expected)}
    order = [ranks[value] for value in dict.fromkeys(values) if value in ranks]
    for earlier, later in pairwise(order):
        if later < earlier:
            swapped = f"{name}={expected[later].decode()} after {expected[earlier].decode()}"
            findings.misplaced.append(swapped)


def compare(one: Sequence[Found], other: Sequence[Found], what: str, findings: Findings) -> None:
    """Note each record in which two readings of one output differ."""
    left = {(each.partition, each.offset): each for each in one}
    right = {(each.partition, each.offset): each for each in other}
    if len(left) != len(one) or len(right) != len(other):
        findings.changed.append(f"{what}: an offset was read twice")
    for place in sorted(left.keys() | right.keys()):
        if left.get(place) != right.get(place):
            findings.changed.append(f"{what}: {left.get(place)}, then {right.get(place)}")
