"""The groups that this broker coordinates: the shell around shards, state machines and timers.

Handlers ask for a group and tell it something; what that has as effects is appended to the group's
partition and answered from here.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING, Protocol

from fairlead_broker.group.classic_group import ClassicGroup
from fairlead_broker.group.coordinated_group import CoordinatedGroup
from fairlead_broker.group.coordinator_partition import coordinator_partition
from fairlead_broker.group.group_memory import GroupMemory, check_parked
from fairlead_broker.group.group_metrics import GroupMetrics
from fairlead_broker.group.group_offsets import Subscriptions
from fairlead_broker.group.group_timer import GroupTimer
from fairlead_broker.group.group_types import NO_GENERATION, GroupState
from fairlead_broker.group.loading import ShardLoader
from fairlead_broker.group.removal import has_record_on_its_way, remove_stale, stale_offsets
from fairlead_broker.group.shard import Shard, ShardState
from fairlead_broker.group.writes import GroupRecordWrite, OffsetsWrite
from fairlead_broker.limits import (
    GROUP_MEMBERS_MAX,
    GROUPS_PER_SHARD_MAX,
    HOUSEKEEPING_SLICE_MS,
)
from fairlead_model.ids import CONSUMER_OFFSETS
from fairlead_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from fairlead_broker.group.coordinating_broker import CoordinatingBroker
    from fairlead_broker.group.group_types import (
        Effects,
        GroupWrite,
        JoinRequest,
        JoinResult,
        SyncRequest,
        SyncResult,
    )
    from fairlead_broker.group.removal import StaleOffsets
    from fairlead_broker.group.shard import Write
    from fairlead_broker.group.writes import CommitWaiter
    from fairlead_broker.replication.partition import Partition

logger = logging.getLogger(__name__)


class MemberWaiter(Protocol):
    """A parked join or sync; `answer` is called at most once."""

    def answer(self, result: JoinResult | SyncResult) -> None: ...


class GroupCoordinator:
    """`groups` are those of all shards that are loaded, by group id."""

    def __init__(self, broker: CoordinatingBroker) -> None:
        self._broker = broker
        self.clock = broker.clock
        settings = broker.settings
        self.groups: dict[str, CoordinatedGroup] = {}
        self.shards: dict[int, Shard] = {}
        self.metrics = GroupMetrics()
        self.memory = GroupMemory()
        self.parked_count = 0
        """Joins and syncs that wait for other members."""
        self._loader = ShardLoader(broker, self)
        self._timer = GroupTimer(self.clock, tick=self._tick, expire=self._expire)
        self._unflushed: list[Shard] = []
        self._stale: deque[StaleOffsets] = deque()
        self._delay_ms = settings.group_initial_rebalance_delay_ms
        self._size_max = min(settings.group_max_size, GROUP_MEMBERS_MAX)
        self._commit_timeout_ms = settings.offsets_commit_timeout_ms

    # Which partitions are ours.

    def on_role(self, partition: Partition) -> None:
        """A partition of the offsets topic leads, follows or is gone now."""
        shard = self.shards.get(partition.index)
        if shard is not None:
            if shard.partition is partition and shard.is_current:
                return
            if shard.partition is not partition and not partition.is_leader:
                return  # A replica of a deleted topic; the one that is here now stays.
            self._drop(shard)
        if partition.is_leader:
            shard = Shard(partition)
            self.shards[partition.index] = shard
            self._loader.begin(shard)

    def advanced(self, partitions: Iterable[Partition]) -> None:
        """Partitions have moved; those that are shards may have something committed."""
        if not self.shards:
            return
        for partition in partitions:
            if partition.topic == CONSUMER_OFFSETS:
                shard = self.shards.get(partition.index)
                if shard is not None and shard.partition is partition:
                    shard.advanced()
                    if shard.state is ShardState.LOADING:
                        self._loader.advanced(shard)

    def stop(self) -> None:
        """Answer whoever waits; nothing is served from here on."""
        for shard in list(self.shards.values()):
            self._drop(shard)
        self._timer.stop()

    def _drop(self, shard: Shard) -> None:
        """Another broker, or another epoch, coordinates these groups: nobody here knows them."""
        del self.shards[shard.index]
        self._loader.end(shard)
        was_active = shard.state is ShardState.ACTIVE
        shard.state = ShardState.DROPPED
        groups = list(shard.groups.values())
        for group in groups:
            group.is_gone = True
            self.memory.count(group)
            self.groups.pop(group.group_id, None)
        shard.fail_waiting(ErrorCode.NOT_COORDINATOR)
        for group in groups:
            self._answer(group.classic.fail_all(ErrorCode.NOT_COORDINATOR))
        shard.groups.clear()
        if was_active:
            logger.info("no longer coordinating %d groups of %s", len(groups), shard.partition)

    def activate(self, shard: Shard) -> None:
        """A shard is loaded whole: serve its groups."""
        shard.state = ShardState.ACTIVE
        self.groups.update(shard.groups)
        topics: set[str] = set()
        for group in shard.groups.values():
            topics.update(group.offsets.topics)
        names = self._broker.image.names
        deleted = {name for name in topics if name not in names} | shard.deleted_topics
        self._forget_topics(shard, deleted)
        shard.deleted_topics.clear()

    def topics_deleted(self, topics: Collection[str]) -> None:
        """Topics are gone, and with them what was committed for them."""
        for shard in self.shards.values():
            if shard.state is ShardState.ACTIVE:
                self._forget_topics(shard, topics)
            elif shard.state is ShardState.LOADING:
                shard.deleted_topics.update(topics)

    def _forget_topics(self, shard: Shard, topics: Collection[str]) -> None:
        is_idle = not self._stale
        self._stale.extend(stale_offsets(self, shard, topics))
        if is_idle and self._stale:
            self._remove_stale()

    def _remove_stale(self) -> None:
        """Remove offsets of deleted topics until this turn's share of time is used up."""
        slice_end_ms = self.clock.monotonic_ms() + HOUSEKEEPING_SLICE_MS
        while self._stale and self.clock.monotonic_ms() < slice_end_ms:
            remove_stale(self, self._stale.popleft())
        if self._stale:
            asyncio.get_running_loop().call_soon(self._remove_stale)

    # Finding groups.

    def shard_of(self, group_id: str) -> Shard:
        """The loaded shard that a group belongs to; KafkaError if there is none here."""
        topic = self._broker.image.topic(CONSUMER_OFFSETS)
        if topic is None or not topic.partitions:
            raise KafkaError(ErrorCode.NOT_COORDINATOR, f"there is no {CONSUMER_OFFSETS} yet")
        index = coordinator_partition(group_id, len(topic.partitions))
        shard = self.shards.get(index)
        if shard is None:
            raise KafkaError(
                ErrorCode.NOT_COORDINATOR, f"another broker leads {CONSUMER_OFFSETS}-{index}"
            )
        if shard.state is ShardState.ACTIVE:
            return shard
        if shard.state is ShardState.LOADING:
            raise KafkaError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{shard.partition} is being read"
            )
        raise KafkaError(
            ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{shard.partition} cannot be read, see the log"
        )

    def find(self, group_id: str) -> CoordinatedGroup | None:
        """A group; None if it does not exist. KafkaError where this broker cannot tell."""
        group = self.groups.get(group_id)
        if group is None:
            self.shard_of(group_id)
        return group

    def ensure(self, group_id: str) -> CoordinatedGroup:
        """A group, made if need be. KafkaError where this broker may not."""
        group = self.groups.get(group_id)
        if group is None:
            shard = self.shard_of(group_id)
            if len(shard.groups) >= GROUPS_PER_SHARD_MAX:
                raise KafkaError(
                    ErrorCode.COORDINATOR_NOT_AVAILABLE,
                    f"{shard.partition} has {len(shard.groups)} groups; delete some",
                )
            classic = self.build_classic(group_id)
            group = CoordinatedGroup(group_id, shard, classic, None)
            shard.groups[group_id] = group
            self.groups[group_id] = group
        return group

    def build_classic(self, group_id: str, record: bytes | None = None) -> ClassicGroup:
        """The state machine of a group: a new one, or as a record says it was."""
        if record is None:
            return ClassicGroup(
                group_id, initial_rebalance_delay_ms=self._delay_ms, size_max=self._size_max
            )
        return ClassicGroup.from_record(
            group_id,
            record,
            initial_rebalance_delay_ms=self._delay_ms,
            size_max=self._size_max,
            now_ms=self.clock.monotonic_ms(),
        )

    # What groups are told.

    def join(self, group_id: str, request: JoinRequest, waiter: MemberWaiter) -> None:
        """A member joins; the waiter is answered now or later. KafkaError if it can't."""
        group = self.find(group_id)
        if group is None and request.member_id:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        check_parked(self.parked_count)
        self.memory.check_join(group, request)
        group = group or self.ensure(group_id)
        clock = self.clock
        effects = group.classic.join(
            request, waiter, now_ms=clock.monotonic_ms(), now_wall_ms=clock.now_ms()
        )
        self.carry_out(group, effects)
        self._maybe_forget(group)

    def sync(self, group_id: str, request: SyncRequest, waiter: MemberWaiter) -> None:
        """A member asks for its assignment. KafkaError if it can't have one."""
        group = self.find(group_id)
        if group is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        check_parked(self.parked_count)
        clock = self.clock
        effects = group.classic.sync(
            request, waiter, now_ms=clock.monotonic_ms(), now_wall_ms=clock.now_ms()
        )
        self.carry_out(group, effects)

    def check_commit(
        self, group_id: str, member_id: str, generation_id: int, group_instance_id: str | None
    ) -> CoordinatedGroup:
        """The group to commit to under these credentials. KafkaError if they are refused."""
        group = self.groups.get(group_id)
        if group is None:
            if generation_id > NO_GENERATION:
                self.shard_of(group_id)
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
            group = self.ensure(group_id)
        code = group.classic.check_commit(
            member_id,
            generation_id,
            group_instance_id,
            now_ms=self.clock.monotonic_ms(),
        )
        if code is not ErrorCode.NONE:
            raise KafkaError(code)
        return group

    def commit(
        self,
        group: CoordinatedGroup,
        waiter: CommitWaiter,
        offsets: list[tuple[str, int, bytes]],
    ) -> None:
        """Append offsets (topic, partition, value); the waiter hears when they are committed."""
        self.metrics.offset_commits += len(offsets)
        self.append(group.shard, OffsetsWrite(group, waiter, offsets))

    # Effects.

    def carry_out(self, group: CoordinatedGroup, effects: Effects) -> None:
        """Append and answer as the state machine wants it, and mind its next deadline."""
        if group.is_gone:
            self._answer(effects)
            return
        self.memory.count(group)
        for write in effects.writes:
            self.append(group.shard, GroupRecordWrite(group, write, self._on_outcome))
        self._answer(effects)
        self.schedule(group)

    def append(self, shard: Shard, write: Write) -> None:
        """Have a write appended at the end of this turn, with all others of its partition."""
        if shard.add(write):
            if not self._unflushed:
                asyncio.get_running_loop().call_soon(self._flush)
            self._unflushed.append(shard)

    def on_deleted(self, group: CoordinatedGroup) -> None:
        """The tombstone of a group is committed: it is gone, unless it was revived meanwhile."""
        state = group.classic.state
        if state is not GroupState.DEAD and (
            state is not GroupState.EMPTY or has_record_on_its_way(group)
        ):
            return
        if not group.offsets and not group.commits_in_flight:
            self._remove(group)
        else:
            # Some of its offsets could not be deleted, or were committed since the client was told
            # that it takes too long: what is left is what a replay would give.
            group.classic = self.build_classic(group.group_id)
            self.memory.count(group)

    def subscriptions(self, group: CoordinatedGroup) -> Subscriptions:
        """What expiry has to know of a group."""
        classic = group.classic
        return Subscriptions(
            classic.state,
            classic.protocol_type,
            classic.state_timestamp_ms,
            classic.subscribed_topics(),
        )

    def _remove(self, group: CoordinatedGroup) -> None:
        """A group is deleted: whoever asks for it from now on finds none."""
        group.is_gone = True
        group.scheduled_ms = None
        self.memory.count(group)
        if self.groups.get(group.group_id) is group:
            del self.groups[group.group_id]
            del group.shard.groups[group.group_id]

    def _answer(self, effects: Effects) -> None:
        for waiter, result in effects.replies:
            waiter.answer(result)

    def _on_outcome(self, group: CoordinatedGroup, write: GroupWrite, code: ErrorCode) -> None:
        if code is ErrorCode.UNKNOWN_SERVER_ERROR:
            logger.warning(
                "the record of group %a does not fit into %s: raise max.message.bytes of the topic",
                group.group_id,
                group.shard.partition,
            )
        clock = self.clock
        effects = group.classic.written(
            write, code, now_ms=clock.monotonic_ms(), now_wall_ms=clock.now_ms()
        )
        self.carry_out(group, effects)

    def _flush(self) -> None:
        shards, self._unflushed = self._unflushed, []
        clock = self.clock
        now_ms, now_wall_ms = clock.monotonic_ms(), clock.now_ms()
        for shard in shards:
            shard.flush(now_ms=now_ms, now_wall_ms=now_wall_ms, timeout_ms=self._commit_timeout_ms)
            if shard.waiting_count:
                self._timer.set(now_ms + self._commit_timeout_ms)

    # Time.

    def schedule(self, group: CoordinatedGroup) -> None:
        """See to it that the group is told when its next deadline has come."""
        self._timer.schedule(group)

    def _tick(self, group: CoordinatedGroup) -> None:
        effects = group.classic.tick(
            now_ms=self.clock.monotonic_ms(), now_wall_ms=self.clock.now_ms()
        )
        self.carry_out(group, effects)
        self._maybe_forget(group)

    def _expire(self, now_ms: int) -> int | None:
        """Answer those whose appends take too long; when to look again."""
        deadlines = []
        for shard in list(self.shards.values()):
            shard.expire(now_ms)
            deadline_ms = shard.next_deadline_ms()
            if deadline_ms is not None:
                deadlines.append(deadline_ms)
        return min(deadlines, default=None)

    def _maybe_forget(self, group: CoordinatedGroup) -> None:
        """Drop a group that nobody ever joined: it has no record, and would stay for nothing."""
        classic = group.classic
        if (
            classic.state is GroupState.EMPTY
            and classic.generation_id <= 0
            and group.scheduled_ms is None
            and not group.offsets.topics
        ):
            self._remove(group)
