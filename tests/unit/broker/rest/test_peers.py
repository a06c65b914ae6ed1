"""What is told to HTTP clients of a broker that cannot be asked: never where brokers listen."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead_broker.rest.peers import Peers, PeerUnreachableError
from fairlead_model.cluster import BrokerChanged, BrokerRegistration, Endpoint
from fairlead_wire.messages.list_groups import ListGroupsRequest


def ask(stage: Any, host: str, port: int) -> str:
    """Return why a broker at this address could not be asked."""
    endpoints = (Endpoint("INTERNAL", host, port, is_internal=True),)
    stage.publish(BrokerChanged(BrokerRegistration(2, 2, endpoints)))

    async def story() -> str:
        peers = Peers(stage.broker, b"secret")
        deadline_s = asyncio.get_running_loop().time() + 0.5
        with pytest.raises(PeerUnreachableError) as caught:
            await peers.ask(2, ListGroupsRequest(), 0, deadline_s)
        peers.close()
        return str(caught.value)

    return str(stage.run(story()))


def test_a_broker_that_is_gone(stage: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert ask(stage, "127.0.0.1", port) == "broker 2 cannot be asked: Connection refused"


def test_a_broker_whose_name_is_not_known(stage: Any) -> None:
    told = ask(stage, "broker-2.internal.invalid", 9094)
    assert told.startswith("broker 2 cannot be asked: it ")
    assert "internal.invalid" not in told


def test_a_broker_that_says_nothing(stage: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        told = ask(stage, "127.0.0.1", server.getsockname()[1])
    assert told == "broker 2 cannot be asked: it does not answer in time"


def test_a_broker_that_is_fenced_while_it_is_silent_is_not_waited_for(stage: Any) -> None:
    """Its successor is asked at once, and not when the time to connect is over."""

    async def story(server: socket.socket) -> PeerUnreachableError:
        loop = asyncio.get_running_loop()
        peers = Peers(stage.broker, b"secret")
        asking = loop.create_task(peers.ask(2, ListGroupsRequest(), 0, loop.time() + 60))
        silent, _ = await loop.sock_accept(server)
        with silent:
            silent.setblocking(False)
            await loop.sock_recv(silent, 1)
            registration = stage.broker.image.brokers[2]
            fenced: Any = SimpleNamespace(brokers={2: replace(registration, fenced=True)})
            peers.publish(fenced)
            with pytest.raises(PeerUnreachableError) as caught:
                await asking
        peers.close()
        return caught.value

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        host, port = server.getsockname()
        endpoints = (Endpoint("INTERNAL", host, port, is_internal=True),)
        stage.publish(BrokerChanged(BrokerRegistration(2, 2, endpoints)))
        error = stage.run(story(server))
    assert str(error) == "broker 2 cannot be asked: it cannot be reached"
    assert not error.was_sent
