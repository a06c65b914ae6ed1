"""Fields out of the bytes of a znode: what Kafka's releases wrote, and nothing that only looks so.

Releases differ in which keys there are, so a reader asks for those that it needs and ignores the
rest. Kafka 0.8 put its JSON together from texts: numbers may stand in quotes.
"""

from __future__ import annotations

import json
import re
from typing import Any

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
SHOWN_MAX = 40
# `str.isdecimal` is true for digits of other scripts, too.
DECIMAL = re.compile(r"[0-9]{1,19}")


class MalformedError(ValueError):
    """A znode that does not hold what its path promises; the message says what it holds."""


def read_text(data: bytes) -> str:
    """Decode UTF-8, without the white space that an editor leaves at the ends."""
    try:
        return data.decode("utf-8").strip()
    except UnicodeDecodeError:
        raise MalformedError(f"{shown(data)} is not UTF-8 text") from None


def read_object(data: bytes) -> dict[str, Any]:
    """Read a JSON object."""
    text = read_text(data)
    if not text:
        raise MalformedError("it is empty")
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise MalformedError(f"{shown(text)} is not JSON") from None
    return as_object(value)


def as_object(value: object) -> dict[str, Any]:
    """Require a JSON object."""
    if not isinstance(value, dict):
        raise MalformedError(f"expected a JSON object, got {shown(value)}")
    return value


def as_number(value: object, maximum: int) -> int:
    """Return a whole number that is not negative; it may stand in quotes."""
    if isinstance(value, str) and DECIMAL.fullmatch(value):
        value = int(value)
    if type(value) is not int or not 0 <= value <= maximum:
        raise MalformedError(f"{shown(value)} is not a whole number of 0 to {maximum}")
    return value


def as_partition(name: str) -> int:
    """Return the number of a partition from the name of a znode or of a field."""
    if DECIMAL.fullmatch(name) is None or (name[0] == "0" and name != "0"):
        raise MalformedError(f"{shown(name)} is not the number of a partition")
    return as_number(name, INT_MAX)


def as_broker_ids(value: object) -> tuple[int, ...]:
    """Return a list of broker ids, each of which may occur once."""
    if not isinstance(value, list):
        raise MalformedError(f"expected a list of brokers, got {shown(value)}")
    ids = tuple(as_number(each, INT_MAX) for each in value)
    if len(set(ids)) < len(ids):
        raise MalformedError(f"{shown(value)} names a broker twice")
    return ids


def shown(value: object) -> str:
    """Quote a value in a message: short, and without control characters."""
    text = repr(value)
    return text if len(text) <= SHOWN_MAX else f"{text[: SHOWN_MAX - 1]}…"
