"""Trees of znodes, in memory and on a server; tests give the data of each path."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_cli.zookeeper.tree import Znode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kazoo.client import KazooClient


def as_tree(data: Mapping[str, bytes]) -> dict[str, Znode]:
    """Return znodes with their parents, as a session reads them."""
    children: dict[str, set[str]] = {}
    for path in data:
        parts = path.split("/")
        for end in range(len(parts) - 1, 0, -1):
            children.setdefault("/".join(parts[:end]), set()).add(parts[end])
    return {
        path: Znode(data.get(path, b""), tuple(children.get(path, ())))
        for path in data.keys() | children.keys()
    }


def put_tree(client: KazooClient, data: Mapping[str, bytes], *, ephemeral: bool = False) -> None:
    """Create the znodes with their parents."""
    for path, text in data.items():
        if client.exists(path):
            client.set(path, text)
        else:
            client.create(path, text, makepath=True, ephemeral=ephemeral)


def read_whole(client: KazooClient, root: str = "/") -> dict[str, bytes]:
    """Return all that is below a znode."""
    found = {root: client.get(root)[0]}
    for child in client.get_children(root):
        found |= read_whole(client, f"{root.rstrip('/')}/{child}")
    return found
