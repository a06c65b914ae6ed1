"""Offsets of deleted topics: noted at once, removed step by step.

Many groups may have a lot of it, hence in slices; a topic of the same name that is made meanwhile
keeps its offsets. What cannot be removed now, because too few replicas are in sync, is tried again:
otherwise it would count as committed for the next topic of that name.
"""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from fairlead_broker.group.group_offsets import topic_id_of
from fairlead_broker.group.tombstones import append_tombstones
from fairlead_broker.group.writes import all_offsets, pending_values
from fairlead_broker.limits import HOUSEKEEPING_SLICE_MS
from fairlead_wire.errors import ErrorCode
from fairlead_wire.primitives import NULL_UUID

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from fairlead_broker.clock import Clock
    from fairlead_broker.coordinator.runtime import CoordinatorRuntime
    from fairlead_broker.group.coordinated_group import CoordinatedGroup
    from fairlead_broker.group.group_metrics import GroupMetrics


RETRY_S: Final = 1.0
"""After this long, what could not be removed is tried again."""


class _Stale(NamedTuple):
    """The offsets of a group for a topic when that was deleted, as `_values_of` gives them.

    None for what was committed for an earlier topic of the same name, which is yet to be found.
    """

    group: CoordinatedGroup
    topic: str
    values: dict[int, list[bytes | None]] | None


def _values_of(group: CoordinatedGroup, topic: str) -> dict[int, list[bytes | None]]:
    """Return what a group has for a topic: committed, staged in transactions, and on its way.

    By partition; None for a staged offset that a later record has replaced.
    """
    found: dict[int, list[bytes | None]] = {}
    offsets = group.offsets
    known = offsets.topics.get(topic)
    if known is not None:
        found = {partition: [value] for partition, value in known.values.items()}
    if offsets.open_transactions is not None:
        for partition, value in offsets.open_transactions.values_of(topic):
            found.setdefault(partition, []).append(value)
    for partition, value in pending_values(group, topic):
        found.setdefault(partition, []).append(value)
    return found


def _is_among(value: bytes | None, noted: Iterable[bytes | None]) -> bool:
    """Tell whether this very value was noted: an equal one may have been committed since."""
    return any(value is each for each in noted)


class StaleOffsets:
    """Those that are yet to be removed, of all groups."""

    def __init__(
        self,
        runtime: CoordinatorRuntime[Any, Any],
        clock: Clock,
        metrics: GroupMetrics,
        topic_id: Callable[[str], bytes | None],
    ) -> None:
        """`topic_id` returns the id of the topic that has a name now; None if there is none."""
        self._runtime = runtime
        self._clock = clock
        self._metrics = metrics
        self._topic_id = topic_id
        self._waiting: deque[_Stale] = deque()
        self._failed: list[_Stale] = []

    def forget_topics(self, groups: Iterable[CoordinatedGroup], topics: Collection[str]) -> None:
        """Topics are deleted: what groups have committed for them means nothing any more."""
        is_idle = not self._waiting
        topics = frozenset(topics)
        for group in groups:
            for name in group.offsets.topics_among(topics):
                stale = _Stale(group, name, _values_of(group, name))
                if group.commits_in_flight or group.offsets.open_transactions:
                    # Those are for the topic that is gone, too: their tombstones must follow them,
                    # and no commit of a transaction may bring them back.
                    self._remove(stale, [each for each in all_offsets(group) if each[0] == name])
                else:
                    self._waiting.append(stale)
        if is_idle and self._waiting:
            self._remove_some()

    def forget_other_topics(
        self, groups: Iterable[CoordinatedGroup], names: Collection[str]
    ) -> None:
        """Remove by and by what was committed for earlier topics of these names.

        Until then nobody is told of it.
        """
        is_idle = not self._waiting
        names = frozenset(names)
        for group in groups if names else ():
            for name in group.offsets.topics_among(names):
                self._waiting.append(_Stale(group, name, None))
        if is_idle and self._waiting:
            self._remove_some()

    def _of_other_topics(self, group: CoordinatedGroup, name: str) -> dict[int, list[bytes | None]]:
        """Return what a group has for partitions of earlier topics only."""
        current = self._topic_id(name)
        return {
            partition: values
            for partition, values in _values_of(group, name).items()
            if all(
                each is not None and topic_id_of(each) not in (NULL_UUID, current)
                for each in values
            )
        }

    def _remove_some(self) -> None:
        """Remove until this turn's share of time is used up."""
        slice_end_ms = self._clock.monotonic_ms() + HOUSEKEEPING_SLICE_MS
        while self._waiting and self._clock.monotonic_ms() < slice_end_ms:
            self._remove_unchanged(self._waiting.popleft())
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._remove_some)

    def _remove_unchanged(self, stale: _Stale) -> None:
        """Write tombstones for what still is as it was noted, also if it is still to come in."""
        group, name, noted = stale
        if group.is_gone:
            return
        if noted is None:
            noted = self._of_other_topics(group, name)
            stale = stale._replace(values=noted)
        partitions = [
            (name, partition)
            for partition, values in _values_of(group, name).items()
            if all(_is_among(value, noted.get(partition, ())) for value in values)
        ]
        if partitions:
            self._remove(stale, partitions)

    def _remove(self, stale: _Stale, partitions: list[tuple[str, int]]) -> None:
        append_tombstones(
            self._runtime,
            stale.group,
            partitions,
            on_outcome=partial(self._on_outcome, stale, len(partitions)),
        )

    def _on_outcome(self, stale: _Stale, count: int, code: ErrorCode) -> None:
        if code is ErrorCode.NONE:
            self._metrics.offset_deletions += count
        elif code is ErrorCode.COORDINATOR_NOT_AVAILABLE:
            if not self._failed:
                asyncio.get_running_loop().call_later(RETRY_S, self._try_again)
            self._failed.append(stale)

    def _try_again(self) -> None:
        failed, self._failed = self._failed, []
        is_idle = not self._waiting
        for stale in failed:
            if stale.group.is_gone:
                continue
            if self._topic_id(stale.topic) is not None:
                # Later commits are for a new topic of the same name.
                self._waiting.append(stale)
            else:
                self.forget_topics((stale.group,), (stale.topic,))
        if is_idle and self._waiting:
            self._remove_some()
