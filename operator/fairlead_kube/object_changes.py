"""The differences between the known objects of a collection and a list or a watch event. Pure.

If an object was deleted and created again under its name, unnoticed, there are two changes: the
deletion of the old object and the creation of the new one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fairlead_kube.watch_stream import WatchEvent

ObjectKey = tuple[str, str]
"""Namespace (empty if the kind has none) and name."""


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """An object before and after; None if it did not exist, or no longer exists."""

    key: ObjectKey
    old: dict[str, Any] | None
    new: dict[str, Any] | None


def object_key(manifest: Mapping[str, Any]) -> ObjectKey:
    """Return the key of an object."""
    metadata = manifest["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def diff_listing(
    known: Mapping[ObjectKey, dict[str, Any]], listed: Iterable[dict[str, Any]]
) -> list[ObjectChange]:
    """Return what differs from `known`, deletions first."""
    current = {object_key(item): item for item in listed}
    changes = [ObjectChange(key, old, None) for key, old in known.items() if key not in current]
    for key, item in current.items():
        changes += _changes(key, known.get(key), item)
    return changes


def diff_event(known: Mapping[ObjectKey, dict[str, Any]], event: WatchEvent) -> list[ObjectChange]:
    """Return what a watch event changes; nothing for a bookmark or for a known version."""
    if event.type == "BOOKMARK":
        return []
    key = object_key(event.object)
    old = known.get(key)
    if event.type == "DELETED":
        return [] if old is None else [ObjectChange(key, old, None)]
    return _changes(key, old, event.object)


def _changes(key: ObjectKey, old: dict[str, Any] | None, new: dict[str, Any]) -> list[ObjectChange]:
    if old is None:
        return [ObjectChange(key, None, new)]
    before, after = old["metadata"], new["metadata"]
    if before["resourceVersion"] == after["resourceVersion"]:
        return []
    if before["uid"] != after["uid"]:
        return [ObjectChange(key, old, None), ObjectChange(key, None, new)]
    return [ObjectChange(key, old, new)]
