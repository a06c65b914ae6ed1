"""How many partitions a request names, for handlers that take so many of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sized


def count_named(partitions: Iterable[Sized]) -> int:
    """Return how many partitions there are, where those of each topic are given.

    A topic without any counts as one: a client may name half a million of those in a megabyte, and
    each gets its place in the answer.
    """
    return sum(len(each) or 1 for each in partitions)
