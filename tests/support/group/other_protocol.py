"""A group with a protocol of its own: members by name, an epoch, and its own records.

It is as small as `GroupProtocol` allows, and shares nothing with the classic protocol.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairlead_broker.group.group_types import (
    DescribedMember,
    Effects,
    GroupDescription,
    GroupWrite,
    JoinResult,
    Subscriptions,
    SyncResult,
)
from fairlead_wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairlead_broker.group.group_types import (
        JoinRequest,
        LeavingMember,
        Offsets,
        Result,
        SyncRequest,
    )

KEYS = (b"\0\5member", b"\0\3group")
"""Two records of kinds that the classic protocol does not know."""


class OtherProtocol:
    """`members` by name, all at `epoch`; they consume the topic `t`."""

    group_type = "other"
    protocol_type = "consumer"
    awaits_members = False
    is_unused = False

    def __init__(self, *members: str, epoch: int = 5) -> None:
        self.members = dict.fromkeys(members)
        self.epoch = epoch
        self.is_dead = False
        self.outcomes: list[ErrorCode] = []
        self.failed_with: ErrorCode | None = None

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def state_name(self) -> str:
        return "Dead" if self.is_dead else "Reconciling" if self.members else "Empty"

    @property
    def memory_bytes(self) -> int:
        return 1_000 * len(self.members)

    def describe(self) -> GroupDescription:
        members = [DescribedMember(each, None, "c", "/h", b"", b"") for each in self.members]
        return GroupDescription(self.state_name, self.protocol_type, "other", members)

    def describe_members(self) -> None:
        pass

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        return ErrorCode.NONE

    def when_written(self, waiter: Any, result: Result) -> bool:
        return False

    def subscriptions(self) -> Subscriptions:
        return Subscriptions(self.protocol_type, self.is_empty, -1, frozenset({"t"}))

    def topics_in_use(self) -> frozenset[str]:
        return frozenset({"t"} if self.members else ())

    def join_bytes(self, request: JoinRequest) -> int:
        return 0

    def sync_bytes(self, request: SyncRequest) -> int:
        return 0

    def join(self, request: JoinRequest, waiter: Any, *, now_ms: int, now_wall_ms: int) -> Effects:
        return Effects([(waiter, JoinResult(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))])

    def sync(self, request: SyncRequest, waiter: Any, *, now_ms: int, now_wall_ms: int) -> Effects:
        return Effects([(waiter, SyncResult(ErrorCode.UNKNOWN_MEMBER_ID))])

    def heartbeat(
        self, member_id: str, generation_id: int, group_instance_id: str | None, *, now_ms: int
    ) -> ErrorCode:
        return ErrorCode.UNKNOWN_MEMBER_ID

    def leave(
        self, members: Sequence[LeavingMember], *, now_ms: int, now_wall_ms: int
    ) -> tuple[list[ErrorCode], Effects]:
        return [self._leave(each.member_id) for each in members], Effects()

    def _leave(self, member_id: str) -> ErrorCode:
        known = member_id in self.members
        self.members.pop(member_id, None)
        return ErrorCode.NONE if known else ErrorCode.UNKNOWN_MEMBER_ID

    def check_transactional_commit(
        self,
        member_id: str,
        generation_id: int,
        group_instance_id: str | None,
        offsets: Offsets = (),
    ) -> ErrorCode:
        return ErrorCode.NONE

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
        if not member_id and self.is_empty:
            return ErrorCode.NONE
        if member_id not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        is_current = generation_id == self.epoch
        return ErrorCode.NONE if is_current else ErrorCode.STALE_MEMBER_EPOCH

    def forget_waiter(self, waiter: Any) -> None:
        raise AssertionError("nobody waits here")

    def delete(self) -> tuple[ErrorCode, Effects]:
        if self.members:
            return ErrorCode.NON_EMPTY_GROUP, Effects()
        self.is_dead = True
        return ErrorCode.NONE, Effects(writes=[GroupWrite([(key, None) for key in KEYS])])

    def written(
        self, write: GroupWrite, error: ErrorCode, *, now_ms: int, now_wall_ms: int
    ) -> Effects:
        self.outcomes.append(error)
        return Effects()

    def tick(self, *, now_ms: int, now_wall_ms: int) -> Effects:
        raise AssertionError("it has no deadlines")

    def next_deadline_ms(self) -> int | None:
        return None

    def on_loaded(self, *, now_ms: int, now_wall_ms: int) -> Effects:
        return Effects()

    def fail_all(self, error: ErrorCode) -> Effects:
        self.failed_with = error
        return Effects()
