"""The next step of a drill: a pure function of its status and the observations.

| phase | waits for | then |
|---|---|---|
| Pending | suspend off, no other drill, the controller | Refuse or Prepare |
| Preparing | the pod's load, undisturbed for steadySeconds | BeginRun |
| Running | the fault's end, new acknowledgements, full ISR | CollectRun; next BeginRun, or Verify |
| Verifying | everything read back | Finish |
| Finished, Refused | | CleanUp |

A drill with a schedule starts again (StartRound) whenever it is due and the last round is cleaned
up.

A cut network is reconnected first (HealCut), whatever the phase, once the fault is over, the run is
in doubt or over, the drill cannot continue, or its time is up.

Each step may be repeated. The operator remembers nothing between two steps: the drill's pod knows
the state of a run. If it is unknown whether a fault was really injected, the run is forgotten and
repeated once the cluster is healthy; for the controller, a higher controller epoch is the proof.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from fairlead_model.resources.failover_drill import FailoverDrillSpec
from fairlead_operator.drills.health import (
    find_ailment,
    find_danger,
    find_objection,
    find_trespass,
)
from fairlead_operator.drills.observations import AgentRun, AgentState, DrillObservations

OBSERVE_MS: Final = 1_000
"""How long to observe after a fault without duration: a second effect would show by then."""
RECOVERY_MS_MAX: Final = 30_000
HEAL_MS_MAX: Final = 300_000
"""A deleted pod may have to be scheduled, start and catch up."""
SETTLE_MS_MAX: Final = 120_000
PREPARE_S_MAX: Final = 180.0
SILENCE_S_MAX: Final = 60.0
ROLL_MS_MAX: Final = 1_800_000
LATE_MS_MAX: Final = 3_600_000
"""A scheduled drill that could not begin within this time is skipped."""
TAKEOVER_MS_MAX: Final = 15_000
FINAL: Final = frozenset({"Finished", "Refused"})
ACTIVE: Final = frozenset({"Preparing", "Running", "Verifying"})


@dataclass(frozen=True, slots=True)
class Idle:
    """Do nothing now."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Stay pending, and report why."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class AwaitTime:
    """The schedule is due later."""


@dataclass(frozen=True, slots=True)
class StartRound:
    """The schedule is due: start again, with an empty status."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """Refuse to begin, for good."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Prepare:
    """Create the drill's pod."""


@dataclass(frozen=True, slots=True)
class BeginRun:
    """Choose the target, start the pod's measurement, and break the target."""

    number: int


@dataclass(frozen=True, slots=True)
class ConfirmRun:
    """Tell the pod that the fault is proved."""

    number: int


@dataclass(frozen=True, slots=True)
class ForgetRun:
    """Measure again: it is unknown whether the fault was injected."""

    number: int


@dataclass(frozen=True, slots=True)
class CollectRun:
    """End a run and write its figures into the status."""

    number: int
    problem: str = ""


@dataclass(frozen=True, slots=True)
class HealCut:
    """Reconnect what was cut."""


@dataclass(frozen=True, slots=True)
class Verify:
    """Have the pod read everything back."""


@dataclass(frozen=True, slots=True)
class Finish:
    """Judge; a problem says why the drill could not continue."""

    problem: str = ""


@dataclass(frozen=True, slots=True)
class CleanUp:
    """Delete the drill's pod; its topic is deleted, too."""


Step: TypeAlias = (
    Idle
    | Hold
    | Refuse
    | Prepare
    | BeginRun
    | ConfirmRun
    | ForgetRun
    | CollectRun
    | HealCut
    | AwaitTime
    | StartRound
    | Verify
    | Finish
    | CleanUp
)


def decide_drill_step(
    spec: FailoverDrillSpec, status: Mapping[str, Any], seen: DrillObservations
) -> Step:
    """Return the next step."""
    phase = status.get("phase") or "Pending"
    if status.get("cut") and not _may_be_cut(spec, phase, status, seen):
        return HealCut()
    if phase in FINAL and seen.pod != "Absent":
        return CleanUp()
    if phase in FINAL or (spec.schedule and phase == "Pending" and not status.get("startedAt")):
        return _decide_waiting(spec, phase, seen)
    trespass = find_trespass(spec, seen.namespace, seen.controller_access)
    if trespass is not None:
        # Later only if the operator's values have changed, or somebody has edited the status.
        refusal = Refuse(trespass.reason, trespass.message)
        return refusal if phase == "Pending" else Finish(trespass.message)
    if phase == "Pending":
        return _decide_pending(spec, seen)
    return _decide_active(spec, phase, status, seen)


def _decide_active(
    spec: FailoverDrillSpec, phase: str, status: Mapping[str, Any], seen: DrillObservations
) -> Step:
    if phase == "Preparing" and seen.pod == "Absent":
        return Prepare()
    failure = _find_failure(phase, seen)
    if failure:
        return Finish(failure)
    if seen.agent is None:
        return Idle()
    if phase == "Verifying":
        return _decide_verifying(seen.agent)
    return _decide_running(spec, len(status.get("runs") or ()), seen.agent, seen)


def _decide_waiting(spec: FailoverDrillSpec, phase: str, seen: DrillObservations) -> Step:
    """Decide about a drill that is over, or whose schedule has not been due yet."""
    if spec.schedule is None:
        return Idle()
    if seen.schedule_problem:
        problem = Refuse("InvalidSchedule", seen.schedule_problem)
        return Idle() if phase in FINAL else problem
    if spec.suspend:
        why = "spec.suspend is true: the schedule goes on once it is false"
        return Idle() if phase in FINAL else Hold("Suspended", why)
    return StartRound() if seen.late_ms >= 0 else AwaitTime()


def _may_be_cut(
    spec: FailoverDrillSpec, phase: str, status: Mapping[str, Any], seen: DrillObservations
) -> bool:
    """Tell whether the planned cut is about to be made, or shall still last.

    A run that may or may not have begun is repeated, so its cut ends, too.
    """
    planned = status["cut"]
    number = len(status.get("runs") or ()) + 1
    if phase != "Running" or planned["run"] != number or seen.now_ms >= planned["untilMs"]:
        return False
    if _find_failure(phase, seen):
        return False
    if seen.agent is None:
        return True
    run = seen.agent.run
    if run is None or run.number != number:
        return seen.agent.phase == "steady"
    return run.is_injected and not run.is_ended and run.since_fault_ms < spec.fault.hold_ms


def _decide_pending(spec: FailoverDrillSpec, seen: DrillObservations) -> Step:
    step = _decide_beginning(spec, seen)
    if seen.late_ms <= LATE_MS_MAX:
        return step
    why = step.message if isinstance(step, Hold) else "nobody could begin it until now"
    minutes = LATE_MS_MAX // 60_000
    return Refuse("TooLate", f"not begun within {minutes} minutes of its time: {why}")


def _decide_beginning(spec: FailoverDrillSpec, seen: DrillObservations) -> Step:
    if spec.suspend:
        return Hold("Suspended", "spec.suspend is true: the drill begins once it is false")
    if seen.other_drill:
        return Hold("AnotherDrill", f"drill {seen.other_drill} of this cluster comes first")
    if not seen.is_cluster_declared:
        return Refuse("ClusterNotFound", f"there is no LogCluster {spec.cluster_name} here")
    if seen.cluster is None:
        return Hold("ControllerUnavailable", "the cluster's controller does not answer yet")
    if spec.target.is_of_several and seen.loss is None and seen.cluster.find_brokers(spec.target):
        return Hold("ControllerUnavailable", "the controller does not say what a loss would do yet")
    objection = find_objection(spec, seen.cluster) or find_danger(spec, seen.loss)
    return Prepare() if objection is None else Refuse(objection.reason, objection.message)


def _find_failure(phase: str, seen: DrillObservations) -> str:
    """Return why a drill cannot continue."""
    if seen.pod == "Absent":
        return "the drill's pod is gone, and what it had counted with it"
    if seen.pod == "Ended":
        return f"the drill's pod has ended: {seen.pod_problem or 'see its log'}"
    if seen.agent is not None and seen.agent.phase == "failed":
        return seen.agent.problem or "the load could not go on"
    if phase == "Preparing" and seen.pod_age_s > PREPARE_S_MAX and not _is_loaded(seen.agent):
        why = seen.pod_problem or "it does not say why"
        return f"the load was not ready within {PREPARE_S_MAX:.0f} s: {why}"
    if seen.pod == "Running" and seen.agent is None and seen.agent_silent_s > SILENCE_S_MAX:
        return f"the drill's pod has not answered for {SILENCE_S_MAX:.0f} s"
    return ""


def _is_loaded(agent: AgentState | None) -> bool:
    return agent is not None and agent.phase not in {"preparing", "settling"}


def _decide_running(
    spec: FailoverDrillSpec, done: int, agent: AgentState, seen: DrillObservations
) -> Step:
    run, number = agent.run, done + 1
    if run is not None and run.number == number:
        if run.is_ended:
            # The operator that ended the run may not have written the reason.
            return CollectRun(number, _find_delay(spec, run))
        return _decide_observing(spec, run, agent, seen)
    # An operator that could not record it may already have told the pod.
    if done >= spec.runs and agent.phase in {"steady", "verifying", "verified"}:
        return Verify()
    if agent.phase != "steady":
        return Idle()
    ailment = None if seen.cluster is None else find_ailment(spec.cluster_name, seen.cluster)
    if seen.cluster is None or ailment is not None:
        if agent.since_ms < SETTLE_MS_MAX:
            return Idle()
        why = "the controller does not answer" if ailment is None else ailment.message
        return Finish(f"the cluster is not well before run {number}: {why}")
    if agent.since_ms < spec.workload.steady_seconds * 1000:
        return Idle()
    return BeginRun(number)


def _decide_observing(
    spec: FailoverDrillSpec, run: AgentRun, agent: AgentState, seen: DrillObservations
) -> Step:
    if not run.is_injected:
        return _decide_in_doubt(spec, run, seen)
    if spec.fault.type == "RollingRestart":
        return _decide_rolling(spec, run, agent, seen)
    if _over_ms(spec, run) < 0:
        return Idle()
    ailment = None if seen.cluster is None else find_ailment(spec.cluster_name, seen.cluster)
    is_well = agent.is_well and seen.cluster is not None and ailment is None
    if run.is_recovered and is_well:
        return CollectRun(run.number)
    delay = _find_delay(spec, run, "" if ailment is None else ailment.message)
    return CollectRun(run.number, delay) if delay else Idle()


def _over_ms(spec: FailoverDrillSpec, run: AgentRun) -> int:
    """Return for how long a fault has been over."""
    return run.since_fault_ms - (spec.fault.hold_ms or OBSERVE_MS)


def _find_delay(spec: FailoverDrillSpec, run: AgentRun, ailment: str = "") -> str:
    """Return what takes too long, or took too long when the run ended; empty if nothing."""
    if spec.fault.type == "RollingRestart":
        late = f"not every broker has restarted within {ROLL_MS_MAX // 60_000} minutes"
        return late if run.since_fault_ms > ROLL_MS_MAX else ""
    if not run.is_recovered:
        late = f"no new acknowledgement {RECOVERY_MS_MAX // 1000} s after the fault"
        return late if _over_ms(spec, run) > RECOVERY_MS_MAX else ""
    why = ailment or "not every replica is in sync again"
    late = f"{HEAL_MS_MAX // 1000} s after the fault: {why}"
    return late if _over_ms(spec, run) > HEAL_MS_MAX else ""


def _decide_rolling(
    spec: FailoverDrillSpec, run: AgentRun, agent: AgentState, seen: DrillObservations
) -> Step:
    """Wait until every broker has restarted, and the cluster is healthy."""
    if delay := _find_delay(spec, run):
        return CollectRun(run.number, delay)
    if seen.cluster is None or run.since_fault_ms < OBSERVE_MS:
        return Idle()
    before = run.memo.get("brokerEpochs") or {}
    has_rolled = all(
        seen.cluster.epochs.get(int(broker), 0) > epoch for broker, epoch in before.items()
    )
    is_well = agent.is_well and find_ailment("", seen.cluster) is None
    return CollectRun(run.number) if has_rolled and is_well else Idle()


def _decide_in_doubt(spec: FailoverDrillSpec, run: AgentRun, seen: DrillObservations) -> Step:
    """Decide about a run that has begun if it is unknown whether the fault happened."""
    if spec.fault.type == "RollingRestart":
        # Requested again with the same value, it is the same restart.
        return ConfirmRun(run.number)
    if spec.target.type != "Controller":
        return ForgetRun(run.number)
    if seen.cluster is None:
        return Idle()
    if seen.cluster.controller_epoch > int(run.memo.get("controllerEpoch", 0)):
        return ConfirmRun(run.number)
    return Idle() if run.since_fault_ms < TAKEOVER_MS_MAX else ForgetRun(run.number)


def _decide_verifying(agent: AgentState) -> Step:
    if agent.phase == "verified":
        return Finish()
    return Idle() if agent.phase == "verifying" else Verify()
