"""`fairlead log dump` shows bytes as `fairlead consume` does."""

import pytest

from fairlead_cli.log import show_cell


@pytest.mark.parametrize(
    ("cell", "shown"),
    [
        (None, "-"),
        (True, "yes"),
        (7, "7"),
        ("héllo".encode(), "héllo"),
        (memoryview(b"\xff\xfe"), "\\xff\\xfe"),
        (b"a\nb\x1b[2J", "a\\nb\\x1b[2J"),
        (b"it's", "it's"),
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ([("\x1b[2J", b"1"), ("é", None)], "\\x1b[2J=1,é=-"),
    ],
)
def test_a_cell_is_one_line_that_moves_no_cursor(cell: object, shown: str) -> None:
    assert show_cell(cell) == shown
