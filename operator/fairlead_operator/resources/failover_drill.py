"""FailoverDrill: its results and columns; its spec: `fairlead_model.resources.failover_drill`."""

from dataclasses import dataclass
from typing import Annotated, Final, Literal, TypeAlias

from fairlead_model.resources.failover_drill import FAILOVER_DRILL_KIND, FailoverDrillSpec
from fairlead_model.resources.resource_shape import Bound, Text, Whole
from fairlead_operator.resources.condition import COUNT, Conditions, ObservedGeneration
from fairlead_operator.resources.definition import AGE, Column, ResourceDefinition

Phase: TypeAlias = Literal["Pending", "Preparing", "Running", "Verifying", "Finished", "Refused"]
RUNS_MAX: Final = 100
TIMELINE_MAX: Final = 200
_TIME: Final = Text(64, format="date-time")
POOL_MAX: Final = 1_000

_DETECTION: Final = (
    "From the fault until the controller's first decision about the broker, in milliseconds"
)
_ELECTION: Final = "From the fault until new leaders were in the store, in milliseconds"
_RECOVERY_P50: Final = (
    "From the fault until a partition took records again, in milliseconds: the median partition"
)
_RECOVERY_MAX: Final = (
    "From the fault until a partition took records again, in milliseconds: the slowest partition"
)
_COMMIT: Final = "99th percentile of the time that a record took to be committed, in milliseconds,"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillRun:
    """One fault and what followed."""

    target: Annotated[str, "What the fault hit.", Text(253)] = ""
    fault_at: Annotated[str | None, "When the fault began.", _TIME] = None
    detection_ms: Annotated[int | None, f"{_DETECTION}.", COUNT] = None
    election_ms: Annotated[int | None, f"{_ELECTION}.", COUNT] = None
    recovery_p50_ms: Annotated[int | None, f"{_RECOVERY_P50}.", COUNT] = None
    recovery_max_ms: Annotated[int | None, f"{_RECOVERY_MAX}.", COUNT] = None
    longest_gap_ms: Annotated[
        int | None,
        "Longest time in which a partition acknowledged nothing, in milliseconds.",
        COUNT,
    ] = None
    forecast_leaders: Annotated[
        int | None, "Leaders that would move, as forecast right before the fault.", COUNT
    ] = None
    moved_leaders: Annotated[
        int | None, "Leaders that the controller moved away from what the fault hit.", COUNT
    ] = None
    commit_before_p99_ms: Annotated[int | None, f"{_COMMIT} before the fault.", COUNT] = None
    commit_p99_ms: Annotated[int | None, f"{_COMMIT} while the fault lasted.", COUNT] = None
    left_isr_ms: Annotated[
        int | None,
        "From the fault until the broker had left every in-sync set that it was in as a follower, "
        "in milliseconds; missing if it never did.",
        COUNT,
    ] = None
    fast_again_ms: Annotated[
        int | None,
        "From the fault until the last slow commit of the partitions that the broker followed, in "
        "milliseconds. Slow is above 50 ms and twice commitBeforeP99Ms.",
        COUNT,
    ] = None
    problem: Annotated[str, "Why the run did not end as planned.", Text(1024)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineEntry:
    """Something that happened in the last run."""

    offset_ms: Annotated[
        int,
        "Time since the fault, in milliseconds; negative before the fault.",
        Whole(-(2**53), 2**53),
    ]
    event: Annotated[str, "What happened.", Text(512)]


@dataclass(frozen=True, slots=True, kw_only=True)
class CutPod:
    """A broker's pod."""

    name: Annotated[str, "Name of the pod.", Text(253)]
    uid: Annotated[
        str, "Uid of the pod, which tells it from another pod of the same name.", Text(64)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCut:
    """A network cut that is about to begin, or is in force."""

    run: Annotated[int, "Number of the run, from 1 on.", COUNT]
    pods: Annotated[tuple[CutPod, ...], "The pods that are cut off.", Bound(POOL_MAX)]
    until_ms: Annotated[
        int, "Unix time, in milliseconds, at which the cut is undone whatever happens.", COUNT
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class PastDrill:
    """One time at which a schedule was due, and what came of it."""

    due_at: Annotated[str | None, "When the drill was due.", _TIME] = None
    started_at: Annotated[str | None, "When the drill began.", _TIME] = None
    verdict: Annotated[
        Literal["Passed", "Failed", "Skipped"],
        "Skipped: it was not started, for example because the cluster was not healthy.",
    ]
    message: Annotated[str, "Reason, in words for people.", Text(1024)] = ""
    detection_ms: Annotated[int | None, f"{_DETECTION}; the slowest run.", COUNT] = None
    election_ms: Annotated[int | None, f"{_ELECTION}; the slowest run.", COUNT] = None
    recovery_max_ms: Annotated[int | None, f"{_RECOVERY_MAX} of all runs.", COUNT] = None
    lost: Annotated[int | None, "Acknowledged records that were not read.", COUNT] = None
    duplicates: Annotated[int | None, "Records that were read twice.", COUNT] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailoverDrillStatus:
    """State of the drill, and what it measured."""

    conditions: Conditions = ()
    observed_generation: ObservedGeneration = None
    phase: Annotated[
        Phase | None, "State of the drill; if it is Refused, the condition Complete says why."
    ] = None
    runs: Annotated[
        tuple[DrillRun, ...], "One entry for each run, oldest first.", Bound(RUNS_MAX)
    ] = ()
    round: Annotated[
        int | None, "How often a drill with a schedule was started or skipped.", COUNT
    ] = None
    due_at: Annotated[str | None, "When the present or last drill was due.", _TIME] = None
    started_at: Annotated[str | None, "When the present or last drill began.", _TIME] = None
    ended_at: Annotated[
        str | None, "When the last drill ended; missing while a drill runs.", _TIME
    ] = None
    next_run_at: Annotated[str | None, "When the schedule is due next.", _TIME] = None
    history: Annotated[
        tuple[PastDrill, ...], "The past drills of a schedule, latest first.", Bound(100)
    ] = ()
    cut: Annotated[
        PlannedCut | None,
        "Network cuts that are in force now, so that the next operator process can undo them.",
    ] = None
    detection_ms: Annotated[int | None, f"{_DETECTION}; the slowest run.", COUNT] = None
    election_ms: Annotated[int | None, f"{_ELECTION}; the slowest run.", COUNT] = None
    recovery_p50_ms: Annotated[int | None, f"{_RECOVERY_P50} of all runs.", COUNT] = None
    recovery_max_ms: Annotated[int | None, f"{_RECOVERY_MAX} of all runs.", COUNT] = None
    commit_p99_ms: Annotated[
        int | None, f"{_COMMIT} while the fault lasted; the slowest run.", COUNT
    ] = None
    lost: Annotated[int | None, "Acknowledged records that were not read.", COUNT] = None
    duplicates: Annotated[int | None, "Records that were read twice.", COUNT] = None
    reordered: Annotated[
        int | None, "Records that were read before an earlier record of the same key.", COUNT
    ] = None
    acknowledged: Annotated[int | None, "Records that were acknowledged.", COUNT] = None
    client_errors: Annotated[
        int | None, "Produce requests that failed for good, after the client's retries.", COUNT
    ] = None
    timeline: Annotated[
        tuple[TimelineEntry, ...], "What happened when, in the last run.", Bound(TIMELINE_MAX)
    ] = ()


FAILOVER_DRILL: Final = ResourceDefinition(
    kind=FAILOVER_DRILL_KIND,
    plural="failoverdrills",
    short_names=("fd",),
    description="A fault that the operator causes on purpose, under load. The status shows "
    "how long detection, election and recovery took, and whether a record was lost, "
    "duplicated or out of order.",
    spec=FailoverDrillSpec,
    status=FailoverDrillStatus,
    columns=(
        Column("Target", ".spec.target.type"),
        Column("Fault", ".spec.fault.type"),
        Column("Phase", ".status.phase"),
        Column("Detect", ".status.detectionMs", "integer", "Milliseconds"),
        Column("Elect", ".status.electionMs", "integer", "Milliseconds"),
        Column("Recover", ".status.recoveryMaxMs", "integer", "Milliseconds, slowest partition"),
        Column("Lost", ".status.lost", "integer"),
        Column("Dup", ".status.duplicates", "integer"),
        Column("Passed", '.status.conditions[?(@.type=="Passed")].status'),
        AGE,
        Column("Cluster", ".spec.clusterName", is_wide=True),
        Column("Last", ".status.startedAt", "date", is_wide=True),
        Column("Next", ".status.nextRunAt", is_wide=True),
        Column("Recover P50", ".status.recoveryP50Ms", "integer", is_wide=True),
        Column("Commit P99", ".status.commitP99Ms", "integer", is_wide=True),
        Column("Acknowledged", ".status.acknowledged", "integer", is_wide=True),
        Column("Reordered", ".status.reordered", "integer", is_wide=True),
    ),
    example="""\
apiVersion: fairlead.io/v1alpha1
kind: FailoverDrill
metadata:
  name: kill-a-leader
spec:
  clusterName: demo
  target: {type: Leader}
  fault: {type: Kill}
  limits:
    recoveryMs: 500
""",
)
