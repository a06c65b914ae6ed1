"""The topics of a cluster as a stream of changes.

Each change of a topic's header or partitions moves the topic to the end of the order. A reader
names the position that it has reached, and gets the later changes. A reader without a position, or
with a position of another reign or from too long ago, gets everything.
"""

import asyncio
from collections import Counter, OrderedDict
from contextlib import suppress
from typing import Any, Final

from fairlead_controller.controller import Controller
from fairlead_controller.decisions.state import ControllerState
from fairlead_controller.views.status import build_topic_status
from fairlead_model.cluster import (
    Change,
    PartitionChanged,
    TopicChanged,
    TopicImage,
    TopicRemoved,
    TopicState,
)

REMOVALS_KEPT_MAX: Final = 10_000
PROBLEMS_SHOWN_MAX: Final = 5
"""How many faulty partitions of a topic are named."""


class TopicFeed:
    """The stream of one reign."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._sequence = 0
        self._changed: OrderedDict[bytes, int] = OrderedDict()
        """Topic id to the number of its last change in this reign, oldest first."""
        self._removed: OrderedDict[str, int] = OrderedDict()
        """Name to the number of its removal, oldest first."""
        self._forgotten = 0
        """Removals up to this number may be missing."""
        self._news = asyncio.Event()
        controller.subscribe(self._on_changes)

    async def changes(self, since: str, wait_s: float) -> dict[str, Any]:
        """Return the changes since a position; wait for a change if there is none."""
        start = self._read_position(since)
        if start is None:
            return await self._everything()
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while self._sequence == start:
                    await self._news.wait()
        if start < self._forgotten:
            return await self._everything()
        image = self._controller.committed.image
        topics = [
            image.topics_by_id[topic_id]
            for topic_id in _newer(self._changed, start)
            if topic_id in image.topics_by_id and image.topic_by_id(topic_id) is not None
        ]
        removed = [name for name in _newer(self._removed, start) if image.topic(name) is None]
        return await self._answer(topics, removed, is_full=False)

    async def _everything(self) -> dict[str, Any]:
        return await self._answer(list(self._controller.committed.image.topics()), [], is_full=True)

    async def _answer(
        self, topics: list[TopicImage], removed: list[str], *, is_full: bool
    ) -> dict[str, Any]:
        """Return the present answer; called in a thread, because it may visit all partitions."""
        position = f"{self._controller.committed.controller_epoch}.{self._sequence}"
        entries = await asyncio.to_thread(lambda: list(map(build_topic_entry, topics)))
        return {
            "position": position,
            "isFull": is_full,
            "topics": sorted(entries, key=lambda topic: str(topic["name"])),
            "removed": sorted(removed),
        }

    def _read_position(self, since: str) -> int | None:
        """Return the number of a position of this reign, None for any other position."""
        epoch, _, sequence = since.partition(".")
        if not sequence.isdecimal() or epoch != str(self._controller.committed.controller_epoch):
            return None
        number = int(sequence)
        return number if number <= self._sequence else None

    def _on_changes(self, changes: tuple[Change, ...], state: ControllerState) -> None:
        number = self._sequence + 1
        is_news = False
        for change in changes:
            if isinstance(change, PartitionChanged):
                topic_id = change.topic_id
            elif isinstance(change, TopicChanged):
                topic_id = change.header.topic_id
                if change.header.state is TopicState.DELETING:
                    self._note_removed(change.header.name, number)
            elif isinstance(change, TopicRemoved):
                topic_id = change.topic_id
            else:
                continue
            is_news = True
            self._changed[topic_id] = number
            self._changed.move_to_end(topic_id)
            if isinstance(change, TopicRemoved):
                del self._changed[topic_id]
        if is_news:
            self._sequence = number
            self._news.set()
            self._news = asyncio.Event()

    def _note_removed(self, name: str, number: int) -> None:
        self._removed[name] = number
        self._removed.move_to_end(name)
        if len(self._removed) > REMOVALS_KEPT_MAX:
            _, self._forgotten = self._removed.popitem(last=False)


def build_topic_entry(topic: TopicImage) -> dict[str, Any]:
    """Return one topic: its status, its leaders by broker, and which partitions have a problem."""
    leaders = Counter(part.leader for part in topic.partitions if part.has_leader)
    problems = [
        {
            "partition": index,
            "leader": part.leader,
            "replicas": list(part.replicas),
            "isr": list(part.isr),
        }
        for index, part in enumerate(topic.partitions)
        if part.is_under_replicated or not part.has_leader
    ]
    header = topic.header
    return build_topic_status(topic) | {
        "leaders": " ".join(f"{broker}:{leaders[broker]}" for broker in sorted(leaders)),
        "problems": problems[:PROBLEMS_SHOWN_MAX],
        "targetFactors": sorted(
            {len(part.queued_target or part.target_replicas) for part in topic.partitions}
        ),
        "origin": str(header.origin),
        "configs": dict(header.configs),
        "reclaimPolicy": header.reclaim_policy,
    }


def _newer(numbers: "OrderedDict[Any, int]", start: int) -> list[Any]:
    """Return the keys after a number; the cost depends on their number."""
    newer = []
    for key in reversed(numbers):
        if numbers[key] <= start:
            break
        newer.append(key)
    return newer
