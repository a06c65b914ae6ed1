"""Asks the brokers that have several volumes which of these have failed them.

A broker goes on as long as one of its log directories works, so its pod stays Ready, and nothing in
Kubernetes shows that one is lost.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from fairlead_kube.kinds import POD
from fairlead_operator.clusters.rolling import BrokerState
from fairlead_operator.live_objects import ClusterKey, LiveObjects
from fairlead_operator.pod_http import PodAnswerError, ask_pod
from fairlead_operator.specs.names import HTTP_PORT, log_directory
from fairlead_operator.specs.views import PoolView

LOOK_S: Final = 10.0
"""How long an answer holds."""
TIMEOUT_S: Final = 1.0
WHY_LENGTH_MAX: Final = 200

FailedVolumes = Mapping[int, str]
"""Volumes that have failed a broker, by their ids, and how."""


class VolumeWatch:
    """`_known` has, by the uid of a pod, when it was asked and what it said last."""

    def __init__(self, live: LiveObjects, *, port: int = HTTP_PORT) -> None:
        self._live = live
        self._port = port
        self._known: dict[str, tuple[float, FailedVolumes]] = {}

    async def look(
        self,
        key: ClusterKey,
        pools: Sequence[PoolView],
        states: Mapping[str, Sequence[BrokerState]],
    ) -> dict[int, FailedVolumes]:
        """Return by broker what has failed; a broker that does not answer is as it was.

        `states` has the brokers of each pool.
        """
        pods = {pod["metadata"]["name"]: pod for pod in self._live.of_cluster(POD, key)}
        there = {each["metadata"]["uid"] for each in self._live.informers[POD].objects.values()}
        self._known = {uid: said for uid, said in self._known.items() if uid in there}
        asked = [
            (broker.broker_id, pods[broker.pod], [each.id for each in pool.spec.storage.volumes])
            for pool in pools
            if len(pool.spec.storage.volumes) > 1
            for broker in states.get(pool.name, ())
            if broker.is_ready and broker.pod in pods
        ]
        answers = await asyncio.gather(*(self._ask(pod, volumes) for _, pod, volumes in asked))
        return {
            broker_id: failed
            for (broker_id, _, _), failed in zip(asked, answers, strict=True)
            if failed
        }

    async def _ask(self, pod: Mapping[str, Any], volumes: Sequence[int]) -> FailedVolumes:
        uid, address = pod["metadata"]["uid"], (pod.get("status") or {}).get("podIP")
        asked_at, known = self._known.get(uid, (-LOOK_S, {}))
        now = time.monotonic()
        if not address or now - asked_at < LOOK_S:
            return known
        try:
            answer = await ask_pod(address, self._port, "/healthz", timeout_s=TIMEOUT_S)
            known = read_failures(answer.json(), volumes)
        except PodAnswerError:
            pass  # whoever does not answer is told of by the probes of its pod
        self._known[uid] = (now, known)
        return known


def read_failures(answer: object, volumes: Sequence[int]) -> FailedVolumes:
    """Return which volumes a broker says have failed; what is malformed says nothing. Pure."""
    told = answer.get("failedLogDirectories") if isinstance(answer, Mapping) else None
    if not isinstance(told, Mapping):
        return {}
    failed = {each: told.get(log_directory(each)) for each in volumes}
    return {each: str(why)[:WHY_LENGTH_MAX] for each, why in failed.items() if why is not None}
