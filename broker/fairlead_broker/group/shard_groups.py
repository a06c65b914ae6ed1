"""The groups that live in one partition of the offsets topic: what its shard keeps."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, Protocol

from fairlead_broker.group.coordinated_group import CoordinatedGroup
from fairlead_broker.group.group_replay import GroupReplay
from fairlead_wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairlead_broker.clock import Clock
    from fairlead_broker.coordinator.replayed_transactions import UndecidedRecord
    from fairlead_broker.coordinator.shard import Shard
    from fairlead_broker.group.group_memory import GroupMemory
    from fairlead_broker.group.group_protocol import GroupProtocol
    from fairlead_broker.group.group_types import Effects
    from fairlead_broker.group.offset_memory import OffsetMemory
    from fairlead_broker.group.records.consumer_records import ConsumerRecords

logger = logging.getLogger(__name__)

_BUILDS_PER_STEP: Final = 50
_BEGINNINGS_PER_STEP: Final = 200


class GroupsHost(Protocol):
    """What the groups of a shard need of the coordinator.

    `groups` are those of all partitions that are served.
    """

    clock: Clock
    memory: GroupMemory
    offset_memory: OffsetMemory
    groups: dict[str, CoordinatedGroup]

    def build_protocol(self, group_id: str, record: bytes | None = None) -> GroupProtocol: ...
    def build_consumer_group(self, group_id: str, records: ConsumerRecords) -> GroupProtocol: ...
    def carry_out(self, group: CoordinatedGroup, effects: Effects) -> None: ...
    def on_shard_loaded(self, groups: ShardGroups) -> None: ...


class ShardGroups:
    """The state machine of a shard of the offsets topic; `by_id` are its groups."""

    def __init__(self, shard: Shard[Any], host: GroupsHost) -> None:
        self.shard = shard
        self._host = host
        self.offset_memory = host.offset_memory
        self.by_id: dict[str, CoordinatedGroup] = {}
        self.deleted_topics: set[str] = set()
        """Those deleted while it is loading: one of the same name has no offsets in the log."""
        self.topic_ids: dict[str, set[bytes]] = {}
        """By name, the topics that the offsets in the log say that they were committed for."""
        self._replay = GroupReplay()
        self._transactions: dict[int, dict[CoordinatedGroup, None]] = {}
        """By producer with an open transaction, the groups that it has committed to in it."""

    @property
    def contents(self) -> str:
        return f"{len(self.by_id)} groups"

    def replay(self, records: dict[bytes, bytes]) -> Iterator[None]:
        return self._replay.decode(records)

    def replay_undecided(self, records: Iterator[UndecidedRecord]) -> Iterator[None]:
        return self._replay.decode_undecided(records)

    def begin(self) -> Iterator[None]:
        replay, self._replay = self._replay, GroupReplay()
        self.topic_ids = replay.topic_ids
        host, clock = self._host, self._host.clock
        offsets, values, records = replay.offsets, replay.group_values, replay.consumer_records
        # In the order of the log, so that two loads of one log are alike.
        for number, group_id in enumerate(dict.fromkeys([*offsets, *values, *records])):
            try:
                if group_id in records:
                    # A change of protocol takes away the records of the one before.
                    protocol = host.build_consumer_group(group_id, records[group_id])
                else:
                    protocol = host.build_protocol(group_id, values.get(group_id))
            except ValueError:
                # Bytes of a group's value that no group can have been.
                replay.unreadable_count += 1
                protocol = host.build_protocol(group_id)
            group = CoordinatedGroup(group_id, self.shard, protocol, offsets.get(group_id))
            self.by_id[group_id] = group
            if group.offsets.open_transactions is not None:
                for producer_id in group.offsets.open_transactions.producer_ids:
                    self.note_transaction(producer_id, group)
            host.memory.count(group)
            group.offsets.measure()
            host.offset_memory.count(group)
            if number % _BUILDS_PER_STEP == 0:
                yield
        # Only now, and not one by one: sessions begin here, and those of the first groups would be
        # over before the last is there.
        for number, group in enumerate(list(self.by_id.values())):
            if not group.protocol.is_empty:
                effects = group.protocol.on_loaded(
                    now_ms=clock.monotonic_ms(), now_wall_ms=clock.now_ms()
                )
                host.carry_out(group, effects)
            if number % _BEGINNINGS_PER_STEP == 0:
                yield
        if replay.unreadable_count or replay.unknown_count:
            logger.warning(
                "%s: passed over %d unreadable records and %d of unknown kinds",
                self.shard.partition,
                replay.unreadable_count,
                replay.unknown_count,
            )

    def on_loaded(self) -> None:
        self._host.groups.update(self.by_id)
        self._host.on_shard_loaded(self)
        self.deleted_topics.clear()
        self.topic_ids.clear()

    def on_unloaded(self) -> None:
        """Forget these groups."""
        host = self._host
        groups = list(self.by_id.values())
        for group in groups:
            group.is_gone = True
            host.memory.count(group)
            host.offset_memory.count(group)
            host.groups.pop(group.group_id, None)
        for group in groups:
            host.carry_out(group, group.protocol.fail_all(ErrorCode.NOT_COORDINATOR))
        self.by_id.clear()

    def note_transaction(self, producer_id: int, group: CoordinatedGroup) -> None:
        """Remember that a producer's open transaction has offsets of a group."""
        self._transactions.setdefault(producer_id, {})[group] = None

    def transaction_ended(self, producer_id: int, *, is_commit: bool) -> None:
        """Show what a producer has staged, of whatever group in whatever state, or forget it."""
        for group in self._transactions.pop(producer_id, ()):
            group.offsets.transaction_ended(producer_id, is_commit=is_commit)
            self.offset_memory.count(group)

    def topics(self) -> set[str]:
        """Return the topics that something is committed for."""
        topics: set[str] = set()
        for group in self.by_id.values():
            topics.update(group.offsets.topic_names())
        return topics
