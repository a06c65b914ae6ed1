"""Amounts as Kubernetes writes them, such as `500m` and `10Gi`, as exact numbers."""

from fractions import Fraction
from typing import Final

_FACTORS: Final[dict[str, Fraction]] = {
    **{
        name: Fraction(1024) ** power
        for power, name in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi"), 1)
    },
    **{name: Fraction(1000) ** power for power, name in enumerate("kMGTP", 1)},
    "m": Fraction(1, 1000),
}


def quantity_value(text: str) -> Fraction:
    """Return the number that an amount stands for; ValueError where it is none."""
    for suffix, factor in _FACTORS.items():
        if text.endswith(suffix):
            return Fraction(text[: -len(suffix)]) * factor
    return Fraction(text)
