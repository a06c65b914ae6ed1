"""The writes of groups: commits, group records, and tombstones of offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from fairlead_broker.coordinator.record_batching import encode_body
from fairlead_broker.coordinator.shard import size_in_batch
from fairlead_wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from fairlead_broker.group.coordinated_group import CoordinatedGroup
    from fairlead_broker.group.group_types import GroupWrite
    from fairlead_broker.group.offset_memory import OffsetMemory


class CommitWaiter(Protocol):
    """The receiver of a commit's outcome."""

    def finish(self, code: ErrorCode) -> None: ...


class CommittingWrite:
    """Offsets on their way into the log. `offsets` are topic, partition and value of each.

    `held_bytes` is what they take until their outcome is known, as `check_commit` has said.
    """

    __slots__ = ("_held_bytes", "_memory", "_waiter", "bodies", "group", "offsets", "size")

    def __init__(
        self,
        group: CoordinatedGroup,
        waiter: CommitWaiter,
        offsets: list[tuple[str, int, bytes]],
        *,
        held_bytes: int,
    ) -> None:
        self.group = group
        self._waiter: CommitWaiter | None = waiter
        self.offsets = offsets
        group.commits_in_flight += 1
        self._memory: OffsetMemory = group.shard.machine.offset_memory
        self._held_bytes = held_bytes
        self._memory.undecided_bytes += held_bytes
        topic = group.offsets.topic
        self.bodies: Sequence[bytes] = [
            encode_body(topic(name).key(partition), value) for name, partition, value in offsets
        ]
        self.size = size_in_batch(self.bodies)

    def failed(self, code: ErrorCode) -> None:
        self.settled()
        self._finish(_as_of_commit(code))

    def settled(self) -> None:
        """Count the commit as decided, and what its offsets take now."""
        self.group.commits_in_flight -= 1
        self._memory.undecided_bytes -= self._held_bytes
        self._memory.count(self.group)

    def timed_out(self) -> None:
        self._finish(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _finish(self, code: ErrorCode) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            waiter.finish(code)


class OffsetsWrite(CommittingWrite):
    """Offsets that count as soon as they are committed."""

    __slots__ = ()

    def committed(self) -> None:
        committed = self.group.offsets.committed
        for name, partition, value in self.offsets:
            committed(name, partition, value)
        self.settled()
        self._finish(ErrorCode.NONE)


class GroupRecordWrite:
    """Records of a group itself; the group gets the outcome."""

    __slots__ = ("_group", "_on_outcome", "_write", "bodies", "size")

    def __init__(
        self,
        group: CoordinatedGroup,
        write: GroupWrite,
        on_outcome: Callable[[CoordinatedGroup, GroupWrite, ErrorCode], None],
    ) -> None:
        """`on_outcome` is called once; if the write `counts_late`, a time-out may come first."""
        self._group = group
        self._write = write
        self._on_outcome: Callable[[CoordinatedGroup, GroupWrite, ErrorCode], None] | None = (
            on_outcome
        )
        self.bodies: Sequence[bytes] = [encode_body(key, value) for key, value in write.records]
        self.size = size_in_batch(self.bodies)

    @property
    def group(self) -> CoordinatedGroup:
        return self._group

    def committed(self) -> None:
        self._tell(ErrorCode.NONE)

    def failed(self, code: ErrorCode) -> None:
        if code is ErrorCode.MESSAGE_TOO_LARGE:
            # Too many members for one record: members must not take it for a commit's fault.
            code = ErrorCode.UNKNOWN_SERVER_ERROR
        self._tell(code)

    def timed_out(self) -> None:
        if not self._write.counts_late:
            self._tell(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif self._on_outcome is not None:
            self._on_outcome(self._group, self._write, ErrorCode.REQUEST_TIMED_OUT)

    def _tell(self, code: ErrorCode) -> None:
        on_outcome, self._on_outcome = self._on_outcome, None
        if on_outcome is not None:
            on_outcome(self._group, self._write, code)


class TombstonesWrite:
    """Offsets of a group that are being removed, and the tombstones of a group that ends."""

    __slots__ = ("_group", "_on_committed", "_on_outcome", "_partitions", "bodies", "size")

    def __init__(
        self,
        group: CoordinatedGroup,
        partitions: Sequence[tuple[str, int]],
        *,
        group_records: Sequence[tuple[bytes, bytes | None]],
        on_committed: Callable[[CoordinatedGroup], None] | None,
        on_outcome: Callable[[ErrorCode], None] | None,
    ) -> None:
        """`on_outcome` is called once; `on_committed` also if the outcome was a time-out before."""
        self._group = group
        self._partitions = partitions
        self._on_committed = on_committed
        self._on_outcome = on_outcome
        topic = group.offsets.topic
        bodies = [encode_body(topic(name).key(index), None) for name, index in partitions]
        bodies += [encode_body(key, value) for key, value in group_records]
        self.bodies: Sequence[bytes] = bodies
        self.size = size_in_batch(bodies)

    def committed(self) -> None:
        for name, partition in self._partitions:
            self._group.offsets.removed(name, partition)
        memory: OffsetMemory = self._group.shard.machine.offset_memory
        memory.count(self._group)
        self._finish(ErrorCode.NONE)
        if self._on_committed is not None:
            self._on_committed(self._group)

    def failed(self, code: ErrorCode) -> None:
        self._finish(_as_of_commit(code))

    def timed_out(self) -> None:
        self._finish(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _finish(self, code: ErrorCode) -> None:
        on_outcome, self._on_outcome = self._on_outcome, None
        if on_outcome is not None:
            on_outcome(code)


def pending_offsets(group: CoordinatedGroup) -> list[tuple[str, int]]:
    """Return topic and partition of commits that are on their way."""
    return [(name, partition) for name, partition, _ in _pending(group)]


def pending_values(group: CoordinatedGroup, topic: str) -> list[tuple[int, bytes]]:
    """Return partition and value of commits for a topic that are on their way, in order."""
    return [(partition, value) for name, partition, value in _pending(group) if name == topic]


def _pending(group: CoordinatedGroup) -> Iterator[tuple[str, int, bytes]]:
    if not group.commits_in_flight:
        return
    for write in group.shard.uncommitted():
        if isinstance(write, CommittingWrite) and write.group is group:
            yield from write.offsets


def all_offsets(group: CoordinatedGroup) -> list[tuple[str, int]]:
    """Return topic and partition of all offsets of a group, those yet to come included.

    These are on their way, or staged in open transactions.
    """
    offsets = group.offsets
    return list(
        dict.fromkeys([*offsets.partitions(), *offsets.unstable(), *pending_offsets(group)])
    )


def has_record_on_its_way(group: CoordinatedGroup) -> bool:
    """Whether the group has written of itself what is not committed yet."""
    return any(
        isinstance(write, GroupRecordWrite) and write.group is group
        for write in group.shard.uncommitted()
    )


def _as_of_commit(code: ErrorCode) -> ErrorCode:
    """Return what Kafka calls a batch that is too large where it is one of offsets."""
    if code is ErrorCode.MESSAGE_TOO_LARGE:
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    return code
