"""ISR proposals to the controller: which are sent next, and which are sent again.

Pure. Partitions add proposals; a shell takes them in batches, one call at a time, and reports how
each was answered. `LeaderState` ensures that a partition has one proposal in flight (R8). Here a
newer proposal replaces one of the same partition that was not sent yet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from fairlead_broker.replication.isr import IsrProposal

RETRY_DELAY_MIN_MS: Final = 50
RETRY_DELAY_MAX_MS: Final = 1_000

PartitionT = TypeVar("PartitionT")


class SentProposal(NamedTuple, Generic[PartitionT]):
    """A proposal and the partition it is for."""

    partition: PartitionT
    proposal: IsrProposal


class IsrProposals(Generic[PartitionT]):
    """Proposals that wait to be sent. `is_in_flight` is true from `take` to `settle`.

    If any proposal of a call has to be repeated, `due_ms` delays the next call: the controller is
    not reachable or busy, and faster calls would not help.
    """

    def __init__(self, *, batch_max: int) -> None:
        self.is_in_flight = False
        self.due_ms = 0
        self._batch_max = batch_max
        self._waiting: dict[PartitionT, IsrProposal] = {}
        self._failures = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, partition: PartitionT, proposal: IsrProposal) -> None:
        """Send this soon, in place of a waiting proposal of the same partition."""
        self._waiting[partition] = proposal

    def take(self, now_ms: int) -> list[SentProposal[PartitionT]]:
        """Return the proposals for one call; empty while a call is in flight or a delay runs."""
        if self.is_in_flight or now_ms < self.due_ms or not self._waiting:
            return []
        batch = [
            SentProposal(partition, self._waiting.pop(partition))
            for partition in list(self._waiting)[: self._batch_max]
        ]
        self.is_in_flight = True
        return batch

    def settle(self, repeated: list[SentProposal[PartitionT]], now_ms: int) -> None:
        """End the call; `repeated` have to be sent again, except where a newer proposal waits."""
        self.is_in_flight = False
        if not repeated:
            self._failures = 0
            return
        self.due_ms = now_ms + min(RETRY_DELAY_MIN_MS << min(self._failures, 8), RETRY_DELAY_MAX_MS)
        self._failures += 1
        for partition, proposal in repeated:
            self._waiting.setdefault(partition, proposal)
