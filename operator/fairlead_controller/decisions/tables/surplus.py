"""Fields of lines that this release does not know, kept for the one that does. Pure.

A newer release may have written them before it was rolled back. Code that rewrites such a line
keeps them (R29); they are removed with the line.
"""

from collections.abc import Mapping
from typing import Any

from fairlead_controller.decisions.tables import lines
from fairlead_controller.decisions.tables.stored_table import line_bytes


class Surplus:
    """Unknown fields, by the key of their line. Filled while tables are loaded."""

    def __init__(self) -> None:
        self._fields: dict[str, Mapping[str, Any]] = {}

    def __len__(self) -> int:
        return len(self._fields)

    def note(self, key: str, fields: Mapping[str, Any]) -> int:
        """Keep the unknown fields of a line; give the bytes that they take of its table."""
        self._fields[key] = fields
        return _bytes(fields)

    def added_to(self, key: str, line: str | None) -> str | None:
        """Give a line of this release with the unknown fields of the line that it replaces."""
        if not self._fields or line is None:
            return line
        fields = self._fields.get(key)
        return line if fields is None else lines.dump_line({**lines.read_line(line), **fields})

    def forget(self, key: str) -> int:
        """Let go of the fields of a line that is removed; give the bytes that they took."""
        fields = self._fields.pop(key, None)
        return 0 if fields is None else _bytes(fields)


def _bytes(fields: Mapping[str, Any]) -> int:
    return line_bytes("", lines.dump_line(dict(fields)))
