"""Lengths of time on the command line and in tables."""

import click
import pytest

from fairlead_cli.txn.durations import Duration, format_duration


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [("500ms", 500), ("30s", 30_000), ("15m", 900_000), ("2h", 7_200_000), ("7d", 604_800_000)],
)
def test_a_unit_is_needed(text: str, duration_ms: int) -> None:
    assert Duration().convert(text, None, None) == duration_ms
    with pytest.raises(click.BadParameter, match="is not like 500ms"):
        Duration().convert(text.rstrip("smhd"), None, None)


def test_what_the_protocol_cannot_say_is_refused() -> None:
    with pytest.raises(click.BadParameter, match="is longer than any transaction"):
        Duration().convert("99999999999999d", None, None)


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [
        (449, "0.4 s"),
        (12_999, "12 s"),
        (200_000, "3 m 20 s"),
        (7_500_000, "2 h 5 m"),
        (349_200_000, "4 d 1 h"),
    ],
)
def test_two_units_at_most(duration_ms: int, text: str) -> None:
    assert format_duration(duration_ms) == text
