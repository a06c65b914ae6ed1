"""An informer of the API server itself, through a proxy that breaks its watches."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from api_fault_proxy import Fault, FaultProxy, is_watch

from fairlead_kube.client import KubeClient
from fairlead_kube.credentials import Credentials
from fairlead_kube.informer import Informer
from fairlead_kube.kinds import CONFIG_MAP

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

pytestmark = pytest.mark.kubernetes

DEADLINE_S = 60.0
GONE = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}
FAULTS: dict[str, dict[str, Any]] = {
    "gone": {"status": 410},
    "gone as an event": {"event": json.dumps({"type": "ERROR", "object": GONE}).encode() + b"\n"},
    "server error": {"status": 500},
    "cut in a line": {"bytes_passed": 100, "is_cut": True},
    "silent": {},
    "silent in a line": {"bytes_passed": 100},
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_what_happened_while_the_watch_was_broken_is_told(
    kube: KubeClient, namespace: str, run: Run, fault: dict[str, Any]
) -> None:
    told: list[str] = []

    async def make(name: str) -> None:
        metadata = {"name": name, "labels": {"sort": "x"}}
        await kube.create(CONFIG_MAP, namespace, {"metadata": metadata})

    async def story() -> None:
        proxy = FaultProxy(kube.credentials)
        await proxy.start()
        client = KubeClient(Credentials(proxy.url, None), request_timeout_s=2.0)
        informer = Informer(
            client,
            CONFIG_MAP,
            namespaces=[namespace],
            label_selector="sort=x",
            on_change=lambda change: told.append(f"{'+' if change.new else '-'}{change.key[1]}"),
            watch_s=3.0,
            silence_grace_s=0.5,
        )
        await make("a")
        broken = proxy.add(Fault(matches=is_watch, **fault))
        task = asyncio.create_task(informer.run())
        await informer.synced()
        await make("b")
        await broken.happened.wait()
        await kube.delete(CONFIG_MAP, namespace, "a")
        await make("c")
        async with asyncio.timeout(DEADLINE_S):
            while {name for _, name in informer.objects} != {"b", "c"}:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert sorted(told) == ["+a", "+b", "+c", "-a"]
        assert not task.done()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await client.close()
        await proxy.stop()

    run(story())
