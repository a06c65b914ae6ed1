"""Verification of new transactions: a leader asks the coordinator before a first batch is appended.

A batch that would open a transaction waits while the coordinator is asked (KIP-890). The answer is
valid only if nothing has happened to the producer in this log meanwhile. A marker may have ended
the transaction that the coordinator meant, and the late batch would open a transaction that no
marker ends. So the caller gets a *guard*, a unique object, and must pass it with the append; a
marker makes it invalid (R25). Guards are only in memory, as in Kafka (`VerificationStateEntry`):
after a restart the coordinator is asked again.
"""

from typing import Final

from fairlead_broker.limits import PRODUCERS_PER_LOG_MAX
from fairlead_wire.errors import ErrorCode, KafkaError

NO_SEQUENCE: Final = -1


class VerificationGuard:
    """The identity of one verification; compared with `is`."""

    __slots__ = ()


class VerificationEntry:
    """One producer whose first batch waits. `lowest_sequence` is of the newest epoch.

    `seen_ms` is the time of the first `expire` after its creation.
    """

    __slots__ = ("epoch", "guard", "lowest_sequence", "seen_ms", "supports_epoch_bump")

    def __init__(self, epoch: int, lowest_sequence: int, *, supports_epoch_bump: bool) -> None:
        self.guard = VerificationGuard()
        self.epoch = epoch
        self.lowest_sequence = lowest_sequence
        self.supports_epoch_bump = supports_epoch_bump
        self.seen_ms: int | None = None


class Verifications:
    """The entries of one log, oldest first; beyond `PRODUCERS_PER_LOG_MAX` the oldest is dropped.

    A producer that loses its guard is refused, and begins its transaction again.
    """

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[int, VerificationEntry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def begin(
        self,
        producer_id: int,
        epoch: int,
        first_sequence: int,
        *,
        supports_epoch_bump: bool,
    ) -> VerificationGuard:
        """Return the guard for a batch; waiting batches of one producer share it."""
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._entries[producer_id] = VerificationEntry(
                epoch, first_sequence, supports_epoch_bump=supports_epoch_bump
            )
            if len(self._entries) > PRODUCERS_PER_LOG_MAX:
                del self._entries[next(iter(self._entries))]
        elif epoch > entry.epoch:
            entry.epoch, entry.lowest_sequence = epoch, first_sequence
        elif epoch == entry.epoch:
            entry.lowest_sequence = min(entry.lowest_sequence, first_sequence)
        return entry.guard

    def check(self, producer_id: int, guard: VerificationGuard | None) -> VerificationEntry:
        """Return the entry that `guard` belongs to. KafkaError INVALID_TXN_STATE if it is gone."""
        entry = self._entries.get(producer_id)
        if entry is None or guard is not entry.guard:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {producer_id}: the batch is not part of an open transaction",
            )
        return entry

    def opened(self, producer_id: int) -> None:
        """Forget a producer whose transaction is open now: it needs no verification any more."""
        self._entries.pop(producer_id, None)

    def ended(self, producer_id: int, marker_epoch: int) -> None:
        """Make the guard invalid because a marker was written.

        If each transaction has its own epoch, a marker with the epoch of the waiting batch has
        ended the transaction before: the client got an early answer and begins its next one.
        """
        entry = self._entries.get(producer_id)
        if entry is not None and not (entry.supports_epoch_bump and entry.epoch == marker_epoch):
            del self._entries[producer_id]

    def keep(self, count: int) -> int:
        """Forget the oldest entries but `count`; return how many were forgotten."""
        forgotten = list(self._entries)[: max(0, len(self._entries) - count)]
        for producer_id in forgotten:
            del self._entries[producer_id]
        return len(forgotten)

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget entries that `expire` has first seen more than `expiration_ms` ago."""
        for producer_id, entry in list(self._entries.items()):
            if entry.seen_ms is None:
                entry.seen_ms = now_ms
            elif entry.seen_ms <= now_ms - expiration_ms:
                del self._entries[producer_id]
