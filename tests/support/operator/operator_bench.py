"""The kopf process with a fake controller, and short forms for tests of its work.

The brokers' pods require a node that does not exist, so no kubelet changes them: the test itself
makes them ready.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
import urllib.request
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from fake_admin import FakeAdmin, broker

from fairlead_kube.errors import ApiError
from fairlead_kube.kinds import (
    BROKER_POOL,
    LOG_CLUSTER,
    POD,
    POD_DISRUPTION_BUDGET,
    STATEFUL_SET,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence
    from pathlib import Path

    from fairlead_kube.client import KubeClient

DEADLINE_S = 60.0
QUIET_S = 6.0


class Operator:
    """A running kopf process and the fake controller that it talks to."""

    def __init__(self, admin: FakeAdmin, port: int, log: Path) -> None:
        self.admin = admin
        self.port = port
        self._log = log

    def writes(self) -> dict[str, float]:
        """Return how much it has written so far, by its metrics."""
        url = f"http://127.0.0.1:{self.port}/metrics"
        with urllib.request.urlopen(url, timeout=60) as answer:
            lines = answer.read().decode().splitlines()
        samples = (line.rsplit(" ", 1) for line in lines)
        return {
            name: float(value)
            for name, value in samples
            if name.startswith("fairlead_operator_writes_total")
        }

    def log(self) -> str:
        return self._log.read_text()


class SupervisedOperator:
    """The kopf process, started again when it ends in good order, as its pod's process 1 does.

    It ends by itself when its controller is silent for a second. Here that is a thread of the
    process that runs the tests, which a busy machine may leave without a processor for as long.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        log: Path,
        command: Sequence[str] = (sys.executable, "-m", "fairlead_operator"),
    ) -> None:
        self._command = command
        self._environment = dict(environment)
        self._log = log
        self._lock = threading.Lock()
        self._is_ending = False
        self._process = self._start()
        self._thread = threading.Thread(target=self._supervise, daemon=True)
        self._thread.start()

    def end(self, say: Callable[[], None]) -> int:
        """Say that it is over, and wait for the end; return the exit code."""
        with self._lock:
            self._is_ending = True
        say()
        try:
            return self._process.wait(60)
        except subprocess.TimeoutExpired:
            # One that has just been started waits for its controller.
            self._process.terminate()
            return self._process.wait(60)
        finally:
            self._process.kill()
            self._thread.join(10)

    def _start(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as out:
            return subprocess.Popen(self._command, env=self._environment, stdout=out, stderr=out)

    def _supervise(self) -> None:
        while self._process.wait() == 0:
            with self._lock:
                if self._is_ending:
                    return
                self._process = self._start()


async def let_go(kube: KubeClient, namespace: str) -> None:
    """Remove the finalizers: without an operator, the namespace would stay."""
    for kind in (LOG_CLUSTER, BROKER_POOL):
        for manifest in (await kube.list(kind, namespace)).items:
            patch = {"metadata": {"finalizers": None}}
            try:
                await kube.patch(kind, namespace, manifest["metadata"]["name"], patch)
            except ApiError as error:
                if not error.is_not_found:  # It may have been about to go by itself.
                    raise


def cluster_manifest(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": LOG_CLUSTER.api_version,
        "kind": "LogCluster",
        "metadata": {"name": "demo"},
        "spec": spec,
    }


def pool_manifest(replicas: int, **spec: Any) -> dict[str, Any]:
    template = {"nodeSelector": {"fairlead.io/nowhere": "at-all"}}
    storage = {"size": "1Gi"}
    body = {"clusterName": "demo", "replicas": replicas, "storage": storage, "template": template}
    return {
        "apiVersion": BROKER_POOL.api_version,
        "kind": "BrokerPool",
        "metadata": {"name": "main"},
        "spec": body | spec,
    }


class Bench:
    """Short words for what the tests do with the API server."""

    def __init__(self, kube: KubeClient, namespace: str, operator: Operator) -> None:
        self.kube, self.namespace, self.operator = kube, namespace, operator

    async def until(self, question: Callable[[], Coroutine[Any, Any, Any]], what: str) -> Any:
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                answer = await question()
            except ApiError as error:
                if not error.is_not_found:
                    raise
                answer = None
            if answer:
                return answer
            if time.monotonic() > deadline:
                pytest.fail(f"{what}\n{await self.describe()}\n{self.operator.log()[-6000:]}")
            await asyncio.sleep(0.1)

    async def describe(self) -> str:
        pools = (await self.kube.list(BROKER_POOL, self.namespace)).items
        lines = [
            f"{name} {pod['metadata']['uid']} {pod.get('status', {}).get('conditions')}"
            for name, pod in (await self.pods()).items()
        ]
        lines += [str(pool.get("status")) for pool in pools]
        return "\n".join([*lines, *map(str, self.operator.admin.requests)])

    async def get(self, kind: Any, name: str) -> dict[str, Any]:
        return await self.kube.get(kind, self.namespace, name)

    async def until_gone(self, kind: Any, name: str, what: str) -> None:
        async def is_gone() -> bool:
            try:
                await self.get(kind, name)
            except ApiError as error:
                return error.is_not_found
            return False

        await self.until(is_gone, what)

    async def create(self, cluster: dict[str, Any], pool: dict[str, Any]) -> None:
        await self.kube.create(LOG_CLUSTER, self.namespace, cluster)
        await self.kube.create(BROKER_POOL, self.namespace, pool)

    async def pods(self) -> dict[str, dict[str, Any]]:
        listing = await self.kube.list(POD, self.namespace)
        return {pod["metadata"]["name"]: pod for pod in listing.items}

    async def make_ready(self, name: str) -> None:
        """Set a pod's status as a kubelet does."""
        now = "2026-01-01T00:00:00Z"
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": now}
        status = {"phase": "Running", "podIP": "127.0.0.9", "conditions": [ready]}
        await self.kube.patch(POD, self.namespace, name, {"status": status}, subresource="status")

    async def make_ready_when_there(self, name: str) -> None:
        async def is_there() -> bool:
            return name in await self.pods()

        await self.until(is_there, f"{name} appears")
        await self.make_ready(name)

    async def start(self, count: int) -> None:
        """Wait for pods and make them ready brokers."""

        async def all_there() -> bool:
            return len(await self.pods()) == count

        await self.until(all_there, "pods appear")
        for ordinal in range(count):
            await self.make_ready(f"demo-main-{ordinal}")
        self.operator.admin.brokers = [
            broker(number, leaders=4, replicas=12) for number in range(count)
        ]
        for kind, name in ((LOG_CLUSTER, "demo"), (BROKER_POOL, "main")):
            await self.until(partial(self.condition, kind, name, "Ready", "True"), "Ready")

    async def condition(self, kind: Any, name: str, type: str, status: str) -> Any:
        manifest = await self.get(kind, name)
        conditions = manifest.get("status", {}).get("conditions", [])
        return next((c for c in conditions if c["type"] == type and c["status"] == status), None)

    async def scale(self, replicas: int) -> None:
        patch = {"spec": {"replicas": replicas}}
        await self.kube.patch(BROKER_POOL, self.namespace, "main", patch, subresource="scale")

    async def may_go(self) -> int:
        """Return how many brokers the PodDisruptionBudget allows to stop."""
        budget = await self.get(POD_DISRUPTION_BUDGET, "demo")
        return int(budget["spec"]["maxUnavailable"])

    async def until_may_go(self, count: int, what: str) -> None:
        async def is_so() -> bool:
            return await self.may_go() == count

        await self.until(is_so, what)

    async def until_quiet(self) -> dict[str, float]:
        """Wait until the operator has written what follows from all before; how much that was.

        Several writes follow from one change, and on a busy machine each of them takes its time.
        """

        async def is_quiet() -> dict[str, float] | None:
            before = self.operator.writes()
            await asyncio.sleep(QUIET_S / 2)
            return before if self.operator.writes() == before else None

        found: dict[str, float] = await self.until(is_quiet, "the operator goes on writing")
        return found

    async def replicas(self) -> int:
        return int((await self.get(STATEFUL_SET, "demo-main"))["spec"]["replicas"])
