"""Asks the brokers that have several volumes which of these have failed, and which are drained.

A broker runs as long as one of its log directories works, so its pod stays Ready, and nothing in
Kubernetes shows that a volume has failed, or that a volume holds no replica.
"""

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from fairlead_kube.kinds import POD
from fairlead_operator.clusters.broker_states import is_pod_ready
from fairlead_operator.clusters.volume_use import PodVolumes, read_claims, read_volumes
from fairlead_operator.live_objects import ClusterKey, LiveObjects
from fairlead_operator.pod_http import PodAnswerError, ask_pod
from fairlead_operator.specs.names import HTTP_PORT
from fairlead_operator.specs.views import PoolView

LOOK_S: Final = 10.0
"""How long an answer is used, unless a volume is to be removed."""
TIMEOUT_S: Final = 1.0


class VolumeWatch:
    """`_known` has, by the uid of a pod, when its broker was asked and what it answered last."""

    def __init__(self, live: LiveObjects, *, port: int = HTTP_PORT) -> None:
        self._live = live
        self._port = port
        self._known: dict[str, tuple[float, PodVolumes]] = {}

    async def look(self, key: ClusterKey, pools: Sequence[PoolView]) -> dict[str, PodVolumes]:
        """Return the state of the volumes, by pod.

        A broker that does not answer keeps its failed volumes, and has no drained volume. A broker
        with a volume that its pool no longer names is asked every time.
        """
        named = {
            pool.stateful_set: [each.id for each in pool.spec.storage.each_volume] for pool in pools
        }
        there = {each["metadata"]["uid"] for each in self._live.informers[POD].objects.values()}
        self._known = {uid: said for uid, said in self._known.items() if uid in there}
        pods = {pod["metadata"]["name"]: pod for pod in self._live.of_cluster(POD, key)}
        claims = {name: read_claims(pod) for name, pod in pods.items()}
        asked = [name for name in pods if len(claims[name]) > 1 and is_pod_ready(pods[name])]
        answers = await asyncio.gather(
            *(
                self._ask(pods[name], claims[name], holds_s=_holds_s(name, claims[name], named))
                for name in asked
            )
        )
        silent = {name: PodVolumes(claims=claims[name]) for name in pods}
        return silent | dict(zip(asked, answers, strict=True))

    async def _ask(
        self, pod: Mapping[str, Any], claims: Mapping[int, str], *, holds_s: float
    ) -> PodVolumes:
        uid, address = pod["metadata"]["uid"], (pod.get("status") or {}).get("podIP")
        asked_at, known = self._known.get(uid, (-LOOK_S, PodVolumes(claims=claims)))
        now = time.monotonic()
        if not address or now - asked_at < holds_s:
            return known
        try:
            answer = await ask_pod(address, self._port, "/healthz", timeout_s=TIMEOUT_S)
            known = read_volumes(claims, answer.json())
        except PodAnswerError:  # its pod's probes report that
            known = replace(known, drained=None)
        self._known[uid] = (now, known)
        return known


def _holds_s(pod: str, claims: Collection[int], named: Mapping[str, Collection[int]]) -> float:
    stays = named.get(pod.rpartition("-")[0], claims)
    return LOOK_S if set(claims) <= set(stays) else 0.0
