"""Asks the brokers of a cluster over HTTP what they hold, only when a plan is to be made.

A broker's answer has some thirty bytes per replica. Few brokers are asked at a time, each answer
has a bound, and unneeded parts are dropped before the next answer is read.
"""

import asyncio
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from fairlead_controller.decisions.state import ControllerState
from fairlead_kube.client import KubeClient
from fairlead_kube.kinds import POD
from fairlead_operator.pod_http import PodAnswerError, ask_pod
from fairlead_operator.rebalances.measured_load import LoadAnswerError, LoadReading, MeasuredLoad
from fairlead_operator.specs.names import HTTP_PORT, broker_selector

LOAD_PATH: Final = "/load"
TIMEOUT_S: Final = 5.0
AT_ONCE: Final = 4
ANSWER_BYTES_MAX: Final = 4 << 20
"""Enough for more than 100,000 replicas of one broker."""


class LoadMeter(Protocol):
    """Measures the load of a cluster's partitions."""

    async def measure(self, namespace: str, cluster: str, state: ControllerState) -> MeasuredLoad:
        """Measure once; the answer names what cannot be measured."""
        ...


class PodLoadMeter:
    """Asks pods; ApiError or ApiUnavailableError if the API server does not name them."""

    def __init__(self, client: KubeClient, *, port: int = HTTP_PORT) -> None:
        self._client = client
        self._port = port

    async def measure(self, namespace: str, cluster: str, state: ControllerState) -> MeasuredLoad:
        """Ask every broker once."""
        labels = ",".join(f"{name}={value}" for name, value in broker_selector(cluster).items())
        pods = (await self._client.list(POD, namespace, label_selector=labels)).items
        reading, turns = LoadReading(state), asyncio.Semaphore(AT_ONCE)
        adding = asyncio.Lock()

        async def ask(pod: dict[str, Any]) -> None:
            name, address = pod["metadata"]["name"], (pod.get("status") or {}).get("podIP")
            async with turns:
                try:
                    if not address:
                        raise PodAnswerError("it has no address yet")
                    answer = await ask_pod(
                        address,
                        self._port,
                        LOAD_PATH,
                        timeout_s=TIMEOUT_S,
                        bytes_max=ANSWER_BYTES_MAX,
                    )
                    if answer.status != 200:
                        raise PodAnswerError(f"it answers with status {answer.status}")
                    async with adding:
                        await asyncio.to_thread(lambda: reading.add(answer.json()))
                except (PodAnswerError, LoadAnswerError) as error:
                    reading.miss(name, str(error))

        await asyncio.gather(*map(ask, pods))
        return await asyncio.to_thread(reading.finish, datetime.now(UTC))
