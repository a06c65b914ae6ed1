"""Run a FailoverDrill from a file on a local cluster: the same file that the operator takes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_cli.drill.faults import FaultKind
from fairlead_cli.drill.stalls import Stalls
from fairlead_cli.drill.targets import Target, TargetKind
from fairlead_cli.errors import InputError
from fairlead_model.resources.drill_verdict import DrillMeasurement, find_exceeded, measures_gaps
from fairlead_model.resources.failover_drill import FailoverDrillSpec
from fairlead_model.resources.topic_manifest import ManifestError

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from fairlead_cli.drill.run import DrillOutcome, DrillPlan

# To delete a pod is a clean stop of its broker; the supervisor starts another process, as a
# StatefulSet starts another pod.
FAULTS = {
    "Kill": FaultKind.KILL,
    "Delete": FaultKind.STOP,
    "Pause": FaultKind.PAUSE,
    "Slow": FaultKind.SLOW,
    "Isolate": FaultKind.ISOLATE,
    "DiskFull": FaultKind.DISK_FULL,
    "RollingRestart": FaultKind.ROLL,
}


def read_drill_document(path: Path) -> dict[str, Any]:
    """Return the only manifest in a file; InputError if there is none."""
    import yaml

    from fairlead_cli.strict_yaml import StrictLoader

    try:
        read = yaml.load_all(path.read_text(encoding="utf-8"), StrictLoader)
        documents = [document for document in read if document is not None]
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"cannot read {path}: {error}") from error
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise InputError(f"{path} has {len(documents)} documents, one FailoverDrill is needed")
    return documents[0]


def read_drill_manifest(path: Path, *, is_local: bool = True) -> FailoverDrillSpec:
    """Return the drill in a file; InputError lists all errors in it."""
    try:
        return FailoverDrillSpec.from_manifest(read_drill_document(path), is_local=is_local)
    except ManifestError as error:
        problems = "\n".join(f"  {problem}" for problem in error.problems)
        raise InputError(f"{path} is no drill that can be run:\n{problems}") from error


def plan_drill(spec: FailoverDrillSpec) -> DrillPlan:
    """Return the plan of a drill for local processes."""
    from fairlead_cli.drill.run import DrillPlan

    if spec.fault.cut not in (None, "All"):
        raise InputError(
            f"fault.cut {spec.fault.cut} needs Kubernetes: a local cluster's proxy cuts a broker "
            "off from All",
            hint="Leave cut out, and start the cluster with --fault-proxy.",
        )
    workload = spec.workload
    return DrillPlan(
        targets=(build_target(spec),),
        kind=FAULTS[spec.fault.type],
        runs=spec.runs,
        rate=workload.records_per_second,
        record_size=workload.record_size,
        hold_s=float(spec.fault.duration_seconds),
        allows_unsafe=spec.allow_unsafe,
        stalls=Stalls(spec.fault.stall_ms, spec.fault.run_ms),
        partitions=workload.partitions,
        replication_factor=workload.replication_factor,
        steady_s=float(workload.steady_seconds),
    )


def build_target(spec: FailoverDrillSpec) -> Target:
    """Return the target; without a topic, leader or follower of the drill's own partition 0."""
    target = spec.target
    if target.type == "Node":
        raise InputError(
            "target.type Node needs Kubernetes: all brokers of a local cluster are on this machine"
        )
    if target.type == "Zone":
        return Target(TargetKind.RACK, rack=target.zone or "")
    if target.type == "Cluster":
        return Target(TargetKind.ALL)
    return Target(
        TargetKind(target.type.lower()),
        topic=target.topic or "",
        partition=target.partition or 0,
        broker_id=-1 if target.broker_id is None else target.broker_id,
    )


def judged_manifest_timing(spec: FailoverDrillSpec) -> str:
    """Return the name of the timing that `limits.recoveryMs` applies to."""
    return "longest_gap_ms" if measures_gaps(spec) else "recovery_ms"


def find_manifest_failures(spec: FailoverDrillSpec, outcome: DrillOutcome) -> list[str]:
    """Return why a drill has failed, by its own limits."""
    timing = judged_manifest_timing(spec)
    times = [ms for run in outcome.runs if (ms := getattr(run, timing)) is not None]
    findings = outcome.findings
    problems = [f"run {i}: {run.problem}" for i, run in enumerate(outcome.runs, 1) if run.problem]
    problems += [
        f"{count} {what}"
        for count, what in (
            (findings.misplaced, "records are not where they were acknowledged"),
            (findings.foreign, "records are damaged or were never sent"),
        )
        if count
    ]
    commits = [run.commit_p99_ms for run in outcome.runs if run.commit_p99_ms is not None]
    measured = DrillMeasurement(
        commit_p99_ms=max(commits, default=None),
        recovery_max_ms=max(times, default=None),
        lost=findings.lost,
        duplicates=findings.duplicated,
        reordered=findings.reordered,
        client_errors=sum(outcome.client_errors.values()),
        problems=problems,
    )
    return find_exceeded(spec.limits, measured)
