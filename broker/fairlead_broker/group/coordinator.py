"""The groups that this broker coordinates: the shell around their state machines.

Handlers ask for a group and tell it something; what that has as effects is appended to the group's
partition and answered from here.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Protocol, TypeAlias

from fairlead_broker.coordinator.runtime import CoordinatorRuntime
from fairlead_broker.coordinator.shard import Shard, ShardState
from fairlead_broker.group.classic.classic_group import ClassicGroup
from fairlead_broker.group.classic.member import join_bytes
from fairlead_broker.group.consumer.consumer_group import ConsumerGroup, heartbeat_bytes
from fairlead_broker.group.consumer_group_host import BrokerGroupHost
from fairlead_broker.group.coordinated_group import CoordinatedGroup
from fairlead_broker.group.group_memory import GroupMemory, check_parked
from fairlead_broker.group.group_metrics import GroupMetrics
from fairlead_broker.group.group_types import NO_GENERATION, LeaveResult
from fairlead_broker.group.offset_memory import OffsetMemory
from fairlead_broker.group.pattern_resolution import PatternResolution
from fairlead_broker.group.protocol_changes import (
    consumer_heartbeat,
    downgrade,
    prepare_join,
    settle_change,
)
from fairlead_broker.group.shard_groups import ShardGroups
from fairlead_broker.group.stale_offsets import StaleOffsets
from fairlead_broker.group.transactional_writes import EndMarkerWrite, StagedOffsetsWrite
from fairlead_broker.group.writes import GroupRecordWrite, OffsetsWrite, has_record_on_its_way
from fairlead_broker.limits import GROUP_MEMBERS_MAX, GROUPS_PER_SHARD_MAX
from fairlead_model.ids import CONSUMER_OFFSETS
from fairlead_wire.errors import ErrorCode, KafkaError
from fairlead_wire.primitives import NULL_UUID

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from fairlead_broker.coordinator.coordinating_broker import CoordinatingBroker
    from fairlead_broker.group.group_protocol import GroupProtocol
    from fairlead_broker.group.group_types import (
        ConsumerHeartbeat,
        Effects,
        GroupWrite,
        JoinRequest,
        LeavingMember,
        Offsets,
        ResolutionRequest,
        Result,
        SyncRequest,
    )
    from fairlead_broker.group.records.consumer_records import ConsumerRecords
    from fairlead_broker.group.transactional_writes import StagingProducer
    from fairlead_broker.group.writes import CommitWaiter
    from fairlead_broker.log.producers.end_marker import EndMarker
    from fairlead_model.ids import TopicId

logger = logging.getLogger(__name__)

_Shard: TypeAlias = Shard[ShardGroups]


class MemberWaiter(Protocol):
    """A parked request of a member; `answer` is called at most once."""

    def answer(self, result: Result) -> None: ...


class GroupCoordinator:
    """`groups` are those of all shards that are loaded, by group id; `runtime` has the shards."""

    def __init__(self, broker: CoordinatingBroker) -> None:
        self._broker = broker
        self.clock = broker.awake_clock
        settings = broker.settings
        self.groups: dict[str, CoordinatedGroup] = {}
        self.metrics = GroupMetrics()
        self.memory = GroupMemory()
        self.offset_memory = OffsetMemory()
        self.parked_count = 0
        """Joins and syncs that wait for other members."""
        self.runtime: CoordinatorRuntime[ShardGroups, CoordinatedGroup] = CoordinatorRuntime(
            broker,
            CONSUMER_OFFSETS,
            build=self._build_shard,
            on_deadline=self._tick,
            write_timeout_ms=settings.offsets_commit_timeout_ms,
            load_buffer_size=settings.offsets_load_buffer_size,
        )
        self.consumer_host = BrokerGroupHost(broker)
        self._resolution = PatternResolution()
        self._resolving: set[asyncio.Task[None]] = set()
        self._stale = StaleOffsets(self.runtime, broker.clock, self.metrics, self._topic_id)
        self._delay_ms = settings.group_initial_rebalance_delay_ms
        self._size_max = min(settings.group_max_size, GROUP_MEMBERS_MAX)

    def _topic_id(self, name: str) -> TopicId | None:
        return self._broker.image.names.get(name)

    def _build_shard(self, shard: _Shard) -> ShardGroups:
        return ShardGroups(shard, self)

    def on_shard_loaded(self, groups: ShardGroups) -> None:
        """Remove what was committed for topics that were deleted before the groups were loaded.

        Whoever writes an offset has the image of a leader, and this one is newer: an offset for
        another topic of its name is for an earlier one.
        """
        names = self._broker.image.names
        deleted = {name for name in groups.topics() if name not in names} | groups.deleted_topics
        self._stale.forget_topics(groups.by_id.values(), deleted)
        made_anew = {
            name
            for name, topic_ids in groups.topic_ids.items()
            if name not in deleted and not topic_ids <= {NULL_UUID, names[name]}
        }
        self._stale.forget_other_topics(groups.by_id.values(), made_anew)

    def topics_deleted(self, topics: Collection[str]) -> None:
        """Topics are gone, and with them what was committed for them."""
        for shard in self.runtime.shards.values():
            if shard.state is ShardState.ACTIVE:
                self._stale.forget_topics(shard.machine.by_id.values(), topics)
            elif shard.state is ShardState.LOADING:
                shard.machine.deleted_topics.update(topics)

    def find(self, group_id: str) -> CoordinatedGroup | None:
        """Return a group; None if it does not exist. KafkaError if this broker cannot tell."""
        group = self.groups.get(group_id)
        if group is None:
            self.runtime.shard_of(group_id)
        return group

    def ensure(self, group_id: str) -> CoordinatedGroup:
        """Return a group, made if need be. KafkaError where this broker may not."""
        group = self.groups.get(group_id)
        return self.add(group_id, self.build_protocol(group_id)) if group is None else group

    def add(self, group_id: str, protocol: GroupProtocol) -> CoordinatedGroup:
        """Begin to coordinate a group that there is not. KafkaError where this broker may not."""
        shard = self.runtime.shard_of(group_id)
        groups = shard.machine.by_id
        if len(groups) >= GROUPS_PER_SHARD_MAX:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"{shard.partition} has {len(groups)} groups; delete some",
            )
        self.offset_memory.check_group(group_id)
        group = CoordinatedGroup(group_id, shard, protocol, None)
        self.offset_memory.count(group)
        groups[group_id] = group
        self.groups[group_id] = group
        return group

    def build_protocol(self, group_id: str, record: bytes | None = None) -> GroupProtocol:
        """Return the members of a group: none yet, or as a record says they were."""
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

    def build_consumer_group(self, group_id: str, records: ConsumerRecords) -> GroupProtocol:
        """Return a group of KIP-848 as its records say it was."""
        return ConsumerGroup.from_records(group_id, records, self.consumer_host)

    def consumer_heartbeat(
        self, group_id: str, asked: ConsumerHeartbeat, waiter: MemberWaiter
    ) -> None:
        """Take a ConsumerGroupHeartbeat; the waiter is answered now or later. KafkaError if not."""
        group = self.find(group_id)
        if group is not None and isinstance(group.protocol, ConsumerGroup):
            self.memory.check_more(group.protocol.heartbeat_bytes(asked))
        elif asked.member_epoch == 0:
            self.memory.check_more(heartbeat_bytes(asked))
        check_parked(self.parked_count)
        consumer_heartbeat(self, group_id, group, asked, waiter)

    def leave(
        self, group: CoordinatedGroup, leaving: Sequence[LeavingMember], waiter: MemberWaiter
    ) -> None:
        """Remove members of a group; the waiter is answered now or later."""
        clock = self.clock
        codes, effects = group.protocol.leave(
            leaving, now_ms=clock.monotonic_ms(), now_wall_ms=clock.now_ms()
        )
        result = LeaveResult(codes=codes)
        if not group.protocol.when_written(waiter, result):
            effects.replies.append((waiter, result))
        self.carry_out(group, effects)

    def join(self, group_id: str, request: JoinRequest, waiter: MemberWaiter) -> None:
        """Let a member join; the waiter is answered now or later. KafkaError if it can't."""
        group = self.find(group_id)
        if group is None and request.member_id:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        check_parked(self.parked_count)
        self.memory.check_more(
            join_bytes(request) if group is None else group.protocol.join_bytes(request)
        )
        if group is None:
            group = self.ensure(group_id)
        else:
            prepare_join(self, group, request.member_id)
        clock = self.clock
        effects = group.protocol.join(
            request, waiter, now_ms=clock.monotonic_ms(), now_wall_ms=clock.now_ms()
        )
        self.carry_out(group, effects)
        self._maybe_forget(group)

    def sync(self, group_id: str, request: SyncRequest, waiter: MemberWaiter) -> None:
        """Give a member its assignment. KafkaError if it can't have one."""
        group = self.find(group_id)
        if group is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        check_parked(self.parked_count)
        self.memory.check_more(group.protocol.sync_bytes(request))
        clock = self.clock
        effects = group.protocol.sync(
            request, waiter, now_ms=clock.monotonic_ms(), now_wall_ms=clock.now_ms()
        )
        self.carry_out(group, effects)

    def check_commit(
        self,
        group_id: str,
        member_id: str,
        generation_id: int,
        group_instance_id: str | None,
        *,
        version: int = 0,
        offsets: Offsets = (),
    ) -> CoordinatedGroup:
        """Return the group to commit to under these credentials; KafkaError if they are refused."""
        group = self.groups.get(group_id)
        if group is None:
            if generation_id > NO_GENERATION:
                self.runtime.shard_of(group_id)
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
            group = self.ensure(group_id)
        code = group.protocol.check_commit(
            member_id,
            generation_id,
            group_instance_id,
            now_ms=self.clock.monotonic_ms(),
            version=version,
            offsets=offsets,
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
        """Append offsets (topic, partition, value); answer the waiter when they are committed."""
        if group.is_gone:
            self.note_violation(group, "offsets of a group that is not here")
            waiter.finish(ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        size = self._size_if_room(group, waiter, offsets)
        if size is None:
            return
        self.metrics.offset_commits += len(offsets)
        self.runtime.append(group.shard, OffsetsWrite(group, waiter, offsets, held_bytes=size))

    def check_commit_in_transaction(
        self,
        group_id: str,
        member_id: str,
        generation_id: int,
        group_instance_id: str | None,
        offsets: Offsets = (),
    ) -> CoordinatedGroup:
        """Return the group to commit to in a transaction; KafkaError if it is refused."""
        group = self.find(group_id)
        if group is None:
            if generation_id > NO_GENERATION:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
            group = self.ensure(group_id)
        code = group.protocol.check_transactional_commit(
            member_id, generation_id, group_instance_id, offsets
        )
        if code is ErrorCode.STALE_MEMBER_EPOCH:
            # Producers know generations only.
            code = ErrorCode.ILLEGAL_GENERATION
        if code is not ErrorCode.NONE:
            raise KafkaError(code)
        return group

    def commit_in_transaction(
        self,
        group: CoordinatedGroup,
        producer: StagingProducer,
        waiter: CommitWaiter,
        offsets: list[tuple[str, int, bytes]],
    ) -> None:
        """Append offsets that count once the producer's transaction is committed.

        The waiter is answered when they are in the committed log. `producer.guard` comes from
        `Partition.begin_verification` of the group's partition, and the coordinator of the
        transaction has said yes since.
        """
        if group.is_gone:
            self.note_violation(group, "offsets of a group that is not here")
            waiter.finish(ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        size = self._size_if_room(group, waiter, offsets)
        if size is None:
            return
        self.metrics.offset_commits += len(offsets)
        shard: _Shard = group.shard
        write = StagedOffsetsWrite(shard.machine, group, producer, waiter, offsets, held_bytes=size)
        self.runtime.append(shard, write)

    def _size_if_room(
        self,
        group: CoordinatedGroup,
        waiter: CommitWaiter,
        offsets: list[tuple[str, int, bytes]],
    ) -> int | None:
        """Return what a commit takes; None if it may not come, and its waiter has the answer."""
        try:
            return self.offset_memory.check_commit(group, offsets)
        except KafkaError as error:
            self._maybe_forget(group)
            waiter.finish(error.code)
            return None

    def end_transaction(
        self, partition_index: int, marker: EndMarker, answer: Callable[[ErrorCode], None]
    ) -> None:
        """Append a marker to a partition of the offsets topic; it ends what groups have there.

        `answer` is called once, in this call or later: NONE when the marker is committed and
        applied to every group, else what a partition's leader says (WriteTxnMarkers):
        NOT_LEADER_OR_FOLLOWER also while the partition is loading, REQUEST_TIMED_OUT,
        INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED. It may be sent again after any.
        """
        shard = self.runtime.shards.get(partition_index)
        if shard is None or shard.state is not ShardState.ACTIVE:
            answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        else:
            self.runtime.append(shard, EndMarkerWrite(shard.machine, marker, answer))

    def carry_out(self, group: CoordinatedGroup, effects: Effects) -> None:
        """Append and answer as the group wants it, and mind its next deadline."""
        if group.is_gone:
            self._answer(effects)
            return
        self.memory.count(group)
        protocol = group.protocol
        if effects.downgrade is not None:
            downgrade(self, group, effects.writes[-1], effects.downgrade)
        for write in effects.writes:
            if not write.violation:
                self._append(group, protocol, write)
        self._answer(effects)
        self.runtime.schedule(group)
        if effects.resolution is not None:
            self._resolve(group, protocol, effects.resolution)
        for write in effects.writes:
            if write.violation:
                self.note_violation(group, write.violation)
                self._settle(group, protocol, write, ErrorCode.UNKNOWN_SERVER_ERROR)

    def _append(self, group: CoordinatedGroup, protocol: GroupProtocol, write: GroupWrite) -> None:
        def on_outcome(group: CoordinatedGroup, write: GroupWrite, code: ErrorCode) -> None:
            self._on_outcome(group, protocol, write, code)

        records = GroupRecordWrite(group, write, on_outcome)
        if write.counts_late and not group.shard.has_room_for(records):
            # Later decisions assume that this is in the log, so it must not fail alone.
            records.failed(ErrorCode.MESSAGE_TOO_LARGE)
        else:
            self.runtime.append(group.shard, records)

    def _resolve(
        self, group: CoordinatedGroup, protocol: GroupProtocol, asked: ResolutionRequest
    ) -> None:
        task = asyncio.get_running_loop().create_task(self._resolved(group, protocol, asked))
        self._resolving.add(task)
        task.add_done_callback(self._resolving.discard)

    async def _resolved(
        self, group: CoordinatedGroup, protocol: GroupProtocol, asked: ResolutionRequest
    ) -> None:
        """Look the patterns of a group up, and tell it."""
        names = list(self._broker.image.names)
        topics: Mapping[str, frozenset[str]] | None = None
        try:
            topics = await self._resolution.resolve(asked.patterns, names, asked.may_describe)
        except KafkaError as error:
            # A pattern that was let in by another version of the library.
            logger.warning("patterns of group %a: %s", group.group_id, error.message)
        except Exception:
            # The group asks again after its interval; it would not if it heard nothing.
            logger.exception("the patterns of group %a could not be looked up", group.group_id)
        if isinstance(protocol, ConsumerGroup):
            clock = self.clock
            # One that is not spoken now hears that it is over: it may be again.
            is_spoken = protocol is group.protocol
            effects = protocol.regular_expressions_resolved(
                topics if is_spoken else None,
                now_ms=clock.monotonic_ms(),
                now_wall_ms=clock.now_ms(),
            )
            if is_spoken:
                self.carry_out(group, effects)

    def note_violation(self, group: CoordinatedGroup, violation: str) -> None:
        """Count and say what is not written, because it would break a rule."""
        self.metrics.broken_decisions += 1
        logger.error("a wrong record of group %a is not written: %s", group.group_id, violation)

    def on_deleted(self, group: CoordinatedGroup) -> None:
        """Forget a group whose tombstone is committed, unless it was revived meanwhile."""
        protocol = group.protocol
        if not protocol.is_dead and (not protocol.is_empty or has_record_on_its_way(group)):
            return
        if not group.has_offsets:
            self._remove(group)
        else:
            # Some of its offsets could not be deleted, or were committed since the client was told
            # that it takes too long: what is left is what a replay would give.
            group.protocol = self.build_protocol(group.group_id)
            self.memory.count(group)

    def _remove(self, group: CoordinatedGroup) -> None:
        """Delete a group: from now on requests do not find it."""
        group.is_gone = True
        group.scheduled_ms = None
        self.memory.count(group)
        self.offset_memory.count(group)
        if self.groups.get(group.group_id) is group:
            del self.groups[group.group_id]
            del group.shard.machine.by_id[group.group_id]

    def _answer(self, effects: Effects) -> None:
        for waiter, result in effects.replies:
            waiter.answer(result)

    def _on_outcome(
        self,
        group: CoordinatedGroup,
        protocol: GroupProtocol,
        write: GroupWrite,
        code: ErrorCode,
    ) -> None:
        if code is ErrorCode.UNKNOWN_SERVER_ERROR:
            logger.warning(
                "the record of group %a does not fit into %s: raise max.message.bytes of the topic",
                group.group_id,
                group.shard.partition,
            )
        self._settle(group, protocol, write, code)

    def _settle(
        self,
        group: CoordinatedGroup,
        protocol: GroupProtocol,
        write: GroupWrite,
        code: ErrorCode,
    ) -> None:
        """Tell who made a write how it has ended: what the group speaks, or spoke then."""
        clock = self.clock
        effects = protocol.written(
            write, code, now_ms=clock.monotonic_ms(), now_wall_ms=clock.now_ms()
        )
        if group.formers:
            settle_change(self, group, write, code)
        if protocol is group.protocol:
            self.carry_out(group, effects)
        else:
            self._answer(effects)

    def _tick(self, group: CoordinatedGroup) -> None:
        effects = group.protocol.tick(
            now_ms=self.clock.monotonic_ms(), now_wall_ms=self.clock.now_ms()
        )
        self.carry_out(group, effects)
        self._maybe_forget(group)

    def _maybe_forget(self, group: CoordinatedGroup) -> None:
        """Drop a group that never had members: it has no record, and is not needed."""
        if group.protocol.is_unused and group.scheduled_ms is None and not group.has_offsets:
            self._remove(group)
