"""How much the transactional ids of a broker hold, and whether more may come.

Pure. Each partition of `__transaction_state` has its own bound of ids, and each id one of
partitions: many ids with many partitions are bounded only together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.limits import TRANSACTIONS_BYTES_MAX
from fairlead_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from fairlead_broker.transaction.coordinated_transaction import CoordinatedTransaction


class TransactionMemory:
    """`total_bytes` is the sum of what each id had when it was counted last."""

    def __init__(self) -> None:
        self.total_bytes = 0

    def count(self, transaction: CoordinatedTransaction) -> None:
        """Take note that something has happened to an id."""
        held = 0 if transaction.is_gone else transaction.machine.memory_bytes
        self.total_bytes += held - transaction.counted_bytes
        transaction.counted_bytes = held

    def check_more(self, added_bytes: int) -> None:
        """KafkaError, which clients answer with a retry, where there is no room for so much more.

        What adds nothing is always taken: an open transaction can be ended, and asked about.
        """
        if added_bytes > 0 and self.total_bytes + added_bytes > TRANSACTIONS_BYTES_MAX:
            raise KafkaError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                f"transactional ids hold {self.total_bytes} bytes of {TRANSACTIONS_BYTES_MAX}",
            )
