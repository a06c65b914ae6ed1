"""Carries out rolling restarts: asks brokers, drains them, deletes their pods one by one.

Its memory is lost with the process, without harm: it drains brokers again, and first releases
brokers that an earlier process has drained.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

from fairlead_kube.errors import ApiError
from fairlead_kube.kinds import POD, STATEFUL_SET
from fairlead_operator.clusters.api_writer import ApiWriter
from fairlead_operator.clusters.broker_probe import probe_recovery
from fairlead_operator.clusters.broker_states import (
    build_broker_states,
    is_container_running,
    is_pod_ready,
    is_settled,
)
from fairlead_operator.clusters.rolling import (
    BrokerState,
    DeletePod,
    Drain,
    RollAction,
    RollObserved,
    Undrain,
    decide_roll_action,
)
from fairlead_operator.controller_client import (
    DELETE_POD,
    ControllerClient,
    ControllerRefusedError,
)
from fairlead_operator.live_objects import ClusterKey, LiveObjects, Manifest
from fairlead_operator.specs.stateful_set import count_replicas
from fairlead_operator.specs.views import PoolView


class BrokerRoller:
    """The rolling restarts of all clusters."""

    def __init__(
        self,
        live: LiveObjects,
        writer: ApiWriter,
        controller: ControllerClient,
    ) -> None:
        self._live = live
        self._writer = writer
        self._controller = controller
        self._draining: dict[ClusterKey, dict[int, float]] = {}
        self._released: set[ClusterKey] = set()
        self._without_intents: set[ClusterKey] = set()
        """Clusters that cannot have an intent to delete a pod from an earlier process."""
        self._deleted: set[str] = set()
        """Uids of pods that this process has deleted; the informer may still show them as
        before."""

    async def observe(
        self, key: ClusterKey, pools: Sequence[PoolView], controller: Mapping[str, Any] | None
    ) -> dict[str, list[BrokerState]]:
        """Return the brokers of each pool."""
        pods = {pod["metadata"]["name"]: pod for pod in self._live.of_cluster(POD, key)}
        self._deleted &= {
            pod["metadata"]["uid"] for pod in self._live.informers[POD].objects.values()
        }
        known = None if controller is None else {int(b["id"]): b for b in controller["brokers"]}
        told = {} if controller is None else controller.get("refusedBrokers") or {}
        refused = {int(broker): str(why) for broker, why in told.items()}
        now = time.monotonic()
        draining = {broker: now - since for broker, since in self._draining.get(key, {}).items()}
        states = {}
        for pool in pools:
            stateful_set = self._live.get(STATEFUL_SET, key[0], pool.stateful_set)
            states[pool.name] = build_broker_states(
                pool,
                stateful_set,
                {name: self._shown(pod) for name, pod in pods.items()},
                known,
                draining_s=draining,
                recovering=await self._probe(pool, stateful_set, pods),
                refused=refused,
            )
        return states

    async def roll(
        self,
        key: ClusterKey,
        pools: Sequence[PoolView],
        states: Mapping[str, Sequence[BrokerState]],
        controller: Mapping[str, Any] | None,
        *,
        hold: str = "",
    ) -> RollAction:
        """Take the next step, if there is one, and return it.

        `hold` says why no broker in service may restart now; empty if one may.
        """
        counts = None if controller is None else controller["partitions"]
        action = decide_roll_action(
            RollObserved(
                brokers=[broker for brokers in states.values() for broker in brokers],
                under_replicated=None if counts is None else counts["underReplicated"],
                offline=None if counts is None else counts["offline"],
                hold=hold,
                is_settled=all(
                    is_settled(self._live.get(STATEFUL_SET, key[0], pool.stateful_set))
                    for pool in pools
                ),
                others_away=self._find_others_away(key, states),
            )
        )
        if controller is not None:
            await self._carry_out(key, action)
        return action

    def _find_others_away(
        self, key: ClusterKey, states: Mapping[str, Sequence[BrokerState]]
    ) -> list[str]:
        """Return the pods that are not in `states`, and are not ready or are terminating."""
        known = {broker.pod for brokers in states.values() for broker in brokers}
        pods = {pod["metadata"]["name"]: pod for pod in self._live.of_cluster(POD, key)}
        return sorted(
            name
            for name, pod in pods.items()
            if name not in known and not is_pod_ready(self._shown(pod))
        )

    async def release(self, key: ClusterKey, controller: Mapping[str, Any]) -> None:
        """Stop draining brokers that an earlier process drained, and drop its intents."""
        if key not in self._without_intents:
            await self._drop_intents(key)
        if key in self._released:
            return
        for broker in controller["brokers"]:
            await self._drain(key, int(broker["id"]), on=False)
        self._released.add(key)

    def forget(self, key: ClusterKey) -> None:
        """Drop what is remembered of a deleted cluster."""
        self._draining.pop(key, None)
        self._released.discard(key)
        self._without_intents.discard(key)

    async def _drop_intents(self, key: ClusterKey) -> None:
        """Drop intents to delete pods: each was carried out, or will be decided again.

        A drill that is about to delete a pod may lose its intent, too, and goes on without it.
        """
        for intent in await self._controller.intents(*key):
            if intent["action"] == DELETE_POD:
                await self._controller.clear_intent(*key, str(intent["id"]))
        self._without_intents.add(key)

    async def _carry_out(self, key: ClusterKey, action: RollAction) -> None:
        draining = self._draining.setdefault(key, {})
        match action:
            case Drain():
                await self._drain(key, action.broker_id, on=True)
                draining[action.broker_id] = time.monotonic()
            case Undrain():
                await self._drain(key, action.broker_id, on=False)
                draining.pop(action.broker_id, None)
            case DeletePod():
                await self._delete(key, action)

    async def _drain(self, key: ClusterKey, broker_id: int, *, on: bool) -> None:
        try:
            await self._controller.drain(*key, broker_id, on=on)
        except ControllerRefusedError as error:
            # A broker that the controller does not know leads no partition.
            if not error.is_unknown:
                raise

    async def _delete(self, key: ClusterKey, action: DeletePod) -> None:
        """Delete a pod, after making that intent durable for the next controller."""
        pod = self._live.get(POD, key[0], action.pod)
        if pod is None or pod["metadata"]["uid"] != action.pod_uid:
            return
        self._without_intents.discard(key)
        intent = await self._controller.record_intent(*key, DELETE_POD, action.pod)
        try:
            await self._writer.delete(POD, pod)
        except ApiError:
            # The API server refused, so nothing was done. Each retry would make another intent.
            await self._controller.clear_intent(*key, intent)
            self._without_intents.add(key)
            raise
        self._deleted.add(action.pod_uid)
        await self._controller.clear_intent(*key, intent)
        self._without_intents.add(key)

    def _shown(self, pod: Manifest) -> Manifest:
        if pod["metadata"]["uid"] not in self._deleted:
            return pod
        return {**pod, "metadata": {**pod["metadata"], "deletionTimestamp": "asked for"}}

    async def _probe(
        self, pool: PoolView, stateful_set: Manifest | None, pods: Mapping[str, Manifest]
    ) -> dict[int, bool | None]:
        """Ask the brokers that run but are not ready."""
        recovering: dict[int, bool | None] = {}
        asked: dict[int, str] = {}
        replicas = 0 if stateful_set is None else count_replicas(stateful_set)
        for ordinal in range(replicas):
            pod = pods.get(pool.pod_name(ordinal))
            if pod is None or is_pod_ready(pod):
                continue
            address = (pod.get("status") or {}).get("podIP", "")
            broker_id = pool.spec.id_base + ordinal
            if not is_container_running(pod):
                recovering[broker_id] = False
            elif address:
                asked[broker_id] = address
        # Concurrently: each may take a second, and a pass has little more than a second for all.
        answers = await asyncio.gather(*map(probe_recovery, asked.values()))
        return recovering | dict(zip(asked, answers, strict=True))
