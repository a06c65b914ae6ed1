"""JSON of a file that somebody names, nested no deeper than what is read out of it can be."""

from __future__ import annotations

import json
from typing import Any, Final

NESTING_MAX: Final = 100
"""Far above what any document of ours has; whatever compares or prints a value stands this."""


def parse_json(text: str | bytes) -> Any:
    """Return the value; ValueError if it is no JSON, or nested too deeply."""
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    level = [value]
    for _ in range(NESTING_MAX):
        level = [child for each in level for child in _children(each)]
        if not level:
            return value
    raise ValueError("it is nested too deeply")


def _children(value: object) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
