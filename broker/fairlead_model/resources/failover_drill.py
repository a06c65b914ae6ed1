"""The `FailoverDrill` resource's spec: the same file runs in a cluster and under `fairlead up`.

apiVersion: fairlead.io/v1alpha1
kind: FailoverDrill
metadata: {name: kill-a-leader}
spec:
  clusterName: demo             # `fairlead up` does without
  target: {type: Leader}
  fault: {type: Kill}
  limits: {recoveryMs: 500}
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from fairlead_model.ids import TOPIC_NAME_LENGTH_MAX
from fairlead_model.resources.resource_reading import ManifestForm, read_manifest
from fairlead_model.resources.resource_shape import ClusterOnly, Rule, Text, Whole

FAILOVER_DRILL_KIND: Final = "FailoverDrill"
CLUSTER_NAME: Final = Text(
    maximum=32,
    minimum=1,
    pattern="[a-z]([-a-z0-9]*[a-z0-9])?",
    hint="a LogCluster's name has lower case letters, digits and '-', begins with a letter and "
    "does not end with '-'",
)
_COUNT: Final = Whole(0, 2**53)
LASTING: Final = frozenset({"Pause", "Slow", "Isolate", "DiskFull"})
"""Faults that last for durationSeconds."""

TargetType: TypeAlias = Literal[
    "Leader", "Follower", "Broker", "Controller", "Node", "Zone", "Cluster"
]
FaultType: TypeAlias = Literal[
    "Kill", "Delete", "Pause", "Slow", "Isolate", "DiskFull", "RollingRestart"
]
CutFrom: TypeAlias = Literal["Brokers", "Controller", "Clients", "All"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillTarget:
    """What is broken."""

    RULES: ClassVar = (
        Rule(
            cel="self.type in ['Leader', 'Follower'] || !has(self.topic)",
            message="only the targets Leader and Follower take a topic: leave topic out, or set "
            "type to one of them",
            field="topic",
            holds=lambda target: target.type in {"Leader", "Follower"} or target.topic is None,
        ),
        Rule(
            cel="!has(self.partition) || has(self.topic)",
            message="a partition needs the topic that it belongs to: set topic too",
            field="partition",
            holds=lambda target: target.partition is None or target.topic is not None,
        ),
        Rule(
            cel="(self.type == 'Broker') == has(self.brokerId)",
            message="the target Broker needs a brokerId, and no other target takes one",
            field="brokerId",
            holds=lambda target: (target.type == "Broker") == (target.broker_id is not None),
        ),
        Rule(
            cel="(self.type == 'Node') == has(self.node)",
            message="the target Node needs the node's name, and no other target takes one",
            field="node",
            holds=lambda target: (target.type == "Node") == (target.node is not None),
        ),
        Rule(
            cel="(self.type == 'Zone') == has(self.zone)",
            message="the target Zone needs the zone's name, and no other target takes one",
            field="zone",
            holds=lambda target: (target.type == "Zone") == (target.zone is not None),
        ),
    )

    type: Annotated[
        TargetType,
        "Leader: the broker that leads a partition. Follower: a broker that follows it. "
        "Broker: the broker with brokerId. Controller: the active controller; on Kubernetes "
        "only from the operator's own namespace, and if its chart sets drills.controller. "
        "Node: all brokers on one machine. Zone: all brokers of one zone (rack). Cluster: all "
        "brokers, one after another, for RollingRestart.",
    ]
    topic: Annotated[
        str | None,
        "Topic whose leader or follower the fault hits. Default: the drill's own topic.",
        Text(maximum=TOPIC_NAME_LENGTH_MAX, minimum=1),
    ] = None
    partition: Annotated[
        int | None, "Partition of that topic. Default: 0.", Whole(0, 1_000_000)
    ] = None
    broker_id: Annotated[
        int | None, "Id of the broker, for the target Broker.", Whole(0, 2**31 - 1)
    ] = None
    node: Annotated[str | None, "Name of the node, for the target Node.", Text(253, 1)] = None
    zone: Annotated[
        str | None, "Name of the zone, for the target Zone: the rack of its brokers.", Text(253, 1)
    ] = None

    @property
    def is_of_several(self) -> bool:
        """Whether the fault may hit several brokers at once."""
        return self.type in {"Node", "Zone"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillFault:
    """The fault that the operator causes."""

    RULES: ClassVar = (
        Rule(
            cel="!has(self.cut) || self.type == 'Isolate'",
            message="only the fault Isolate cuts: leave cut out, or set type to Isolate",
            field="cut",
            holds=lambda it: it.cut is None or it.type == "Isolate",
        ),
    )

    type: Annotated[
        FaultType,
        "Kill: the process gets SIGKILL. Delete: the pod is deleted, with the usual grace "
        "period. Pause: the process is stopped for durationSeconds and then goes on. Slow: for "
        "durationSeconds the process stops and runs by turns, as with a slow disk or on a busy "
        "machine. Isolate: for durationSeconds the network between the pod and the peers in "
        "cut is cut. DiskFull: for durationSeconds the volume has no room; refused if others "
        "use the file system. RollingRestart: the operator restarts all brokers, one after "
        "another.",
    ]
    cut: Annotated[
        CutFrom | None,
        "Peers from which Isolate cuts a broker off: the other Brokers, the Controller, the "
        "Clients, or All of them. Default: All.",
    ] = None
    duration_seconds: Annotated[
        int, "How long a fault that does not end by itself lasts, in seconds.", Whole(1, 600)
    ] = 10
    stall_ms: Annotated[
        int,
        "How long a Slow process stops each time, in milliseconds. If it is longer than "
        "broker.session.timeout.ms, the controller fences the broker.",
        Whole(1, 10_000),
    ] = 200
    run_ms: Annotated[
        int, "How long a Slow process runs between two stops, in milliseconds.", Whole(1, 10_000)
    ] = 50

    @property
    def hold_ms(self) -> int:
        """How long the fault lasts; 0 if it is over at once."""
        return self.duration_seconds * 1000 if self.type in LASTING else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillWorkload:
    """What is produced (acks=all, idempotent) and read back meanwhile, in a topic of its own."""

    partitions: Annotated[int, "Partitions of the drill's topic.", Whole(1, 100)] = 6
    replication_factor: Annotated[int, "Replicas of each partition.", Whole(1, 32_767)] = 3
    records_per_second: Annotated[
        int, "Records produced a second, all partitions together.", Whole(1, 100_000)
    ] = 1_000
    record_size: Annotated[int, "Size of a record's value, in bytes.", Whole(32, 1_000_000)] = 256
    steady_seconds: Annotated[
        int, "How long the workload runs undisturbed before the fault, in seconds.", Whole(1, 600)
    ] = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillLimits:
    """What the drill must stay within to pass; a limit that is left out is not asked."""

    recovery_ms: Annotated[
        int | None,
        "Longest time from the fault until every partition takes records again, in milliseconds.",
        Whole(1, 3_600_000),
    ] = None
    commit_p99_ms: Annotated[
        int | None,
        "99th percentile of the time that a record took to be committed while the fault lasted, "
        "in milliseconds.",
        Whole(1, 3_600_000),
    ] = None
    lost: Annotated[int, "Most acknowledged records that may not be read.", _COUNT] = 0
    duplicates: Annotated[int, "Most records that may be read twice.", _COUNT] = 0
    reordered: Annotated[
        int, "Most records that may be read before an earlier record of the same key.", _COUNT
    ] = 0
    client_errors: Annotated[
        int | None,
        "Most produce requests that may fail for good, after the client's retries. Default: no "
        "limit.",
        _COUNT,
    ] = None


def _unchanged(name: str, attribute: str) -> Rule:
    return Rule(
        cel=f"has(self.{name}) == has(oldSelf.{name}) && "
        f"(!has(self.{name}) || self.{name} == oldSelf.{name})",
        message="a drill cannot be changed once it is made (only suspend and its schedule can): "
        "make a new one with another name",
        field=name,
        holds_change=lambda old, new: getattr(old, attribute) == getattr(new, attribute),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverDrillSpec:
    """A fault under load, what it may cost, and how often it is repeated."""

    RULES: ClassVar = (
        _unchanged("clusterName", "cluster_name"),
        _unchanged("target", "target"),
        _unchanged("fault", "fault"),
        _unchanged("workload", "workload"),
        _unchanged("limits", "limits"),
        _unchanged("runs", "runs"),
        _unchanged("allowUnsafe", "allow_unsafe"),
        Rule(
            cel="!has(self.timeZone) || has(self.schedule)",
            message="timeZone needs a schedule: set schedule, too",
            field="timeZone",
            holds=lambda it: it.time_zone is None or it.schedule is not None,
        ),
        Rule(
            cel="(self.target.type == 'Cluster') == (self.fault.type == 'RollingRestart')",
            message="the target Cluster and the fault RollingRestart go together: set both or none",
            field="fault",
            holds=lambda it: (it.target.type == "Cluster") == (it.fault.type == "RollingRestart"),
        ),
        Rule(
            cel="!(self.fault.type in ['Slow', 'Isolate', 'DiskFull']) || "
            "self.target.type != 'Controller'",
            message="only brokers can be Slow, Isolate or DiskFull: for the controller set Kill, "
            "Delete or Pause",
            field="fault",
            holds=lambda it: (
                it.fault.type not in {"Slow", "Isolate", "DiskFull"}
                or it.target.type != "Controller"
            ),
        ),
    )

    cluster_name: Annotated[
        str,
        "LogCluster of the same namespace on which the drill runs.",
        CLUSTER_NAME,
        ClusterOnly(),
    ] = ""
    target: Annotated[DrillTarget, "What the fault hits."]
    fault: Annotated[DrillFault, "The fault that the operator causes."]
    workload: Annotated[
        DrillWorkload, "Records that the drill produces and reads meanwhile, in its own topic."
    ] = field(default_factory=DrillWorkload)
    limits: Annotated[DrillLimits, "Limits that the drill must keep to pass."] = field(
        default_factory=DrillLimits
    )
    runs: Annotated[
        int,
        "How often the fault is repeated; each run waits until all replicas are back in sync.",
        Whole(1, 100),
    ] = 1
    allow_unsafe: Annotated[
        bool,
        "Break several brokers at once even if partitions then lose their leader, their "
        "min.insync.replicas or their last replica.",
    ] = False
    suspend: Annotated[
        bool,
        "Do not start the drill before this is false. A run that has begun goes on to its end, "
        "and its fault is undone.",
    ] = False
    schedule: Annotated[
        str | None,
        "When the whole drill is repeated, in cron's five fields, such as '0 3 * * 1'. A time "
        "that comes during a drill is skipped.",
        Text(128, 9),
    ] = None
    time_zone: Annotated[
        str | None,
        "Time zone of the schedule, such as Europe/Berlin. Default: UTC.",
        Text(64, 1),
    ] = None
    history_limit: Annotated[
        int, "How many of the past drills of a schedule are kept in the status.", Whole(1, 100)
    ] = 10

    @classmethod
    def from_manifest(
        cls, manifest: Mapping[str, Any], *, is_local: bool = False
    ) -> "FailoverDrillSpec":
        """Read a drill; ManifestError lists all errors. A local drill needs no clusterName."""
        return read_manifest(manifest, ManifestForm(FAILOVER_DRILL_KIND, cls, is_local=is_local))
