"""What can happen to the controller: the inputs of `decide`, and its output.

Calls of brokers come as the dicts of `fairlead_model.calls`, already checked for their shape.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from fairlead_controller.state import ControllerChange
from fairlead_model.broker import BrokerRegistration
from fairlead_model.calls import (
    AlterConfigsCall,
    AlterPartitionCall,
    CreatePartitionsCall,
    CreateTopicsCall,
    DeleteTopicsCall,
    ElectLeadersCall,
    ReportLogsCall,
    ReportOfflineCall,
)
from fairlead_model.ids import BrokerEpoch, BrokerId, TopicId
from fairlead_model.partition import PartitionRegistration
from fairlead_model.refusals import RefusedError
from fairlead_model.resources import TopicSpec


class FenceReason(StrEnum):
    """Why a broker is taken out of service."""

    SESSION_EXPIRED = "its session timed out"
    CONNECTION_REFUSED = "its port refused a connection after the session closed"
    CONNECTION_LOST = "its session closed and did not come back in time"
    STOPPED = "it said that it stops"


@dataclass(frozen=True, slots=True)
class RegisterBroker:
    """A broker asks to be part of the cluster; its epoch and flags are still to be given."""

    registration: BrokerRegistration
    cluster_id: str
    """The cluster that its disk belongs to; empty for a new disk."""
    is_predecessor_alive: bool = False
    """True if the session of the id's current holder is up."""
    unclean: tuple[tuple[str, int], ...] = ()
    """Replicas (topic, index) that are lost or damaged, whatever the rest is."""


@dataclass(frozen=True, slots=True)
class UnfenceBroker:
    """A broker has caught up with the image and is ready to serve."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch


@dataclass(frozen=True, slots=True)
class FenceBroker:
    """A broker is found dead, or says that it goes."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    reason: FenceReason


@dataclass(frozen=True, slots=True)
class ShutDownBroker:
    """A broker is about to stop and wants its leaders moved."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch


@dataclass(frozen=True, slots=True)
class DrainBrokers:
    """All brokers that are to lead only what nobody else can; others may lead again."""

    reasons: Mapping[BrokerId, str]
    """Broker → why, for people."""


@dataclass(frozen=True, slots=True)
class RecordIntent:
    """Something is about to be done that no compare-and-swap fences."""

    intent_id: str
    action: str
    target: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class ClearIntent:
    """What was intended is done, or given up."""

    intent_id: str


@dataclass(frozen=True, slots=True)
class CreateTopics:
    """Create topics over Kafka's protocol."""

    call: CreateTopicsCall


@dataclass(frozen=True, slots=True)
class DeleteTopics:
    """Delete topics over Kafka's protocol."""

    call: DeleteTopicsCall


@dataclass(frozen=True, slots=True)
class CreatePartitions:
    """Grow topics over Kafka's protocol."""

    call: CreatePartitionsCall


@dataclass(frozen=True, slots=True)
class AlterConfigs:
    """Alter configs of topics or brokers over Kafka's protocol."""

    call: AlterConfigsCall


@dataclass(frozen=True, slots=True)
class AllocateProducerIds:
    """A broker needs a block of producer ids."""

    broker_id: BrokerId


@dataclass(frozen=True, slots=True)
class ConfirmDeletions:
    """A broker holds nothing of some topics any more."""

    broker_id: BrokerId
    topic_ids: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class DeclareTopics:
    """The complete set of Topic resources; those not in it no longer declare anything."""

    specs: tuple[TopicSpec, ...]
    default_partitions: int = 1
    default_replication_factor: int = 1
    may_create: bool = True
    """False while brokers are still to come that new topics should be spread over."""


@dataclass(frozen=True, slots=True)
class ForgetTopic:
    """A Topic resource is gone."""

    resource: str
    is_deleting_topic: bool = False
    topic_name: str = ""
    """Named for a resource that only showed a topic made over Kafka, and so declared nothing."""


@dataclass(frozen=True, slots=True)
class ApplyTopicResources:
    """Some Topic resources have changed or gone: forgotten first, then applied in order."""

    apply: tuple[TopicSpec, ...] = ()
    forget: tuple[ForgetTopic, ...] = ()
    complete: frozenset[str] | None = None
    """Names of all Topic resources that there are; others release their topics. None: unknown."""
    default_partitions: int = 1
    default_replication_factor: int = 1
    waits_for: str = ""
    """Says which brokers are still to come that new partitions should be spread over."""


@dataclass(frozen=True, slots=True)
class ElectLeaders:
    """Give every partition the leader it should have; asked once, after loading."""


@dataclass(frozen=True, slots=True)
class AlterPartition:
    """A leader proposes other in-sync replicas for its partitions."""

    broker_id: BrokerId
    call: AlterPartitionCall


@dataclass(frozen=True, slots=True)
class ElectOnRequest:
    """Somebody asks for elections by hand."""

    call: ElectLeadersCall


@dataclass(frozen=True, slots=True)
class BalanceLeaders:
    """Time to give leadership back to preferred leaders, where too many have lost it."""

    imbalance_percentage_max: int = 10
    """Share of a broker's preferred partitions that others may lead (of Kafka's config
    `leader.imbalance.per.broker.percentage`)."""


@dataclass(frozen=True, slots=True)
class ReportOffline:
    """A broker cannot use some of its replicas any more."""

    broker_id: BrokerId
    call: ReportOfflineCall


@dataclass(frozen=True, slots=True)
class ReportLogs:
    """A broker says how far its logs of leaderless partitions go."""

    broker_id: BrokerId
    call: ReportLogsCall


Event: TypeAlias = (
    RegisterBroker
    | UnfenceBroker
    | FenceBroker
    | ShutDownBroker
    | DrainBrokers
    | RecordIntent
    | ClearIntent
    | CreateTopics
    | DeleteTopics
    | CreatePartitions
    | AlterConfigs
    | AllocateProducerIds
    | ConfirmDeletions
    | DeclareTopics
    | ApplyTopicResources
    | ElectLeaders
    | AlterPartition
    | ElectOnRequest
    | BalanceLeaders
    | ReportOffline
    | ReportLogs
)


@dataclass(frozen=True, slots=True)
class PartitionMove:
    """One partition's record before and after a decision, and why."""

    topic: str
    topic_id: TopicId
    index: int
    before: PartitionRegistration
    after: PartitionRegistration
    cause: str
    """What happened: the broker that went, the proposal that came."""
    reason: str
    """Why the leader is who it is; empty if the leader was not in question."""

    @property
    def changes_leader(self) -> bool:
        """True if another leader, or none, follows."""
        return self.before.leader != self.after.leader

    def sentence(self) -> str:
        """Say it for people."""
        parts = []
        if self.changes_leader:
            new = f"leader {self.after.leader}" if self.after.has_leader else "no leader"
            old = f" after {self.before.leader}" if self.before.has_leader else ""
            parts.append(f"{new}{old}, leader epoch {self.after.leader_epoch}")
        for name in ("isr", "elr", "last_known_elr"):
            old_set, new_set = getattr(self.before, name), getattr(self.after, name)
            if old_set != new_set:
                parts.append(f"{name} {list(new_set)} after {list(old_set)}")
        what = "; ".join(parts) or f"partition epoch {self.after.partition_epoch}"
        why = f": {self.reason}" if self.reason else ""
        return f"{self.topic}-{self.index}: {what} ({self.cause}){why}"


@dataclass(frozen=True, slots=True)
class Decision:
    """What is to be made durable, and what may be answered once it is.

    A refusal depends on the state that it was decided on, so it waits like any other reply.
    """

    changes: tuple[ControllerChange, ...] = ()
    reply: Mapping[str, Any] | RefusedError | None = None
    explanations: tuple[str, ...] = ()
    """Sentences for the log: what happens and why."""
    moves: tuple[PartitionMove, ...] = ()
    """Partitions whose leader or members change, each with its why."""
