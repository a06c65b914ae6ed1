"""A consumer group of the classic protocol as a state machine: its members and assignments.

Pure. It takes requests, outcomes of writes and the time, and returns `Effects`. `rebalance` has the
course of a rebalance; this module has what each request may do in which state. A request that the
state does not allow changes nothing.

Two rules go beyond Kafka's coordinator. A member whose connection is gone while it waits is given
its session time-out from then on, not five minutes. And a static member that comes back with other
topics makes the group rebalance, where Kafka would leave the new topics unread.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fairlead_broker.group.classic.member import Member, join_bytes
from fairlead_broker.group.classic.membership import TakeoverToken, Turn
from fairlead_broker.group.classic.rebalance import Rebalance
from fairlead_broker.group.group_types import (
    NO_GENERATION,
    NO_MEMBER,
    Effects,
    GroupDescription,
    GroupState,
    JoinResult,
    MigratingMember,
    Subscriptions,
    SyncResult,
)
from fairlead_broker.group.records.classic_records import decode_group_value
from fairlead_broker.group.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics
from fairlead_broker.limits import GROUP_PENDING_MEMBERS_MAX
from fairlead_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fairlead_broker.group.classic.member import Protocols
    from fairlead_broker.group.group_types import (
        GroupWrite,
        JoinRequest,
        LeavingMember,
        Offsets,
        Result,
        SyncRequest,
    )


class ClassicGroup:
    """One group: its `members`, the `pending` ones, and the state of their rebalance."""

    __slots__ = ("members", "membership", "pending", "rebalance")

    def __init__(self, group_id: str, *, initial_rebalance_delay_ms: int, size_max: int) -> None:
        self.rebalance = Rebalance(
            group_id, initial_rebalance_delay_ms=initial_rebalance_delay_ms, size_max=size_max
        )
        self.membership = self.rebalance.membership
        self.members = self.membership.members
        self.pending = self.membership.pending

    @classmethod
    def from_record(
        cls,
        group_id: str,
        value: bytes,
        *,
        initial_rebalance_delay_ms: int,
        size_max: int,
        now_ms: int,
    ) -> ClassicGroup:
        """As the log says it was, every session beginning now. ValueError for damaged values."""
        record = decode_group_value(value)
        group = cls(
            group_id, initial_rebalance_delay_ms=initial_rebalance_delay_ms, size_max=size_max
        )
        group.rebalance.protocol_type = record.protocol_type
        group.rebalance.generation_id = record.generation_id
        group.rebalance.recorded_generation_id = record.generation_id
        group.rebalance.state_timestamp_ms = record.state_timestamp_ms
        if not record.members:
            return group
        group.rebalance.state = GroupState.STABLE
        group.rebalance.protocol_name = record.protocol or ""
        for each in record.members:
            member = Member.of_record(each, group.rebalance.protocol_name)
            if group.members.get(member.member_id) or group.members.of_instance(
                member.group_instance_id
            ):
                raise ValueError(f"the record of group {group_id} names {member.member_id} twice")
            group.members.add(member)
            group.membership.keep_alive(member, now_ms)
        if record.leader is not None:
            is_member = group.members.get(record.leader) is not None
            group.membership.leader = record.leader if is_member else record.members[0].member_id
        return group

    def take_protocols(self, protocols: Mapping[str, Protocols]) -> None:
        """Know members by all that they joined with, of which the record has one."""
        for member_id, known in protocols.items():
            member = self.members.get(member_id)
            if member is not None:
                self.members.change_protocols(member, known)

    def on_loaded(self, *, now_ms: int, now_wall_ms: int) -> Effects:
        """Restart the session of every member; rebalance a group that is too large now.

        Who comes last is left out then. And one whose members nobody leads: it has left the
        protocol of KIP-848, and what is free since then nobody has.
        """
        turn = Turn(now_ms, now_wall_ms)
        for member in self.members:
            self.membership.keep_alive(member, now_ms)
        is_led = not self.members or self.membership.leader != NO_MEMBER
        if len(self.members) > self.rebalance.size_max or not is_led:
            self.rebalance.prepare_rebalance(turn)
        return turn.effects

    def join(self, request: JoinRequest, waiter: Any, *, now_ms: int, now_wall_ms: int) -> Effects:
        """Let a member join or rejoin; it is answered now or when the rebalance is complete."""
        turn = Turn(now_ms, now_wall_ms)
        refusal = self._refusal(request)
        if refusal is not None:
            if refusal is ErrorCode.GROUP_MAX_SIZE_REACHED:
                self._give_up_place(request, turn)
            turn.reply(waiter, JoinResult(refusal, member_id=request.member_id))
        elif request.member_id == NO_MEMBER:
            self._join_without_id(request, waiter, turn)
        elif request.member_id in self.pending:
            del self.pending[request.member_id]
            self._add_member(request, request.member_id, waiter, turn)
        else:
            self._rejoin(request, waiter, turn)
        return turn.effects

    def _refusal(self, request: JoinRequest) -> ErrorCode | None:
        member_id, instance_id = request.member_id, request.group_instance_id
        if self.rebalance.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if member_id in self.pending:
            # Ids are handed out to dynamic members only.
            known = ErrorCode.NONE if instance_id is None else ErrorCode.UNKNOWN_MEMBER_ID
        elif member_id == NO_MEMBER:
            known = ErrorCode.NONE
        else:
            known = self.membership.check_member(member_id, instance_id)
        if known is not ErrorCode.NONE:
            return known if self._supports(request) else ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if not self._has_room(request):
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        if not self._supports(request):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return None

    def _supports(self, request: JoinRequest) -> bool:
        if not request.protocol_type or not request.protocols:
            return False
        if not self.members:
            return True
        return request.protocol_type == self.rebalance.protocol_type and self.members.have_common(
            request.protocols
        )

    def _has_room(self, request: JoinRequest) -> bool:
        """In a rebalance the places go to those who come first."""
        member = self.members.get(request.member_id)
        if member is None:
            member = self.members.of_instance(request.group_instance_id)
        if self.rebalance.state is GroupState.PREPARING_REBALANCE:
            is_parked = member is not None and member.join_waiter is not None
            return is_parked or self.members.joining < self.rebalance.size_max
        return member is not None or len(self.members) < self.rebalance.size_max

    def _give_up_place(self, request: JoinRequest, turn: Turn) -> None:
        """Drop a member that was refused for lack of room: it does not come back."""
        self.pending.pop(request.member_id, None)
        member = self.members.get(request.member_id)
        if member is not None:
            self.membership.remove(member, turn)
        self.rebalance.on_members_gone(turn)

    def _join_without_id(self, request: JoinRequest, waiter: Any, turn: Turn) -> None:
        holder = self.members.of_instance(request.group_instance_id)
        if holder is not None:
            self._take_over(holder, request, waiter, turn)
        elif request.requires_known_member_id and request.group_instance_id is None:
            # KIP-394: who never comes back with its id, is never a member.
            while len(self.pending) >= GROUP_PENDING_MEMBERS_MAX:
                del self.pending[next(iter(self.pending))]
            deadline_ms = turn.now_ms + request.session_timeout_ms
            self.pending[request.new_member_id] = deadline_ms
            self.membership.check_sessions_by(deadline_ms)
            required = JoinResult(ErrorCode.MEMBER_ID_REQUIRED, member_id=request.new_member_id)
            turn.reply(waiter, required)
        else:
            self._add_member(request, request.new_member_id, waiter, turn)

    def _add_member(self, request: JoinRequest, member_id: str, waiter: Any, turn: Turn) -> None:
        member = Member.of_request(member_id, request)
        if not self.members:
            self.rebalance.protocol_type = request.protocol_type
            self.membership.leader = member_id
        self.members.add(member)
        self.rebalance.note_new_member()
        self.rebalance.wait_for_rebalance(member, waiter, turn)

    def _rejoin(self, request: JoinRequest, waiter: Any, turn: Turn) -> None:
        member = self.members.get(request.member_id)
        if member is None:
            return
        is_same = member.protocols == request.protocols
        is_leader = member.member_id == self.membership.leader
        is_current = self.rebalance.state is GroupState.COMPLETING_REBALANCE or (
            # The leader of a stable group joins again because it wants another assignment.
            self.rebalance.state is GroupState.STABLE and not is_leader
        )
        if is_same and is_current:
            # It may never have had the answer to its last request.
            self.membership.keep_alive(member, turn.now_ms)
            turn.reply(waiter, self.rebalance.joined(member))
            return
        self._update(member, request)
        self.rebalance.wait_for_rebalance(member, waiter, turn)

    def _update(self, member: Member, request: JoinRequest) -> None:
        self.members.change_protocols(member, request.protocols)
        member.take_timeouts(request)
        self.members.change_client(member, request.client_id, request.client_host)

    def _take_over(self, member: Member, request: JoinRequest, waiter: Any, turn: Turn) -> None:
        """KIP-345: a new process of a static instance takes the place of the one before it."""
        old_leader, old_topics = self.membership.leader, self._topics_of(member)
        self.membership.fence(member, request.new_member_id, turn)
        self._update(member, request)
        self.membership.keep_alive(member, turn.now_ms)
        is_undisturbed = (
            self.rebalance.state is GroupState.STABLE
            and self.members.elect_protocol() == self.rebalance.protocol_name
            and self._topics_of(member) == old_topics
        )
        if not is_undisturbed:
            self.rebalance.wait_for_rebalance(member, waiter, turn)
            return
        # KIP-814: the leader gets all members, and that it has nothing to assign. An older client
        # gets its predecessor's id as leader instead, so that it acts as a follower.
        result = self.rebalance.joined(member)
        if not request.supports_skipping_assignment:
            result = replace(result, leader=old_leader, members=())
        elif member.member_id == self.membership.leader:
            result = replace(result, skip_assignment=True)
        token = TakeoverToken(member.member_id, member.group_instance_id, result, waiter)
        self.rebalance.write_takeover(member, token, turn)

    def sync(self, request: SyncRequest, waiter: Any, *, now_ms: int, now_wall_ms: int) -> Effects:
        """Give a member its assignment; the leader's request alone makes the group stable (G2)."""
        turn = Turn(now_ms, now_wall_ms)
        error = self._check_sync(request)
        member = self.members.get(request.member_id)
        if error is not ErrorCode.NONE or member is None:
            turn.reply(waiter, SyncResult(error))
        elif self.rebalance.state is GroupState.STABLE:
            self.membership.keep_alive(member, turn.now_ms)
            self.rebalance.note_synced(member)
            turn.reply(waiter, self.rebalance.synced(member))
        else:
            self.rebalance.wait_for_assignment(member, waiter, turn)
            if member.member_id == self.membership.leader:
                self.rebalance.write_assignments(dict(request.assignments), turn)
        return turn.effects

    def _check_sync(self, request: SyncRequest) -> ErrorCode:
        error = self._check_generation(
            request.member_id, request.generation_id, request.group_instance_id
        )
        if error is not ErrorCode.NONE:
            return error
        for said, agreed in (
            (request.protocol_type, self.rebalance.protocol_type),
            (request.protocol_name, self.rebalance.protocol_name),
        ):
            if said is not None and said != agreed:
                return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if self.rebalance.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def heartbeat(
        self, member_id: str, generation_id: int, group_instance_id: str | None, *, now_ms: int
    ) -> ErrorCode:
        """Take a sign of life; REBALANCE_IN_PROGRESS tells the member to join again."""
        error = self._check_generation(member_id, generation_id, group_instance_id)
        if error is not ErrorCode.NONE:
            return error
        self._note_life(member_id, now_ms)
        if self.rebalance.state is GroupState.PREPARING_REBALANCE:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def check_commit(
        self,
        member_id: str,
        generation_id: int,
        group_instance_id: str | None,
        *,
        now_ms: int,
        version: int = 0,
        offsets: Offsets = (),
    ) -> ErrorCode:
        """Whether offsets may be committed under these credentials (G5); a sign of life, too.

        Without a generation it is a commit from outside the group, which needs one that is empty,
        and logged as such: with another coordinator its last members would be back otherwise, and
        could overwrite what is committed here.
        """
        if self.rebalance.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation_id <= NO_GENERATION and self.rebalance.state is GroupState.EMPTY:
            return (
                ErrorCode.NONE if self.rebalance.is_logged else ErrorCode.COORDINATOR_NOT_AVAILABLE
            )
        error = self._check_generation(member_id, generation_id, group_instance_id)
        if error is not ErrorCode.NONE:
            return error
        member = self.members.get(member_id)
        if member is None or not member.has_generation:
            return ErrorCode.ILLEGAL_GENERATION
        if self.rebalance.state is GroupState.COMPLETING_REBALANCE:
            # Its partitions may belong to another member already.
            return ErrorCode.REBALANCE_IN_PROGRESS
        self.membership.keep_alive(member, now_ms)
        return ErrorCode.NONE

    def check_transactional_commit(
        self,
        member_id: str,
        generation_id: int,
        group_instance_id: str | None,
        offsets: Offsets = (),
    ) -> ErrorCode:
        """Whether offsets may be committed in a transaction (`ClassicGroup.validateOffsetCommit`).

        Not refused while a rebalance is being completed: producers take REBALANCE_IN_PROGRESS for
        the end of them, and a zombie's generation is over by then.
        """
        if self.rebalance.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if generation_id <= NO_GENERATION and self.rebalance.state is GroupState.EMPTY:
            return (
                ErrorCode.NONE if self.rebalance.is_logged else ErrorCode.COORDINATOR_NOT_AVAILABLE
            )
        if generation_id <= NO_GENERATION and member_id == NO_MEMBER and group_instance_id is None:
            return ErrorCode.NONE
        error = self._check_generation(member_id, generation_id, group_instance_id)
        if error is not ErrorCode.NONE:
            return error
        member = self.members.get(member_id)
        if member is None or not member.has_generation:
            return ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.NONE

    def _note_life(self, member_id: str, now_ms: int) -> None:
        member = self.members.get(member_id)
        if member is not None:
            self.membership.keep_alive(member, now_ms)

    def _check_generation(
        self, member_id: str, generation_id: int, group_instance_id: str | None
    ) -> ErrorCode:
        if self.rebalance.state is GroupState.DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        error = self.membership.check_member(member_id, group_instance_id)
        if error is ErrorCode.NONE and generation_id != self.rebalance.generation_id:
            return ErrorCode.ILLEGAL_GENERATION
        return error

    def leave(
        self, members: Sequence[LeavingMember], *, now_ms: int, now_wall_ms: int
    ) -> tuple[list[ErrorCode], Effects]:
        """Members go on their own (or static ones are removed by an administrator)."""
        turn = Turn(now_ms, now_wall_ms)
        if self.rebalance.state is GroupState.DEAD:
            return [ErrorCode.COORDINATOR_NOT_AVAILABLE for _ in members], Effects()
        errors = [self._leave_one(leaving, turn) for leaving in members]
        if ErrorCode.NONE in errors:
            self.rebalance.on_members_gone(turn)
        return errors, turn.effects

    def _leave_one(self, leaving: LeavingMember, turn: Turn) -> ErrorCode:
        member_id, instance_id = leaving.member_id, leaving.group_instance_id
        if member_id in self.pending and instance_id is None:
            del self.pending[member_id]
            return ErrorCode.NONE
        if member_id == NO_MEMBER:
            member = self.members.of_instance(instance_id)
        else:
            error = self.membership.check_member(member_id, instance_id)
            if error is not ErrorCode.NONE:
                return error
            member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        self.membership.remove(member, turn)
        return ErrorCode.NONE

    def delete(self) -> tuple[ErrorCode, Effects]:
        """End the group, with a tombstone, if it is empty; it is gone once that is written."""
        if self.rebalance.state is GroupState.DEAD:
            return ErrorCode.GROUP_ID_NOT_FOUND, Effects()
        if self.rebalance.state is not GroupState.EMPTY:
            return ErrorCode.NON_EMPTY_GROUP, Effects()
        if not self.rebalance.is_logged:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, Effects()
        turn = Turn(0, 0)
        self.rebalance.write_tombstone(turn)
        return ErrorCode.NONE, turn.effects

    def tick(self, *, now_ms: int, now_wall_ms: int) -> Effects:
        return self.rebalance.tick(now_ms=now_ms, now_wall_ms=now_wall_ms)

    def next_deadline_ms(self) -> int | None:
        return self.rebalance.next_deadline_ms()

    def written(
        self, write: GroupWrite, error: ErrorCode, *, now_ms: int, now_wall_ms: int
    ) -> Effects:
        return self.rebalance.written(write, error, now_ms=now_ms, now_wall_ms=now_wall_ms)

    def fail_all(self, error: ErrorCode) -> Effects:
        return self.rebalance.fail_all(error)

    def when_written(self, waiter: Any, result: Result) -> bool:
        """Nothing that a group of this protocol says at once rests on what is being written."""
        return False

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Every client gets the offsets: members of this protocol do not identify themselves."""
        return ErrorCode.NONE

    def answer_all(self, error: ErrorCode) -> Effects:
        """Answer all waiting requests; the group stays as it is."""
        return self.rebalance.answer_all(error)

    def migrating_members(self) -> list[MigratingMember]:
        """Return the members as the protocol of KIP-848 has to know them."""
        protocol = self.rebalance.protocol_name
        return [
            MigratingMember(member.record(protocol, member.assignment), member.protocols)
            for member in self.members
        ]

    def forget_waiter(self, waiter: Any) -> None:
        self.membership.forget_waiter(waiter)

    @property
    def state(self) -> GroupState:
        return self.rebalance.state

    @property
    def generation_id(self) -> int:
        return self.rebalance.generation_id

    @property
    def protocol_type(self) -> str:
        return self.rebalance.protocol_type

    @property
    def state_timestamp_ms(self) -> int:
        """Since when (wall clock) it has been in its state."""
        return self.rebalance.state_timestamp_ms

    @property
    def leader(self) -> str:
        return self.membership.leader

    @property
    def memory_bytes(self) -> int:
        return self.membership.memory_bytes + self.rebalance.unwritten_bytes

    @property
    def group_type(self) -> str:
        return "classic"

    @property
    def state_name(self) -> str:
        return self.rebalance.state.value

    @property
    def is_empty(self) -> bool:
        return self.rebalance.state is GroupState.EMPTY

    @property
    def is_dead(self) -> bool:
        return self.rebalance.state is GroupState.DEAD

    @property
    def is_unused(self) -> bool:
        return self.rebalance.state is GroupState.EMPTY and self.rebalance.generation_id <= 0

    @property
    def awaits_members(self) -> bool:
        return bool(self.pending)

    def join_bytes(self, request: JoinRequest) -> int:
        """How much more memory it would take after a join."""
        member = self.members.get(request.member_id)
        member = member or self.members.of_instance(request.group_instance_id)
        return join_bytes(request) - (0 if member is None else member.memory_bytes)

    def sync_bytes(self, request: SyncRequest) -> int:
        """How much more memory it would take after a sync: what the leader assigns counts."""
        if request.member_id != self.membership.leader:
            return 0
        return self.rebalance.added_bytes(request.assignments)

    def subscriptions(self) -> Subscriptions:
        """During a rebalance the coordinator does not know what members will read."""
        topics = self.subscribed_topics() if self.rebalance.state is GroupState.STABLE else None
        return Subscriptions(
            self.rebalance.protocol_type, self.is_empty, self.rebalance.state_timestamp_ms, topics
        )

    def topics_in_use(self) -> frozenset[str] | None:
        """Topics whose offsets must stay; None for all. NON_EMPTY_GROUP if no consumers."""
        if self.rebalance.state is GroupState.EMPTY:
            return frozenset()
        if self.rebalance.state is GroupState.DEAD:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
        if self.rebalance.protocol_type != CONSUMER_PROTOCOL_TYPE:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
        return self.subscribed_topics()

    def subscribed_topics(self) -> frozenset[str] | None:
        """Topics that members consume (protocol type `consumer`); None if that is unknown."""
        if self.members and self.rebalance.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        topics: set[str] = set()
        for member in self.members:
            each = self._topics_of(member)
            if each is None:
                return None
            topics |= each
        return frozenset(topics)

    def _topics_of(self, member: Member) -> frozenset[str] | None:
        """By the agreed assignor's metadata; before there is one, by the member's first choice."""
        if self.rebalance.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        metadata = member.metadata(self.rebalance.protocol_name) or member.protocols[0][1]
        return subscribed_topics(metadata)

    def describe_members(self) -> None:
        """ConsumerGroupDescribe does not know this protocol."""

    def describe(self) -> GroupDescription:
        """For DescribeGroups and ListGroups."""
        agreed = self.rebalance.protocol_name if self.rebalance.state is GroupState.STABLE else None
        return GroupDescription(
            self.rebalance.state.value,
            self.rebalance.protocol_type,
            agreed or "",
            tuple(member.described(agreed) for member in self.members),
        )
