"""A transition on its way into the log of its shard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.coordinator.record_batching import encode_body
from fairlead_broker.coordinator.shard import size_in_batch
from fairlead_broker.transaction.records import END_GROWTH_BYTES
from fairlead_broker.transaction.transaction_types import TransactionState
from fairlead_wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fairlead_broker.transaction.coordinated_transaction import CoordinatedTransaction
    from fairlead_broker.transaction.transaction_types import Transition


class TransitionWrite:
    """Tells `on_outcome` how it ended, and `on_time_out` before that if it takes too long.

    With `must_leave_room` it is of an open transaction, and `size` has room for the record that
    ends it, which is a little longer: one that could not be written would leave it open for ever.
    """

    __slots__ = (
        "_on_outcome",
        "_on_time_out",
        "_transaction",
        "_transition",
        "bodies",
        "must_leave_room",
        "size",
    )

    def __init__(
        self,
        transaction: CoordinatedTransaction,
        transition: Transition,
        *,
        on_outcome: Callable[[CoordinatedTransaction, Transition, ErrorCode], None],
        on_time_out: Callable[[CoordinatedTransaction, Transition], None],
    ) -> None:
        self._transaction = transaction
        self._transition = transition
        self._on_outcome = on_outcome
        self._on_time_out = on_time_out
        self.bodies: Sequence[bytes] = [encode_body(transition.key, transition.value)]
        metadata = transition.metadata
        self.must_leave_room = metadata is not None and metadata.state is TransactionState.ONGOING
        self.size = size_in_batch(self.bodies) + END_GROWTH_BYTES * self.must_leave_room

    def committed(self) -> None:
        self._on_outcome(self._transaction, self._transition, ErrorCode.NONE)

    def failed(self, code: ErrorCode) -> None:
        if code is ErrorCode.MESSAGE_TOO_LARGE:
            # Too many partitions for one record: as Kafka answers, because no retry helps.
            code = ErrorCode.UNKNOWN_SERVER_ERROR
        self._on_outcome(self._transaction, self._transition, code)

    def timed_out(self) -> None:
        self._on_time_out(self._transaction, self._transition)
