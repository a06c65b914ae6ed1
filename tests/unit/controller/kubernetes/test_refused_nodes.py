"""An operator that may not read Nodes (`rbac.nodes: false`): what it shows of its informers."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from api_fault_proxy import Fault, FaultProxy
from fake_api_server import FakeApiServer
from waiting import until

from fairlead_controller.kubernetes.metrics import CandidateMetrics
from fairlead_controller.kubernetes.watches import Watches
from fairlead_controller.metrics.loop_lag import LoopLag
from fairlead_kube.client import KubeClient
from fairlead_kube.credentials import Credentials

if TYPE_CHECKING:
    from aiohttp import web

AGE = 'fairlead_informer_age_seconds{kind="'


def is_of_nodes(request: web.Request) -> bool:
    return request.path == "/api/v1/nodes"


def metrics_of(watches: Watches) -> CandidateMetrics:
    gate: Any = SimpleNamespace(waiting=0)
    return CandidateMetrics(
        clients={},
        find_informers=lambda: watches.expected,
        reigns={},
        gate=gate,
        find_certificate_end=lambda _: None,
        lag=LoopLag(),
    )


def kinds_in(page: bytes) -> set[str]:
    lines = page.decode().splitlines()
    return {line.removeprefix(AGE).partition('"')[0] for line in lines if line.startswith(AGE)}


def test_nodes_that_may_not_be_read_have_no_age() -> None:
    """Theirs would be infinite, and the alert FairleadInformerStale would never end."""

    async def run() -> None:
        server = FakeApiServer()
        await server.start()
        proxy = FaultProxy(Credentials(server.url, None))
        await proxy.start()
        client = KubeClient(Credentials(proxy.url, None), request_timeout_s=5.0)
        granted = asyncio.Event()

        def is_refused(request: web.Request) -> bool:
            return is_of_nodes(request) and not granted.is_set()

        for _ in range(1_000):
            proxy.add(Fault(matches=is_refused, status=403, reason="Forbidden"))
        watches = Watches(client, ["default"], on_clusters=lambda: None, on_machines=lambda: None)
        tasks = [asyncio.create_task(each.run()) for each in watches.by_kind.values()]
        try:
            await until(lambda: all(each.is_synced for each in watches.required.values()))
            await until(lambda: watches.nodes.is_refused)
            assert kinds_in(await metrics_of(watches).text()) == set(watches.required)
            granted.set()
            await until(lambda: watches.nodes.is_synced)
            assert kinds_in(await metrics_of(watches).text()) == set(watches.by_kind)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await client.close()
            await proxy.stop()
            await server.stop()

    asyncio.run(run())
