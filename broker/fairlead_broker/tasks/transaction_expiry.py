"""Transactions that have timed out, and transactional ids that nobody uses any more."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fairlead_broker.limits import HOUSEKEEPING_SLICE_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairlead_broker.broker import Broker
    from fairlead_broker.transaction.coordinated_transaction import CoordinatedTransaction


class TransactionExpiry:
    """Two rounds for `run_periodically`: all ids that are coordinated here, in slices."""

    def __init__(self, broker: Broker) -> None:
        self._clock = broker.clock
        self._wake_check = broker.wake_check
        self._coordinator = broker.transaction_coordinator
        self._expiration_ms = broker.settings.transactional_id_expiration_ms

    async def abort_timed_out(self) -> None:
        """Abort transactions that are open for longer than their clients wanted (T6)."""
        await self._each(self._abort_if_timed_out)

    async def remove_expired(self) -> None:
        """Write tombstones for ids that nobody has used for the expiration."""
        await self._each(self._remove_if_expired)

    def _abort_if_timed_out(self, transaction: CoordinatedTransaction) -> None:
        """Leave it to a later round if this broker was stopped, and has not heard its clients."""
        if not self._wake_check.stands_still():
            self._coordinator.abort_if_timed_out(transaction)

    def _remove_if_expired(self, transaction: CoordinatedTransaction) -> None:
        self._coordinator.expire(transaction, expiration_ms=self._expiration_ms)

    async def _each(self, check: Callable[[CoordinatedTransaction], None]) -> None:
        clock = self._clock
        deadline_ms = clock.monotonic_ms() + HOUSEKEEPING_SLICE_MS
        for transaction in list(self._coordinator.transactions.values()):
            if not transaction.is_gone:
                check(transaction)
            if clock.monotonic_ms() >= deadline_ms:
                await asyncio.sleep(0)
                deadline_ms = clock.monotonic_ms() + HOUSEKEEPING_SLICE_MS
