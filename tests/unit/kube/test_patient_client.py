"""What the client of the tests on a real API server sends again, and what it does not."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import patient_client
import pytest
from api_fault_proxy import Fault, FaultProxy, is_read, is_write
from fake_resource_server import FakeResourceServer
from patient_client import PatientClient

from fairlead_kube.credentials import Credentials
from fairlead_kube.errors import ApiError, ApiUnavailableError
from fairlead_kube.kinds import CONFIG_MAP, ResourceKind

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

ONE: dict[str, Any] = {"metadata": {"name": "one"}, "data": {"a": "1"}}
BUSY: tuple[dict[str, Any], ...] = (
    {"status": 429, "reason": "TooManyRequests", "retry_after_s": 1},
    {"status": 500, "reason": "InternalError"},
    {"status": 504, "reason": "Timeout", "lands": True},
    {"is_cut": True},
    {"is_cut": True, "lands": True},
    {"lands": True},
)


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patient_client, "PAUSE_S", 0.01)


def play(
    story: Callable[[PatientClient, FaultProxy], Awaitable[None]], *, patience_s: float = 60.0
) -> None:
    async def run() -> None:
        server = FakeResourceServer()
        await server.start()
        proxy = FaultProxy(Credentials(server.url, None))
        await proxy.start()
        client = PatientClient(Credentials(proxy.url, None), patience_s=patience_s)
        try:
            await story(client, proxy)
        finally:
            await client.close()
            await proxy.stop()
            await server.stop()

    asyncio.run(run())


@pytest.mark.parametrize("fault", BUSY, ids=str)
def test_each_request_gets_the_answer_of_an_idle_server(
    fault: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patient_client, "REQUEST_TIMEOUT_S", 0.5)

    async def story(client: PatientClient, proxy: FaultProxy) -> None:
        proxy.add(Fault(matches=is_write, **fault))
        made = await client.create(CONFIG_MAP, "ns", ONE)
        assert made["data"] == {"a": "1"}
        proxy.add(Fault(matches=is_write, **fault))
        changed = await client.patch(CONFIG_MAP, "ns", "one", {"data": {"b": "2"}})
        assert changed["data"] == {"a": "1", "b": "2"}
        for _ in range(5):
            proxy.add(Fault(matches=is_read, **fault))
        assert (await client.get(CONFIG_MAP, "ns", "one"))["data"] == changed["data"]
        proxy.add(Fault(matches=is_write, **fault))
        await client.delete(CONFIG_MAP, "ns", "one")
        assert not (await client.list(CONFIG_MAP, "ns")).items
        assert not proxy.faults

    play(story)


def test_what_the_server_refuses_is_refused_at_once() -> None:
    async def story(client: PatientClient, proxy: FaultProxy) -> None:
        await client.create(CONFIG_MAP, "ns", ONE)
        with pytest.raises(ApiError, match="409"):
            await client.create(CONFIG_MAP, "ns", ONE)
        with pytest.raises(ApiError, match="404"):
            await client.delete(CONFIG_MAP, "ns", "other")
        proxy.add(Fault(status=429, reason="TooManyRequests"))
        eviction = ResourceKind("", "v1", "Eviction", "pods/p/eviction")
        with pytest.raises(ApiError, match="429"):
            await client.create(eviction, "ns", {"metadata": {"name": "p"}})

    play(story)


def test_a_compare_and_swap_of_unknown_outcome_is_not_sent_again() -> None:
    async def story(client: PatientClient, proxy: FaultProxy) -> None:
        made = await client.create(CONFIG_MAP, "ns", ONE)
        proxy.add(Fault(is_cut=True, lands=True))
        with pytest.raises(ApiUnavailableError):
            await client.replace(CONFIG_MAP, "ns", "one", made | {"data": {"a": "2"}})
        version = made["metadata"]["resourceVersion"]
        proxy.add(Fault(is_cut=True))
        with pytest.raises(ApiUnavailableError):
            patch = {"metadata": {"resourceVersion": version}, "data": {"a": "3"}}
            await client.patch(CONFIG_MAP, "ns", "one", patch)

    play(story)


def test_patience_ends() -> None:
    async def story(client: PatientClient, proxy: FaultProxy) -> None:
        for _ in range(2):
            proxy.add(Fault(status=503, reason="ServiceUnavailable"))
        with pytest.raises(ApiError, match="503"):
            await client.create(CONFIG_MAP, "ns", ONE)

    play(story, patience_s=0.0)
