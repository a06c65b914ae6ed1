"""Which partitions are being reassigned, and which wait for it. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from fairlead_model.cluster import (
    Change,
    ClusterImage,
    PartitionChanged,
    TopicChanged,
    TopicImage,
    TopicState,
)
from fairlead_model.sharded_map import ShardedMap

PartitionKey: TypeAlias = tuple[bytes, int]
"""Topic id and index."""


@dataclass(frozen=True, slots=True)
class Moves:
    """An index of the image. Immutable; the cost of `updated` depends on what the changes name."""

    running: ShardedMap[PartitionKey, bool] = field(default_factory=ShardedMap)
    queued: ShardedMap[PartitionKey, bool] = field(default_factory=ShardedMap)

    def __bool__(self) -> bool:
        return bool(self.running or self.queued)

    def updated(self, image: ClusterImage, changes: Iterable[Change]) -> "Moves":
        """Return the index after changes that led to an image."""
        running: dict[PartitionKey, bool | None] = {}
        queued: dict[PartitionKey, bool | None] = {}
        for change in changes:
            if isinstance(change, PartitionChanged):
                key, partition = (change.topic_id, change.index), change.partition
                # While a store is loaded, partitions are seen after the deletion of their topic.
                is_kept = image.topic_by_id(change.topic_id) is not None
                _note(self.running, running, key, is_kept and partition.is_being_reassigned)
                _note(self.queued, queued, key, is_kept and bool(partition.queued_target))
            elif (
                self
                and isinstance(change, TopicChanged)
                and change.header.state is TopicState.DELETING
            ):
                topic = image.topics_by_id.get(change.header.topic_id)
                for index in range(len(topic.partitions) if topic else 0):
                    running[change.header.topic_id, index] = None
                    queued[change.header.topic_id, index] = None
        if not running and not queued:
            return self
        return Moves(self.running.edited(running), self.queued.edited(queued))


def _note(
    before: ShardedMap[PartitionKey, bool],
    edits: dict[PartitionKey, bool | None],
    key: PartitionKey,
    is_in: bool,
) -> None:
    if is_in != (key in before) or key in edits:
        edits[key] = True if is_in else None


def located(image: ClusterImage, keys: Iterable[PartitionKey]) -> Iterator[tuple[TopicImage, int]]:
    """Walk the partitions of an index in the order of their keys, so that runs can be repeated."""
    for topic_id, index in sorted(keys):
        topic = image.topic_by_id(topic_id)
        if topic is not None:
            yield topic, index
