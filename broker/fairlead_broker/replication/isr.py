"""The in-sync replicas of a partition as its leader sees them: committed, or with a change pending.

Values only; `LeaderState` moves from one to the next. `maximal_isr` is what the high watermark
waits for: every replica that may be in sync when the controller has answered (R8).
"""

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from fairlead_model.partition import PartitionRegistration


class IsrProposal(NamedTuple):
    """A set that a leader proposes to the controller, valid for exactly these two epochs (R9)."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]
    """Broker ids with their broker epochs as the leader knows them."""
    is_shrink: bool = False
    """Whether members leave; otherwise one joins."""


@dataclass(frozen=True, slots=True)
class CommittedIsr:
    """The set that the controller has committed; nothing is proposed."""

    isr: frozenset[int]

    @property
    def maximal_isr(self) -> frozenset[int]:
        return self.isr


@dataclass(frozen=True, slots=True)
class PendingExpandIsr:
    """The leader has proposed that `joining` joins.

    The joining replica counts at once. That makes the high watermark stricter, so a proposal that
    the controller then refuses cannot have advanced it (R8).
    """

    isr: frozenset[int]
    joining: int

    @property
    def maximal_isr(self) -> frozenset[int]:
        return self.isr | {self.joining}


@dataclass(frozen=True, slots=True)
class PendingShrinkIsr:
    """The leader has proposed that `leaving` leave; until that is committed they count (R8)."""

    isr: frozenset[int]
    leaving: frozenset[int]

    @property
    def maximal_isr(self) -> frozenset[int]:
        return self.isr


@dataclass(frozen=True, slots=True)
class ResumedIsr:
    """The leader's process was killed and goes on in its epoch, without the controller (R34).

    The controller may still accept a proposal of the process before, and this process does not know
    it. That proposal can only have been for one of the `replicas` to join, so all of them count.
    Nothing is proposed until the controller has written another record.
    """

    isr: frozenset[int]
    replicas: frozenset[int]

    @property
    def maximal_isr(self) -> frozenset[int]:
        return self.isr | self.replicas


IsrState: TypeAlias = CommittedIsr | PendingExpandIsr | PendingShrinkIsr | ResumedIsr


def first_isr_state(registration: PartitionRegistration, resumed_epoch: int | None) -> IsrState:
    """Return the state in which a reign begins, or goes on in the resumed epoch."""
    committed = frozenset(registration.isr)
    if registration.leader_epoch != resumed_epoch:
        return CommittedIsr(committed)
    return ResumedIsr(committed, frozenset(registration.replicas))
