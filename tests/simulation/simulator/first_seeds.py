"""The seeds with which the search for one that catches a mutant begins."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

LIST: Final = Path(__file__).parents[1] / "first_seeds.txt"
WORTH_LISTING: Final = 5
"""Fewer seeds than this take only a second or two."""


def read_first_seeds() -> dict[str, int]:
    """Return the listed seeds by the names of their mutants."""
    lines = [line for line in LIST.read_text().splitlines() if not line.startswith("#")]
    return {name: int(seed) for name, seed in (line.split() for line in lines)}


FIRST_SEEDS: Final = read_first_seeds()


def seeds_to_try(mutant: str, count: int) -> Iterator[int]:
    """Yield each of the first `count` seeds once, and the listed one before all others."""
    first = FIRST_SEEDS.get(mutant, 0)
    yield first
    yield from (seed for seed in range(count) if seed != first)
