"""The start of `consume --from`: `beginning`, `end`, an offset, or a time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
# A timestamp is a signed number of 64 bits.
TIMESTAMP_MS_MAX = 2**63 - 1
AGO = re.compile(r"^(\d+)(s|m|h|d)$")


@dataclass(frozen=True, slots=True)
class FromBeginning:
    """The oldest record in the log."""


@dataclass(frozen=True, slots=True)
class FromEnd:
    """Only records that are written from now on."""


@dataclass(frozen=True, slots=True)
class FromOffset:
    """One offset for every partition that is read."""

    offset: int


@dataclass(frozen=True, slots=True)
class FromTime:
    """The first record that is not older than a time."""

    timestamp_ms: int


Start = FromBeginning | FromEnd | FromOffset | FromTime


def within_timestamps(timestamp_ms: int) -> int:
    """Return the nearest possible timestamp; -1 and -2 would mean the log's ends."""
    return min(max(timestamp_ms, 0), TIMESTAMP_MS_MAX)


def parse_start(text: str, *, now_ms: int) -> Start:
    """Parse the start; ValueError names the valid forms."""
    match text:
        case "beginning" | "earliest":
            return FromBeginning()
        case "end" | "latest":
            return FromEnd()
    if text.isdecimal():
        return FromOffset(int(text))
    if text.startswith("@") and text[1:].isdecimal():
        return FromTime(within_timestamps(int(text[1:])))
    if ago := AGO.match(text):
        return FromTime(within_timestamps(now_ms - int(ago[1]) * UNIT_MS[ago[2]]))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"'{text}' is not beginning, end, an offset, a time (2013-06-01T12:00, local unless "
            "it has a zone), @MILLISECONDS since 1970, or an age (30s, 15m, 2h, 7d)"
        ) from None
    return FromTime(within_timestamps(int(moment.timestamp() * 1000)))
