"""The target of `group reset`: exactly one of seven forms."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from fairlead_cli.output import format_count, format_moment
from fairlead_cli.records.start import AGO, UNIT_MS, within_timestamps

# ISO 8601, as in Kafka's own tool: P1DT2H30M. Months and years have no fixed length.
DURATION = re.compile(
    r"^P(?:(?P<w>\d+)W)?(?:(?P<d>\d+)D)?(?:T(?:(?P<h>\d+)H)?(?:(?P<m>\d+)M)?(?:(?P<s>\d+)S)?)?$"
)
DURATION_MS = UNIT_MS | {"w": 7 * UNIT_MS["d"]}


@dataclass(frozen=True, slots=True)
class ToEarliest:
    """The oldest record in the log."""


@dataclass(frozen=True, slots=True)
class ToLatest:
    """The log end: only records that are written from now on."""


@dataclass(frozen=True, slots=True)
class ToCurrent:
    """The present offset, moved into the log if it is outside."""


@dataclass(frozen=True, slots=True)
class ToOffset:
    """The same offset for all partitions."""

    offset: int


@dataclass(frozen=True, slots=True)
class ShiftBy:
    """A number of records forward or, if negative, back."""

    count: int


@dataclass(frozen=True, slots=True)
class ToTime:
    """The first record that is not older than a time."""

    timestamp_ms: int


Target = ToEarliest | ToLatest | ToCurrent | ToOffset | ShiftBy | ToTime


def parse_datetime(text: str) -> ToTime:
    """Read ISO 8601, local time without a zone; ValueError names the valid forms."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"'{text}' is not a time such as 2026-03-01T03:00, 2026-03-01T03:00:00.250Z or "
            "2026-03-01T03:00+02:00 (local unless it has a zone)"
        ) from None
    return ToTime(within_timestamps(int(moment.timestamp() * 1000)))


def parse_duration(text: str, *, now_ms: int) -> ToTime:
    """Read an age, `15m` or ISO 8601 `PT15M`; ValueError names the valid forms."""
    if ago := AGO.match(text):
        return ToTime(within_timestamps(now_ms - int(ago[1]) * UNIT_MS[ago[2]]))
    found = DURATION.match(text.upper())
    parts = {} if found is None else {k: int(v) for k, v in found.groupdict().items() if v}
    if not parts:
        raise ValueError(f"'{text}' is not an age such as 30s, 15m, 2h, 7d, PT15M or P1DT2H")
    age_ms = sum(count * DURATION_MS[unit] for unit, count in parts.items())
    return ToTime(within_timestamps(now_ms - age_ms))


def describe_target(target: Target) -> str:
    """Return the target in words that fit after 'move it'."""
    match target:
        case ToEarliest():
            return "to the log start"
        case ToLatest():
            return "to the log end"
        case ToCurrent():
            return "into the log"
        case ToOffset(offset):
            return f"to offset {offset}"
        case ShiftBy(count):
            way = "forward" if count > 0 else "back"
            return f"{format_count(abs(count), 'record')} {way}"
        case ToTime(timestamp_ms):
            return f"to {format_moment(timestamp_ms)}"
