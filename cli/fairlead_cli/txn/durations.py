"""Durations on the command line and in tables."""

from __future__ import annotations

import re
from typing import Any

import click

from fairlead_cli.options import INT64_MAX, parse_number
from fairlead_cli.records.start import UNIT_MS

_DURATION = re.compile(r"^([0-9]+)(ms|s|m|h|d)$")


class Duration(click.ParamType["int"]):
    """`500ms`, `30s`, `15m`, `2h` or `7d`; the value is in milliseconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        found = _DURATION.match(value)
        if found is None:
            self.fail(f"'{value}' is not like 500ms, 30s, 15m, 2h or 7d", param, ctx)
        number = parse_number(found[1], INT64_MAX)
        duration_ms = None if number is None else number * (UNIT_MS | {"ms": 1})[found[2]]
        if duration_ms is None or duration_ms > INT64_MAX:
            self.fail(f"'{value}' is longer than any transaction", param, ctx)
        return duration_ms


def format_duration(duration_ms: int) -> str:
    """Return `0.4 s`, `12 s`, `3 m 20 s`, `2 h 5 m`, `4 d 1 h`."""
    seconds = duration_ms / 1000
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days} d {hour} h"
    if hours:
        return f"{hours} h {minute} m"
    return f"{minutes} m {second} s" if minutes else f"{second} s"
