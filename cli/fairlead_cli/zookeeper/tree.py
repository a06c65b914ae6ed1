"""Znodes that were read, for code that does not use a ZooKeeper client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Znode:
    """Data, names of the children, and the number that a conditional write compares.

    `unreadable` says why data and children are not known; None if they are.
    """

    data: bytes = b""
    children: tuple[str, ...] = ()
    version: int = 0
    unreadable: str | None = None


Tree = Mapping[str, Znode]
"""Znodes by path, without the chroot."""


class Skipped(NamedTuple):
    """What was not taken, where it stands, and why.

    `is_expected`: every tree of that age has such, and nobody misses it.
    """

    path: str
    reason: str
    is_expected: bool = False

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"

    def as_document(self) -> dict[str, object]:
        """Return its part of the JSON for scripts."""
        return {"path": self.path, "reason": self.reason, "expected": self.is_expected}


def children_of(tree: Tree, path: str) -> tuple[str, ...]:
    """Return the sorted names of a znode's children; none where there is no such znode."""
    znode = tree.get(path)
    return () if znode is None else tuple(sorted(znode.children))


def find_unreadable(tree: Tree) -> list[Skipped]:
    """List the znodes that the server did not give out."""
    return [
        Skipped(path, znode.unreadable)
        for path, znode in sorted(tree.items())
        if znode.unreadable is not None
    ]
