"""What was committed for topics that are deleted: noted at once, removed by and by.

Many groups may have a lot of it, hence in slices; a topic of the same name that is made meanwhile
keeps its offsets.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from fairlead_broker.group.tombstones import append_tombstones
from fairlead_broker.group.writes import all_offsets, pending_offsets
from fairlead_broker.limits import HOUSEKEEPING_SLICE_MS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from fairlead_broker.clock import Clock
    from fairlead_broker.coordinator.runtime import CoordinatorRuntime
    from fairlead_broker.group.coordinated_group import CoordinatedGroup
    from fairlead_broker.group.group_metrics import GroupMetrics


class _Stale(NamedTuple):
    """What a group had committed for a topic when that was deleted."""

    group: CoordinatedGroup
    topic: str
    values: dict[int, bytes]


class StaleOffsets:
    """Those that are yet to be removed, of all groups."""

    def __init__(
        self, runtime: CoordinatorRuntime[Any, Any], clock: Clock, metrics: GroupMetrics
    ) -> None:
        self._runtime = runtime
        self._clock = clock
        self._metrics = metrics
        self._waiting: deque[_Stale] = deque()

    def forget_topics(self, groups: Iterable[CoordinatedGroup], topics: Collection[str]) -> None:
        """Topics are deleted: what groups have committed for them means nothing any more."""
        is_idle = not self._waiting
        for group in groups:
            for name in [each for each in group.offsets.topic_names() if each in topics]:
                if group.commits_in_flight or group.offsets.open_transactions:
                    # Those are for the topic that is gone, too: their tombstones must follow them,
                    # and no commit of a transaction may bring them back.
                    self._remove(group, [each for each in all_offsets(group) if each[0] == name])
                else:
                    values = dict(group.offsets.topics[name].values)
                    self._waiting.append(_Stale(group, name, values))
        if is_idle and self._waiting:
            self._remove_some()

    def _remove_some(self) -> None:
        """Remove until this turn's share of time is used up."""
        slice_end_ms = self._clock.monotonic_ms() + HOUSEKEEPING_SLICE_MS
        while self._waiting and self._clock.monotonic_ms() < slice_end_ms:
            self._remove_unchanged(self._waiting.popleft())
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._remove_some)

    def _remove_unchanged(self, stale: _Stale) -> None:
        """Write tombstones for what still is as it was noted."""
        group, name, values = stale
        topic = group.offsets.topics.get(name)
        if group.is_gone or topic is None:
            return
        newer = {*pending_offsets(group), *group.offsets.unstable()}
        partitions = [
            (name, partition)
            for partition, value in values.items()
            if topic.values.get(partition) is value and (name, partition) not in newer
        ]
        if partitions:
            self._remove(group, partitions)

    def _remove(self, group: CoordinatedGroup, partitions: list[tuple[str, int]]) -> None:
        self._metrics.offset_deletions += len(partitions)
        append_tombstones(self._runtime, group, partitions)
