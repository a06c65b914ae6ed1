"""Consumer groups and the store of resources in memory, with faults on request."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from fairlead_kube.errors import ApiError
from fairlead_operator.consumer_groups.group_client import (
    BrokersUnreachableError,
    CommitOutcome,
    Committed,
    GroupBusy,
    LogOffsets,
    LogPoint,
)
from fairlead_operator.consumer_groups.group_sight import (
    DEAD,
    EMPTY,
    GroupProblem,
    GroupSight,
    Member,
    Place,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence


class CrashError(BaseException):
    """The operator's process ends here; nothing in it may catch this."""


@dataclass
class FakeGroup:
    members: list[Member] = field(default_factory=list)
    committed: dict[Place, int] = field(default_factory=dict)

    def sight(self, ends: Mapping[Place, int]) -> GroupSight:
        known = self.members or self.committed
        return GroupSight(
            state="Stable" if self.members else EMPTY if known else DEAD,
            protocol="Classic",
            assignor="range" if self.members else "",
            coordinator=0,
            members=tuple(self.members),
            committed=dict(self.committed),
            log_ends={place: ends[place] for place in self.committed if place in ends},
        )


class FakeGroups:
    """Groups of a cluster with logs from `starts` to `ends`, as a `GroupClient`."""

    def __init__(self, starts: Mapping[Place, int], ends: Mapping[Place, int]) -> None:
        self.starts, self.ends = dict(starts), dict(ends)
        self.at_time: dict[Place, int] = {}
        self.groups: dict[str, FakeGroup] = {}
        self.problems: dict[str, str] = {}
        self.is_reachable = True
        self.is_closed = False
        self.commits: list[dict[Place, int]] = []
        """Commits that were accepted and changed something."""
        self.looked: list[list[str]] = []
        self.before_call: Callable[[str], None] = lambda _name: None
        self.after_call: Callable[[str], None] = lambda _name: None

    def group(self, group_id: str) -> FakeGroup:
        return self.groups.setdefault(group_id, FakeGroup())

    def _begin(self, name: str) -> None:
        self.before_call(name)
        if not self.is_reachable:
            raise BrokersUnreachableError("all brokers are down")

    async def look(self, group_ids: Sequence[str]) -> dict[str, GroupSight | GroupProblem]:
        self._begin("look")
        self.looked.append(list(group_ids))
        return {
            group_id: GroupProblem(self.problems[group_id])
            if group_id in self.problems
            else self.groups.get(group_id, FakeGroup()).sight(self.ends)
            for group_id in group_ids
        }

    async def partition_counts(self, topics: Collection[str]) -> dict[str, int]:
        self._begin("partition_counts")
        counts = {name: sum(topic == name for topic, _ in self.ends) for name in topics}
        return {name: count for name, count in counts.items() if count}

    async def log_offsets(self, places: Collection[Place], point: LogPoint | int) -> LogOffsets:
        self._begin("log_offsets")
        known = {LogPoint.START: self.starts, LogPoint.END: self.ends}
        source = known[point] if isinstance(point, LogPoint) else self.at_time
        exist = [place for place in places if place in self.ends]
        return LogOffsets(
            {place: source.get(place, -1) for place in exist}, set(places) - set(exist)
        )

    async def commit(self, group_id: str, offsets: Mapping[Place, int]) -> CommitOutcome:
        self._begin("commit")
        group = self.group(group_id)
        if group.members:
            return GroupBusy()
        if any(group.committed.get(place) != offset for place, offset in offsets.items()):
            self.commits.append(dict(offsets))
        group.committed |= offsets
        self.after_call("commit")
        return Committed()

    async def close(self) -> None:
        self.is_closed = True


class FakeStore:
    """The API server for one kind: objects with versions, merge patches, conflicts."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.writes = 0
        self.events: list[tuple[str, str]] = []
        self.before_call: Callable[[str], None] = lambda _name: None
        self.after_call: Callable[[str], None] = lambda _name: None

    def put(self, manifest: dict[str, Any]) -> dict[str, Any]:
        metadata = manifest["metadata"]
        self.writes += 1
        metadata["resourceVersion"] = str(self.writes)
        self.objects[metadata["namespace"], metadata["name"]] = manifest
        return copy.deepcopy(manifest)

    async def get(self, _kind: Any, namespace: str, name: str) -> dict[str, Any]:
        self.before_call("get")
        return copy.deepcopy(self.objects[namespace, name])

    async def patch(
        self, _kind: Any, namespace: str, name: str, body: dict[str, Any], subresource: str = ""
    ) -> dict[str, Any]:
        self.before_call("patch")
        stored = copy.deepcopy(self.objects[namespace, name])
        version = body.get("metadata", {}).get("resourceVersion")
        if version not in {None, stored["metadata"]["resourceVersion"]}:
            raise ApiError(409, "Conflict", "the object has been modified")
        part = subresource or "spec"
        merged = self.put(stored | {part: merge(stored.get(part, {}), body[part])})
        self.after_call("patch")
        return merged

    async def emit(
        self, _object: Any, reason: str, message: str, _type: str = "Normal", **_: Any
    ) -> None:
        self.events.append((reason, message))


def merge(target: Any, patch: Any) -> Any:
    """A merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge(result.get(name), value)
    return result


def sight(*members: str, **committed: int) -> GroupSight:
    """A group of clients; `a=3` is offset 3 of partition 0 of topic a, of a log that ends at 10."""
    places = {(topic, 0): offset for topic, offset in committed.items()}
    seen = FakeGroup([Member(name, host="10.0.0.1") for name in members], places)
    return replace(seen.sight(dict.fromkeys(places, 10)))
