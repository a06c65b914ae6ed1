"""Regular expressions by which members subscribe: which topics they match (KIP-848)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.limits import TOPIC_PATTERN_BYTES_MAX, TOPIC_PATTERN_LENGTH_MAX
from fairlead_broker.patterns import compile_pattern

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from fairlead_broker.patterns import Pattern


def _compile(pattern: str) -> Pattern:
    return compile_pattern(
        pattern, length_max=TOPIC_PATTERN_LENGTH_MAX, bytes_max=TOPIC_PATTERN_BYTES_MAX
    )


def check_pattern(pattern: str) -> None:
    """Raise INVALID_REGULAR_EXPRESSION with the reason unless topics can be matched by it."""
    _compile(pattern)


def match_topics(patterns: Iterable[str], names: Collection[str]) -> Mapping[str, frozenset[str]]:
    """Return the names that each pattern matches as a whole.

    It takes a microsecond or two for each pattern and name, most of that without Python's lock:
    call it from a thread where names are many. KafkaError as `check_pattern`.
    """
    matched = {}
    for pattern in patterns:
        matches = _compile(pattern).fullmatch
        matched[pattern] = frozenset(name for name in names if matches(name) is not None)
    return matched
