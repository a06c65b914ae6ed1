"""The client of the controller's admin socket, against a server on a real one."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from fake_admin import FakeAdmin, FakeAdminServer, broker

from fairlead_operator import reign_watch
from fairlead_operator.controller_client import (
    ControllerClient,
    ControllerRefusedError,
    ControllerStandbyError,
    ControllerUnavailableError,
)
from fairlead_operator.reign_watch import still_reigns, wait_until_active, wait_until_over


def ask(socket: Path, question: Callable[[ControllerClient], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        client = ControllerClient(str(socket), retry_s=0.0)
        try:
            return await question(client)
        finally:
            await client.close()

    return asyncio.run(run())


def test_state_and_status_are_read(tmp_path: Path) -> None:
    socket = tmp_path / "c.sock"
    with FakeAdminServer(FakeAdmin(clusters=["ns/demo"], brokers=[broker(1)]), socket):
        state = ask(socket, lambda client: client.state())
        assert state.is_active
        assert state.clusters["ns/demo"].controller_epoch == 7
        status = ask(socket, lambda client: client.cluster_status("ns", "demo"))
        assert status["brokers"][0]["id"] == 1
        changes = ask(socket, lambda client: client.topics("ns", "demo"))
        assert changes.is_full


def test_orders_carry_what_was_asked(tmp_path: Path) -> None:
    socket, admin = tmp_path / "c.sock", FakeAdmin()
    with FakeAdminServer(admin, socket):
        ask(socket, lambda client: client.drain("ns", "demo", 3, on=True))
        intent = ask(socket, lambda client: client.record_intent("ns", "demo", "delete-pod", "p"))
        ask(socket, lambda client: client.clear_intent("ns", "demo", intent))
        assert ask(socket, lambda client: client.intents("ns", "demo")) == []
        ask(
            socket,
            lambda client: client.inject_fault("ns", "demo", 3, "pause", duration_ms=50),
        )
        ask(
            socket,
            lambda client: client.inject_fault(
                "ns", "demo", 3, "slow", duration_ms=50, turns=(20, 5)
            ),
        )
        admin.problem = "no room"
        scale_down = lambda client: client.scale_down(  # noqa: E731
            "ns", "demo", "main", leaving=(4,), staying=(3,)
        )
        assert ask(socket, scale_down) == "no room"
        ask(socket, lambda client: client.unregister("ns", "demo", 4))
    place = "/v1/clusters/ns/demo"
    assert admin.requests == [
        ("POST", f"{place}/brokers/3/drain", {"on": True}),
        ("POST", f"{place}/intents", {"action": "delete-pod", "object": "p"}),
        ("DELETE", f"{place}/intents/intent-1", None),
        ("POST", f"{place}/brokers/3/fault", {"fault": "pause", "durationMs": 50}),
        (
            "POST",
            f"{place}/brokers/3/fault",
            {"fault": "slow", "durationMs": 50, "stallMs": 20, "runMs": 5},
        ),
        ("POST", f"{place}/pools/main/scale-down", {"leaving": [4], "staying": [3]}),
        ("DELETE", f"{place}/brokers/4", None),
    ]


def test_a_standby_is_told_apart_from_one_that_is_not_there(tmp_path: Path) -> None:
    socket = tmp_path / "c.sock"
    with pytest.raises(ControllerUnavailableError):
        ask(socket, lambda client: client.cluster_status("ns", "demo"))
    with FakeAdminServer(FakeAdmin(is_active=False), socket):
        with pytest.raises(ControllerStandbyError):
            ask(socket, lambda client: client.cluster_status("ns", "demo"))
        assert not ask(socket, lambda client: client.state()).is_active


def test_a_refusal_keeps_its_status_and_its_words(tmp_path: Path) -> None:
    socket = tmp_path / "c.sock"
    admin = FakeAdmin(refusal=(404, "there is no cluster ns/demo"))
    with FakeAdminServer(admin, socket), pytest.raises(ControllerRefusedError) as caught:
        ask(socket, lambda client: client.drain("ns", "demo", 3, on=True))
    assert caught.value.is_unknown
    assert str(caught.value) == "there is no cluster ns/demo"


def test_a_reign_is_over_when_the_lease_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Otherwise a busy machine could have it be over because the controller is silent.
    monkeypatch.setattr(reign_watch, "DOUBT_S_MAX", 60.0)
    socket, admin = tmp_path / "c.sock", FakeAdmin()

    async def scenario(client: ControllerClient) -> str:
        identity = await wait_until_active(client)
        watching = asyncio.create_task(wait_until_over(client, identity))
        admin.is_active = False
        return await asyncio.wait_for(watching, 60)

    with FakeAdminServer(admin, socket):
        assert "Lease" in ask(socket, scenario)


def test_a_reign_is_over_when_the_controller_is_silent(tmp_path: Path) -> None:
    socket = tmp_path / "c.sock"

    async def scenario(client: ControllerClient) -> str:
        return await asyncio.wait_for(wait_until_over(client, "fake-0"), 60)

    assert "does not answer" in ask(socket, scenario)


def test_a_controller_that_breaks_before_it_can_answer_did_as_it_was_told(tmp_path: Path) -> None:
    socket, asked = tmp_path / "c.sock", []

    async def scenario() -> None:
        async def die(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked.append(await reader.readuntil(b"\r\n"))
            writer.transport.abort()

        server = await asyncio.start_unix_server(die, str(socket))
        client = ControllerClient(str(socket), retry_s=5.0)
        async with server:
            await client.break_controller("kill")
        await client.close()

    asyncio.run(scenario())
    assert asked == [b"POST /v1/fault HTTP/1.1\r\n"], "asked again, another one would break"


def test_a_controller_that_may_not_be_broken_says_so(tmp_path: Path) -> None:
    socket = tmp_path / "c.sock"
    with (
        FakeAdminServer(FakeAdmin(refusal=(409, "drills are not allowed")), socket),
        pytest.raises(ControllerRefusedError, match="not allowed"),
    ):
        ask(socket, lambda client: client.break_controller("pause", duration_ms=10))


def test_whoever_begins_to_act_looks_once_more(tmp_path: Path) -> None:
    socket, admin = tmp_path / "c.sock", FakeAdmin()
    assert not ask(socket, lambda client: still_reigns(client, "fake-0"))
    with FakeAdminServer(admin, socket):
        assert ask(socket, lambda client: still_reigns(client, "fake-0"))
        assert not ask(socket, lambda client: still_reigns(client, "fake-1"))
        admin.is_active = False
        assert not ask(socket, lambda client: still_reigns(client, "fake-0"))
