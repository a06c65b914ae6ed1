"""Transactions that a leader was told of by a first batch, until their coordinator knows them too.

A batch that would open a transaction waits while the coordinator is asked (KIP-890). Its yes holds
only as long as nothing happened to the producer in this log meanwhile: a marker may have ended the
transaction that the coordinator spoke of, and the late batch would open one that nobody ends. So
who asks gets a *guard*, an object like no other, and must show it at the append; a marker takes it
away (R25). In memory only, as in Kafka (`VerificationStateEntry`): after a restart who waits asks
again.
"""

from typing import Final

from fairlead_broker.limits import PRODUCERS_PER_LOG_MAX
from fairlead_wire.errors import ErrorCode, KafkaError

NO_SEQUENCE: Final = -1


class VerificationGuard:
    """What a question was asked under; compared by identity."""

    __slots__ = ()


class VerificationEntry:
    """One producer whose first batch waits. `lowest_sequence` is of the newest epoch.

    `seen_ms` is when it was first looked at for being old.
    """

    __slots__ = ("epoch", "guard", "lowest_sequence", "seen_ms", "supports_epoch_bump")

    def __init__(self, epoch: int, lowest_sequence: int, *, supports_epoch_bump: bool) -> None:
        self.guard = VerificationGuard()
        self.epoch = epoch
        self.lowest_sequence = lowest_sequence
        self.supports_epoch_bump = supports_epoch_bump
        self.seen_ms: int | None = None


class Verifications:
    """The entries of one log, oldest first; beyond `PRODUCERS_PER_LOG_MAX` the oldest goes.

    Who loses its guard is refused and begins its transaction anew.
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
        """Return the guard for a batch; batches of one producer that wait share it."""
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
        """Forget a producer whose transaction is open now: nothing needs to be asked any more."""
        self._entries.pop(producer_id, None)

    def ended(self, producer_id: int, marker_epoch: int) -> None:
        """Take the guard away because a marker was written.

        With an epoch for each transaction, a marker that carries the epoch of who waits ended the
        one before: a client that was answered early is asking for its next transaction already.
        """
        entry = self._entries.get(producer_id)
        if entry is not None and not (entry.supports_epoch_bump and entry.epoch == marker_epoch):
            del self._entries[producer_id]

    def keep(self, count: int) -> int:
        """Forget the oldest entries but for so many; answers how many."""
        forgotten = list(self._entries)[: max(0, len(self._entries) - count)]
        for producer_id in forgotten:
            del self._entries[producer_id]
        return len(forgotten)

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget what nobody came back for since the first time that this was asked."""
        for producer_id, entry in list(self._entries.items()):
            if entry.seen_ms is None:
                entry.seen_ms = now_ms
            elif entry.seen_ms <= now_ms - expiration_ms:
                del self._entries[producer_id]
