"""A partition of an internal topic that this broker leads, and the state that lives in it.

All writes of one turn of the loop go into as few batches as possible. They are answered when the
high watermark has passed them (G4) under the same leader epoch (R20). No task or future is made for
a write: an open batch, and a queue of appended ones.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from enum import Enum
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, Protocol, TypeVar

from fairlead_broker.coordinator.record_batching import RECORD_OVERHEAD_MAX, build_batch
from fairlead_broker.coordinator.state_machine import StateMachine
from fairlead_broker.limits import COORDINATOR_WRITES_WAITING_MAX
from fairlead_broker.replication.acknowledgement import acknowledgement
from fairlead_broker.replication.acks import ALL_IN_SYNC
from fairlead_wire.errors import ErrorCode, KafkaError
from fairlead_wire.record_batch import BATCH_HEADER_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from fairlead_broker.log.log import AppendResult
    from fairlead_broker.replication.partition import Partition

_REFUSALS: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.MESSAGE_TOO_LARGE,
}
"""Errors for clients of a coordinator in place of those of the log, mapped as in Kafka.

Each kind of write maps MESSAGE_TOO_LARGE itself."""

_COMMITTED: Final = (ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
"""Every later leader has the records, however small the ISR is now: the answer has to be what a
replay of the log gives (R22)."""


class ShardState(Enum):
    """State of a shard."""

    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    """Its log can't be read, or written."""
    DROPPED = "dropped"


class Write(Protocol):
    """Records that belong together, and what their outcome means.

    `committed` or `failed` is called exactly once. `timed_out` may be called before `committed`:
    the records are in the log and may still be committed, but the client waits no longer.
    """

    bodies: Sequence[bytes]
    """The records, as `record_batching.encode_body` gives them."""
    size: int
    """Most bytes that they take in a batch."""

    def committed(self) -> None: ...
    def failed(self, code: ErrorCode) -> None: ...
    def timed_out(self) -> None: ...


class SeparateWrite(ABC):
    """A `Write` with its own batch: of a producer's transaction, or the end of one.

    It is appended in order with the others.
    """

    __slots__ = ()

    bodies: Sequence[bytes] = ()
    size = 0

    @abstractmethod
    def append_to(self, partition: Partition, now_ms: int) -> AppendResult:
        """Append its batch with acks=all; KafkaError. `now_ms`: wall time."""

    @abstractmethod
    def committed(self) -> None: ...
    @abstractmethod
    def failed(self, code: ErrorCode) -> None: ...
    @abstractmethod
    def timed_out(self) -> None: ...


class _Appended(NamedTuple):
    """Writes that are in the log; the high watermark has to reach `end_offset`."""

    end_offset: int
    deadline_ms: int
    writes: Sequence[Write]


def size_in_batch(bodies: Sequence[bytes]) -> int:
    """Return an upper bound of what records take in a batch."""
    return sum(map(len, bodies)) + RECORD_OVERHEAD_MAX * len(bodies)


MachineT = TypeVar("MachineT", bound=StateMachine)


class Shard(Generic[MachineT]):
    """One partition during one leader epoch, with the state machine that `build` makes.

    Another epoch gets a new shard and a new machine.
    """

    __slots__ = (
        "_appended",
        "_open",
        "_timed_out_to",
        "index",
        "leader_epoch",
        "machine",
        "partition",
        "state",
    )

    def __init__(self, partition: Partition, build: Callable[[Shard[MachineT]], MachineT]) -> None:
        self.partition = partition
        self.index = partition.index
        self.leader_epoch = partition.leader_epoch
        self.state = ShardState.LOADING
        self._open: list[Write] = []
        self._appended: deque[_Appended] = deque()
        self._timed_out_to = 0
        self.machine = build(self)

    @property
    def is_current(self) -> bool:
        """Whether the partition is still in the leader epoch of this shard (R20)."""
        partition = self.partition
        return partition.leader is not None and partition.leader_epoch == self.leader_epoch

    @property
    def is_resumed(self) -> bool:
        """Whether this process goes on for a killed one, which led in the same epoch (R34)."""
        return self.leader_epoch == self.partition.resumed_epoch

    @property
    def waiting_count(self) -> int:
        """Appends whose outcome is not known."""
        return len(self._appended)

    def has_room_for(self, write: Write) -> bool:
        """Whether a write fits into a batch of the log at all."""
        config = self.partition.log.config
        size_max = min(config.max_message_bytes, config.segment_bytes)
        return BATCH_HEADER_SIZE + write.size <= size_max

    def add(self, write: Write) -> bool:
        """Put a write into the next append; return whether it is the first one.

        In that case the caller has to have `flush` called in this turn.
        """
        self._open.append(write)
        return len(self._open) == 1

    def flush(self, *, now_ms: int, now_wall_ms: int, timeout_ms: int) -> None:
        """Append all added writes; those that are committed at once are answered at once.

        If an append raises an exception, its writes and those after it stay added.
        """
        writes, self._open = self._open, []
        deadline_ms = now_ms + timeout_ms
        done = 0
        try:
            for batch in self._batches(writes):
                self._append(batch, deadline_ms, now_wall_ms)
                done += len(batch)
        except Exception:
            self._open[:0] = writes[done:]
            raise
        self.advanced()

    def _batches(self, writes: list[Write]) -> Iterator[list[Write]]:
        """Yield the writes for each batch, in order."""
        config = self.partition.log.config
        size_max = min(config.max_message_bytes, config.segment_bytes)
        batch: list[Write] = []
        size = BATCH_HEADER_SIZE
        for write in writes:
            is_separate = isinstance(write, SeparateWrite)
            if batch and (is_separate or size + write.size > size_max):
                yield batch
                batch, size = [], BATCH_HEADER_SIZE
            if is_separate:
                yield [write]
                continue
            batch.append(write)
            size += write.size
        if batch:
            yield batch

    def _append(self, writes: list[Write], deadline_ms: int, now_wall_ms: int) -> None:
        if not self.is_current:
            fail_all(writes, ErrorCode.NOT_COORDINATOR)
            return
        if len(self._appended) >= COORDINATOR_WRITES_WAITING_MAX:
            fail_all(writes, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        try:
            result = self._append_batch(writes, now_wall_ms)
        except KafkaError as error:
            fail_all(writes, _REFUSALS.get(error.code, error.code))
            return
        self._appended.append(_Appended(result.last_offset + 1, deadline_ms, writes))

    def _append_batch(self, writes: list[Write], now_wall_ms: int) -> AppendResult:
        first = writes[0]
        if isinstance(first, SeparateWrite):
            return first.append_to(self.partition, now_wall_ms)
        bodies = [body for write in writes for body in write.bodies]
        batch = build_batch(bodies, timestamp_ms=now_wall_ms)
        return self.partition.append_as_leader(
            memoryview(batch), required_acks=ALL_IN_SYNC, now_ms=now_wall_ms, has_keys=True
        )

    def advanced(self) -> None:
        """Settle writes that are committed or lost, after the partition has advanced (R20)."""
        appended = self._appended
        while appended:
            code = acknowledgement(
                self.partition, ALL_IN_SYNC, self.leader_epoch, appended[0].end_offset
            )
            if code is None:
                return
            if code not in _COMMITTED:
                self.fail_waiting(ErrorCode.NOT_COORDINATOR)
                return
            for write in appended.popleft().writes:
                write.committed()

    def next_deadline_ms(self) -> int | None:
        """Return when the next waiting write times out."""
        for appended in self._appended:
            if appended.end_offset > self._timed_out_to:
                return appended.deadline_ms
        return None

    def expire(self, now_ms: int) -> None:
        """Answer writes that have timed out; their records still count once committed."""
        for appended in list(self._appended):
            if appended.deadline_ms > now_ms:
                return
            if appended.end_offset > self._timed_out_to:
                self._timed_out_to = appended.end_offset
                for write in appended.writes:
                    write.timed_out()

    def uncommitted(self) -> Iterator[Write]:
        """Yield writes that are appended or about to be, in order."""
        for appended in self._appended:
            yield from appended.writes
        yield from self._open

    def fail_waiting(self, code: ErrorCode) -> None:
        """Fail all writes whose outcome is not known."""
        appended, self._appended = self._appended, deque()
        writes, self._open = self._open, []
        for each in appended:
            fail_all(each.writes, code)
        fail_all(writes, code)


def fail_all(writes: Sequence[Write], code: ErrorCode) -> None:
    """Fail writes that are not in the log, or may not stay there."""
    for write in writes:
        write.failed(code)
