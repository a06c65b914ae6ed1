"""Brokers are asked over HTTP what they hold: those that answer, and those that do not."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from aiohttp import web
from measured_clusters import GB, answer, state_of

from fairlead_bench.peers.own_ports import take_ports
from fairlead_kube.kinds import POD
from fairlead_operator.rebalances import load_meter
from fairlead_operator.rebalances.load_meter import PodLoadMeter

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from fairlead_operator.rebalances.measured_load import MeasuredLoad

STATE = state_of(2, {"t": [(0, 1)]})


class Pods:
    """An API server that knows the pods of one cluster."""

    def __init__(self, **addresses: str) -> None:
        self._addresses = addresses

    async def list(self, kind: Any, namespace: str, *, label_selector: str) -> Any:
        assert (kind, namespace) == (POD, "shop")
        assert label_selector == "fairlead.io/cluster=demo,app.kubernetes.io/component=broker"
        items = [
            {"metadata": {"name": name}, "status": {"podIP": address} if address else {}}
            for name, address in self._addresses.items()
        ]
        return SimpleNamespace(items=items)


def measure(pods: Pods, respond: Callable[[web.Request], web.Response]) -> MeasuredLoad:
    async def run() -> MeasuredLoad:
        async def handle(request: web.Request) -> web.Response:
            assert request.path == "/load"
            return respond(request)

        application = web.Application()
        application.router.add_get("/{path:.*}", handle)
        runner = web.AppRunner(application)
        await runner.setup()
        # All of 127.0.0.0/8 is this machine: another address is another pod. A port that the
        # kernel chooses is free at one of them only.
        (port,) = take_ports(1)
        for address in ("127.0.0.1", "127.0.0.2"):
            await web.TCPSite(runner, address, port).start()
        try:
            return await PodLoadMeter(pods, port=port).measure(  # type: ignore[arg-type]
                "shop", "demo", STATE
            )
        finally:
            await runner.cleanup()

    return asyncio.run(run())


def as_broker(request: web.Request) -> web.Response:
    broker_id = int(request.host.split(":")[0].rpartition(".")[2]) - 1
    row = [0, GB, 5, 6] if broker_id == 0 else [0, GB]
    return web.json_response(answer(broker_id, {"t": [row]}))


def test_every_broker_is_asked() -> None:
    load = measure(Pods(a="127.0.0.1", b="127.0.0.2"), as_broker)
    assert load.is_whole
    assert (load.loads["t", 0].size, load.loads["t", 0].bytes_out) == (GB, 6.0)


def test_those_that_do_not_answer_are_named_with_their_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuses(request: web.Request) -> web.Response:
        if request.host.startswith("127.0.0.1:"):
            return as_broker(request)
        return web.json_response({"state": "loading"}, status=503)

    load = measure(Pods(a="127.0.0.1", b="127.0.0.2"), refuses)
    assert load.missing == [
        "Broker 1 does not report what it holds (pod b: it answers with status 503)."
    ]
    load = measure(Pods(a="127.0.0.1", b=""), as_broker)
    assert "pod b: it has no address yet" in load.missing[0]
    load = measure(Pods(a="127.0.0.1"), as_broker)
    assert "it has no pod here" in load.missing[0]
    monkeypatch.setattr(load_meter, "ANSWER_BYTES_MAX", 1000)
    load = measure(Pods(a="127.0.0.1"), lambda _: web.Response(text=" " * 2000))
    assert "an answer of more than 1000 bytes" in load.missing[0]
    load = measure(Pods(a="127.0.0.1"), lambda _: web.Response(text="<html>"))
    assert "no JSON" in load.missing[0]
