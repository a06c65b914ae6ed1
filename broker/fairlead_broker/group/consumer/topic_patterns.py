"""Regular expressions by which members subscribe: which topics they match (KIP-848)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairlead_broker.limits import TOPIC_PATTERN_BYTES_MAX, TOPIC_PATTERN_LENGTH_MAX
from fairlead_broker.patterns import compile_pattern

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from fairlead_broker.patterns import Pattern

_NAMES_PER_STEP: Final = 20


def _compile(pattern: str) -> Pattern:
    return compile_pattern(
        pattern, length_max=TOPIC_PATTERN_LENGTH_MAX, bytes_max=TOPIC_PATTERN_BYTES_MAX
    )


def check_pattern(pattern: str) -> None:
    """Raise INVALID_REGULAR_EXPRESSION with the reason unless topics can be matched by it."""
    _compile(pattern)


def match_topics(patterns: Iterable[str], names: Collection[str]) -> Mapping[str, frozenset[str]]:
    """Return the names that each pattern matches as a whole. KafkaError as `check_pattern`."""
    matched: dict[str, frozenset[str]] = {}
    for _ in match_in_steps(patterns, list(names), matched):
        pass
    return matched


def match_in_steps(
    patterns: Iterable[str], names: Sequence[str], matched: dict[str, frozenset[str]]
) -> Iterator[None]:
    """Do as `match_topics`, a few names in each step; a pattern is in `matched` once it is done.

    It takes a microsecond or two for each pattern and name, a hundred for some patterns, most of
    that without Python's lock: call it from a thread where names are many.
    """
    for pattern in patterns:
        matches = _compile(pattern).fullmatch
        found: list[str] = []
        for at in range(0, len(names), _NAMES_PER_STEP):
            some = names[at : at + _NAMES_PER_STEP]
            found += (name for name in some if matches(name) is not None)
            yield
        matched[pattern] = frozenset(found)
