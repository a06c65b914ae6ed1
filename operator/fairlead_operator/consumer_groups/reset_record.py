"""The state of a reset of offsets, as the resource's status records it. Pure.

The record is written before any action. A new operator knows nothing else.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from fairlead_operator.conditions import api_time, shortened
from fairlead_operator.consumer_groups.group_sight import Place
from fairlead_operator.resources.consumer_group import PAST_RESETS_MAX, ResetPhase

FINAL: Final = ("Done", "Failed")


@dataclass(frozen=True, slots=True)
class ResetRecord:
    """One reset; `targets` and `before` are set from the phase Committing on."""

    id: str
    phase: ResetPhase
    at: str
    """Since when it has been in this phase, in the API's format of times."""
    reason: str = ""
    message: str = ""
    targets: Mapping[Place, int] = field(default_factory=dict)
    before: Mapping[Place, int] = field(default_factory=dict)
    """The earlier committed offsets of those partitions; partitions without an offset are
    missing."""

    @property
    def is_over(self) -> bool:
        """Whether nothing more will be done about it."""
        return self.phase in FINAL

    def turned(
        self, phase: ResetPhase, now: datetime, message: str = "", reason: str = ""
    ) -> "ResetRecord":
        """Return the record in another phase."""
        return replace(self, phase=phase, at=api_time(now), message=message, reason=reason)


def read_reset_record(status: Mapping[str, Any]) -> ResetRecord | None:
    """Read the record in a status, which only we write."""
    entry = status.get("lastReset")
    if not entry:
        return None
    topics = entry.get("topics") or ()
    return ResetRecord(
        id=str(entry["id"]),
        phase=entry["phase"],
        at=str(entry["at"]),
        reason=str(entry.get("reason") or ""),
        message=str(entry.get("message") or ""),
        targets=dict(_offsets(topics, "offsets")),
        before=dict(_offsets(topics, "before")),
    )


def _offsets(topics: Iterable[Mapping[str, Any]], which: str) -> Iterable[tuple[Place, int]]:
    for topic in topics:
        for pair in filter(None, str(topic.get(which) or "").split(",")):
            partition, offset = pair.split(":")
            yield (str(topic["name"]), int(partition)), int(offset)


def build_reset_status(record: ResetRecord) -> dict[str, Any]:
    """Return the status' entry about a reset."""
    status: dict[str, Any] = {"id": record.id, "phase": record.phase, "at": record.at}
    if record.reason:
        status["reason"] = record.reason
    if record.message:
        status["message"] = shortened(record.message)
    if record.targets:
        status["partitions"] = len(record.targets)
        names = sorted({topic for topic, _ in record.targets})
        offsets, before = _texts(record.targets), _texts(record.before)
        status["topics"] = [
            {"name": name, "offsets": offsets[name], "before": before.get(name, "")}
            for name in names
        ]
    return status


def _texts(offsets: Mapping[Place, int]) -> dict[str, str]:
    by_topic: dict[str, list[str]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        by_topic.setdefault(topic, []).append(f"{partition}:{offset}")
    return {topic: ",".join(pairs) for topic, pairs in by_topic.items()}


def past_resets(status: Mapping[str, Any], record: ResetRecord | None) -> list[str]:
    """Return the ids that are over, including this one if it is; the oldest are dropped first."""
    known = [str(each) for each in status.get("pastResets") or ()]
    if record is not None and record.is_over and record.id not in known:
        known.append(record.id)
    return known[-PAST_RESETS_MAX:]
