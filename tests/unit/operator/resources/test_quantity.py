"""Amounts as Kubernetes writes them."""

from fractions import Fraction

import pytest

from fairlead_operator.resources.quantity import quantity_value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("1", 1),
        ("-5", -5),
        ("1.5", Fraction(3, 2)),
        (".5", Fraction(1, 2)),
        ("500m", Fraction(1, 2)),
        ("250u", Fraction(1, 4000)),
        ("5n", Fraction(1, 200_000_000)),
        ("2k", 2000),
        ("10Gi", 10 * 2**30),
        ("1.5Ti", 3 * 2**39),
        ("1E", 10**18),
        ("1Ei", 2**60),
        ("12e6", 12_000_000),
        ("12E-3", Fraction(12, 1000)),
    ],
)
def test_what_an_amount_stands_for(text: str, value: Fraction) -> None:
    assert quantity_value(text) == value


@pytest.mark.parametrize(
    "text",
    [
        # Python would count to these for hours: a hash that happens to look like a number.
        *("7214e88301957426", "1e999999999", "1e-999999999", "1e100"),
        *("9" * 5000, "0." + "9" * 5000),
        *("", "G", "1 G", " 1", "1\n", "1/3", "1_000", "1Gib", "1KI", "e5", "1e", "0x10", "inf"),
    ],
)
def test_what_is_no_amount(text: str) -> None:
    with pytest.raises(ValueError, match="no amount"):
        quantity_value(text)
