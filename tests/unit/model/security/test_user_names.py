"""Names that users can have, and names that nobody can have."""

from __future__ import annotations

import pytest

from fairlead_model.security.user_names import is_user_name


@pytest.mark.parametrize(
    "name",
    [
        "alice",
        " a b ",
        "CN=a,O=b",
        "**",
        "Jürgen",
        # An ideographic space, a space that breaks no line, a joiner, a soft hyphen.
        "山田\u3000太郎",
        "a\u00a0b",
        "a\u200cb",
        "a\u00adb",
        # Private, and of no Unicode yet.
        "\ue000",
        "\U000e1234",
    ],
)
def test_a_name_may_have_any_character_that_controls_nothing(name: str) -> None:
    assert is_user_name(name)


@pytest.mark.parametrize(
    "name", ["", "*", "a\tb", "a\nb", "\0", "a\x7fb", "a\x85b", "a\u2028b", "a\u2029b", "a\ud800b"]
)
def test_a_name_that_would_end_a_line_or_mean_everybody_is_none(name: str) -> None:
    assert not is_user_name(name)
