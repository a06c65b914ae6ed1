"""Carries out drills: observes, lets `decide_drill_step` decide, acts, and observes again.

The drills of a namespace are handled one after another, so that two drills of a cluster never begin
together. Drills of other namespaces do not wait for them, nor for pods that do not answer. A status
is written only with the version that was read, so that an operator that has been replaced cannot
undo its successor's writes.
"""

import asyncio
import logging
import os
import time
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from fairlead_kube.client import KubeClient
from fairlead_kube.errors import ApiError, ApiUnavailableError
from fairlead_kube.informer import Informer
from fairlead_kube.kinds import FAILOVER_DRILL, POD, SECRET, ResourceKind
from fairlead_kube.object_changes import ObjectChange, ObjectKey
from fairlead_model.resources.failover_drill import FailoverDrillSpec
from fairlead_model.resources.topic_manifest import ManifestError
from fairlead_operator.controller_client import (
    ControllerClient,
    ControllerError,
    ControllerRefusedError,
)
from fairlead_operator.drills import steps
from fairlead_operator.drills.agent_client import AgentClient, AgentError
from fairlead_operator.drills.agent_pod import (
    agent_pod_name,
    build_agent_pod,
    build_agent_secret,
)
from fairlead_operator.drills.agent_rights import ensure_rights
from fairlead_operator.drills.cuts import CUT_FINALIZER, NetworkCuts
from fairlead_operator.drills.faults import TargetError
from fairlead_operator.drills.health import CLUSTER_HIBERNATED
from fairlead_operator.drills.measurement import judge, summarize_runs, summarize_verdict
from fairlead_operator.drills.metrics import DrillMetrics
from fairlead_operator.drills.observations import ControllerAccess
from fairlead_operator.drills.observer import Observer, Sight, find_due, read_time
from fairlead_operator.drills.runs import DrillRuns, UnsafeError
from fairlead_operator.drills.status import DrillStatus
from fairlead_operator.events import EventWriter
from fairlead_operator.own_access import AccessError, find_access
from fairlead_operator.refusals import describe_refusal, is_refusal
from fairlead_operator.specs.listener_security import DRILLS_USER, OPERATOR_USER

_log = logging.getLogger(__name__)
TICK_S: Final = 0.2
ERROR_DELAY_S: Final = 1.0
UNEXPECTED_DELAY_S: Final = 30.0
HOLD_S: Final = 2.0
"""Time between two checks of a waiting drill; each asks the API server and the controller."""
NO_CONTROLLER_ACCESS: Final = ControllerAccess()
SCHEDULE_S_MAX: Final = 3_600.0
"""Time between two checks of a drill that waits for its schedule."""
IDLE_S: Final = 30.0
"""Time between two checks if no drill is in progress; changes are handled at once."""
OVERDUE: Final = timedelta(seconds=30)
"""How long after its time a pod may still be ending before an Event says so: its node is gone."""

_RETRIED: Final = (AccessError, ApiUnavailableError, ControllerError, AgentError, TargetError)


class NameTakenError(TargetError):
    """An object that stays has the name of an object that the drill needs, and another owner."""


class DrillRunner:
    """Carries out drills; made in a running loop, `run` until cancelled."""

    def __init__(
        self,
        client: KubeClient,
        controller: ControllerClient,
        events: EventWriter,
        *,
        metrics: DrillMetrics | None = None,
        namespaces: Collection[str] = (),
        default_image: str | None = None,
        agents: AgentClient | None = None,
        controller_access: ControllerAccess = NO_CONTROLLER_ACCESS,
    ) -> None:
        environment = os.environ
        self._client = client
        self._events = events
        self._metrics = metrics or DrillMetrics()
        self._image = default_image or environment.get("FAIRLEAD_BROKER_IMAGE", "")
        self._changed = asyncio.Event()
        self._drills = Informer(
            client, FAILOVER_DRILL, namespaces=namespaces, on_change=self._on_change
        )
        self._agents = agents or AgentClient()
        self._observer = Observer(client, controller, self._agents, self._drills, controller_access)
        self._cuts = NetworkCuts(client, controller_access.operator_namespace)
        self._runs = DrillRuns(client, controller, self._agents, self._cuts)
        self._clean: set[str] = set()
        """Uids of drills that have left nothing behind."""
        self._retry_at: dict[ObjectKey, float] = {}

    async def run(self) -> None:
        """Carry out all drills."""
        following = asyncio.create_task(self._drills.run())
        passes: dict[str, asyncio.Task[bool]] = {}
        try:
            await self._drills.synced()
            while True:
                self._changed.clear()
                for namespace in {key[0] for key in self._drills.objects} - passes.keys():
                    passes[namespace] = asyncio.create_task(self._pass(namespace))
                if passes:
                    await asyncio.wait(passes.values(), timeout=TICK_S)
                done = {name: task.result() for name, task in passes.items() if task.done()}
                is_busy = len(done) < len(passes) or any(done.values())
                for namespace in done:
                    del passes[namespace]
                await self._wait(TICK_S if is_busy else IDLE_S)
        finally:
            for task in (following, *passes.values()):
                task.cancel()
            await asyncio.gather(following, *passes.values(), return_exceptions=True)

    async def _pass(self, namespace: str) -> bool:
        """Take the next step of each drill of a namespace; tell whether to check again soon."""
        is_busy = False
        for key, drill in list(self._drills.objects.items()):
            if key[0] == namespace:
                is_busy = await self._attend(key, drill) or is_busy
        return is_busy

    def _on_change(self, change: ObjectChange) -> None:
        if change.new is None and change.old is not None:
            self._observer.forget(change.old)
            self._clean.discard(change.old["metadata"]["uid"])
            self._retry_at.pop(change.key, None)
            self._metrics.forget_schedule(*change.key)
        elif change.new is not None and change.old is not None:
            generations = (it["metadata"].get("generation") for it in (change.old, change.new))
            if len(set(generations)) > 1:
                # Its schedule has changed, or it is no longer suspended: the earlier wait does not
                # count.
                self._retry_at.pop(change.key, None)
                self._clean.discard(change.new["metadata"]["uid"])
        self._changed.set()

    async def _wait(self, seconds: float) -> None:
        try:
            # Not wait_for: until Python 3.12 it can lose a cancellation.
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _attend(self, key: ObjectKey, drill: dict[str, Any]) -> bool:
        """Take the next step of a drill; tell whether to check it again soon."""
        metadata = drill["metadata"]
        is_leaving = "deletionTimestamp" in metadata
        is_held = CUT_FINALIZER in (metadata.get("finalizers") or ())
        if is_leaving and not is_held:
            return False
        if metadata["uid"] in self._clean and not is_leaving:
            return False
        wait_s = self._retry_at.get(key, 0.0) - time.monotonic()
        if wait_s > 0:
            return wait_s < IDLE_S
        try:
            if is_leaving:
                await self._cuts.release(drill)
                return False
            return await self._step(drill)
        except (*_RETRIED, ApiError) as error:
            is_stale = isinstance(error, ApiError) and error.is_conflict
            if not is_stale:
                _log.warning("drill %s/%s: trying again: %s", *key, error)
            self._retry_at[key] = time.monotonic() + ERROR_DELAY_S
            return True
        except Exception:
            # Whatever the error is, it concerns only this drill: the others go on.
            _log.exception("drill %s/%s: trying again after an unexpected error", *key)
            self._retry_at[key] = time.monotonic() + UNEXPECTED_DELAY_S
            return True

    async def _step(self, drill: dict[str, Any]) -> bool:
        status = DrillStatus(drill)
        try:
            spec = FailoverDrillSpec.from_manifest(drill)
        except ManifestError as error:
            self._metrics.forget_schedule(*_key(drill))
            await self._give_up(drill, status, error)
            return False
        self._show_schedule(drill, spec)
        sight = await self._observer.look(drill, spec)
        step = steps.decide_drill_step(spec, status.values, sight.seen)
        if isinstance(step, steps.AwaitTime | steps.StartRound | steps.Idle):
            return await self._rest(step, drill, spec, status)
        match step:
            case steps.Hold(reason, message):
                if status.hold(reason, message, _now()):
                    self._metrics.deferred.labels(reason).inc()
                    await self._write(drill, status)
                self._retry_at[_key(drill)] = time.monotonic() + HOLD_S
            case steps.Refuse(reason, message):
                await self._refuse(drill, status, reason, message, spec)
            case steps.Prepare():
                await self._prepare(drill, spec, status, sight)
            case steps.Finish(problem):
                await self._finish(drill, spec, status, sight, problem)
            case steps.CleanUp():
                await self._delete_pod(drill)
            case _:
                await self._take(step, drill, spec, status, sight)
        return True

    async def _rest(
        self, step: steps.Step, drill: dict[str, Any], spec: FailoverDrillSpec, status: DrillStatus
    ) -> bool:
        """Wait, or start again when the schedule is due; tell whether to check again soon."""
        match step:
            case steps.AwaitTime():
                return await self._await_time(drill, spec, status)
            case steps.StartRound():
                due, _ = find_due(drill, spec)
                status.start_round(due or _now(), _now())
                await self._write(drill, status)
            case _ if status.phase in steps.FINAL:
                # Finished, or its schedule is suspended or unreadable: a change of the drill wakes
                # it.
                self._observer.forget(drill)
                self._clean.add(drill["metadata"]["uid"])
                return False
        return True

    async def _give_up(
        self, drill: dict[str, Any], status: DrillStatus, error: ManifestError
    ) -> None:
        """End a drill that cannot be read."""
        if status.values.get("cut"):
            await self._cuts.heal(drill, status)
            await self._write(drill, status)
        if status.phase not in steps.FINAL:
            await self._refuse(drill, status, "InvalidSpec", "; ".join(error.problems))
        self._clean.add(drill["metadata"]["uid"])

    async def _await_time(
        self, drill: dict[str, Any], spec: FailoverDrillSpec, status: DrillStatus
    ) -> bool:
        """Report when the schedule is due, and check the drill again then."""
        due, _ = find_due(drill, spec)
        if due is None:
            return True
        self._observer.forget(drill)
        is_new = status.note_next(due)
        if status.phase == "Pending":
            is_new = (
                status.hold("Scheduled", f"begins at {due:%Y-%m-%d %H:%M} UTC", _now()) or is_new
            )
        if is_new:
            await self._write(drill, status)
        wait_s = max((due - _now()).total_seconds(), 0.0)
        self._retry_at[_key(drill)] = time.monotonic() + min(wait_s, SCHEDULE_S_MAX)
        return wait_s < IDLE_S

    def _show_schedule(self, drill: Mapping[str, Any], spec: FailoverDrillSpec) -> None:
        if spec.schedule is None:
            self._metrics.forget_schedule(*_key(drill))
            return
        due, _ = find_due(drill, spec)
        status = drill.get("status") or {}
        # A round that was skipped because its cluster hibernated on purpose does not count.
        asleep = f"{CLUSTER_HIBERNATED}: "
        history: Sequence[Mapping[str, Any]] = [
            each
            for each in status.get("history") or ()
            if not str(each.get("message", "")).startswith(asleep)
        ] or [{}]
        is_begun = (status.get("phase") or "Pending") in steps.ACTIVE
        self._metrics.note_schedule(
            *_key(drill),
            verdict=str(history[0].get("verdict", "")),
            due=None if spec.suspend or is_begun else due,
        )

    async def _take(
        self,
        step: steps.Step,
        drill: dict[str, Any],
        spec: FailoverDrillSpec,
        status: DrillStatus,
        sight: Sight,
    ) -> None:
        """Take a step of a run; a lasting refusal ends the drill."""
        try:
            if await self._runs.take(step, drill, spec, status, sight):
                await self._write(drill, status)
        except ControllerRefusedError as error:
            await self._finish(drill, spec, status, sight, f"the fault was refused: {error}")
        except UnsafeError as error:
            await self._finish(drill, spec, status, sight, str(error))
        except TargetError as error:
            if sight.seen.agent is None or sight.seen.agent.since_ms < steps.SETTLE_MS_MAX:
                raise
            await self._finish(drill, spec, status, sight, str(error))

    async def _refuse(
        self,
        drill: dict[str, Any],
        status: DrillStatus,
        reason: str,
        message: str,
        spec: FailoverDrillSpec | None = None,
    ) -> None:
        status.refuse(reason, message, _now())
        if spec is not None and spec.schedule is not None:
            status.end_round("Skipped", f"{reason}: {message}", spec.history_limit, _now())
        await self._write(drill, status)
        self._metrics.deferred.labels(reason).inc()
        self._metrics.finished.labels("refused").inc()
        await self._events.emit(drill, "DrillRefused", message, "Warning", action="Drill")

    async def _ensure_secret(self, drill: dict[str, Any], secret: dict[str, Any]) -> None:
        """Bring the Secret of a drill's pod to its present content.

        NameTakenError if its name belongs to another owner. The Secret of the last round may have
        expired since, or trust an authority that no longer exists.
        """
        metadata = secret["metadata"]
        try:
            await self._client.create(SECRET, metadata["namespace"], secret)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            there = await self._client.get(SECRET, metadata["namespace"], metadata["name"])
            _require_own(SECRET, there, drill)
            version = {"resourceVersion": there["metadata"]["resourceVersion"]}
            await self._client.replace(
                SECRET,
                metadata["namespace"],
                metadata["name"],
                {**secret, "metadata": metadata | version},
            )

    async def _prepare(
        self, drill: dict[str, Any], spec: FailoverDrillSpec, status: DrillStatus, sight: Sight
    ) -> None:
        if sight.log_cluster is None:
            gone = f"LogCluster {spec.cluster_name} is gone"
            await self._finish(drill, spec, status, sight, gone)
            return
        # The status first: other drills of the cluster wait for a drill that has begun.
        if status.enter("Preparing", "the load is being prepared", _now()):
            await self._write(drill, status)
        try:
            await self._make_pod(drill, spec, status, sight.log_cluster)
        except NameTakenError as error:
            await self._finish(drill, spec, status, sight, str(error))

    async def _make_pod(
        self,
        drill: dict[str, Any],
        spec: FailoverDrillSpec,
        status: DrillStatus,
        cluster: Mapping[str, Any],
    ) -> None:
        """Create a drill's pod and its Secret; NameTakenError if a name is taken for good."""
        namespace = drill["metadata"]["namespace"]
        access = await find_access(self._client, namespace, cluster, DRILLS_USER)
        secret = build_agent_secret(drill, access)
        if secret is not None:
            operator = await find_access(self._client, namespace, cluster, OPERATOR_USER)
            await ensure_rights(operator, access.user)
            await self._ensure_secret(drill, secret)
        pod = build_agent_pod(drill, spec, cluster, default_image=self._image, access=access)
        try:
            await self._client.create(POD, namespace, pod)
        except ApiError as error:
            if is_refusal(error):
                problem = describe_refusal(POD.kind, pod["metadata"]["name"], error)
                await self._refuse(drill, status, "PodRefused", problem, spec)
                return
            if error.reason != "AlreadyExists":
                raise
            there = await self._client.find(POD, namespace, pod["metadata"]["name"])
            if there is not None:
                _require_own(POD, there, drill)

    async def _finish(
        self,
        drill: dict[str, Any],
        spec: FailoverDrillSpec,
        status: DrillStatus,
        sight: Sight,
        problem: str,
    ) -> None:
        verdict = None if sight.seen.agent is None else sight.seen.agent.verdict
        status.values |= summarize_runs(status.runs)
        if verdict is not None:
            status.values |= summarize_verdict(verdict)
        failures = judge(spec, status.values, verdict, problem)
        message = "; ".join(failures) or describe_success(status.values)
        if spec.schedule is not None:
            verdict_text = "Failed" if failures else "Passed"
            status.end_round(verdict_text, message, spec.history_limit, _now())
        status.finish(is_passed=not failures, problem=problem, message=message, now=_now())
        await self._write(drill, status)
        self._metrics.finished.labels("failed" if failures else "passed").inc()
        for run in status.runs:
            if "recoveryMaxMs" in run:
                histogram = self._metrics.recovery.labels(spec.fault.type, spec.target.type)
                histogram.observe(run["recoveryMaxMs"] / 1000)
        reason, kind = ("DrillFailed", "Warning") if failures else ("DrillPassed", "Normal")
        await self._events.emit(drill, reason, message, kind, action="Drill")  # type: ignore[arg-type]

    async def _write(self, drill: dict[str, Any], status: DrillStatus) -> None:
        metadata = drill["metadata"]
        patch = {
            "metadata": {"resourceVersion": metadata["resourceVersion"]},
            "status": status.as_patch(),
        }
        written = await self._client.patch(
            FAILOVER_DRILL, metadata["namespace"], metadata["name"], patch, subresource="status"
        )
        # The informer reports it later; until then the next step builds on this.
        metadata["resourceVersion"] = written["metadata"]["resourceVersion"]
        drill["status"] = written.get("status") or {}

    async def _delete_pod(self, drill: Mapping[str, Any]) -> None:
        """Delete the drill's pod once, and wait until it is gone: it has a minute to end."""
        namespace, name = _key(drill)[0], agent_pod_name(drill["metadata"]["name"])
        pod = await self._client.find(POD, namespace, name)
        self._retry_at[_key(drill)] = time.monotonic() + HOLD_S
        if pod is None:
            return
        ends_by = pod["metadata"].get("deletionTimestamp")
        if ends_by is None:
            try:
                await self._client.delete(POD, namespace, name, uid=pod["metadata"]["uid"])
            except ApiError as error:
                if not error.is_not_found:
                    raise
        elif read_time(ends_by) + OVERDUE < _now():
            message = (
                f"the pod {name} should have ended by {ends_by}, and a schedule waits for that: "
                "if its node is gone for good, remove it by "
                f"`kubectl delete pod {name} --grace-period=0 --force`"
            )
            await self._events.emit(drill, "PodNotEnding", message, "Warning", action="Drill")
            self._retry_at[_key(drill)] = time.monotonic() + IDLE_S


def describe_success(values: Mapping[str, Any]) -> str:
    """Return the result of a drill that has passed, as a message."""
    return (
        f"recovered within {values.get('recoveryMaxMs')} ms; {values['acknowledged']} records "
        f"acknowledged, {values['lost']} lost, {values['duplicates']} duplicated, "
        f"{values['reordered']} reordered, {values['clientErrors']} client errors"
    )


def _require_own(kind: ResourceKind, there: Mapping[str, Any], drill: Mapping[str, Any]) -> None:
    """Raise NameTakenError if an object is not the drill's; TargetError if it will be deleted.

    Objects of an earlier drill of the same name will be deleted: Kubernetes does so after their
    owner.
    """
    metadata, own = there["metadata"], drill["metadata"]
    owners = metadata.get("ownerReferences") or ()
    if own["uid"] in {owner["uid"] for owner in owners}:
        return
    problem = f"the {kind.kind} {metadata['name']} is not this drill's"
    earlier = (FAILOVER_DRILL.kind, own["name"])
    is_left = any((owner.get("kind"), owner.get("name")) == earlier for owner in owners)
    if is_left or "deletionTimestamp" in metadata:
        raise TargetError(f"{problem}, and Kubernetes deletes it soon")
    raise NameTakenError(f"{problem}: delete it")


def _key(drill: Mapping[str, Any]) -> ObjectKey:
    metadata = drill["metadata"]
    return metadata["namespace"], metadata["name"]


def _now() -> datetime:
    return datetime.now(UTC)
