"""The events of the controller: the inputs of `decide`, and its output.

Calls of brokers come as the dicts of `fairlead_model.session.calls`, their shape already checked.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

from fairlead_controller.decisions.cluster_limits import ClusterLimits
from fairlead_controller.decisions.state import ControllerChange, ControllerState
from fairlead_model.broker import BrokerRegistration
from fairlead_model.ids import BrokerEpoch, BrokerId, TopicId
from fairlead_model.partition import PartitionRegistration
from fairlead_model.resources.topic_manifest import TopicSpec
from fairlead_model.resources.user_declaration import UserDeclaration
from fairlead_model.security.acl import AclBinding, AclFilter
from fairlead_model.security.client_quota import QuotaEntity
from fairlead_model.security.scram import ScramCredential, ScramMechanism
from fairlead_model.session.calls import (
    AlterConfigsCall,
    AlterPartitionCall,
    AlterReassignmentsCall,
    ConfirmedRemoval,
    CreatePartitionsCall,
    CreateTopicsCall,
    DeleteTopicsCall,
    ElectLeadersCall,
    ListReassignmentsCall,
    ReportLogsCall,
    ReportOfflineCall,
    UpdateFeaturesCall,
)
from fairlead_model.session.refusals import RefusedError


class FenceReason(StrEnum):
    """Why a broker is taken out of service."""

    SESSION_EXPIRED = "its session timed out"
    CONNECTION_REFUSED = "its port refused a connection after the session closed"
    CONNECTION_LOST = "its session closed and did not come back in time"
    STOPPED = "it said that it stops"
    STARTED_ANEW = "it started anew"


@dataclass(frozen=True, slots=True)
class RegisterBroker:
    """A broker asks to be part of the cluster; its epoch and flags are not set yet."""

    registration: BrokerRegistration
    cluster_id: str
    """The cluster that its disk belongs to; empty for a new disk."""
    is_predecessor_alive: bool = False
    """True if the session of the id's current holder is up."""
    unclean: tuple[tuple[str, int], ...] = ()
    """Replicas (topic, index) that are lost or damaged, whatever the rest is."""
    held: tuple[tuple[bytes, int], ...] = ()
    """Replicas (topic id, index) that it reports to hold."""


@dataclass(frozen=True, slots=True)
class UnfenceBroker:
    """A broker has caught up with the image and is ready to serve."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch


@dataclass(frozen=True, slots=True)
class CordonBroker:
    """A broker says that its log directories take nothing new, or that one does again."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    is_cordoned: bool


@dataclass(frozen=True, slots=True)
class FenceBroker:
    """A broker is dead, or says that it stops."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    reason: FenceReason


@dataclass(frozen=True, slots=True)
class LeavePartitions:
    """A broker that is about to be fenced has very many partitions: some of them go first."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    reason: FenceReason


@dataclass(frozen=True, slots=True)
class ReturnUnclean:
    """A broker that is about to register may lack records of very many partitions."""

    event: RegisterBroker
    broker_epoch: BrokerEpoch
    """That of the start before, which is out of service."""


@dataclass(frozen=True, slots=True)
class ShutDownBroker:
    """A broker is about to stop and wants its leaders moved."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch


@dataclass(frozen=True, slots=True)
class DrainBrokers:
    """Brokers that shall lead only what no other broker can lead; all others may lead again."""

    reasons: Mapping[BrokerId, str]
    """Broker id to the reason, for people."""


@dataclass(frozen=True, slots=True)
class LimitCluster:
    """The limits of topics and partitions, from the cluster's settings."""

    limits: ClusterLimits


@dataclass(frozen=True, slots=True)
class RecordIntent:
    """Announce an act that no compare-and-swap fences, before it is done."""

    intent_id: str
    action: str
    target: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class ClearIntent:
    """An announced act is done, or given up."""

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
class DeclareBrokerConfigs:
    """The dynamic configs of all brokers that a LogCluster declares: all of them, and no others."""

    cluster: str
    """Name of the LogCluster."""
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class AllocateProducerIds:
    """A broker needs a block of producer ids."""

    broker_id: BrokerId


@dataclass(frozen=True, slots=True)
class ConfirmDeletions:
    """A broker holds no data of some topics or partitions any more."""

    broker_id: BrokerId
    topic_ids: Sequence[bytes]
    removals: Sequence[ConfirmedRemoval] = ()


@dataclass(frozen=True, slots=True)
class DeclareTopics:
    """The complete set of Topic resources; topics that others declared are released."""

    specs: tuple[TopicSpec, ...]
    default_partitions: int = 1
    default_replication_factor: int = 1
    may_create: bool = True
    """False while brokers are expected that new topics should be spread over."""


@dataclass(frozen=True, slots=True)
class ForgetTopic:
    """A Topic resource is gone."""

    resource: str
    is_deleting_topic: bool = False
    topic_name: str = ""
    """Set for a resource that only showed a topic made over Kafka, and so declared nothing."""


@dataclass(frozen=True, slots=True)
class ApplyTopicResources:
    """Topic resources that have changed or gone: first forget, then apply, in order."""

    apply: tuple[TopicSpec, ...] = ()
    forget: tuple[ForgetTopic, ...] = ()
    complete: frozenset[str] | None = None
    """Names of all Topic resources; topics of other resources are released. None if not known."""
    default_partitions: int = 1
    default_replication_factor: int = 1
    waits_for: str = ""
    """A sentence that says which brokers are expected before new partitions are placed."""


@dataclass(frozen=True, slots=True)
class ApplyUserResources:
    """User resources that have changed or gone: first forget, then apply, in order."""

    apply: tuple[UserDeclaration, ...] = ()
    forget: tuple[str, ...] = ()
    """Names of resources that declare nothing any more."""
    complete: frozenset[str] | None = None
    """Names of all User resources; rights of other resources are revoked. None if not known."""


@dataclass(frozen=True, slots=True)
class ElectLeaders:
    """Elect the leader that each partition should have; submitted once, after loading."""


@dataclass(frozen=True, slots=True)
class ElectLeaderless:
    """Go on to elect leaders after a decision that would have looked at very many partitions."""

    partitions: tuple[tuple[bytes, int], ...]
    """Topic id and index of those that are left."""
    cause: str


@dataclass(frozen=True, slots=True)
class NoteDirectory:
    """Go on to record the disk of a broker that came with another one to very many partitions."""

    broker_id: BrokerId


@dataclass(frozen=True, slots=True)
class FenceByOrder:
    """Go on to fence a broker that is ordered out of service and has very many partitions."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    parts_left: int
    """Parts that may go before the decision that fences it. They are counted, because replicas may
    come in sync anew in between."""


@dataclass(frozen=True, slots=True)
class DrainLeaders:
    """Go on to move the leaders of brokers that are drained and lead very many partitions."""

    brokers: tuple[BrokerId, ...]


@dataclass(frozen=True, slots=True)
class MoveOff:
    """A running reassignment that takes a partition off brokers."""

    topic_id: bytes
    index: int
    adding: tuple[BrokerId, ...]
    removing: tuple[BrokerId, ...]


@dataclass(frozen=True, slots=True)
class CallMovesBack:
    """Go on to call back what moves off brokers that are not drained any more: very many moves."""

    moves: tuple[MoveOff, ...]


@dataclass(frozen=True, slots=True)
class RelieveReplicas:
    """Go on to relieve replicas that lack room, of a broker that reported very many of them."""

    broker_id: BrokerId
    partitions: tuple[tuple[bytes, int], ...]
    """Topic id and index of those that are left."""


@dataclass(frozen=True, slots=True)
class SpreadMinimum:
    """Go on to renew records after a change of min.insync.replicas that concerns very many."""


@dataclass(frozen=True, slots=True)
class AlterPartition:
    """A leader proposes in-sync replicas for its partitions (Kafka's AlterPartition)."""

    broker_id: BrokerId
    call: AlterPartitionCall


@dataclass(frozen=True, slots=True)
class ElectOnRequest:
    """A user asks for elections (Kafka's ElectLeaders)."""

    call: ElectLeadersCall


@dataclass(frozen=True, slots=True)
class BalanceLeaders:
    """Elect preferred leaders again on brokers that have lost too many of them."""

    imbalance_percentage_max: int = 10
    """Share of a broker's preferred partitions that others may lead (of Kafka's config
    `leader.imbalance.per.broker.percentage`)."""
    owed: frozenset[BrokerId] = frozenset()
    """Brokers that a decision before has begun to give their partitions back: however few are
    left, they get these, too."""


@dataclass(frozen=True, slots=True)
class AlterReassignments:
    """A user moves partitions, or stops that (Kafka's AlterPartitionReassignments)."""

    call: AlterReassignmentsCall


@dataclass(frozen=True, slots=True)
class ListReassignments:
    """A user asks what moves (Kafka's ListPartitionReassignments)."""

    call: ListReassignmentsCall


@dataclass(frozen=True, slots=True)
class AdvanceReassignments:
    """Finish, begin and plan reassignments as far as it is their turn."""

    given_up: frozenset[BrokerId] = frozenset()
    """Brokers that have been out of service for so long that nothing moves there any more."""
    turn: int = 0
    """Counts these events: in large clusters each plans for other partitions first."""


@dataclass(frozen=True, slots=True)
class ScaleDownPool:
    """A BrokerPool has to lose brokers, or keeps some that it was to lose."""

    pool: str
    leaving: frozenset[BrokerId]
    staying: frozenset[BrokerId]
    """Those that may have been leaving before."""
    at_ms: int


@dataclass(frozen=True, slots=True)
class ReportOffline:
    """A broker cannot use some of its replicas any more."""

    broker_id: BrokerId
    call: ReportOfflineCall


@dataclass(frozen=True, slots=True)
class ReportLogs:
    """A broker reports how far its logs of leaderless partitions go."""

    broker_id: BrokerId
    call: ReportLogsCall


@dataclass(frozen=True, slots=True)
class UpdateFeatures:
    """A user gives features other levels (Kafka's UpdateFeatures)."""

    call: UpdateFeaturesCall


@dataclass(frozen=True, slots=True)
class UnregisterBroker:
    """Forget a broker that is gone for good (Kafka's UnregisterBroker)."""

    broker_id: BrokerId
    has_session: bool = False
    """True if a process of this broker has a session with this controller."""


@dataclass(frozen=True, slots=True)
class CreateAcls:
    """Add access rules."""

    rules: tuple[AclBinding, ...]
    asked_by: str


@dataclass(frozen=True, slots=True)
class DeleteAcls:
    """Remove the access rules that any of these filters selects."""

    filters: tuple[AclFilter, ...]
    asked_by: str


@dataclass(frozen=True, slots=True)
class AlterCredentials:
    """Give users other SCRAM credentials, or take them away."""

    deletions: tuple[tuple[str, ScramMechanism], ...]
    upsertions: tuple[tuple[str, ScramCredential], ...]
    asked_by: str


@dataclass(frozen=True, slots=True)
class QuotaChanges:
    """New values of quotas of one entity, by key; None removes a quota."""

    entity: QuotaEntity
    alterations: tuple[tuple[str, float | None], ...]


@dataclass(frozen=True, slots=True)
class AlterClientQuotas:
    """Give entities other quotas (Kafka's AlterClientQuotas)."""

    entries: tuple[QuotaChanges, ...]
    validate_only: bool
    asked_by: str


Event: TypeAlias = (
    RegisterBroker
    | CordonBroker
    | UnfenceBroker
    | FenceBroker
    | LeavePartitions
    | ReturnUnclean
    | ShutDownBroker
    | DrainBrokers
    | LimitCluster
    | RecordIntent
    | ClearIntent
    | CreateTopics
    | DeleteTopics
    | CreatePartitions
    | AlterConfigs
    | DeclareBrokerConfigs
    | AllocateProducerIds
    | ConfirmDeletions
    | DeclareTopics
    | ApplyTopicResources
    | ApplyUserResources
    | ElectLeaders
    | ElectLeaderless
    | NoteDirectory
    | SpreadMinimum
    | FenceByOrder
    | RelieveReplicas
    | DrainLeaders
    | CallMovesBack
    | AlterPartition
    | ElectOnRequest
    | BalanceLeaders
    | AlterReassignments
    | ListReassignments
    | AdvanceReassignments
    | ScaleDownPool
    | ReportOffline
    | ReportLogs
    | UpdateFeatures
    | UnregisterBroker
    | CreateAcls
    | DeleteAcls
    | AlterCredentials
    | AlterClientQuotas
)


@dataclass(frozen=True, slots=True)
class PartitionMove:
    """One partition's record before and after a decision, and the reasons."""

    topic: str
    topic_id: TopicId
    index: int
    before: PartitionRegistration
    after: PartitionRegistration
    cause: str
    """What happened: a broker was fenced, a proposal came."""
    reason: str
    """Why this replica leads; empty if the leader was not decided about."""

    @property
    def changes_leader(self) -> bool:
        """Whether the leader changes, or is lost."""
        return self.before.leader != self.after.leader

    def sentence(self) -> str:
        """Describe the move for people."""
        parts = []
        if self.changes_leader:
            new = f"leader {self.after.leader}" if self.after.has_leader else "no leader"
            old = f" after {self.before.leader}" if self.before.has_leader else ""
            parts.append(f"{new}{old}, leader epoch {self.after.leader_epoch}")
        for name in ("replicas", "isr", "elr", "last_known_elr"):
            old_set, new_set = getattr(self.before, name), getattr(self.after, name)
            if old_set != new_set:
                parts.append(f"{name} {list(new_set)} after {list(old_set)}")
        what = "; ".join(parts) or f"partition epoch {self.after.partition_epoch}"
        why = f": {self.reason}" if self.reason else ""
        return f"{self.topic}-{self.index}: {what} ({self.cause}){why}"


@dataclass(frozen=True, slots=True)
class Decision:
    """Changes to make durable, and the reply to send once they are.

    A refusal depends on the state that it was decided on, so it waits like any other reply.
    """

    changes: tuple[ControllerChange, ...] = ()
    reply: Mapping[str, Any] | RefusedError | None = None
    explanations: tuple[str, ...] = ()
    """Sentences for the log: what happens and why."""
    moves: tuple[PartitionMove, ...] = ()
    """Partitions whose leader or members change, each with the reason."""
    violations: tuple[str, ...] = ()
    """Parts that would have broken a rule of the records, and were left out."""
    rest: tuple[Event, ...] = ()
    """What this decision left because it would have taken too long; each is decided by itself."""
    after: ControllerState | None = field(default=None, compare=False, repr=False)
    """The state with these changes, if a draft has applied and checked them already."""
