"""The interface of a group, whichever protocol its members use.

The classic protocol (`classic_group`) has a leader among the members assign partitions; that of
KIP-848 has the coordinator do it. Handlers, metrics, removal and memory ask a group through this
interface and do not know which it is (Kafka's `Group`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairlead_broker.group.group_types import (
        ConsumerGroupDescription,
        Effects,
        GroupDescription,
        GroupWrite,
        JoinRequest,
        LeavingMember,
        Offsets,
        Result,
        Subscriptions,
        SyncRequest,
    )
    from fairlead_wire.errors import ErrorCode


class GroupProtocol(Protocol):
    """The members of one group, and what they have agreed on.

    Times are monotonic milliseconds unless a name says wall. A waiter is any object that the shell
    gets back with an answer. The coordinator has to carry out all `Effects` that methods return.
    """

    @property
    def group_type(self) -> str:
        """The protocol's name in ListGroups: `classic`, `consumer`."""

    @property
    def protocol_type(self) -> str:
        """What the members are: `consumer`, `connect`; empty for a group that never had any."""

    @property
    def state_name(self) -> str:
        """Its state as ListGroups and DescribeGroups say it."""

    @property
    def is_empty(self) -> bool:
        """Whether it has no members, so that it may be deleted."""

    @property
    def is_dead(self) -> bool:
        """Whether it is being deleted: nothing may be done to it."""

    @property
    def is_unused(self) -> bool:
        """Whether it never had members, so that the log has no record of it."""

    @property
    def awaits_members(self) -> bool:
        """Whether it gave out a member id to a client that has not joined with it yet."""

    @property
    def memory_bytes(self) -> int:
        """How much its members take, about."""

    def describe(self) -> GroupDescription | None:
        """Describe it as DescribeGroups does; None if that does not apply to its kind."""

    def describe_members(self) -> ConsumerGroupDescription | None:
        """Describe it as ConsumerGroupDescribe does; None if that does not apply to its kind."""

    def subscriptions(self) -> Subscriptions:
        """Tell what the expiry of its offsets depends on."""

    def topics_in_use(self) -> frozenset[str] | None:
        """Return topics whose offsets must not be deleted; None for all.

        KafkaError where no offset of the group may be deleted, whatever its topic.
        """

    def join_bytes(self, request: JoinRequest) -> int:
        """How much more memory it would take after a join; not more than 0 for what it has."""

    def sync_bytes(self, request: SyncRequest) -> int:
        """How much more memory it would take after a sync; not more than 0 for what it has."""

    def join(self, request: JoinRequest, waiter: Any, *, now_ms: int, now_wall_ms: int) -> Effects:
        """Take JoinGroup; the waiter is answered with a JoinResult, now or later."""

    def sync(self, request: SyncRequest, waiter: Any, *, now_ms: int, now_wall_ms: int) -> Effects:
        """Take SyncGroup; the waiter is answered with a SyncResult, now or later."""

    def heartbeat(
        self, member_id: str, generation_id: int, group_instance_id: str | None, *, now_ms: int
    ) -> ErrorCode:
        """Take a Heartbeat."""

    def leave(
        self, members: Sequence[LeavingMember], *, now_ms: int, now_wall_ms: int
    ) -> tuple[list[ErrorCode], Effects]:
        """Take LeaveGroup: one error for each of the members."""

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
        """Whether offsets may be committed under these credentials; a sign of life.

        `generation_id` is the member's epoch in protocols that have no generations. `version` is
        that of OffsetCommit, `offsets` are those to be committed.
        """

    def check_transactional_commit(
        self,
        member_id: str,
        generation_id: int,
        group_instance_id: str | None,
        offsets: Offsets = (),
    ) -> ErrorCode:
        """Whether offsets may be committed in a transaction under these credentials (KIP-447).

        A request without any of them is not checked: before TxnOffsetCommit 3 clients could not
        send them.
        """

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Whether a client may read committed offsets; -1 and None are not checked."""

    def when_written(self, waiter: Any, result: Result) -> bool:
        """Have an answer wait for all that is being written; False where it need not wait."""

    def forget_waiter(self, waiter: Any) -> None:
        """Answer this one no more: its connection is gone."""

    def delete(self) -> tuple[ErrorCode, Effects]:
        """End an empty group: without an error, the effects are one write with its tombstones."""

    def written(
        self, write: GroupWrite, error: ErrorCode, *, now_ms: int, now_wall_ms: int
    ) -> Effects:
        """Note that one of its writes is committed (NONE) or has failed.

        REQUEST_TIMED_OUT is for one that `counts_late`: nobody shall wait for it any longer, and
        its outcome is yet to come.
        """

    def tick(self, *, now_ms: int, now_wall_ms: int) -> Effects:
        """Let time pass: a deadline has come."""

    def next_deadline_ms(self) -> int | None:
        """Return when `tick` has something to do at the earliest."""

    def on_loaded(self, *, now_ms: int, now_wall_ms: int) -> Effects:
        """Begin to be served, as the log says it was."""

    def fail_all(self, error: ErrorCode) -> Effects:
        """Answer all waiting requests: another broker coordinates now."""


class FormerProtocol(NamedTuple):
    """The protocol of a group before a change that is being written to the log."""

    write: GroupWrite
    protocol: GroupProtocol
