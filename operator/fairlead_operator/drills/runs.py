"""The single faults of a drill: how they begin, and are confirmed, forgotten and collected."""

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from fairlead_controller.kubernetes.settings import lease_name
from fairlead_kube.client import KubeClient
from fairlead_kube.errors import ApiError
from fairlead_kube.kinds import LEASE, LOG_CLUSTER
from fairlead_model.resources.failover_drill import FailoverDrillSpec
from fairlead_operator.controller_client import DELETE_POD, ControllerClient
from fairlead_operator.drills import steps
from fairlead_operator.drills.agent_client import AgentClient
from fairlead_operator.drills.cuts import NetworkCuts
from fairlead_operator.drills.faults import (
    ChosenTarget,
    FaultInjector,
    TargetError,
    choose_targets,
    describe_targets,
)
from fairlead_operator.drills.health import find_danger
from fairlead_operator.drills.measurement import (
    ControllerTimes,
    build_run,
    build_timeline,
    read_controller_times,
)
from fairlead_operator.drills.observations import AgentState, Loss, read_loss
from fairlead_operator.drills.observer import Sight
from fairlead_operator.drills.status import DrillStatus
from fairlead_operator.specs.names import RESTART_ANNOTATION

_log = logging.getLogger(__name__)


class UnsafeError(Exception):
    """Several brokers may not be broken at once now; the text says why."""


class DrillRuns:
    """Carries out the steps of a run; the drill's pod remembers the run."""

    def __init__(
        self,
        client: KubeClient,
        controller: ControllerClient,
        agents: AgentClient,
        cuts: NetworkCuts,
    ) -> None:
        self._client = client
        self._controller = controller
        self._agents = agents
        self._injector = FaultInjector(client, controller)
        self._cuts = cuts

    async def take(
        self,
        step: steps.Step,
        drill: dict[str, Any],
        spec: FailoverDrillSpec,
        status: DrillStatus,
        sight: Sight,
    ) -> bool:
        """Take a step; tell whether the status has changed."""
        if isinstance(step, steps.HealCut):
            # Without a request to the drill's pod: it may be deleted, or never answer again.
            await self._cuts.heal(drill, status)
            return True
        address, agent = sight.agent_address, sight.seen.agent
        if address is None or agent is None:
            return False
        namespace = drill["metadata"]["namespace"]
        now = datetime.now(UTC)
        match step:
            case steps.BeginRun(number):
                message = f"run {number} of {spec.runs}"
                if status.enter("Running", message, now):
                    # This is written before anything is broken; the fault itself is the next step.
                    return True
                return await self._begin(number, drill, spec, status, sight)
            case steps.ConfirmRun(number):
                if spec.fault.type == "RollingRestart":
                    await self._restart_all(drill, spec, number)
                await self._agents.tell(address, number, "injected")
            case steps.ForgetRun(number):
                _log.warning("run %d: it is not known whether the fault was injected", number)
                await self._clear_intent(namespace, spec, agent)
                await self._agents.tell(address, number, "forget")
            case steps.CollectRun(number, problem):
                ended = await self._agents.tell(address, number, "end")
                await self._collect(ended, namespace, spec, status, problem)
                return True
            case steps.Verify():
                await self._agents.verify(address)
                return status.enter("Verifying", "everything is being read back", now)
            case _:
                return False
        return False

    async def _begin(
        self,
        number: int,
        drill: dict[str, Any],
        spec: FailoverDrillSpec,
        status: DrillStatus,
        sight: Sight,
    ) -> bool:
        """Break the target; tell whether a status has to be written first instead."""
        cluster, address = sight.seen.cluster, sight.agent_address
        if address is None or cluster is None or sight.log_cluster is None:
            raise TargetError("the cluster cannot be seen now")
        namespace = drill["metadata"]["namespace"]
        targets = await choose_targets(spec, namespace, sight, self._controller)
        broker_ids = [it.broker_id for it in targets if it.broker_id is not None]
        loss = await self._foretell(namespace, spec, broker_ids)
        danger = find_danger(spec, loss) if spec.target.is_of_several else None
        if danger is not None:
            raise UnsafeError(danger.message)
        if spec.fault.type == "Isolate":
            if await self._cuts.ensure_planned(drill, spec, status, number, targets):
                return True
            await self._cuts.prepare(drill, spec, sight.log_cluster)
            break_it: Callable[[], Awaitable[None]] = partial(
                self._cuts.cut, drill, status.values["cut"]
            )
        elif spec.fault.type == "RollingRestart":
            break_it = partial(self._restart_all, drill, spec, number)
        else:
            break_it = await self._prepare_all(spec, namespace, targets)
        memo: dict[str, Any] = {
            "target": describe_targets(spec, targets),
            "brokerId": broker_ids[0] if broker_ids else None,
            "brokerIds": broker_ids,
            "controllerEpoch": cluster.controller_epoch,
            "holdMs": spec.fault.hold_ms,
        }
        if loss is not None:
            memo["loss"] = {"leadersMove": loss.leaders_move}
        if spec.fault.type == "RollingRestart":
            memo["brokerEpochs"] = {str(it): cluster.epochs.get(it, 0) for it in broker_ids}
        if spec.fault.type == "Delete":
            pods = ",".join(target.pod_name for target in targets)
            memo["intent"] = await self._controller.record_intent(
                namespace, spec.cluster_name, DELETE_POD, pods
            )
        # Measured from before the order to the pod, so that no figure is too low.
        memo["faultAtMs"] = time.time_ns() // 1_000_000
        memo["faultAt"] = _iso(memo["faultAtMs"])
        await self._agents.begin(address, number, broker_ids, memo)
        await break_it()
        _log.info("run %d: %s of %s", number, spec.fault.type, memo["target"])
        if broker_ids:
            # A fault of the controller is proved by its successor's epoch.
            await self._agents.tell(address, number, "injected")
            if "intent" in memo:
                # Not only at the run's end: the pod that remembers the intent may be gone by then.
                await self._controller.clear_intent(namespace, spec.cluster_name, memo["intent"])
        return False

    async def _foretell(
        self, namespace: str, spec: FailoverDrillSpec, broker_ids: Sequence[int]
    ) -> Loss | None:
        """Return what the loss of these brokers would do; None if none would be lost."""
        if not broker_ids or spec.fault.type in {"Slow", "RollingRestart"}:
            return None
        return read_loss(await self._controller.loss(namespace, spec.cluster_name, broker_ids))

    async def _prepare_all(
        self, spec: FailoverDrillSpec, namespace: str, targets: Sequence[ChosenTarget]
    ) -> Callable[[], Awaitable[None]]:
        """Read what has to be known of each target, so that all are broken at once."""
        breaks = [await self._injector.prepare(spec, namespace, target) for target in targets]

        async def break_all() -> None:
            outcomes = await asyncio.gather(*(it() for it in breaks), return_exceptions=True)
            errors = [it for it in outcomes if isinstance(it, BaseException)]
            if errors:
                raise errors[0]

        return break_all

    async def _restart_all(
        self, drill: Mapping[str, Any], spec: FailoverDrillSpec, number: int
    ) -> None:
        """Request a rolling restart as people do; a repeated request is the same restart."""
        value = f"drill {drill['metadata']['uid']} run {number}"
        patch = {"metadata": {"annotations": {RESTART_ANNOTATION: value}}}
        namespace = drill["metadata"]["namespace"]
        await self._client.patch(LOG_CLUSTER, namespace, spec.cluster_name, patch)

    async def _collect(
        self,
        ended: AgentState,
        namespace: str,
        spec: FailoverDrillSpec,
        status: DrillStatus,
        problem: str,
    ) -> None:
        if ended.run is None:
            raise TargetError("the drill's pod has forgotten the run")
        await self._clear_intent(namespace, spec, ended)
        memo = ended.run.memo
        if spec.fault.type == "RollingRestart":
            times = ControllerTimes()
        elif memo.get("brokerId") is None:
            times = ControllerTimes(election_ms=await self._takeover_ms(memo))
        else:
            since_ms = int(memo["faultAtMs"])
            journal = await self._controller.moves(
                namespace, spec.cluster_name, since_ms=since_ms - 1
            )
            lost = memo.get("brokerIds") or [memo["brokerId"]]
            times = read_controller_times(journal, lost, since_ms)
        run = build_run(spec, ended.run.figures, times, problem or ended.problem)
        status.add_run(run, build_timeline(spec, ended.run.figures, run))

    async def _takeover_ms(self, memo: Mapping[str, Any]) -> int | None:
        """Return the time from the fault until another process held the Lease."""
        namespace = os.environ.get("POD_NAMESPACE", "")
        try:
            lease = await self._client.get(LEASE, namespace, lease_name())
        except ApiError:
            return None
        acquired = (lease.get("spec") or {}).get("acquireTime")
        if not acquired:
            return None
        moment = datetime.fromisoformat(str(acquired).replace("Z", "+00:00"))
        took_ms = round(moment.timestamp() * 1000) - int(memo["faultAtMs"])
        return took_ms if took_ms >= 0 else None

    async def _clear_intent(
        self, namespace: str, spec: FailoverDrillSpec, agent: AgentState
    ) -> None:
        intent = "" if agent.run is None else str(agent.run.memo.get("intent") or "")
        if intent:
            await self._controller.clear_intent(namespace, spec.cluster_name, intent)


def _iso(at_ms: int) -> str:
    moment = datetime.fromtimestamp(at_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
