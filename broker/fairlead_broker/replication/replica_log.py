"""What replication needs of a log: a small interface, so that a log in memory can stand in.

`fairlead_broker.log.log.Log` is the real one. Offsets are Kafka's: ends are exclusive. Errors are
`KafkaError`; KAFKA_STORAGE_ERROR means that `is_offline` is true from then on, or
`lacks_room` for a while.
"""

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from fairlead_broker.log.index.transaction_index import AbortedTransaction
    from fairlead_broker.log.leader_epochs import EpochEndOffset
    from fairlead_broker.log.log import AppendResult
    from fairlead_broker.log.lookup import ReadResult
    from fairlead_broker.log.producers.end_marker import EndMarker
    from fairlead_broker.log.producers.producer_state import ProducerState
    from fairlead_broker.log.producers.verification import VerificationGuard


class FlushPolicy(Protocol):
    """The part of a log's settings that acknowledgements depend on."""

    @property
    def flush_messages(self) -> int:
        """How many records may be acknowledged without an fsync."""
        ...


class EpochHistory(Protocol):
    """Where leader epochs end: what a follower compares with its leader (R2)."""

    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    @property
    def last_leader_epoch(self) -> int:
        """The newest leader epoch, -1 if there is none."""
        ...

    def end_offset_for_epoch(self, epoch: int) -> "EpochEndOffset":
        """(largest epoch not above `epoch`, where it ends); both -1 if that is unknown."""
        ...


class ReplicaLog(EpochHistory, Protocol):
    """Everything that `Partition` does to a log."""

    @property
    def config(self) -> FlushPolicy: ...
    @property
    def recovery_point(self) -> int:
        """Everything below was fsynced."""
        ...

    @property
    def unflushed_messages(self) -> int: ...
    @property
    def is_offline(self) -> bool:
        """The log's disk has failed: it takes no more records."""
        ...

    @property
    def lacks_room(self) -> bool:
        """The disk is full: the log can be read, and takes no records until there is room."""
        ...

    @property
    def refusal(self) -> str | None:
        """Why nothing may be appended now; None if something may."""
        ...

    @property
    def start_before_cut(self) -> int | None:
        """Where the log began before a power cut, if that may have taken its first segments."""
        ...

    @property
    def producers(self) -> "ProducerState":
        """Idempotent producers and transactions of the log up to its end."""
        ...

    def append_as_leader(
        self,
        batch: memoryview,
        *,
        leader_epoch: int,
        now_ms: int,
        has_keys: bool = False,
        guard: "VerificationGuard | None" = None,
        is_from_coordinator: bool = False,
    ) -> "AppendResult":
        """Give one produced batch offsets and append it; `batch` is writable."""
        ...

    def append_end_marker(
        self, marker: "EndMarker", *, leader_epoch: int, now_ms: int
    ) -> "AppendResult":
        """Append the marker that ends a producer's transaction."""
        ...

    def recall_unreplicated(self, high_watermark: int) -> None:
        """Find transactions whose end may not have been committed when the last process ended."""
        ...

    def aborted_transactions(
        self, fetch_offset: int, upper_offset: int
    ) -> "list[AbortedTransaction]":
        """Return aborted transactions that may have records in a range of offsets."""
        ...

    def append_as_follower(
        self, batches: memoryview, *, now_ms: int, leader_epoch: int | None = None
    ) -> None:
        """Append whole batches as the leader sent them; the first one starts at this log's end.

        A batch of an epoch above `leader_epoch` is not appended, nor are those after it.
        """
        ...

    def assign_leader_epoch(self, leader_epoch: int) -> None:
        """Record the epoch in which this replica leads from its log end on (R4)."""
        ...

    def read(
        self, offset: int, max_bytes: int, *, end_offset: int, minimum_one_batch: bool
    ) -> "ReadResult":
        """Return whole batches from the one that holds `offset`."""
        ...

    def truncate_to(self, offset: int) -> None:
        """Drop everything from `offset` on, epochs included; the offset comes from epochs (R1)."""
        ...

    def restart_at(self, offset: int) -> None:
        """Drop everything; the log is empty and goes on at `offset` (R17)."""
        ...

    def advance_log_start_offset(self, offset: int) -> None:
        """Make everything below `offset` unreadable."""
        ...
