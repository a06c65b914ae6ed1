"""JSON from a user's file, with a limit of nesting."""

from __future__ import annotations

import json
from typing import Any, Final

NESTING_MAX: Final = 100
"""Far above any document of Fairlead; code that compares or prints a value can handle this."""


def parse_json(text: str | bytes) -> Any:
    """Return the value; ValueError if the text is no JSON, or is nested too deeply."""
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
