"""Turns an agent's and the controller's figures into a drill's status. Pure.

Times are milliseconds since the fault. Recovery is measured per partition: until its first new
acknowledgement, or after a graceful end its longest time without one (`drill_verdict`).
"""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fairlead_model.resources.drill_verdict import DrillMeasurement, find_exceeded, measures_gaps
from fairlead_model.resources.failover_drill import FailoverDrillSpec
from fairlead_operator.drills.agent_answer import COMMIT_FIGURES

TIMELINE_MAX: Final = 200
PROBLEM_MAX: Final = 1024
DONE: Final = {
    "Kill": "killed",
    "Delete": "deleted",
    "Pause": "paused",
    "Slow": "slowed down",
    "Isolate": "cut off",
    "DiskFull": "out of room",
    "RollingRestart": "restarted, one after another",
}
UNDONE: Final = {
    "Pause": "resumed",
    "Slow": "at full speed again",
    "Isolate": "connected again",
    "DiskFull": "has room again",
}
FIRST_BATCH_MS: Final = 1000
CUT_SEEN_MS: Final = 5_000
"""A cut of this duration is noticed: it is above the brokers' session timeout."""


@dataclass(frozen=True, slots=True)
class ControllerTimes:
    """When the controller noticed and decided; None if unknown."""

    detection_ms: int | None = None
    election_ms: int | None = None
    leaders_moved: int | None = None
    """How many leaders it moved off the broken brokers."""


def read_controller_times(
    journal: Mapping[str, Any], broker_ids: Collection[int], fault_at_ms: int
) -> ControllerTimes:
    """Find in the journal when leaders left brokers and the first entry about each: the latest."""
    each = [_read_times_of(journal, broker, fault_at_ms) for broker in broker_ids]
    detections = [times.detection_ms for times in each]
    elections = [times.election_ms for times in each if times.election_ms is not None]
    known = [at for at in detections if at is not None]
    return ControllerTimes(
        max(known) if known and len(known) == len(each) else None,
        max(elections, default=None),
        sum(times.leaders_moved or 0 for times in each),
    )


def _read_times_of(journal: Mapping[str, Any], broker_id: int, fault_at_ms: int) -> ControllerTimes:
    named = re.compile(rf"\bbroker {broker_id}\b")
    moves = sorted(
        int(move["atMs"])
        for move in journal.get("moves") or ()
        if move["from"] == broker_id and int(move["atMs"]) >= fault_at_ms
    )
    said = sorted(
        int(entry["atMs"])
        for entry in journal.get("decisions") or ()
        if int(entry["atMs"]) >= fault_at_ms and named.search(str(entry["what"]))
    )
    # A broker that returns gets leaders and may lose them again later: the first batch counts.
    elected = [at for at in moves if at <= moves[0] + FIRST_BATCH_MS] if moves else []
    first = min([*moves[:1], *said[:1]], default=None)
    return ControllerTimes(
        None if first is None else first - fault_at_ms,
        None if not elected else elected[-1] - fault_at_ms,
        len(elected),
    )


def build_run(
    spec: FailoverDrillSpec, figures: Mapping[str, Any], times: ControllerTimes, problem: str
) -> dict[str, Any]:
    """Return one entry of `status.runs`."""
    memo = figures["memo"]
    recoveries = _recoveries(spec, figures)
    is_whole = bool(recoveries) and None not in recoveries
    known = [ms for ms in recoveries if ms is not None]
    problem = problem or find_ineffective(spec, figures, times)
    run: dict[str, Any] = {
        "target": memo.get("target", ""),
        "faultAt": memo.get("faultAt"),
        "detectionMs": times.detection_ms,
        # A lost controller's journal is gone, too; clients learned of the election a little later.
        "electionMs": figures["electionMs"] if times.election_ms is None else times.election_ms,
        "recoveryP50Ms": percentile(known, 0.5),
        "recoveryMaxMs": max(known) if is_whole else None,
        "longestGapMs": max(figures["gapMs"].values(), default=None),
        "problem": problem[:PROBLEM_MAX] or None,
        "forecastLeaders": (memo.get("loss") or {}).get("leadersMove"),
        "movedLeaders": times.leaders_moved,
    } | {name: figures.get(name) for name in COMMIT_FIGURES}
    return {name: value for name, value in run.items() if value is not None}


def find_ineffective(
    spec: FailoverDrillSpec, figures: Mapping[str, Any], times: ControllerTimes
) -> str:
    """Return why a cut seems to have had no effect; empty if it had one, or that is unknown."""
    if spec.fault.type != "Isolate" or spec.fault.hold_ms < CUT_SEEN_MS:
        return ""
    cut = spec.fault.cut or "All"
    # A lost controller's journal is gone, too; clients also see what it decided.
    signs = (times.detection_ms, figures["electionMs"], figures.get("leftIsrMs"))
    if cut not in {"All", "Controller"} or any(sign is not None for sign in signs):
        return ""
    return (
        "nobody noticed the cut: the network of this cluster does not enforce NetworkPolicies, "
        "another policy lets the broker's traffic through, or open connections stay open"
    )


def _recoveries(spec: FailoverDrillSpec, figures: Mapping[str, Any]) -> list[int | None]:
    source = figures["gapMs"] if measures_gaps(spec) else figures["firstAcknowledgedMs"]
    return list(source.values())


def build_timeline(
    spec: FailoverDrillSpec, figures: Mapping[str, Any], run: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return what happened in one run, and when."""
    entries: list[tuple[int | None, str]] = [(0, f"{run['target']} {DONE[spec.fault.type]}")]
    entries.append((run.get("detectionMs"), "detected by the controller"))
    entries.append((run.get("electionMs"), _elected_text(spec, figures)))
    if not measures_gaps(spec):
        entries += [
            (run.get("recoveryP50Ms"), "first new acknowledgement, half of the partitions hit"),
            (run.get("recoveryMaxMs"), "first new acknowledgement, every partition hit"),
            (figures["clientRecoveryMs"], "the application's own records acknowledged everywhere"),
        ]
    if spec.fault.hold_ms:
        entries.append((spec.fault.hold_ms, f"{run['target']} {UNDONE[spec.fault.type]}"))
        entries.append((run.get("leftIsrMs"), "out of the in-sync set of every partition hit"))
    if spec.fault.type == "Slow":
        entries.append((run.get("fastAgainMs"), "the last slow commit"))
    entries.append((figures["wholeMs"], "all replicas in sync again"))
    entries.append((figures["sinceFaultMs"], "run ended: " + run.get("problem", "all is well")))
    known = sorted((at, text) for at, text in entries if at is not None)
    return [{"offsetMs": at, "event": text[:512]} for at, text in known][:TIMELINE_MAX]


def _elected_text(spec: FailoverDrillSpec, figures: Mapping[str, Any]) -> str:
    if spec.fault.type == "RollingRestart":
        return "every partition had another leader"
    if spec.target.type == "Controller":
        return "another controller has taken over"
    return f"new leaders for {figures['partitionsLed']} partitions"


def summarize_runs(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the figures of all runs: the slowest, and the median of the medians."""
    summary = {
        name: max((run[name] for run in runs if name in run), default=None)
        for name in ("detectionMs", "electionMs", "recoveryMaxMs", "commitP99Ms")
    }
    summary["recoveryP50Ms"] = percentile(
        [r["recoveryP50Ms"] for r in runs if "recoveryP50Ms" in r]
    )
    return {name: value for name, value in summary.items() if value is not None}


def summarize_verdict(verdict: Mapping[str, Any]) -> dict[str, int]:
    """Return the counts of the verdict, under the names of the status."""
    return {
        "lost": int(verdict["lost"]),
        "duplicates": int(verdict["duplicated"]),
        "reordered": int(verdict["reordered"]),
        "acknowledged": int(verdict["acknowledged"]),
        "clientErrors": sum(verdict["clientErrors"].values()),
    }


def judge(
    spec: FailoverDrillSpec,
    status: Mapping[str, Any],
    verdict: Mapping[str, Any] | None,
    problem: str = "",
) -> list[str]:
    """Return why a drill has failed; empty if it has passed."""
    runs = status.get("runs") or ()
    problems = [f"run {i}: {run['problem']}" for i, run in enumerate(runs, 1) if run.get("problem")]
    if problem or verdict is None:
        return [problem or "nothing was read back", *problems]
    problems += [
        f"{verdict[name]} records are {what}"
        for name, what in (
            ("misplaced", "not where they were acknowledged"),
            ("foreign", "damaged or were never sent"),
        )
        if verdict[name]
    ]
    # Otherwise the other runs would hide a run without a measured recovery.
    is_measured = all("recoveryMaxMs" in run for run in runs)
    measured = DrillMeasurement(
        recovery_max_ms=status.get("recoveryMaxMs") if is_measured else None,
        commit_p99_ms=status.get("commitP99Ms"),
        lost=status["lost"],
        duplicates=status["duplicates"],
        reordered=status["reordered"],
        client_errors=status["clientErrors"],
        problems=problems,
    )
    return find_exceeded(spec.limits, measured)


def percentile(values: Sequence[int], fraction: float = 0.5) -> int | None:
    """Return a measured value, by nearest rank."""
    if not values:
        return None
    return sorted(values)[max(0, math.ceil(fraction * len(values)) - 1)]
