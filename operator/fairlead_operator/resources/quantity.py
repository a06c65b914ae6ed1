"""Amounts as Kubernetes writes them, such as `500m` and `10Gi`, as exact numbers."""

import re
from fractions import Fraction
from typing import Final

_FACTORS: Final[dict[str, Fraction]] = {
    **{
        name: Fraction(1024) ** power
        for power, name in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)
    },
    **{name: Fraction(1000) ** power for power, name in enumerate("kMGTPE", 1)},
    **{name: Fraction(1, 1000) ** power for power, name in enumerate("mun", 1)},
    "": Fraction(1),
}
# Bounded, because any text may be tested: a number with a nine-digit exponent, which a hash may
# look like, has a billion digits.
_AMOUNT: Final = re.compile(
    r"(?P<number>[+-]?([0-9]{1,32}(\.[0-9]{0,32})?|\.[0-9]{1,32}))"
    rf"([eE](?P<exponent>[+-]?[0-9]{{1,2}})|(?P<suffix>{'|'.join(_FACTORS)}))"
)


def quantity_value(text: str) -> Fraction:
    """Return the number that an amount stands for; ValueError if it is no amount."""
    found = _AMOUNT.fullmatch(text)
    if found is None:
        raise ValueError(f"no amount of Kubernetes: {text[:64]!r}")
    number = Fraction(found["number"])
    if found["exponent"] is not None:
        return number * Fraction(10) ** int(found["exponent"])
    return number * _FACTORS[found["suffix"]]
