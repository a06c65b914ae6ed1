"""The facts of a plan and its moves: brokers, partitions, moves. Pure values."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from fairlead_model.ids import BrokerId


class Goal(StrEnum):
    """The goals of a plan, the most important first; a goal never worsens one before it."""

    RACKS = "racks"
    """Replicas of a partition on different machines, then in different racks; none on brokers that
    are being drained."""
    DISKS = "disks"
    """Bytes on disk, within a tenth of each broker's share."""
    REPLICAS = "replicas"
    """Number of replicas, within a tenth of each broker's share."""
    LEADERS = "leaders"
    """Number of preferred leaders: each broker's share, rounded up or down."""
    BYTES_IN = "bytes in"
    """What producers write to leaders, within a tenth of each broker's share."""
    BYTES_OUT = "bytes out"
    """What leaders send to consumers, within a tenth of each broker's share."""


@dataclass(frozen=True, slots=True)
class BalancedBroker:
    """A broker that may hold replicas."""

    broker_id: BrokerId
    host: str = ""
    """The machine; empty if no other broker runs on it."""
    rack: str | None = None
    capacity: int = 1
    """Size of its disks, or of anything else that tells what part of the whole is its share."""
    free_bytes: int | None = None
    """Free room on its disks; None if that is not known."""
    is_cordoned: bool = False
    """Everything moves away from it."""


@dataclass(frozen=True, slots=True)
class BalancedPartition:
    """A partition as it is now."""

    topic: str
    index: int
    replicas: tuple[BrokerId, ...]
    """Preferred leader first."""
    leader: BrokerId
    size: int = 0
    """Bytes of one replica on disk."""
    bytes_in: float = 0.0
    """Bytes a second that producers write."""
    bytes_out: float = 0.0
    """Bytes a second that consumers read."""
    is_fixed: bool = False
    """Counted, and left alone: it moves already, or is not whole."""


@dataclass(frozen=True, slots=True)
class PlannedMove:
    """Another assignment for one partition."""

    topic: str
    index: int
    before: tuple[BrokerId, ...]
    after: tuple[BrokerId, ...]
    leader: BrokerId
    """The present leader, which sends the copies."""
    bytes: int
    goal: Goal
    """The most important goal that it serves."""

    @property
    def adding(self) -> tuple[BrokerId, ...]:
        """Brokers that get a copy."""
        return tuple([each for each in self.after if each not in self.before])


@dataclass(frozen=True, slots=True)
class BrokerShare:
    """The loads of one broker: the columns of a table."""

    replicas: int = 0
    leaders: int = 0
    bytes: int = 0
    bytes_in: float = 0.0
    bytes_out: float = 0.0


@dataclass(frozen=True, slots=True)
class Standing:
    """How even a cluster is."""

    distances: Mapping[Goal, float]
    """How far each goal is missed; 0 if it is met."""
    shares: Mapping[BrokerId, BrokerShare]


@dataclass(frozen=True, slots=True)
class BalancePlan:
    """The moves, and the goal that each serves."""

    moves: tuple[PlannedMove, ...]
    before: Standing
    after: Standing
    bytes_needed: int
    """Every plan that meets racks, disks and replicas moves at least so much."""

    @property
    def bytes(self) -> int:
        """Bytes that are copied in sum."""
        return sum(move.bytes for move in self.moves)

    def duration_s(self, bytes_per_s: float) -> float:
        """Return how long it copies at least, if each broker sends at this rate."""
        sent: dict[BrokerId, int] = {}
        for move in self.moves:
            sent[move.leader] = sent.get(move.leader, 0) + move.bytes
        return max(sent.values(), default=0) / bytes_per_s
