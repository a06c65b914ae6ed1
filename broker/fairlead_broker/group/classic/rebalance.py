"""How a group of the classic protocol rebalances: gather members, agree, assign, be stable.

Pure. `Rebalance` holds the state of a group and moves it (`membership` has who is in it):

    Empty ─► PreparingRebalance ─► CompletingRebalance ─► Stable
                 all have joined       leader's sync is written

What requests may do to it is `classic_group`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from fairlead_broker.group.classic.membership import Membership, TakeoverToken, Turn
from fairlead_broker.group.group_types import (
    NO_MEMBER,
    GroupState,
    GroupWrite,
    JoinResult,
    SyncResult,
)
from fairlead_broker.group.records.classic_records import (
    NO_TIMESTAMP,
    GroupKey,
    GroupValue,
    encode_group_value,
    encode_key,
)
from fairlead_broker.group.records.record_rules import require_group_record
from fairlead_model.invariants import InvariantViolation
from fairlead_wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fairlead_broker.group.classic.member import Member
    from fairlead_broker.group.group_types import Effects

REWRITE_PAUSE_MS: Final = 1_000
"""After this long, a record that could not be written is tried again (G9)."""


@dataclass(frozen=True, slots=True)
class AssignmentToken:
    """The write that makes a generation stable."""

    assignments: dict[str, bytes]
    state_timestamp_ms: int
    size: int
    """Bytes of all assignments."""


class Rebalance:
    """State and transitions of one group, whose members are in `membership`."""

    __slots__ = (
        "_assignment_write",
        "_has_new_member",
        "_initial_remaining_ms",
        "_rebalance_deadline_ms",
        "_rewrite_at_ms",
        "_sync_deadline_ms",
        "_tombstone",
        "generation_id",
        "group_id",
        "initial_rebalance_delay_ms",
        "members",
        "membership",
        "protocol_name",
        "protocol_type",
        "recorded_generation_id",
        "size_max",
        "state",
        "state_timestamp_ms",
    )

    def __init__(self, group_id: str, *, initial_rebalance_delay_ms: int, size_max: int) -> None:
        self.group_id = group_id
        self.membership = Membership()
        self.members = self.membership.members
        self.state = GroupState.EMPTY
        self.initial_rebalance_delay_ms = initial_rebalance_delay_ms
        self.size_max = size_max
        self.state_timestamp_ms = NO_TIMESTAMP
        self.generation_id = 0
        self.recorded_generation_id = 0
        """That of the last record that was made to be written."""
        self.protocol_type = ""
        self.protocol_name = ""
        self._rebalance_deadline_ms: int | None = None
        self._initial_remaining_ms: int | None = None
        """How much longer the first rebalance may wait for more members; None in other
        rebalances."""
        self._has_new_member = False
        self._sync_deadline_ms: int | None = None
        self._assignment_write: GroupWrite | None = None
        self._rewrite_at_ms: int | None = None
        self._tombstone: GroupWrite | None = None

    @property
    def unwritten_bytes(self) -> int:
        """Memory of the assignments that are being written to the log."""
        write = self._assignment_write
        return 0 if write is None else write.token.size

    def added_bytes(self, assignments: Iterable[tuple[str, bytes]]) -> int:
        """How much more members would have with what their leader assigns."""
        if self.state is not GroupState.COMPLETING_REBALANCE or self._assignment_write is not None:
            return 0
        has = sum(len(member.assignment) for member in self.members)
        return sum(len(each) for name, each in assignments if self.members.get(name)) - has

    @property
    def is_logged(self) -> bool:
        """False while a record that failed has yet to be written again."""
        return self._rewrite_at_ms is None

    def note_new_member(self) -> None:
        """Prolong the wait of a group's first rebalance."""
        self._has_new_member = True

    def wait_for_rebalance(self, member: Member, waiter: Any, turn: Turn) -> None:
        """Park a join; the group begins to rebalance unless it does already."""
        replaced = self.members.park_join(member, waiter)
        if replaced is not None:
            result = JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id)
            turn.reply(replaced, result)
        self.membership.keep_alive(member, turn.now_ms)
        if self.state is GroupState.PREPARING_REBALANCE:
            self._maybe_complete_join(turn)
        else:
            self.prepare_rebalance(turn)

    def on_members_gone(self, turn: Turn) -> None:
        """Others share what those had that left, or need no longer be waited for."""
        if self.state is GroupState.PREPARING_REBALANCE:
            self._maybe_complete_join(turn)
        elif self.membership.has_lost_member:
            self.prepare_rebalance(turn)

    def prepare_rebalance(self, turn: Turn) -> None:
        """All members have to join again."""
        is_first = self.state is GroupState.EMPTY
        if self.state is GroupState.COMPLETING_REBALANCE:
            self._drop_assignments(ErrorCode.REBALANCE_IN_PROGRESS, turn)
        self._assignment_write = None
        self.membership.unsynced.clear()
        self._sync_deadline_ms = None
        self._rewrite_at_ms = None
        self._enter(GroupState.PREPARING_REBALANCE, turn)
        self._rebalance_deadline_ms = None
        self._has_new_member = self.membership.has_lost_member = False
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
        if self.members.joining == len(self.members) and not self.membership.pending:
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
        """Begin the next generation with waiting members and static members that are only away."""
        for member in list(self.members):
            if member.join_waiter is None and member.group_instance_id is None:
                self.membership.remove(member, turn)
        self._initial_remaining_ms = None
        self._rebalance_deadline_ms = None
        if not self.members:
            self._become_empty(turn)
            return
        if not self.members.joining:
            # No member could lead; expired sessions will end the wait.
            self._rebalance_deadline_ms = turn.now_ms + self.members.rebalance_timeout_ms
            return
        leader = self.members.get(self.membership.leader)
        if leader is None or leader.join_waiter is None:
            self.membership.leader = next(
                each.member_id for each in self.members if each.join_waiter is not None
            )
        self.generation_id += 1
        self.protocol_name = self.members.elect_protocol()
        self._enter(GroupState.COMPLETING_REBALANCE, turn)
        self.membership.has_lost_member = False
        self.membership.unsynced = {member.member_id: None for member in self.members}
        self._sync_deadline_ms = turn.now_ms + self.members.rebalance_timeout_ms
        for member in self.members:
            member.has_generation = True
            waiter = self.members.take_join_waiter(member)
            if waiter is not None:
                self.membership.keep_alive(member, turn.now_ms)
                turn.reply(waiter, self.joined(member))

    def _become_empty(self, turn: Turn) -> None:
        self.generation_id += 1
        self.protocol_name = ""
        self.membership.leader = NO_MEMBER
        self.membership.has_lost_member = False
        self._enter(GroupState.EMPTY, turn)
        turn.write(self._write_of(self._record()))

    def joined(self, member: Member) -> JoinResult:
        """Return a member's answer about the present generation; the leader gets all members."""
        is_leader = member.member_id == self.membership.leader
        return JoinResult(
            generation_id=self.generation_id,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.membership.leader,
            member_id=member.member_id,
            members=tuple(each.joined(self.protocol_name) for each in self.members)
            if is_leader
            else (),
        )

    def wait_for_assignment(self, member: Member, waiter: Any, turn: Turn) -> None:
        """Park a sync until the leader's is written."""
        replaced, member.sync_waiter = member.sync_waiter, waiter
        if replaced is not None:
            turn.reply(replaced, SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
        self.note_synced(member)
        self.membership.keep_alive(member, turn.now_ms)

    def note_synced(self, member: Member) -> None:
        """Note that a member has heard of the generation: it is not removed for its silence."""
        self.membership.unsynced.pop(member.member_id, None)
        if not self.membership.unsynced:
            self._sync_deadline_ms = None

    def write_assignments(self, assignments: dict[str, bytes], turn: Turn) -> None:
        """Persist first, answer later (G1). A leader that asks twice has said the same twice."""
        if self._assignment_write is not None:
            return
        # Nothing is kept of what is meant for others.
        given = {each.member_id: assignments.get(each.member_id, b"") for each in self.members}
        members = tuple(
            member.record(self.protocol_name, given[member.member_id]) for member in self.members
        )
        value = GroupValue(
            self.protocol_type,
            self.generation_id,
            self.protocol_name,
            self.membership.leader,
            turn.now_wall_ms,
            members,
        )
        token = AssignmentToken(given, turn.now_wall_ms, sum(map(len, given.values())))
        self._assignment_write = self._write_of(value, token)
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

    def write_tombstone(self, turn: Turn) -> None:
        """End the group; it is forgotten once that is written, and alive again if it can't be."""
        self.state = GroupState.DEAD
        self.membership.pending.clear()
        self._tombstone = self._write_of(None)
        turn.write(self._tombstone)

    def write_takeover(self, member: Member, token: TakeoverToken, turn: Turn) -> None:
        """KIP-345: the new id is durable before its member knows it."""
        member.is_written_for = True
        write = self._write_of(self._record(), token)
        self.membership.takeovers.append(write)
        turn.write(write)

    def written(
        self, write: GroupWrite, error: ErrorCode, *, now_ms: int, now_wall_ms: int
    ) -> Effects:
        """Answer requests that waited for a write that is committed (NONE) or has failed."""
        turn = Turn(now_ms, now_wall_ms)
        token = write.token
        if isinstance(token, AssignmentToken):
            # A rebalance that began since has answered all members already.
            if write is self._assignment_write:
                self._assignment_write = None
                self._on_assignments(token, error, turn)
        elif write is self._tombstone:
            self._tombstone = None
            if error is not ErrorCode.NONE:
                self.state = GroupState.EMPTY
        else:
            if isinstance(token, TakeoverToken):
                self.membership.takeovers = [
                    each for each in self.membership.takeovers if each is not write
                ]
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
                self.membership.keep_alive(member, turn.now_ms)
                turn.reply(waiter, self.synced(member))

    def _on_takeover(self, token: TakeoverToken, error: ErrorCode, turn: Turn) -> None:
        """Keep the new id, whether it could be written or not.

        Its predecessor is fenced, and the client comes again to take over from this one. Live and
        logged state meet when the record is written again.
        """
        member = self.members.get(token.member_id)
        if member is not None:
            member.is_written_for = False
            self.membership.keep_alive(member, turn.now_ms)
        if token.waiter is None:
            return
        result = token.result
        if error is not ErrorCode.NONE:
            result = JoinResult(error)
        elif member is None:
            reason = self.membership.check_member(token.member_id, token.group_instance_id)
            result = JoinResult(reason, member_id=token.member_id)
        turn.reply(token.waiter, result)
        token.waiter = None

    def _write_of(self, record: GroupValue | None, token: Any = None) -> GroupWrite:
        """Build the write of the only record of a classic group; None for its tombstone."""
        value = None if record is None else encode_group_value(record)
        write = GroupWrite(((encode_key(GroupKey(self.group_id)), value),), token)
        try:
            require_group_record(
                record,
                member_count=len(self.members),
                recorded_generation_id=self.recorded_generation_id,
            )
        except InvariantViolation as violation:
            write.violation = str(violation)
        else:
            self.recorded_generation_id = 0 if record is None else record.generation_id
        return write

    def _record(self) -> GroupValue:
        """Give the group as it is now, for a state that lasts."""
        return GroupValue(
            self.protocol_type,
            self.generation_id,
            self.protocol_name or None,
            self.membership.leader or None,
            self.state_timestamp_ms,
            tuple(each.record(self.protocol_name, each.assignment) for each in self.members),
        )

    def _enter(self, state: GroupState, turn: Turn) -> None:
        self.state = state
        self.state_timestamp_ms = turn.now_wall_ms

    def tick(self, *, now_ms: int, now_wall_ms: int) -> Effects:
        """Time has passed: sessions and rebalances that ran out end."""
        turn = Turn(now_ms, now_wall_ms)
        if self.state is GroupState.DEAD:
            return turn.effects
        if (
            self.membership.session_check_ms is not None
            and turn.now_ms >= self.membership.session_check_ms
        ):
            self.membership.check_sessions(turn)
            self.on_members_gone(turn)
        if self._sync_deadline_ms is not None and turn.now_ms >= self._sync_deadline_ms:
            # A member that joined and never asked for its assignment has partitions that it does
            # not read (G11).
            for member_id in list(self.membership.unsynced):
                member = self.members.get(member_id)
                if member is not None:
                    self.membership.remove(member, turn)
            self._sync_deadline_ms = None
            self.on_members_gone(turn)
        if self._rebalance_deadline_ms is not None and turn.now_ms >= self._rebalance_deadline_ms:
            self._on_rebalance_deadline(turn)
        if self._rewrite_at_ms is not None and turn.now_ms >= self._rewrite_at_ms:
            self._rewrite_at_ms = None
            if self.state in (GroupState.STABLE, GroupState.EMPTY):
                turn.write(self._write_of(self._record()))
        return turn.effects

    def next_deadline_ms(self) -> int | None:
        """When `tick` has something to do at the earliest."""
        if self.state is GroupState.DEAD:
            return None
        deadlines = (
            self.membership.session_check_ms,
            self._sync_deadline_ms,
            self._rebalance_deadline_ms,
            self._rewrite_at_ms,
        )
        return min((each for each in deadlines if each is not None), default=None)

    def fail_all(self, error: ErrorCode) -> Effects:
        """Answer all waiting members with `error`, because another broker coordinates now."""
        effects = self.answer_all(error)
        self._assignment_write = self._tombstone = None
        self.state = GroupState.DEAD
        return effects

    def answer_all(self, error: ErrorCode) -> Effects:
        """Answer all waiting members with `error`."""
        turn = Turn(0, 0)
        for member in self.members:
            self.membership.answer_waiters(member, error, turn)
        for write in self.membership.takeovers:
            token: TakeoverToken = write.token
            if token.waiter is not None:
                turn.reply(token.waiter, JoinResult(error))
                token.waiter = None
        return turn.effects
