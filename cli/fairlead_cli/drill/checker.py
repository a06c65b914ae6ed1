"""Compares what a drill sent with what a reader found. Pure, and linear in the records.

lost         acknowledged, but not found
duplicated   found more than once
reordered    after a record of the same key that was sent later
misplaced    in another partition, or at another offset than the acknowledgement named
foreign      never sent, or damaged

Records that were never acknowledged may be found or not, but at most once, and in order.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fairlead_cli.drill.history import FoundRecord, History, KeyHistory

EXAMPLES_MAX = 20
NOT_FOUND = -1


@dataclass(slots=True)
class Findings:
    """Counts of each problem, and the first few cases in words."""

    sent: int = 0
    acknowledged: int = 0
    found: int = 0
    lost: int = 0
    duplicated: int = 0
    reordered: int = 0
    misplaced: int = 0
    foreign: int = 0
    examples: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Whether there is no problem at all."""
        return not (
            self.lost or self.duplicated or self.reordered or self.misplaced or self.foreign
        )

    def note(self, text: str) -> None:
        """Add a case to the report, unless it has enough."""
        if len(self.examples) < EXAMPLES_MAX:
            self.examples.append(text)


@dataclass(slots=True)
class _FoundKey:
    """The records of one key that the reader has found so far."""

    history: KeyHistory
    offsets: array[int]
    highest: int = -1


def check(history: History, records: Iterable[FoundRecord]) -> Findings:
    """Compare; `records` come in the order of their offsets within each partition."""
    findings = Findings(sent=history.sent, acknowledged=history.acknowledged)
    keys = {
        name: _FoundKey(key, array("q", [NOT_FOUND]) * len(key.offsets))
        for name, key in history.keys.items()
    }
    for record in records:
        findings.found += 1
        key = keys.get(record.key)
        if key is None or not 0 <= record.sequence < len(key.offsets):
            findings.foreign += 1
            findings.note(f"{describe(record)} was never sent")
        else:
            _check_record(record, key, findings)
    for key in keys.values():
        _check_missing(key, findings)
    return findings


def _check_record(record: FoundRecord, key: _FoundKey, findings: Findings) -> None:
    first = key.offsets[record.sequence]
    if first != NOT_FOUND:
        findings.duplicated += 1
        findings.note(f"{describe(record)} is also at offset {first}")
        return
    key.offsets[record.sequence] = record.offset
    if record.sequence < key.highest:
        findings.reordered += 1
        findings.note(f"{describe(record)} comes behind number {key.highest}")
    key.highest = max(key.highest, record.sequence)
    promised = key.history.offsets[record.sequence]
    if record.partition != key.history.partition:
        findings.misplaced += 1
        findings.note(f"{describe(record)} was sent to partition {key.history.partition}")
    elif promised >= 0 and promised != record.offset:
        findings.misplaced += 1
        findings.note(f"{describe(record)} was acknowledged at offset {promised}")


def _check_missing(key: _FoundKey, findings: Findings) -> None:
    for sequence, offset in enumerate(key.offsets):
        if offset == NOT_FOUND and key.history.is_acknowledged(sequence):
            findings.lost += 1
            findings.note(
                f"partition {key.history.partition}: {key.history.key} number {sequence} was "
                f"acknowledged at offset {key.history.offsets[sequence]} and is not there"
            )


def describe(record: FoundRecord) -> str:
    """Return the place of a record, and its key and number."""
    return (
        f"partition {record.partition} offset {record.offset}: "
        f"{record.key} number {record.sequence}"
    )
