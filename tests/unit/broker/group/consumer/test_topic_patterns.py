"""Regular expressions of subscriptions: what they match, and which are refused with what reason."""

from __future__ import annotations

import asyncio
import threading
from time import process_time
from typing import TYPE_CHECKING, Any

import pytest
from waiting import until

from fairlead_broker.group import pattern_resolution
from fairlead_broker.group.consumer.topic_patterns import (
    check_pattern,
    match_in_steps,
    match_topics,
)
from fairlead_broker.group.pattern_resolution import PatternResolution
from fairlead_broker.limits import TOPIC_PATTERN_LENGTH_MAX
from fairlead_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES = ["orders", "orders.eu", "orders_eu", "returns", "__consumer_offsets", "a" * 249]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("orders", {"orders"}),
        ("order", set()),
        ("^orders", {"orders"}),
        ("^orders$", {"orders"}),
        ("orders.*", {"orders", "orders.eu", "orders_eu"}),
        (r"orders\.eu", {"orders.eu"}),
        ("^orders|^returns", {"orders", "returns"}),
        ("(orders)[._](?P<where>eu)", {"orders.eu", "orders_eu"}),
        ("(?i)ORDERS", {"orders"}),
        (".*", set(NAMES)),
        ("__.*", {"__consumer_offsets"}),
        ("", set()),
        ("🐘", set()),
    ],
)
def test_the_whole_name_has_to_match(pattern: str, expected: set[str]) -> None:
    assert match_topics([pattern], NAMES) == {pattern: expected}


def test_all_patterns_of_a_group_are_matched_at_once() -> None:
    assert match_topics(["returns", "o.*s"], NAMES) == {"returns": {"returns"}, "o.*s": {"orders"}}


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("orders(", "missing ): orders("),
        ("[z-a]", "invalid character class range: z-a"),
        ("*", "no argument for repetition operator: *"),
        (r"(a)\1", r"invalid escape sequence: \1"),
        ("(?=a)", "invalid perl operator: (?="),
        ("a{1001}", "invalid repetition size: {1001}"),
        ("((a{100}){100}){100}", "invalid repetition size: {100}"),
        ("(.|..|...|....)*" * 900, "pattern too large"),
        ("a" * (TOPIC_PATTERN_LENGTH_MAX + 1), "16385 characters, 16384 fit"),
    ],
)
def test_what_cannot_be_matched_is_refused_with_the_reason(pattern: str, reason: str) -> None:
    with pytest.raises(KafkaError) as refused:
        check_pattern(pattern)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert reason in str(refused.value)
    assert len(str(refused.value)) < 600


def test_no_expression_takes_long() -> None:
    """Each of these takes Python's `re` more than a lifetime."""
    name = "ab" * 124
    for pattern in ("(a|b|ab)*c", "((a?b?)*)*c", "(a|b)*a" + "(a|b)" * 3270):
        check_pattern(pattern)
        before = process_time()
        match_topics([pattern], [name] * 10)
        assert process_time() - before < 0.1


def resolve(may_describe: object) -> object:
    return asyncio.run(
        PatternResolution().resolve(["orders.*", "r.*"], NAMES, may_describe)  # type: ignore[arg-type]
    )


def test_only_topics_that_may_be_described_are_left() -> None:
    """The authorizer lives on the loop, and is asked about nothing that does not match."""
    asked: list[tuple[str, bool]] = []

    def may_describe(name: str) -> bool:
        asked.append((name, threading.current_thread() is threading.main_thread()))
        return name != "orders.eu"

    assert resolve(may_describe) == {"orders.*": {"orders", "orders_eu"}, "r.*": {"returns"}}
    assert asked == [(name, True) for name in ("orders", "orders.eu", "orders_eu", "returns")]


def test_where_all_is_allowed_nobody_is_asked() -> None:
    expected = {"orders.*": {"orders", "orders.eu", "orders_eu"}, "r.*": {"returns"}}
    assert resolve(None) == expected


def test_the_loop_goes_on_and_one_group_is_resolved_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running: list[str] = []
    overlaps: list[list[str]] = []
    is_held = threading.Event()
    first_runs = threading.Event()

    def hold(patterns: list[str], *more: Any) -> Iterator[None]:
        running.extend(patterns)
        overlaps.append(list(running))
        first_runs.set()
        assert is_held.wait(10)
        running.remove(patterns[0])
        yield from match_in_steps(patterns, *more)

    monkeypatch.setattr(pattern_resolution, "match_in_steps", hold)

    async def two() -> None:
        resolution = PatternResolution()
        both = asyncio.gather(
            resolution.resolve(["orders"], NAMES, None), resolution.resolve(["r.*"], NAMES, None)
        )
        # Only a loop that is not held up comes to here.
        await until(first_runs.is_set)
        is_held.set()
        assert list(await both) == [{"orders": {"orders"}}, {"r.*": {"returns"}}]

    asyncio.run(two())
    assert overlaps == [["orders"], ["r.*"]]


def test_patterns_that_take_long_hold_up_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """One group may have 10,000 patterns, of which each name takes up to 0.1 ms."""
    monkeypatch.setattr(pattern_resolution, "RESOLVING_TURN_S", 0)
    names = [f"topic-{number}" for number in range(200)]
    slow = [f"topic-.*{number}" for number in range(3)]

    async def both() -> list[str]:
        resolution = PatternResolution()
        ended: list[str] = []

        async def resolve(patterns: list[str]) -> None:
            matched = await resolution.resolve(patterns, names, None)
            assert set(matched) == set(patterns)
            ended.append(patterns[0])

        await asyncio.gather(resolve(slow), resolve(["other"]))
        return ended

    assert asyncio.run(both()) == ["other", slow[0]]


def test_patterns_are_refused_and_known_without_any_topic() -> None:
    assert asyncio.run(PatternResolution().resolve(["a"], [], None)) == {"a": frozenset()}
    with pytest.raises(KafkaError):
        asyncio.run(PatternResolution().resolve(["("], [], None))
