"""How a group of the classic protocol rebalances: gather members, agree, assign, be stable.

Pure. `Rebalance` holds the state of a group and moves it:

    Empty ─► PreparingRebalance ─► CompletingRebalance ─► Stable
                 all have joined       leader's sync is written

What requests may do to it is `classic_group`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from fairlead_broker.group.group_types import (
    NO_MEMBER,
    GroupState,
    GroupWrite,
    JoinResult,
    SyncResult,
)
from fairlead_broker.group.membership import Membership, TakeoverToken, Turn
from fairlead_broker.group.records import NO_TIMESTAMP, GroupValue, encode_group_value
from fairlead_wire.errors import ErrorCode

if TYPE_CHECKING:
    from fairlead_broker.group.group_types import Effects
    from fairlead_broker.group.member import Member

REWRITE_PAUSE_MS: Final = 1_000
"""After this long, a record that could not be written is tried again."""


@dataclass(frozen=True, slots=True)
class AssignmentToken:
    """The write that makes a generation stable."""

    assignments: dict[str, bytes]
    state_timestamp_ms: int


class Rebalance(Membership):
    """State and transitions of one group; `ClassicGroup` is what others call."""

    __slots__ = (
        "_assignment_write",
        "_has_new_member",
        "_initial_remaining_ms",
        "_rebalance_deadline_ms",
        "_rewrite_at_ms",
        "_sync_deadline_ms",
        "_tombstone",
        "generation_id",
        "initial_rebalance_delay_ms",
        "protocol_name",
        "protocol_type",
        "size_max",
        "state_timestamp_ms",
    )

    def __init__(self, group_id: str, *, initial_rebalance_delay_ms: int, size_max: int) -> None:
        super().__init__(group_id)
        self.initial_rebalance_delay_ms = initial_rebalance_delay_ms
        self.size_max = size_max
        self.state_timestamp_ms = NO_TIMESTAMP
        self.generation_id = 0
        self.protocol_type = ""
        self.protocol_name = ""
        self._rebalance_deadline_ms: int | None = None
        self._initial_remaining_ms: int | None = None
        """How much longer the first rebalance may yet wait for more members; None in others."""
        self._has_new_member = False
        self._sync_deadline_ms: int | None = None
        self._assignment_write: GroupWrite | None = None
        self._rewrite_at_ms: int | None = None
        self._tombstone: GroupWrite | None = None

    @property
    def is_logged(self) -> bool:
        """False while a record that failed has yet to be written again."""
        return self._rewrite_at_ms is None

    def note_new_member(self) -> None:
        """It prolongs the wait of a group's first rebalance."""
        self._has_new_member = True

    # PreparingRebalance.

    def wait_for_rebalance(self, member: Member, waiter: Any, turn: Turn) -> None:
        """Park a join; the group begins to rebalance unless it does already."""
        replaced = self.members.park_join(member, waiter)
        if replaced is not None:
            result = JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id)
            turn.reply(replaced, result)
        self.keep_alive(member, turn.now_ms)
        if self.state is GroupState.PREPARING_REBALANCE:
            self._maybe_complete_join(turn)
        else:
            self.prepare_rebalance(turn)

    def on_members_gone(self, turn: Turn) -> None:
        """Others share what those had that left, or need no longer be waited for."""
        if self.state is GroupState.PREPARING_REBALANCE:
            self._maybe_complete_join(turn)
        elif self._has_lost_member:
            self.prepare_rebalance(turn)

    def prepare_rebalance(self, turn: Turn) -> None:
        """All members have to join anew."""
        is_first = self.state is GroupState.EMPTY
        if self.state is GroupState.COMPLETING_REBALANCE:
            self._drop_assignments(ErrorCode.REBALANCE_IN_PROGRESS, turn)
        self._assignment_write = None
        self._unsynced.clear()
        self._sync_deadline_ms = None
        self._rewrite_at_ms = None
        self._enter(GroupState.PREPARING_REBALANCE, turn)
        self._rebalance_deadline_ms = None
        self._has_new_member = self._has_lost_member = False
        delay_ms = self.initial_rebalance_delay_ms
        if is_first and delay_ms > 0:
            self._rebalance_deadline_ms = turn.now_ms + delay_ms
            remaining_ms = self.members.rebalance_timeout_ms - delay_ms
            self._initial_remaining_ms = max(0, remaining_ms)
        elif is_first:
            self._complete_join(turn)
        else:
            self._maybe_complete_join(turn)

    def _maybe_complete_join(self, turn: Turn) -> None:
        if self._initial_remaining_ms is not None:
            return
        if self.members.joining == len(self.members) and not self.pending:
            self._complete_join(turn)
        elif self._rebalance_deadline_ms is None:
            self._rebalance_deadline_ms = turn.now_ms + self.members.rebalance_timeout_ms

    def _on_rebalance_deadline(self, turn: Turn) -> None:
        remaining_ms = self._initial_remaining_ms
        if remaining_ms and self._has_new_member:
            # Where one came, more may be coming: a group's start is one rebalance, not many.
            self._has_new_member = False
            delay_ms = min(self.initial_rebalance_delay_ms, remaining_ms)
            self._rebalance_deadline_ms = turn.now_ms + delay_ms
            self._initial_remaining_ms = remaining_ms - delay_ms
        else:
            self._complete_join(turn)

    def _complete_join(self, turn: Turn) -> None:
        """Whoever waits makes up the next generation, and static members that are only away."""
        for member in list(self.members):
            if member.join_waiter is None and member.group_instance_id is None:
                self.remove(member, turn)
        self._initial_remaining_ms = None
        self._rebalance_deadline_ms = None
        if not self.members:
            self._become_empty(turn)
            return
        if not self.members.joining:
            # Nobody is there who could lead; sessions will end the wait.
            self._rebalance_deadline_ms = turn.now_ms + self.members.rebalance_timeout_ms
            return
        leader = self.members.get(self.leader)
        if leader is None or leader.join_waiter is None:
            self.leader = next(
                each.member_id for each in self.members if each.join_waiter is not None
            )
        self.generation_id += 1
        self.protocol_name = self.members.elect_protocol()
        self._enter(GroupState.COMPLETING_REBALANCE, turn)
        self._has_lost_member = False
        self._unsynced = {member.member_id: None for member in self.members}
        self._sync_deadline_ms = turn.now_ms + self.members.rebalance_timeout_ms
        for member in self.members:
            member.has_generation = True
            waiter = self.members.take_join_waiter(member)
            if waiter is not None:
                self.keep_alive(member, turn.now_ms)
                turn.reply(waiter, self.joined(member))

    def _become_empty(self, turn: Turn) -> None:
        self.generation_id += 1
        self.protocol_name = ""
        self.leader = NO_MEMBER
        self._has_lost_member = False
        self._enter(GroupState.EMPTY, turn)
        turn.write(GroupWrite(self._encoded()))

    def joined(self, member: Member) -> JoinResult:
        """What a member is told of the present generation; the leader is told everything."""
        is_leader = member.member_id == self.leader
        return JoinResult(
            generation_id=self.generation_id,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.leader,
            member_id=member.member_id,
            members=tuple(each.joined(self.protocol_name) for each in self.members)
            if is_leader
            else (),
        )

    # CompletingRebalance.

    def wait_for_assignment(self, member: Member, waiter: Any, turn: Turn) -> None:
        """Park a sync until the leader's is written."""
        replaced, member.sync_waiter = member.sync_waiter, waiter
        if replaced is not None:
            turn.reply(replaced, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
        self.note_synced(member)
        self.keep_alive(member, turn.now_ms)

    def note_synced(self, member: Member) -> None:
        """It has heard of the generation, and is not removed for being silent about it."""
        self._unsynced.pop(member.member_id, None)
        if not self._unsynced:
            self._sync_deadline_ms = None

    def write_assignments(self, assignments: dict[str, bytes], turn: Turn) -> None:
        """Persist first, answer later. A leader that asks twice has said the same twice."""
        if self._assignment_write is not None:
            return
        members = tuple(
            member.record(self.protocol_name, assignments.get(member.member_id, b""))
            for member in self.members
        )
        value = GroupValue(
            self.protocol_type,
            self.generation_id,
            self.protocol_name,
            self.leader,
            turn.now_wall_ms,
            members,
        )
        token = AssignmentToken(assignments, turn.now_wall_ms)
        self._assignment_write = GroupWrite(encode_group_value(value), token)
        turn.write(self._assignment_write)

    def synced(self, member: Member) -> SyncResult:
        return SyncResult(
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            assignment=member.assignment,
        )

    def _drop_assignments(self, error: ErrorCode, turn: Turn) -> None:
        for member in self.members:
            self.members.assign(member, b"")
            waiter, member.sync_waiter = member.sync_waiter, None
            if waiter is not None:
                turn.reply(waiter, SyncResult(error))

    # Writes.

    def write_tombstone(self, turn: Turn) -> None:
        """The group is dead, and forgotten once that is written; alive again if it can't be."""
        self.state = GroupState.DEAD
        self.pending.clear()
        self._tombstone = GroupWrite(None)
        turn.write(self._tombstone)

    def write_takeover(self, member: Member, token: TakeoverToken, turn: Turn) -> None:
        """KIP-345: the new id is durable before its member knows it."""
        member.is_written_for = True
        write = GroupWrite(self._encoded(), token)
        self._takeovers.append(write)
        turn.write(write)

    def written(
        self, write: GroupWrite, error: ErrorCode, *, now_ms: int, now_wall_ms: int
    ) -> Effects:
        """A write is committed (NONE), or it failed; whoever waited for it is answered."""
        turn = Turn(now_ms, now_wall_ms)
        token = write.token
        if isinstance(token, AssignmentToken):
            # A rebalance that began since has answered everybody already.
            if write is self._assignment_write:
                self._assignment_write = None
                self._on_assignments(token, error, turn)
        elif write is self._tombstone:
            self._tombstone = None
            if error is not ErrorCode.NONE:
                self.state = GroupState.EMPTY
        else:
            if isinstance(token, TakeoverToken):
                self._takeovers = [each for each in self._takeovers if each is not write]
                self._on_takeover(token, error, turn)
            if error is not ErrorCode.NONE and self.state is not GroupState.DEAD:
                self._rewrite_at_ms = turn.now_ms + REWRITE_PAUSE_MS
        return turn.effects

    def _on_assignments(self, token: AssignmentToken, error: ErrorCode, turn: Turn) -> None:
        if error is not ErrorCode.NONE:
            self._drop_assignments(error, turn)
            self.prepare_rebalance(turn)
            return
        self.state = GroupState.STABLE
        self.state_timestamp_ms = token.state_timestamp_ms
        for member in self.members:
            self.members.assign(member, token.assignments.get(member.member_id, b""))
            waiter, member.sync_waiter = member.sync_waiter, None
            if waiter is not None:
                self.keep_alive(member, turn.now_ms)
                turn.reply(waiter, self.synced(member))

    def _on_takeover(self, token: TakeoverToken, error: ErrorCode, turn: Turn) -> None:
        """The new id stays, written or not: its predecessor is fenced, and the client comes again
        to take over from this one. Live and logged state meet when the record is written again."""
        member = self.members.get(token.member_id)
        if member is not None:
            member.is_written_for = False
            self.keep_alive(member, turn.now_ms)
        if token.waiter is None:
            return
        result = token.result
        if error is not ErrorCode.NONE:
            result = JoinResult(error)
        elif member is None:
            reason = self.check_member(token.member_id, token.group_instance_id)
            result = JoinResult(reason, member_id=token.member_id)
        turn.reply(token.waiter, result)
        token.waiter = None

    def _encoded(self) -> bytes:
        """The group as it is now, for a state that lasts."""
        return encode_group_value(
            GroupValue(
                self.protocol_type,
                self.generation_id,
                self.protocol_name or None,
                self.leader or None,
                self.state_timestamp_ms,
                tuple(each.record(self.protocol_name, each.assignment) for each in self.members),
            )
        )

    def _enter(self, state: GroupState, turn: Turn) -> None:
        self.state = state
        self.state_timestamp_ms = turn.now_wall_ms

    # Time, and the end.

    def tick(self, *, now_ms: int, now_wall_ms: int) -> Effects:
        """Time has passed: sessions and rebalances that ran out end."""
        turn = Turn(now_ms, now_wall_ms)
        if self.state is GroupState.DEAD:
            return turn.effects
        if self._session_check_ms is not None and turn.now_ms >= self._session_check_ms:
            self.check_sessions(turn)
            self.on_members_gone(turn)
        if self._sync_deadline_ms is not None and turn.now_ms >= self._sync_deadline_ms:
            # Whoever has joined and never asked for its part holds partitions that nobody reads.
            for member_id in list(self._unsynced):
                member = self.members.get(member_id)
                if member is not None:
                    self.remove(member, turn)
            self._sync_deadline_ms = None
            self.on_members_gone(turn)
        if self._rebalance_deadline_ms is not None and turn.now_ms >= self._rebalance_deadline_ms:
            self._on_rebalance_deadline(turn)
        if self._rewrite_at_ms is not None and turn.now_ms >= self._rewrite_at_ms:
            self._rewrite_at_ms = None
            if self.state in (GroupState.STABLE, GroupState.EMPTY):
                turn.write(GroupWrite(self._encoded()))
        return turn.effects

    def next_deadline_ms(self) -> int | None:
        """When `tick` has something to do at the earliest."""
        if self.state is GroupState.DEAD:
            return None
        deadlines = (
            self._session_check_ms,
            self._sync_deadline_ms,
            self._rebalance_deadline_ms,
            self._rewrite_at_ms,
        )
        return min((each for each in deadlines if each is not None), default=None)

    def fail_all(self, error: ErrorCode) -> Effects:
        """Another broker coordinates now: everybody who waits is answered with `error`."""
        turn = Turn(0, 0)
        for member in self.members:
            self.answer_waiters(member, error, turn)
        for write in self._takeovers:
            token: TakeoverToken = write.token
            if token.waiter is not None:
                turn.reply(token.waiter, JoinResult(error))
                token.waiter = None
        self._assignment_write = self._tombstone = None
        self.state = GroupState.DEAD
        return turn.effects
