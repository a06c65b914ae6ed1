"""A consumer group of KIP-848 as a state machine: members get their assignments by heartbeats.

Pure. It takes requests, outcomes of writes and the time, and returns `Effects`. `consumer_members`
has the members and their assignments; this module has what each request does and when it is
answered. Every answer waits until all records that it depends on are committed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from fairlead_broker.group.assignors.assignment import TopicIdPartition
from fairlead_broker.group.classic.member import join_bytes
from fairlead_broker.group.consumer import classic_members
from fairlead_broker.group.consumer.consumer_members import ConsumerMembers, Now
from fairlead_broker.group.consumer.protocol_migration import can_downgrade, downgraded
from fairlead_broker.group.consumer.regular_expressions import PatternWatch
from fairlead_broker.group.consumer.speculative_state import SpeculativeState, take_replies
from fairlead_broker.group.consumer.target_assignment import preferred_assignor
from fairlead_broker.group.group_types import (
    NO_GENERATION,
    NO_MEMBER,
    ConsumerGroupDescription,
    ConsumerHeartbeatResult,
    ConsumerMemberDescription,
    Downgrade,
    Effects,
    GroupWrite,
    JoinResult,
    ResolutionRequest,
    Subscriptions,
    SyncResult,
)
from fairlead_broker.group.member_names import names_bytes
from fairlead_broker.group.records.classic_records import NO_TIMESTAMP, GroupKey, encode_group_value
from fairlead_broker.group.records.classic_records import encode_key as encode_classic_key
from fairlead_broker.group.records.consumer_records import (
    MemberState,
    RecordType,
    ResolvedRegularExpression,
    encode_key,
)
from fairlead_broker.group.records.consumer_state import (
    AWAY_EPOCH,
    JOINING_EPOCH,
    ConsumerGroupState,
    metadata_bytes,
    subscription_bytes,
)
from fairlead_broker.group.subscription import CONSUMER_PROTOCOL_TYPE
from fairlead_broker.limits import MEMBER_OVERHEAD_BYTES
from fairlead_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from fairlead_broker.group.consumer.consumer_members import ConsumerGroupHost
    from fairlead_broker.group.consumer.protocol_migration import Records
    from fairlead_broker.group.consumer.speculative_state import EncodedRecord, Reply
    from fairlead_broker.group.group_types import (
        ConsumerHeartbeat,
        GroupDescription,
        JoinRequest,
        LeavingMember,
        Offsets,
        Result,
        SyncRequest,
    )
    from fairlead_broker.group.records.consumer_records import ConsumerRecords

_DEAD: Final = ErrorCode.COORDINATOR_NOT_AVAILABLE
MEMBER_EPOCH_SINCE: Final = 9
"""The version of OffsetCommit from which on clients know what a member epoch is."""


class ConsumerGroup:
    """One group: `members` with their assignments, and writes in flight."""

    __slots__ = ("_adopted", "_before", "_is_dead", "_tombstones", "members", "patterns")

    def __init__(self, group_id: str, host: ConsumerGroupHost) -> None:
        self.members = ConsumerMembers(ConsumerGroupState(group_id), host)
        self.patterns = PatternWatch()
        self._adopted: Records = []
        self._before: list[EncodedRecord] = []
        self._is_dead = False
        self._tombstones: GroupWrite | None = None

    @classmethod
    def from_records(
        cls,
        group_id: str,
        records: ConsumerRecords,
        host: ConsumerGroupHost,
    ) -> ConsumerGroup:
        """As the log says it was: the newest record of each key, in any order."""
        state = ConsumerGroupState(group_id)
        for key, value in records:
            state.apply(key, value)
            if key.type is RecordType.PARTITION_METADATA:
                state.has_partition_metadata = True
        state.complete_members()
        group = cls(group_id, host)
        group.members.speculative = SpeculativeState(state)
        return group

    @classmethod
    def from_classic(
        cls, group_id: str, records: Records, host: ConsumerGroupHost
    ) -> ConsumerGroup:
        """In place of a group of the classic protocol, whose tombstone its first write brings."""
        group = cls(group_id, host)
        group._before = [(encode_classic_key(GroupKey(group_id)), None)]
        group._adopted = records
        return group

    @property
    def state(self) -> ConsumerGroupState:
        """The group with all that is on its way to the log."""
        return self.members.speculative.latest

    def consumer_heartbeat(
        self, asked: ConsumerHeartbeat, waiter: Any, *, now_ms: int, now_wall_ms: int
    ) -> Effects:
        """Take a ConsumerGroupHeartbeat; KafkaError where it is refused, and nothing is changed."""
        self._require_alive()
        # Nothing is left of a request that a fault of this program has ended.
        self._abandon(now_ms)
        self._adopt(now_ms)
        now, members = Now(now_ms, now_wall_ms), self.members
        before = self.state.current(asked.member_id).assigned.keys()
        try:
            if asked.member_epoch < JOINING_EPOCH:
                return self._leave_alone(asked, waiter, now)
            current = members.advance(asked, now)
        except KafkaError:
            self._abandon(now_ms)
            raise
        is_told = (
            asked.member_epoch == JOINING_EPOCH
            or asked.is_full
            or current.assigned.keys() != before
        )
        result = ConsumerHeartbeatResult(
            member_id=asked.member_id,
            member_epoch=current.member_epoch,
            heartbeat_interval_ms=members.settings.heartbeat_interval_ms,
            assigned=frozenset(current.assigned) if is_told else None,
        )
        effects = self._close(now, waiter, result)
        number, refresh_ms = members.host.topics_number, members.settings.regex_refresh_interval_ms
        if self.patterns.is_due(self.state, number, now_ms=now_ms, refresh_ms=refresh_ms):
            self.patterns.begin(number, now_ms=now_ms)
            effects.resolution = ResolutionRequest(self.state.patterns(), asked.may_describe)
        return effects

    def _adopt(self, now_ms: int) -> None:
        """Begin with the members that the group had in the other protocol."""
        adopted, self._adopted = self._adopted, []
        for record_type, value, name in adopted:
            self.members.speculative.put(record_type, value, name)
        if adopted:
            self.members.begin_sessions(now_ms)

    def _leave_alone(self, asked: ConsumerHeartbeat, waiter: Any, now: Now) -> Effects:
        self.members.check_member(asked.member_id, asked.instance_id)
        result = ConsumerHeartbeatResult(member_id=asked.member_id, member_epoch=asked.member_epoch)
        if asked.member_epoch == AWAY_EPOCH:
            self.members.put_away(asked.member_id)
            return self._close(now, waiter, result)
        former_epoch = self.state.epoch
        self.members.remove([asked.member_id])
        return self._close(now, waiter, result, former_epoch=former_epoch)

    def regular_expressions_resolved(
        self, topics: Mapping[str, frozenset[str]] | None, *, now_ms: int, now_wall_ms: int
    ) -> Effects:
        """Take the topics of the requested patterns; None if the lookup failed."""
        self.patterns.end()
        if topics is None or self._is_dead:
            self.patterns.forget()
            return Effects()
        self._abandon(now_ms)
        state, members = self.state, self.members
        has_others = False
        for pattern in sorted(state.patterns() & topics.keys()):
            known = state.regular_expressions.get(pattern)
            has_others |= topics[pattern] != (frozenset() if known is None else known.topics)
            resolved = ResolvedRegularExpression(topics[pattern], now_wall_ms, now_wall_ms)
            members.speculative.put(RecordType.REGULAR_EXPRESSION, resolved, pattern)
        if has_others:
            members.refresh_epoch(is_new=True)
        return self._close(Now(now_ms, now_wall_ms))

    def heartbeat_bytes(self, asked: ConsumerHeartbeat) -> int:
        """Return how much more memory it would take after a heartbeat of a member."""
        known = self.state.members.get(asked.member_id)
        if known is None:
            return heartbeat_bytes(asked) if asked.member_epoch == JOINING_EPOCH else 0
        more = names_bytes(
            asked.member_id,
            asked.instance_id or known.instance_id,
            asked.rack_id or known.rack_id,
            asked.client_id,
            asked.client_host,
        ) - names_bytes(
            asked.member_id, known.instance_id, known.rack_id, known.client_id, known.client_host
        )
        if asked.topic_names is not None:
            more += subscription_bytes(asked.topic_names, "")
            more -= subscription_bytes(known.topic_names, "")
        if asked.topic_regex is not None:
            more += len(asked.topic_regex) - len(known.topic_regex)
        return more

    def join_bytes(self, request: JoinRequest) -> int:
        """Return how much more memory it would take after a join."""
        known = self.state.members.get(request.member_id)
        more = join_bytes(request)
        return more if known is None else more - metadata_bytes(request.member_id, known)

    def join(self, request: JoinRequest, waiter: Any, *, now_ms: int, now_wall_ms: int) -> Effects:
        """Let a member of the classic protocol join; it does not wait for other members."""
        self._abandon(now_ms)
        now, former_epoch = Now(now_ms, now_wall_ms), self.state.epoch
        try:
            self._require_alive()
            if not self.members.settings.migration_policy.allows_mixing:
                raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            result = classic_members.join(self.members, request, now)
        except KafkaError as error:
            self._abandon(now_ms)
            return Effects([(waiter, JoinResult(error.code))])
        if result.error is not ErrorCode.NONE:
            return self._close(now, waiter, result)
        return self._close(now, waiter, result, former_epoch=former_epoch)

    def sync_bytes(self, request: SyncRequest) -> int:
        """Only the coordinator assigns partitions."""
        return 0

    def sync(self, request: SyncRequest, waiter: Any, *, now_ms: int, now_wall_ms: int) -> Effects:
        """Give a member of the classic protocol what it has."""
        now = Now(now_ms, now_wall_ms)
        try:
            self._require_alive()
            result = classic_members.sync(self.members, request, now)
        except KafkaError as error:
            return Effects([(waiter, SyncResult(error.code))])
        return self._close(now, waiter, result)

    def heartbeat(
        self, member_id: str, generation_id: int, group_instance_id: str | None, *, now_ms: int
    ) -> ErrorCode:
        """Take a Heartbeat of a member of the classic protocol."""
        try:
            self._require_alive()
            return classic_members.heartbeat(
                self.members, member_id, generation_id, group_instance_id, now_ms=now_ms
            )
        except KafkaError as error:
            return error.code

    def leave(
        self, members: Sequence[LeavingMember], *, now_ms: int, now_wall_ms: int
    ) -> tuple[list[ErrorCode], Effects]:
        """Remove members, of whichever protocol, all at once."""
        if self._is_dead:
            return [_DEAD for _ in members], Effects()
        self._abandon(now_ms)
        codes: list[ErrorCode] = []
        leaving: dict[str, None] = {}
        for each in members:
            try:
                member_id = self._leaving_id(each)
                leaving[member_id] = None
                codes.append(ErrorCode.NONE)
            except KafkaError as error:
                codes.append(error.code)
        if not leaving:
            return codes, Effects()
        former_epoch = self.state.epoch
        self.members.remove(leaving)
        return codes, self._close(Now(now_ms, now_wall_ms), former_epoch=former_epoch)

    def _leaving_id(self, leaving: LeavingMember) -> str:
        instance_id = leaving.group_instance_id
        if leaving.member_id == NO_MEMBER and instance_id is not None:
            holder = self.state.instances.get(instance_id)
            if holder is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            return holder
        self.members.check_member(leaving.member_id, instance_id)
        return leaving.member_id

    def check_commit(
        self,
        member_id: str,
        generation_id: int,
        group_instance_id: str | None,
        *,
        now_ms: int,
        version: int,
        offsets: Offsets,
    ) -> ErrorCode:
        """Whether a member may commit these: it has, or had, each of them at its epoch (KIP-1251).

        Without an epoch it is a commit from outside the group, which needs one that is empty.
        """
        if self._is_dead:
            return _DEAD
        if generation_id <= NO_GENERATION and not self.state.members:
            return ErrorCode.NONE
        member = self.state.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member.classic is None and version < MEMBER_EPOCH_SINCE:
            return ErrorCode.UNSUPPORTED_VERSION
        return self._check_epoch(member_id, generation_id, offsets)

    def check_transactional_commit(
        self,
        member_id: str,
        generation_id: int,
        group_instance_id: str | None,
        offsets: Offsets = (),
    ) -> ErrorCode:
        """Whether offsets may be committed in a transaction under these credentials (KIP-447)."""
        if self._is_dead:
            return _DEAD
        if generation_id <= NO_GENERATION and (
            not self.state.members or (member_id == NO_MEMBER and group_instance_id is None)
        ):
            return ErrorCode.NONE
        if member_id not in self.state.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return self._check_epoch(member_id, generation_id, offsets)

    def _check_epoch(self, member_id: str, epoch: int, offsets: Offsets) -> ErrorCode:
        current = self.state.current(member_id)
        if epoch == current.member_epoch:
            return ErrorCode.NONE
        is_classic = self.state.members[member_id].classic is not None
        stale = ErrorCode.ILLEGAL_GENERATION if is_classic else ErrorCode.STALE_MEMBER_EPOCH
        if epoch > current.member_epoch or not offsets:
            return stale
        image = self.members.host.image
        for name, partition, _ in offsets:
            topic = image.topic(name)
            if topic is None:
                return stale
            key = TopicIdPartition(topic.topic_id, partition)
            since = current.assigned.get(key, current.pending_revocation.get(key))
            if since is None or epoch < since:
                return stale
        return ErrorCode.NONE

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Whether a member that identifies itself may get committed offsets."""
        state = self.members.speculative.committed
        member = state.members.get(member_id or NO_MEMBER)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member_epoch != state.current(member_id or NO_MEMBER).member_epoch:
            return (
                ErrorCode.STALE_MEMBER_EPOCH
                if member.classic is None
                else ErrorCode.ILLEGAL_GENERATION
            )
        return ErrorCode.NONE

    def forget_waiter(self, waiter: Any) -> None:
        """Do not answer this request any more: requests here wait only for the log."""

    def when_written(self, waiter: Any, result: Result) -> bool:
        """Have an answer wait for all that is on its way; False where nothing is."""
        return self.members.speculative.wait((waiter, result))

    def delete(self) -> tuple[ErrorCode, Effects]:
        """End the group if it is empty; it is gone once its tombstones are written."""
        if self._is_dead:
            return ErrorCode.GROUP_ID_NOT_FOUND, Effects()
        if self.state.members:
            return ErrorCode.NON_EMPTY_GROUP, Effects()
        self._is_dead = True
        self._tombstones = GroupWrite([(encode_key(key), None) for key in self.state.tombstones()])
        return ErrorCode.NONE, Effects(writes=[self._tombstones])

    def retire(self) -> GroupWrite | None:
        """End the group because it changes its protocol; None if it has no record."""
        if self.is_unused:
            return None
        speculative = self.members.speculative
        for key in list(self.state.tombstones()):
            speculative.remove(key)
        return speculative.close([])

    def written(
        self, write: GroupWrite, error: ErrorCode, *, now_ms: int, now_wall_ms: int
    ) -> Effects:
        """Answer requests that waited for a write that is committed, failed, or takes too long."""
        if write is self._tombstones:
            self._tombstones = None
            if error is not ErrorCode.NONE:
                # They may be in the log all the same: whatever is written next must be complete.
                self._is_dead = False
                self.members.expect_target()
            return Effects()
        if error is ErrorCode.REQUEST_TIMED_OUT:
            return Effects(_failed(take_replies(write), ErrorCode.COORDINATOR_NOT_AVAILABLE))
        is_committed = error is ErrorCode.NONE
        replies = self.members.speculative.settle(write, is_committed=is_committed)
        if is_committed:
            return Effects(replies)
        self.members.fall_back(now_ms)
        self.patterns.forget()
        return Effects(_failed(replies, error))

    def tick(self, *, now_ms: int, now_wall_ms: int) -> Effects:
        """Fence members that were silent, or slow, for too long."""
        if self._is_dead:
            return Effects()
        self._abandon(now_ms)
        overdue = self.members.overdue(now_ms)
        if not overdue:
            return Effects()
        former_epoch = self.state.epoch
        self.members.remove(overdue)
        return self._close(Now(now_ms, now_wall_ms), former_epoch=former_epoch)

    def next_deadline_ms(self) -> int | None:
        """Return when `tick` has something to do at the earliest."""
        return None if self._is_dead else self.members.timers.next_ms

    def on_loaded(self, *, now_ms: int, now_wall_ms: int) -> Effects:
        """Restart the timers of every member."""
        self.members.begin_sessions(now_ms)
        return Effects()

    def fail_all(self, error: ErrorCode) -> Effects:
        """Answer all waiting requests: another broker coordinates now."""
        self._is_dead = True
        return Effects(_failed(self.members.speculative.all_replies(), error))

    def _require_alive(self) -> None:
        if self._is_dead:
            raise KafkaError(_DEAD, "the group is being deleted")

    def _abandon(self, now_ms: int) -> None:
        if self.members.speculative.abandon():
            self.members.fall_back(now_ms)

    def _close(
        self,
        now: Now,
        waiter: Any = None,
        result: Result | None = None,
        *,
        former_epoch: int | None = None,
    ) -> Effects:
        """Have written what has changed, and answered when it is.

        With the group epoch before the change, the group may go back to the classic protocol.
        """
        effects, speculative, settings = Effects(), self.members.speculative, self.members.settings
        state = self.state
        after: list[EncodedRecord] = []
        if (
            former_epoch is not None
            and settings.migration_policy.allows_downgrade
            and can_downgrade(state, settings.classic_size_max)
        ):
            image = self.members.host.image
            value = downgraded(state, former_epoch, image, now_wall_ms=now.wall_ms)
            record = encode_group_value(value)
            effects.downgrade = Downgrade(
                record,
                {
                    member_id: member.classic.protocols
                    for member_id, member in state.members.items()
                    if member.classic is not None
                },
            )
            if isinstance(result, JoinResult):
                result = replace(
                    result, generation_id=value.generation_id, protocol_name=value.protocol
                )
            for key in list(state.tombstones()):
                speculative.remove(key)
            after.append((encode_classic_key(GroupKey(state.group_id)), record))
        reply = None if result is None else (waiter, result)
        before, self._before = self._before, []
        write = speculative.close([] if reply is None else [reply], before=before, after=after)
        if write is not None:
            effects.writes.append(write)
        elif reply is not None and not speculative.wait(reply):
            effects.replies.append(reply)
        return effects

    @property
    def group_type(self) -> str:
        """Kafka's name of the protocol."""
        return CONSUMER_PROTOCOL_TYPE

    @property
    def protocol_type(self) -> str:
        """What all its members are."""
        return CONSUMER_PROTOCOL_TYPE

    @property
    def state_name(self) -> str:
        """Return its state as the log says it for certain."""
        if self._is_dead:
            return "Dead"
        state = self.members.speculative.committed
        if not state.members:
            return "Empty"
        if state.epoch > state.assignment_epoch:
            return "Assigning"
        is_stable = all(
            current.member_epoch == state.assignment_epoch and current.state is MemberState.STABLE
            for current in map(state.current, state.members)
        )
        return "Stable" if is_stable else "Reconciling"

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        return not self.state.members

    @property
    def is_dead(self) -> bool:
        """Whether it is being deleted."""
        return self._is_dead

    @property
    def is_unused(self) -> bool:
        """Whether no record of it is in the log, or on its way."""
        return not self.state.is_logged and self.members.speculative.is_settled

    @property
    def awaits_members(self) -> bool:
        """False: a member of this protocol joins with its first request."""
        return False

    @property
    def memory_bytes(self) -> int:
        """Approximate memory of its members, as committed and as it will be."""
        return self.state.memory_bytes + self.members.speculative.committed.memory_bytes

    def describe(self) -> GroupDescription | None:
        """DescribeGroups knows classic groups only."""
        return None

    def describe_members(self) -> ConsumerGroupDescription:
        """Describe it as ConsumerGroupDescribe does."""
        state = self.members.speculative.committed
        wanted = (member.server_assignor for member in state.members.values())
        return ConsumerGroupDescription(
            self.state_name,
            state.epoch,
            state.assignment_epoch,
            preferred_assignor(wanted, self.members.settings.assignors),
            [
                ConsumerMemberDescription(
                    member_id, member, state.current(member_id), state.target(member_id)
                )
                for member_id, member in state.members.items()
            ],
        )

    def subscriptions(self) -> Subscriptions:
        """Tell what the expiry of its offsets depends on; when it became empty is not known."""
        state = self.members.speculative.committed
        topics = state.subscriptions()
        return Subscriptions(CONSUMER_PROTOCOL_TYPE, not state.members, NO_TIMESTAMP, topics)

    def topics_in_use(self) -> frozenset[str]:
        """Return topics that members subscribe to."""
        if self._is_dead:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        return self.state.subscriptions()


def heartbeat_bytes(asked: ConsumerHeartbeat) -> int:
    """Return about how much memory a joining member takes."""
    names, pattern = asked.topic_names or (), asked.topic_regex or ""
    return (
        MEMBER_OVERHEAD_BYTES
        + subscription_bytes(names, pattern)
        + names_bytes(
            asked.member_id, asked.instance_id, asked.rack_id, asked.client_id, asked.client_host
        )
    )


def _failed(replies: Iterable[Reply], error: ErrorCode) -> list[Reply]:
    """Return the same waiters with an error."""
    return [(waiter, type(result)(error=error)) for waiter, result in replies]
