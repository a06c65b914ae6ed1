"""The members of a group, their waiting requests, and their sessions.

Pure. `rebalance` and `classic_group` work on one `Membership`. Sessions are looked at lazily:
signs of life only move deadlines later, so at the earliest known one all are looked at again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from fairlead_broker.group.classic.member import Members
from fairlead_broker.group.group_types import (
    NO_MEMBER,
    Effects,
    GroupWrite,
    JoinResult,
    SyncResult,
)
from fairlead_broker.limits import PENDING_MEMBER_BYTES
from fairlead_wire.errors import ErrorCode

if TYPE_CHECKING:
    from fairlead_broker.group.classic.member import Member

SESSION_UNSTARTED: Final = -1
"""Deadline of a member that stopped waiting at a time unknown: it counts from the next tick."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One call of a group: its time, and its effects."""

    now_ms: int
    now_wall_ms: int
    effects: Effects = field(default_factory=Effects)

    def reply(self, waiter: Any, result: JoinResult | SyncResult) -> None:
        self.effects.replies.append((waiter, result))

    def write(self, write: GroupWrite) -> None:
        self.effects.writes.append(write)


@dataclass(slots=True)
class TakeoverToken:
    """The write that makes a static instance's new member id durable."""

    member_id: str
    group_instance_id: str | None
    result: JoinResult
    waiter: Any
    """None once it is answered, or its connection is gone."""


class Membership:
    """The members of one group, with their waiters and sessions."""

    __slots__ = (
        "has_lost_member",
        "leader",
        "members",
        "pending",
        "session_check_ms",
        "takeovers",
        "unsynced",
    )

    def __init__(self) -> None:
        self.leader = NO_MEMBER
        self.members = Members()
        self.pending: dict[str, int] = {}
        """Ids that were handed out and not come back with yet, and until when they may."""
        self.has_lost_member = False
        """Since the last rebalance began."""
        self.unsynced: dict[str, None] = {}
        """Members that have not asked for their assignment of the present generation yet."""
        self.takeovers: list[GroupWrite] = []
        self.session_check_ms: int | None = None
        """When sessions have to be looked at again."""

    @property
    def memory_bytes(self) -> int:
        """Approximate memory of its members, and of member ids that were only given out."""
        return self.members.memory_bytes + PENDING_MEMBER_BYTES * len(self.pending)

    def check_member(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Whether the group has this member, and the static instance is still its own (G3)."""
        if group_instance_id is not None:
            holder = self.members.of_instance(group_instance_id)
            if holder is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            is_holder = holder.member_id == member_id
            return ErrorCode.NONE if is_holder else ErrorCode.FENCED_INSTANCE_ID
        known = self.members.get(member_id) is not None
        return ErrorCode.NONE if known else ErrorCode.UNKNOWN_MEMBER_ID

    def keep_alive(self, member: Member, now_ms: int) -> None:
        member.session_deadline_ms = now_ms + member.session_timeout_ms
        self.check_sessions_by(member.session_deadline_ms)

    def check_sessions_by(self, deadline_ms: int) -> None:
        if self.session_check_ms is None or deadline_ms < self.session_check_ms:
            self.session_check_ms = deadline_ms

    def remove(self, member: Member, turn: Turn) -> None:
        """Remove a member; `on_members_gone` then moves the group."""
        self.answer_waiters(member, ErrorCode.UNKNOWN_MEMBER_ID, turn)
        self.members.remove(member)
        self.has_lost_member = True
        self.unsynced.pop(member.member_id, None)
        if self.leader == member.member_id:
            self.leader = next((each.member_id for each in self.members), NO_MEMBER)

    def fence(self, member: Member, new_member_id: str, turn: Turn) -> None:
        """Give a static member a new id; a client that still uses the old one is fenced."""
        old_id = member.member_id
        self.answer_waiters(member, ErrorCode.FENCED_INSTANCE_ID, turn)
        self.members.rename(member, new_member_id)
        member.is_written_for = False
        if self.leader == old_id:
            self.leader = new_member_id
        if old_id in self.unsynced:
            del self.unsynced[old_id]
            self.unsynced[new_member_id] = None

    def answer_waiters(self, member: Member, error: ErrorCode, turn: Turn) -> None:
        """Its waiting request will not be completed otherwise."""
        waiter = self.members.take_join_waiter(member)
        if waiter is not None:
            turn.reply(waiter, JoinResult(error, member_id=member.member_id))
        waiter, member.sync_waiter = member.sync_waiter, None
        if waiter is not None:
            turn.reply(waiter, SyncResult(error))

    def check_sessions(self, turn: Turn) -> None:
        """Remove members that were silent for too long; a waiting member is not silent."""
        self.session_check_ms = None
        for member_id, deadline_ms in list(self.pending.items()):
            if turn.now_ms >= deadline_ms:
                del self.pending[member_id]
            else:
                self.check_sessions_by(deadline_ms)
        for member in list(self.members):
            if member.is_waiting or member.session_deadline_ms == SESSION_UNSTARTED:
                self.keep_alive(member, turn.now_ms)
            elif turn.now_ms >= member.session_deadline_ms:
                self.remove(member, turn)
            else:
                self.check_sessions_by(member.session_deadline_ms)

    def forget_waiter(self, waiter: Any) -> None:
        """Drop a parked request whose connection has gone; the member stays in the group."""
        for write in self.takeovers:
            token: TakeoverToken = write.token
            if token.waiter is waiter:
                token.waiter = None
                member = self.members.get(token.member_id)
                if member is not None:
                    member.is_written_for = False
                    self._start_session(member)
                return
        for member in self.members:
            if member.join_waiter is waiter:
                self.members.take_join_waiter(member)
                self._start_session(member)
                return
            if member.sync_waiter is waiter:
                member.sync_waiter = None
                self._start_session(member)
                return

    def _start_session(self, member: Member) -> None:
        member.session_deadline_ms = SESSION_UNSTARTED
        self.session_check_ms = 0
