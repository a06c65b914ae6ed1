"""Where --from begins."""

import pytest

from fairlead_cli.records.start import (
    FromBeginning,
    FromEnd,
    FromOffset,
    FromTime,
    Start,
    parse_start,
)

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("beginning", FromBeginning()),
        ("end", FromEnd()),
        ("0", FromOffset(0)),
        ("12345678901", FromOffset(12_345_678_901)),
        ("@1357034400000", FromTime(1_357_034_400_000)),
        ("2013-01-01T10:00:00Z", FromTime(1_357_034_400_000)),
        ("2013-01-01T10:00+00:00", FromTime(1_357_034_400_000)),
        ("15m", FromTime(NOW_MS - 900_000)),
        ("7d", FromTime(NOW_MS - 604_800_000)),
        # What no timestamp can be is moved to the nearest; -1 would ask for the end of the log.
        ("99999999999999999999d", FromTime(0)),
        ("1969-12-31T23:59:59.999Z", FromTime(0)),
        ("@99999999999999999999", FromTime(2**63 - 1)),
    ],
)
def test_a_start_is_understood(text: str, start: Start) -> None:
    assert parse_start(text, now_ms=NOW_MS) == start


@pytest.mark.parametrize("text", ["", "start", "-1", "1.5", "@", "@x", "15 m", "2013-13-01"])
def test_anything_else_lists_what_is_understood(text: str) -> None:
    with pytest.raises(ValueError, match="is not beginning, end, an offset, a time"):
        parse_start(text, now_ms=NOW_MS)
