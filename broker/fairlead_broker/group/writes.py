"""The three kinds of writes of a coordinator: commits, group records, and tombstones of offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from fairlead_broker.group.record_batching import encode_body
from fairlead_broker.group.records import GroupKey, encode_key
from fairlead_broker.group.shard import size_in_batch
from fairlead_wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairlead_broker.group.coordinated_group import CoordinatedGroup
    from fairlead_broker.group.group_types import GroupWrite


class CommitWaiter(Protocol):
    """Who is told how a commit ended."""

    def finish(self, code: ErrorCode) -> None: ...


class OffsetsWrite:
    """Offsets that are being committed. `offsets` are topic, partition and value of each."""

    __slots__ = ("_group", "_waiter", "bodies", "offsets", "size")

    def __init__(
        self,
        group: CoordinatedGroup,
        waiter: CommitWaiter,
        offsets: list[tuple[str, int, bytes]],
    ) -> None:
        self._group = group
        self._waiter: CommitWaiter | None = waiter
        self.offsets = offsets
        group.commits_in_flight += 1
        topic = group.offsets.topic
        self.bodies: Sequence[bytes] = [
            encode_body(topic(name).key(partition), value) for name, partition, value in offsets
        ]
        self.size = size_in_batch(self.bodies)

    @property
    def group(self) -> CoordinatedGroup:
        return self._group

    def committed(self) -> None:
        self._group.commits_in_flight -= 1
        committed = self._group.offsets.committed
        for name, partition, value in self.offsets:
            committed(name, partition, value)
        self._finish(ErrorCode.NONE)

    def failed(self, code: ErrorCode) -> None:
        self._group.commits_in_flight -= 1
        self._finish(code)

    def timed_out(self) -> None:
        self._finish(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _finish(self, code: ErrorCode) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            waiter.finish(code)


class GroupRecordWrite:
    """A record of a group; its state machine is told the outcome."""

    __slots__ = ("_group", "_on_outcome", "_write", "bodies", "size")

    def __init__(
        self,
        group: CoordinatedGroup,
        write: GroupWrite,
        on_outcome: Callable[[CoordinatedGroup, GroupWrite, ErrorCode], None],
    ) -> None:
        self._group = group
        self._write = write
        self._on_outcome: Callable[[CoordinatedGroup, GroupWrite, ErrorCode], None] | None = (
            on_outcome
        )
        self.bodies: Sequence[bytes] = [
            encode_body(encode_key(GroupKey(group.group_id)), write.value)
        ]
        self.size = size_in_batch(self.bodies)

    @property
    def group(self) -> CoordinatedGroup:
        return self._group

    def committed(self) -> None:
        self._tell(ErrorCode.NONE)

    def failed(self, code: ErrorCode) -> None:
        if code is ErrorCode.INVALID_COMMIT_OFFSET_SIZE:
            # Too many members for one record: members must not take it for a commit's fault.
            code = ErrorCode.UNKNOWN_SERVER_ERROR
        self._tell(code)

    def timed_out(self) -> None:
        self._tell(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _tell(self, code: ErrorCode) -> None:
        on_outcome, self._on_outcome = self._on_outcome, None
        if on_outcome is not None:
            on_outcome(self._group, self._write, code)


class TombstonesWrite:
    """Offsets of a group that are being removed, and with `with_group` the group's own record."""

    __slots__ = ("_group", "_on_committed", "_on_outcome", "_partitions", "bodies", "size")

    def __init__(
        self,
        group: CoordinatedGroup,
        partitions: Sequence[tuple[str, int]],
        *,
        with_group: bool,
        on_committed: Callable[[CoordinatedGroup], None] | None,
        on_outcome: Callable[[ErrorCode], None] | None,
    ) -> None:
        """`on_outcome` hears once; `on_committed` also when the outcome was a time-out before."""
        self._group = group
        self._partitions = partitions
        self._on_committed = on_committed
        self._on_outcome = on_outcome
        topic = group.offsets.topic
        bodies = [encode_body(topic(name).key(index), None) for name, index in partitions]
        if with_group:
            bodies.append(encode_body(encode_key(GroupKey(group.group_id)), None))
        self.bodies: Sequence[bytes] = bodies
        self.size = size_in_batch(bodies)

    def committed(self) -> None:
        for name, partition in self._partitions:
            self._group.offsets.removed(name, partition)
        self._finish(ErrorCode.NONE)
        if self._on_committed is not None:
            self._on_committed(self._group)

    def failed(self, code: ErrorCode) -> None:
        self._finish(code)

    def timed_out(self) -> None:
        self._finish(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _finish(self, code: ErrorCode) -> None:
        on_outcome, self._on_outcome = self._on_outcome, None
        if on_outcome is not None:
            on_outcome(code)
