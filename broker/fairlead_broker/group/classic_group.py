"""A consumer group of the classic protocol as a state machine: who is in it, and what each has.

Pure: it is told of requests, of outcomes of writes and of time, and answers with `Effects`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairlead_broker.group.group_types import (
        Effects,
        GroupDescription,
        GroupState,
        GroupWrite,
        JoinRequest,
        LeavingMember,
        SyncRequest,
    )
    from fairlead_wire.errors import ErrorCode


class ClassicGroup:
    """One group. `generation_id`, `state`, `protocol_type`, `leader` are readable attributes."""

    group_id: str
    state: GroupState
    generation_id: int
    protocol_type: str
    leader: str

    def __init__(self, group_id: str, *, initial_rebalance_delay_ms: int, size_max: int) -> None:
        raise NotImplementedError

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
        raise NotImplementedError

    def join(self, request: JoinRequest, waiter: Any, *, now_ms: int, now_wall_ms: int) -> Effects:
        """A member joins or rejoins; it is answered now or when the rebalance is complete."""
        raise NotImplementedError

    def sync(self, request: SyncRequest, waiter: Any, *, now_ms: int, now_wall_ms: int) -> Effects:
        """A member asks for its assignment; the leader's request makes the group stable."""
        raise NotImplementedError

    def heartbeat(
        self, member_id: str, generation_id: int, group_instance_id: str | None, *, now_ms: int
    ) -> ErrorCode:
        """A sign of life; REBALANCE_IN_PROGRESS tells the member to join again."""
        raise NotImplementedError

    def leave(
        self, members: Sequence[LeavingMember], *, now_ms: int, now_wall_ms: int
    ) -> tuple[list[ErrorCode], Effects]:
        """Members go on their own (or static ones are removed by an administrator)."""
        raise NotImplementedError

    def check_commit(
        self, member_id: str, generation_id: int, group_instance_id: str | None, *, now_ms: int
    ) -> ErrorCode:
        """Whether offsets may be committed under these credentials; counts as a sign of life."""
        raise NotImplementedError

    def written(
        self, write: GroupWrite, error: ErrorCode, *, now_ms: int, now_wall_ms: int
    ) -> Effects:
        """A write is committed (NONE), or it failed; whoever waited for it is answered."""
        raise NotImplementedError

    def tick(self, *, now_ms: int, now_wall_ms: int) -> Effects:
        """Time has passed: sessions and rebalances that ran out end."""
        raise NotImplementedError

    def next_deadline_ms(self) -> int | None:
        """When `tick` has something to do at the earliest."""
        raise NotImplementedError

    def forget_waiter(self, waiter: Any) -> None:
        """The connection of a parked request is gone; the member stays until its session ends."""
        raise NotImplementedError

    def fail_all(self, error: ErrorCode) -> Effects:
        """Another broker coordinates now: everybody who waits is answered with `error`."""
        raise NotImplementedError

    def subscribed_topics(self) -> frozenset[str] | None:
        """Topics that members consume (protocol type `consumer`); None where nobody can tell."""
        raise NotImplementedError

    def describe(self) -> GroupDescription:
        """For DescribeGroups and ListGroups."""
        raise NotImplementedError
