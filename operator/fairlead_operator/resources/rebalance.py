"""Rebalance: a plan that makes the brokers of a LogCluster even, carried out once it is approved.

The status keeps the moves, because an approval is for them, and because the next operator has to
continue them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from fairlead_model.ids import TOPIC_NAME_LENGTH_MAX
from fairlead_model.resources.failover_drill import CLUSTER_NAME
from fairlead_model.resources.resource_reading import ManifestForm, read_manifest
from fairlead_model.resources.resource_shape import Bound, Rule, Text, Whole
from fairlead_operator.resources.condition import (
    COUNT,
    MESSAGE_LENGTH_MAX,
    Conditions,
    ObservedGeneration,
)
from fairlead_operator.resources.definition import AGE, Column, ResourceDefinition

REBALANCE_KIND: Final = "Rebalance"
MOVES_MAX: Final = 2_000
"""Of one plan: some 400 kB of the 1.5 MiB that an object may have."""
BROKERS_MAX: Final = 1_000
REPLICAS_MAX: Final = 64
REFUSALS_MAX: Final = 20
RESTING_MAX: Final = 2_000
NOTES_MAX: Final = 8
PLAN_ID: Final = Text(
    maximum=12,
    minimum=12,
    pattern="[0-9a-f]{12}",
    hint="write the id of the plan, which is in status.plan.id",
)
_BROKER: Final = Whole(0, 2**31 - 1)
_PARTITION: Final = Whole(0, 2**31 - 1)
_TOPIC: Final = Text(TOPIC_NAME_LENGTH_MAX, 1)
_GOAL: Final = Text(32)

Phase: TypeAlias = Literal[
    "Pending",
    "Watching",
    "ProposalReady",
    "Moving",
    "Paused",
    "Cancelling",
    "Complete",
    "Cancelled",
    "Failed",
]
Mode: TypeAlias = Literal["Propose", "Auto"]
_Replicas = Annotated[
    tuple[Annotated[int, _BROKER], ...],
    "Brokers that hold the partition, preferred leader first.",
    Bound(REPLICAS_MAX),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class AutomaticLimits:
    """When a round begins by itself, and how much it moves."""

    start_above_percent: Annotated[
        int,
        "A round begins when a broker has more or less than its share of bytes, replicas, "
        "leaders or rates by more than so many percent. A round aims at 10 percent.",
        Whole(15, 1_000),
    ] = 20
    min_improvement_percent: Annotated[
        int,
        "A round begins only if it reduces the deviation from the first goal that it serves by "
        "at least so many percent.",
        Whole(1, 100),
    ] = 20
    max_moves: Annotated[int, "Most partitions that one round moves.", Whole(1, 500)] = 100
    max_gibibytes: Annotated[
        int,
        "Most GiB that one round copies. A partition larger than this is not moved in the mode "
        "Auto.",
        Whole(1, 1_000_000),
    ] = 100
    cool_down_seconds: Annotated[
        int,
        "Shortest time between the end of a round and the start of the next one. A round for a "
        "broker without any replica does not wait for this.",
        Whole(60, 604_800),
    ] = 900
    quiet_seconds: Annotated[
        int,
        "How long the cluster has to be undisturbed before a round begins: no broker out of "
        "service, no rolling restart, no drain, no drill, no other reassignment. A round for a "
        "broker without any replica waits a minute at most.",
        Whole(10, 86_400),
    ] = 600
    rest_seconds: Annotated[
        int,
        "How long a partition that was moved stays where it is, whatever its load. If it has "
        "to move again within four times this time, it then stays for twice as long, and so on.",
        Whole(60, 2_592_000),
    ] = 21_600
    look_seconds: Annotated[
        int,
        "Time between two measurements of all partitions. New brokers are seen within seconds.",
        Whole(10, 86_400),
    ] = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceSpec:
    """The cluster to make even, and what happens with the plan that is made for it."""

    RULES: ClassVar = (
        Rule(
            cel="self.clusterName == oldSelf.clusterName",
            message="a rebalance cannot change to another cluster: make a new one",
            field="clusterName",
            holds_change=lambda old, new: old.cluster_name == new.cluster_name,
        ),
        Rule(
            cel="!has(oldSelf.cancel) || !oldSelf.cancel || (has(self.cancel) && self.cancel)",
            message="a cancelled rebalance cannot go on: make a new one",
            field="cancel",
            holds_change=lambda old, new: not old.cancel or new.cancel,
        ),
        Rule(
            cel="self.mode == oldSelf.mode",
            message="a rebalance cannot change its mode: make a new one",
            field="mode",
            holds_change=lambda old, new: old.mode == new.mode,
        ),
        Rule(
            cel="self.mode == 'Auto' || !has(self.auto)",
            message="auto has the limits of the mode Auto: leave it out, or set mode to Auto",
            field="auto",
            holds=lambda spec: spec.mode == "Auto" or spec.auto is None,
        ),
        Rule(
            cel="self.mode != 'Auto' || !has(self.approve)",
            message="in the mode Auto no plan waits for approval: leave approve out",
            field="approve",
            holds=lambda spec: spec.mode != "Auto" or spec.approve is None,
        ),
    )

    cluster_name: Annotated[
        str, "LogCluster of the same namespace over whose brokers the load is spread.", CLUSTER_NAME
    ]
    mode: Annotated[
        Mode,
        "Propose: one plan, which waits for approval. Auto: the operator watches the cluster "
        "for as long as the resource is there, and carries out plans within the limits of auto "
        "in rounds, without approval.",
    ] = "Propose"
    auto: Annotated[
        AutomaticLimits | None,
        "Limits of the mode Auto. Default: the defaults of its fields.",
    ] = None
    approve: Annotated[
        str | None,
        "Id of the plan that may be carried out: status.plan.id. Nothing moves before it is "
        "set. If the plan no longer fits the cluster, the operator does not carry it out and "
        "makes another one.",
        PLAN_ID,
    ] = None
    paused: Annotated[
        bool,
        "Begin no more moves. Moves that copy already go on to their end, the others wait "
        "until this is false.",
    ] = False
    cancel: Annotated[
        bool,
        "Cancel all moves that copy or wait, for good. Replicas that have moved stay where "
        "they are. Deleting the resource does the same.",
    ] = False

    @property
    def is_automatic(self) -> bool:
        """Whether plans are carried out without approval."""
        return self.mode == "Auto"

    @property
    def limits(self) -> AutomaticLimits:
        """The limits of the mode Auto."""
        return self.auto or AutomaticLimits()

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> "RebalanceSpec":
        """Read a Rebalance; ManifestError lists all its problems."""
        return read_manifest(manifest, ManifestForm(REBALANCE_KIND, cls))


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceMove:
    """Another assignment for one partition."""

    topic: Annotated[str, "Topic of the partition.", _TOPIC]
    topic_id: Annotated[str, "Id of the topic.", Text(32)]
    partition: Annotated[int, "Number of the partition.", _PARTITION]
    leader_epoch: Annotated[int, "The partition's leader epoch when the plan was made.", COUNT]
    before: Annotated[_Replicas, "The partition's replicas when the plan was made."]
    after: Annotated[_Replicas, "The partition's replicas once it has moved."]
    goal: Annotated[str, "The most important goal that this move serves.", _GOAL]
    bytes: Annotated[
        int | None, "Bytes that are copied, to all brokers that it adds; absent if unknown.", COUNT
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceGoal:
    """By how much a goal is missed before and after the moves; 0: it is met."""

    goal: Annotated[
        str,
        "Name of the goal. Disks are in bytes, bytes in and out in bytes a second, the others "
        "are counts.",
        _GOAL,
    ]
    before: Annotated[
        int, "How far the goal was missed when the plan was made; 0: not at all.", COUNT
    ]
    after: Annotated[
        int, "How far the goal is missed once everything has moved; 0: not at all.", COUNT
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerShare:
    """What one broker has before and after the moves."""

    broker: Annotated[int, "Id of the broker.", _BROKER]
    replicas_before: Annotated[int, "Replicas when the plan was made.", COUNT]
    replicas_after: Annotated[int, "Replicas once all has moved.", COUNT]
    leaders_before: Annotated[int, "Preferred leaders when the plan was made.", COUNT]
    leaders_after: Annotated[int, "Preferred leaders once all has moved.", COUNT]
    bytes_before: Annotated[int | None, "Bytes on its disks; absent if unknown.", COUNT] = None
    bytes_after: Annotated[int | None, "Bytes on its disks once all has moved.", COUNT] = None
    bytes_in_before: Annotated[
        int | None,
        "Bytes a second that producers write to partitions that it leads; absent if unknown.",
        COUNT,
    ] = None
    bytes_in_after: Annotated[int | None, "The same once all has moved.", COUNT] = None
    bytes_out_before: Annotated[
        int | None,
        "Bytes a second that consumers read from partitions that it leads; absent if unknown.",
        COUNT,
    ] = None
    bytes_out_after: Annotated[int | None, "The same once all has moved.", COUNT] = None
    arriving: Annotated[int, "Replicas that are copied to it.", COUNT]
    leaving: Annotated[int, "Replicas that are removed from it.", COUNT]


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalancePlan:
    """The moves, and what they improve."""

    id: Annotated[
        str,
        "Value for spec.approve. The id is a hash of the moves and of what they depend on: the "
        "cluster, its brokers, and the topic, replicas and leader epoch of each partition that "
        "moves.",
        PLAN_ID,
    ]
    made_at: Annotated[str, "When the plan was made.", Text(64, format="date-time")]
    cluster_id: Annotated[str, "Id of the cluster.", Text(64)]
    brokers: Annotated[
        tuple[Annotated[int, _BROKER], ...], "Brokers of the cluster.", Bound(BROKERS_MAX)
    ]
    partitions: Annotated[int, "Partitions that get other replicas.", COUNT]
    leaders: Annotated[int, "Partitions that get another preferred leader.", COUNT]
    left_out: Annotated[
        int, "Partitions that this plan has no room for; a later plan moves them.", COUNT
    ] = 0
    is_measured: Annotated[
        bool,
        "Whether every broker reported what it holds; if not, the plan does not consider sizes.",
    ] = False
    bytes: Annotated[int | None, "Bytes to copy; absent if unknown.", COUNT] = None
    bytes_needed: Annotated[
        int | None,
        "Bytes that any plan has to copy to fulfil the goals of racks, disks and replicas.",
        COUNT,
    ] = None
    bytes_per_second: Annotated[
        int | None,
        "Bytes a second that the slowest broker sends to replicas that are added.",
        COUNT,
    ] = None
    duration_seconds: Annotated[
        int | None,
        "Shortest time that copying takes at that rate: that of the broker that sends most, "
        "without what producers write meanwhile.",
        COUNT,
    ] = None
    goals: Annotated[
        tuple[RebalanceGoal, ...],
        "The goals that the plan considers, the most important first.",
        Bound(NOTES_MAX),
    ] = ()
    shares: Annotated[
        tuple[BrokerShare, ...],
        "What each broker has before and after the moves.",
        Bound(BROKERS_MAX),
    ] = ()
    notes: Annotated[
        tuple[Annotated[str, Text(MESSAGE_LENGTH_MAX)], ...],
        "What the plan does not know, or leaves as it is.",
        Bound(NOTES_MAX),
    ] = ()
    moves: Annotated[tuple[RebalanceMove, ...], "All moves.", Bound(MOVES_MAX)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceRefusal:
    """A move that the controller has refused."""

    topic: Annotated[str, "Topic of the partition.", _TOPIC]
    partition: Annotated[int, "Number of the partition.", _PARTITION]
    reason: Annotated[str, "Kafka's name of the error.", Text(64)]
    message: Annotated[str, "Why.", Text(MESSAGE_LENGTH_MAX)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceProgress:
    """What became of the plan's moves; each move counts in one of the numbers."""

    done: Annotated[int, "Partitions that are where the plan wants them.", COUNT]
    moving: Annotated[int, "Partitions that are being copied or wait to be copied.", COUNT]
    not_moved: Annotated[
        int, "Partitions that stayed where they were: not begun, refused or cancelled.", COUNT
    ]
    changed_since: Annotated[
        int, "Partitions that were deleted meanwhile, or that somebody else has moved.", COUNT
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class RestingPartition:
    """A partition that was moved not long ago."""

    topic: Annotated[str, "Topic of the partition.", _TOPIC]
    partition: Annotated[int, "Number of the partition.", _PARTITION]
    since: Annotated[
        str, "When the round ended that moved the partition.", Text(64, format="date-time")
    ]
    times: Annotated[
        int,
        "How often the partition was moved again after a short rest. Each time doubles its rest.",
        Whole(1, 8),
    ] = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceRound:
    """A round that has ended."""

    plan: Annotated[str, "Id of the round's plan.", PLAN_ID]
    why: Annotated[str, "Reason for the round.", Text(MESSAGE_LENGTH_MAX)]
    outcome: Annotated[Literal["Complete", "Failed"], "Result of the round."]
    ended_at: Annotated[str, "When the round ended.", Text(64, format="date-time")]
    done: Annotated[int, "Partitions that the round moved.", COUNT]
    bytes: Annotated[int, "Bytes that the round copied.", COUNT]


@dataclass(frozen=True, slots=True, kw_only=True)
class AutomaticStatus:
    """What the mode Auto remembers from one round to the next."""

    rounds: Annotated[int, "Rounds that have ended.", COUNT] = 0
    failed_rounds: Annotated[int, "Rounds that did not move everything.", COUNT] = 0
    why: Annotated[str, "Reason for the present round.", Text(MESSAGE_LENGTH_MAX)] = ""
    last_round: Annotated[RebalanceRound | None, "The last round."] = None
    disturbed_at: Annotated[
        str | None,
        "When the cluster was last disturbed; the next round begins spec.auto.quietSeconds later.",
        Text(64, format="date-time"),
    ] = None
    resting: Annotated[
        tuple[RestingPartition, ...],
        "Partitions that were moved lately and rest.",
        Bound(RESTING_MAX),
    ] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceStatus:
    """The plan, and the progress of its moves."""

    conditions: Conditions = ()
    observed_generation: ObservedGeneration = None
    phase: Annotated[
        Phase | None,
        "State of the rebalance. ProposalReady: the plan waits for spec.approve. Watching: the "
        "mode Auto, between two rounds. The condition Complete says why.",
    ] = None
    plan: Annotated[RebalancePlan | None, "The plan that is proposed or carried out."] = None
    is_handed_over: Annotated[
        bool, "Whether the controller has accepted all moves; from then on it carries them out."
    ] = False
    progress: Annotated[RebalanceProgress | None, "Progress of the moves."] = None
    refusals: Annotated[
        tuple[RebalanceRefusal, ...],
        "The first moves that the controller refused.",
        Bound(REFUSALS_MAX),
    ] = ()
    auto: Annotated[AutomaticStatus | None, "What the mode Auto has done."] = None


REBALANCE: Final = ResourceDefinition(
    kind=REBALANCE_KIND,
    plural="rebalances",
    short_names=("rb",),
    description="A plan that spreads replicas, leaders and load evenly over the brokers of a "
    "LogCluster. Nothing moves before somebody approves the plan by its id, or the mode "
    "Auto does within its limits.",
    spec=RebalanceSpec,
    status=RebalanceStatus,
    columns=(
        Column("Cluster", ".spec.clusterName"),
        Column("Mode", ".spec.mode"),
        Column("Phase", ".status.phase"),
        Column("Plan", ".status.plan.id", description="Value for spec.approve"),
        Column(
            "Partitions",
            ".status.plan.partitions",
            "integer",
            "Partitions that get other replicas",
        ),
        Column(
            "Leaders",
            ".status.plan.leaders",
            "integer",
            "Partitions that get another preferred leader",
        ),
        Column("Done", ".status.progress.done", "integer"),
        Column("Moving", ".status.progress.moving", "integer"),
        AGE,
        Column(
            "Message",
            '.status.conditions[?(@.type=="Complete")].message',
            is_wide=True,
        ),
    ),
    example="""\
apiVersion: fairlead.io/v1alpha1
kind: Rebalance
metadata:
  name: fill-the-new-broker
spec:
  clusterName: demo
""",
)
