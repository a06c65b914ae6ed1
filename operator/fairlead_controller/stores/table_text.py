"""The lines of a table as one text, a line "KEY VALUE" each, in the order of creation. Pure.

Many small fields cost a server far more than a long one, and people can read the text, too.
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


def decode_lines(
    text: str, name: str, *, first: int = 1, is_secret: bool = False
) -> dict[str, str]:
    """Read the text of a table; StoreCorruptError if `encode_lines` would not write it.

    `name` is the table's name in the error, and `first` the number of its first line. Of a secret
    table the error shows nothing: it is logged, and a controller's page shows it to everybody.
    """
    lines: dict[str, str] = {}
    for number, record in enumerate(text.split("\n"), start=first):
        if not record:
            continue
        key, blank, line = record.partition(" ")
        if not key or not blank or key in lines:
            shown = "" if is_secret else f": {record[:80]!r}"
            raise StoreCorruptError(f"{name} is damaged in line {number}{shown}")
        lines[key] = line
    return lines
