"""The lines of a table as one text, a line "KEY VALUE" each, in the order they were made. Pure.

Many small fields cost a server far more than one long one, and a person can read it all the same.
"""

from collections.abc import Mapping

from fairlead_controller.decisions.tables.stored_table import StoreCorruptError, StoreError


def encode_line(key: str, line: str) -> str:
    """Return a line of the text; StoreError if it could not be read back."""
    if not key or " " in key or "\n" in key or "\n" in line:
        raise StoreError(f"a table cannot hold the line {key!r}: {line[:80]!r}")
    return f"{key} {line}\n"


def encode_lines(lines: Mapping[str, str]) -> str:
    """Return the text of a table; StoreError if it could not be read back."""
    return "".join(encode_line(key, line) for key, line in lines.items())


def decode_lines(text: str, name: str, *, first: int = 1) -> dict[str, str]:
    """Read the text of a table; StoreCorruptError if it is not what `encode_lines` makes.

    `name` is what the error calls it, and `first` the number of its first line.
    """
    lines: dict[str, str] = {}
    for number, record in enumerate(text.split("\n"), start=first):
        if not record:
            continue
        key, blank, line = record.partition(" ")
        if not key or not blank or key in lines:
            raise StoreCorruptError(f"{name} is damaged in line {number}: {record[:80]!r}")
        lines[key] = line
    return lines
