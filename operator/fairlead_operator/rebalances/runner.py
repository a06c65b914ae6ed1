"""Carries out Rebalances: observes, lets `decide_rebalance_step` decide, acts, and looks again.

The Rebalances of a namespace are handled one after another, so that two Rebalances of a cluster
never begin together. A status is written only with the version that was read, so that an operator
that has been replaced cannot undo its successor's writes.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from prometheus_client import CollectorRegistry

from fairlead_controller.decisions.state import ControllerState
from fairlead_kube.client import KubeClient
from fairlead_kube.errors import ApiError, ApiUnavailableError
from fairlead_kube.informer import Informer
from fairlead_kube.kinds import REBALANCE
from fairlead_kube.object_changes import ObjectChange, ObjectKey
from fairlead_model.resources.topic_manifest import ManifestError
from fairlead_model.session.refusals import RefusalCode
from fairlead_operator.controller_client import (
    ControllerError,
    ControllerStandbyError,
    JsonObject,
)
from fairlead_operator.cut_fields import CutFields
from fairlead_operator.events import EventType, EventWriter
from fairlead_operator.rebalances import steps
from fairlead_operator.rebalances.automatic import Begin, decide_round, read_memory
from fairlead_operator.rebalances.load_meter import LoadMeter, PodLoadMeter
from fairlead_operator.rebalances.measured_load import MeasuredLoad
from fairlead_operator.rebalances.metrics import RebalanceMetrics
from fairlead_operator.rebalances.observer import Observer, RebalanceController
from fairlead_operator.rebalances.plan_status import Move, make_plan
from fairlead_operator.rebalances.status import RebalanceStatusDraft, describe_plan
from fairlead_operator.resources.rebalance import RebalanceSpec
from fairlead_operator.topics.topic_resource import FINALIZER, differs_for_us

_log = logging.getLogger(__name__)
WATCH_S: Final = 15.0
"""Time between two reads of the brokers, without partitions, in the mode Auto."""
LOOK_S: Final = 5.0
"""Time between two checks of moves or waits; each asks the API server and the controller."""
ERROR_DELAY_S: Final = 1.0
UNEXPECTED_DELAY_S: Final = 30.0
PARTITIONS_A_REQUEST: Final = 1_000
NOT_MOVING: Final = RefusalCode.NO_REASSIGNMENT_IN_PROGRESS.name
_RETRIED: Final = (ApiError, ApiUnavailableError, ControllerError)

Manifest = dict[str, Any]


class RebalanceRunner:
    """Carries out Rebalances; made in a running loop, `run` until cancelled."""

    def __init__(
        self,
        client: KubeClient,
        controller: RebalanceController,
        events: EventWriter,
        *,
        namespaces: Collection[str] = (),
        look_s: float = LOOK_S,
        watch_s: float = WATCH_S,
        metrics: RebalanceMetrics | None = None,
        loads: LoadMeter | None = None,
    ) -> None:
        self._client = client
        self._controller = controller
        self._events = events
        self._look_s = look_s
        self._watch_s = watch_s
        self._metrics = metrics or RebalanceMetrics(CollectorRegistry())
        self._whole_looks: dict[ObjectKey, tuple[float, frozenset[int]]] = {}
        """When the mode Auto reads all partitions again, and the brokers at the last read."""
        self._loads: LoadMeter = loads or PodLoadMeter(client)
        self._observer = Observer(client, controller)
        self._cut = CutFields()
        self._changed = asyncio.Event()
        self._rebalances = Informer(
            client, REBALANCE, namespaces=namespaces, on_change=self._on_change
        )
        self._due: dict[ObjectKey, float] = {}
        """When to check again; a Rebalance that is not here waits for a change."""

    async def run(self) -> None:
        """Carry out all Rebalances; a ControllerStandbyError ends it."""
        following = asyncio.create_task(self._rebalances.run())
        passes: dict[str, asyncio.Task[None]] = {}
        try:
            await self._rebalances.synced()
            while True:
                self._changed.clear()
                for namespace in {key[0] for key in self._due_now()} - passes.keys():
                    passes[namespace] = asyncio.create_task(self._pass(namespace))
                await self._wait(passes)
                for namespace in [name for name, task in passes.items() if task.done()]:
                    passes.pop(namespace).result()
                self._metrics.show(self._rebalances.objects.values())
        finally:
            for task in (following, *passes.values()):
                task.cancel()
            await asyncio.gather(following, *passes.values(), return_exceptions=True)

    def _on_change(self, change: ObjectChange) -> None:
        if change.new is None:
            self._due.pop(change.key, None)
            self._whole_looks.pop(change.key, None)
            self._cut.forget(change.key)
            return
        if change.old is None or differs_for_us(change.old, change.new):
            self._due[change.key] = 0.0
            self._changed.set()

    def _due_now(self) -> list[ObjectKey]:
        now = time.monotonic()
        return [key for key, due in self._due.items() if due <= now]

    async def _wait(self, passes: Mapping[str, asyncio.Task[None]]) -> None:
        """Wait for a change, for the end of a pass, or until a Rebalance is due."""
        changed = asyncio.create_task(self._changed.wait())
        due = [at for (namespace, _), at in self._due.items() if namespace not in passes]
        seconds = max(0.0, min(due) - time.monotonic()) if due else None
        try:
            await asyncio.wait(
                {changed, *passes.values()}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            changed.cancel()

    async def _pass(self, namespace: str) -> None:
        """Take the next step of each due Rebalance of a namespace."""
        for key in self._due_now():
            rebalance = self._rebalances.objects.get(key)
            if key[0] == namespace and rebalance is not None:
                await self._attend(key, rebalance)

    async def _attend(self, key: ObjectKey, rebalance: Manifest) -> None:
        self._due.pop(key, None)
        try:
            delay_s = await self._step(rebalance)
        except ControllerStandbyError:
            raise
        except _RETRIED as error:
            if not (isinstance(error, ApiError) and error.is_conflict):
                _log.warning("rebalance %s/%s: trying again: %s", *key, error)
            delay_s = ERROR_DELAY_S
        except Exception:
            # Whatever the error is, it concerns only this Rebalance: the others go on.
            _log.exception("rebalance %s/%s: trying again after an unexpected error", *key)
            delay_s = UNEXPECTED_DELAY_S
        if delay_s is not None and key in self._rebalances.objects:
            # If a change came meanwhile, it has set an earlier time.
            self._due.setdefault(key, time.monotonic() + delay_s)

    async def _step(self, rebalance: Manifest) -> float | None:
        """Take the next step; return when to check again, None if only after a change."""
        draft, metadata = RebalanceStatusDraft(rebalance), rebalance["metadata"]
        status = rebalance.get("status") or {}
        try:
            spec = RebalanceSpec.from_manifest(rebalance)
        except ManifestError as error:
            if status.get("phase") not in steps.FINAL:
                message = "; ".join(error.problems)
                draft.end("Failed", "InvalidSpec", message, _now())
                await self._write(rebalance, draft, "Failed", message, "Warning")
            if FINALIZER in (metadata.get("finalizers") or ()):
                await self._set_finalizer(rebalance, is_wanted=False)
            return None
        it = steps.RebalanceView(
            spec=spec,
            status=status,
            is_deleting="deletionTimestamp" in metadata,
            has_finalizer=FINALIZER in (metadata.get("finalizers") or ()),
            known_brokers=self._known_brokers(_place(rebalance)),
        )
        sight = steps.ClusterSight()
        if it.needs_sight:
            sight = await self._observer.look(rebalance, it)
        if sight.is_whole and it.is_watching:
            self._note_whole_look(_place(rebalance), it, sight)
        step = steps.decide_rebalance_step(it, sight)
        match step:
            case steps.Idle():
                return None
            case steps.LookLater():
                return self._watch_s
            case steps.Tell():
                return await self._tell(step, rebalance, it, draft)
            case steps.MakePlan() if it.is_automatic:
                return await self._decide_round(rebalance, draft, it, sight)
            case steps.MakePlan():
                await self._make_plan(rebalance, draft, sight)
            case _:
                return await self._change(step, rebalance, it, draft)
        return 0.0

    async def _tell(
        self,
        step: steps.Tell,
        rebalance: Manifest,
        it: steps.RebalanceView,
        draft: RebalanceStatusDraft,
    ) -> float | None:
        """Report why nothing else is done."""
        if it.is_watching:
            draft.watch(step.reason, step.message, None, _now())
        draft.tell(
            step.reason,
            step.message,
            _now(),
            progress=step.progress,
            is_disturbed=step.is_disturbed,
        )
        await self._write(rebalance, draft)
        if it.is_watching:
            return self._watch_s
        return self._look_s if it.needs_sight else None

    async def _change(
        self,
        step: steps.Step,
        rebalance: Manifest,
        it: steps.RebalanceView,
        draft: RebalanceStatusDraft,
    ) -> float | None:
        """Take a step that changes only the resource, or one that the controller carries out."""
        match step:
            case steps.Replan(message):
                draft.replan(message, _now())
                await self._write(rebalance, draft, steps.STALE, message, "Warning")
            case steps.AddFinalizer():
                await self._set_finalizer(rebalance, is_wanted=True)
            case steps.DropFinalizer():
                await self._set_finalizer(rebalance, is_wanted=False)
                return 0.0 if it.is_watching and not it.is_deleting else None
            case steps.Enter(phase, message):
                draft.enter(phase, message, _now())
                await self._write(rebalance, draft, phase, message)
            case _:
                return await self._move(step, rebalance, it, draft)
        return 0.0

    async def _move(
        self,
        step: steps.Step,
        rebalance: Manifest,
        it: steps.RebalanceView,
        draft: RebalanceStatusDraft,
    ) -> float | None:
        """Take a step that the controller carries out."""
        place = rebalance["metadata"]["namespace"], it.spec.cluster_name
        match step:
            case steps.HandOver(moves):
                wanted = [_named(move) | {"replicas": list(move["after"])} for move in moves]
                draft.hand_over(
                    await _in_parts(self._controller.alter_reassignments, place, wanted)
                )
                await self._write(rebalance, draft)
            case steps.CallBack(moves):
                wanted = [_named(move) | {"replicas": None} for move in moves]
                refused = await _in_parts(self._controller.alter_reassignments, place, wanted)
                refused = [each for each in refused if each["reason"] != NOT_MOVING]
                draft.note_refusals(refused)
                await self._write(rebalance, draft)
                # A move that cannot be cancelled now can be later, or completes.
                return self._look_s if refused else 0.0
            case steps.End(phase, reason, message, progress, elections):
                named = [_named(move) for move in elections]
                await _in_parts(self._controller.elect_preferred, place, named)
                draft.end(phase, reason, message, _now(), progress=progress)
                kind: EventType = "Warning" if phase == "Failed" else "Normal"
                await self._write(rebalance, draft, phase, message, kind)
            case steps.EndRound(outcome, message, progress, elections):
                named = [_named(move) for move in elections]
                await _in_parts(self._controller.elect_preferred, place, named)
                draft.end_round(outcome, message, progress, it.spec.limits, _now())
                kind = "Warning" if outcome == "Failed" else "Normal"
                await self._write(rebalance, draft, f"Round{outcome}", message, kind)
                self._metrics.round_ended(outcome, it.plan)
        return 0.0

    def _known_brokers(self, key: ObjectKey) -> frozenset[int] | None:
        due, brokers = self._whole_looks.get(key, (0.0, None))
        return brokers if time.monotonic() < due else None

    def _note_whole_look(
        self, key: ObjectKey, it: steps.RebalanceView, sight: steps.ClusterSight
    ) -> None:
        if sight.state is not None:
            due = time.monotonic() + it.spec.limits.look_seconds
            self._whole_looks[key] = (due, frozenset(sight.state.image.brokers))

    async def _measure(self, rebalance: Manifest, state: ControllerState) -> MeasuredLoad:
        cluster = rebalance["spec"]["clusterName"]
        load = await self._loads.measure(rebalance["metadata"]["namespace"], cluster, state)
        self._metrics.measured(load)
        return load

    async def _decide_round(
        self,
        rebalance: Manifest,
        draft: RebalanceStatusDraft,
        it: steps.RebalanceView,
        sight: steps.ClusterSight,
    ) -> float:
        """Begin a round of the mode Auto, or report why not."""
        if sight.state is None:
            return self._watch_s
        load, now = await self._measure(rebalance, sight.state), _now()
        memory = read_memory(it.status)
        outcome = await asyncio.to_thread(
            decide_round, sight.state, load, it.spec.limits, memory, now
        )
        if isinstance(outcome, Begin):
            draft.begin_round(outcome.plan, outcome.why, now)
            message = f"{outcome.why}; plan {outcome.plan['id']}: {describe_plan(outcome.plan)}"
            await self._write(rebalance, draft, "RoundBegins", message)
            return 0.0
        draft.watch(outcome.reason, outcome.message, outcome.is_even, now)
        await self._write(rebalance, draft)
        key = _place(rebalance)
        # The Rebalance may have been deleted meanwhile.
        if outcome.until is not None and key in self._whole_looks:
            due, brokers = self._whole_looks[key]
            until = time.monotonic() + max(0.0, (outcome.until - now).total_seconds())
            self._whole_looks[key] = (min(due, until), brokers)
        return self._watch_s

    async def _make_plan(
        self, rebalance: Manifest, draft: RebalanceStatusDraft, sight: steps.ClusterSight
    ) -> None:
        if sight.state is None:
            return
        load = await self._measure(rebalance, sight.state)
        # This takes seconds in a large cluster.
        plan = await asyncio.to_thread(make_plan, sight.state, load, _now())
        if not plan["moves"]:
            message = "nothing to move: the brokers are as even as they can be made"
            draft.end("Complete", "NothingToMove", message, _now())
            await self._write(rebalance, draft, "Complete", message)
            return
        draft.propose(plan, _now())
        message = f"plan {plan['id']}: {describe_plan(plan)}"
        await self._write(rebalance, draft, "ProposalReady", message)

    async def _write(
        self,
        rebalance: Manifest,
        draft: RebalanceStatusDraft,
        reason: str = "",
        message: str = "",
        kind: EventType = "Normal",
    ) -> None:
        """Write a status that has changed; with a reason, also report it by an Event."""
        patch, place, uid = draft.as_patch(), _place(rebalance), rebalance["metadata"]["uid"]
        known = rebalance.get("status") or {}
        fields = self._cut.without_cut(place, uid, draft.whole(patch), known)
        if fields:
            changed = {name: patch[name] for name in fields}
            body = {"metadata": _version(rebalance), "status": changed}
            written = await self._client.patch(REBALANCE, *place, body, subresource="status")
            _take(rebalance, written)
            if place in self._rebalances.objects:
                self._cut.note(place, uid, fields, written.get("status") or {})
        if reason:
            await self._events.emit(rebalance, reason, message, kind, action="Rebalance")

    async def _set_finalizer(self, rebalance: Manifest, *, is_wanted: bool) -> None:
        present = rebalance["metadata"].get("finalizers") or ()
        others = [each for each in present if each != FINALIZER]
        finalizers = [*others, FINALIZER] if is_wanted else others or None
        body = {"metadata": _version(rebalance) | {"finalizers": finalizers}}
        written = await self._client.patch(REBALANCE, *_place(rebalance), body)
        _take(rebalance, written)


def _place(rebalance: Manifest) -> tuple[str, str]:
    return rebalance["metadata"]["namespace"], rebalance["metadata"]["name"]


def _version(rebalance: Manifest) -> Manifest:
    """Return the precondition that a patch applies only to the version that was read."""
    return {"resourceVersion": rebalance["metadata"]["resourceVersion"]}


def _take(rebalance: Manifest, written: Manifest) -> None:
    """Continue with what was written; the informer reports it later."""
    rebalance["metadata"] = written["metadata"]
    rebalance["status"] = written.get("status") or {}


def _named(move: Move) -> JsonObject:
    return {"topic": move["topic"], "partition": move["partition"]}


async def _in_parts(
    call: Callable[[str, str, Sequence[JsonObject]], Awaitable[list[JsonObject]]],
    place: tuple[str, str],
    partitions: Sequence[JsonObject],
) -> list[JsonObject]:
    """Send some partitions at a time; return the refusals of all requests."""
    refused: list[JsonObject] = []
    for begin in range(0, len(partitions), PARTITIONS_A_REQUEST):
        refused += await call(*place, partitions[begin : begin + PARTITIONS_A_REQUEST])
    return refused


def _now() -> datetime:
    return datetime.now(UTC)
