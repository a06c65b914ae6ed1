"""What a port that is knocked at says about the process behind it."""

import asyncio
import socket
from typing import Any

import pytest

from fairlead_controller.sessions.port_probe import is_refused
from fairlead_model.broker import Endpoint


def probe(host: str, port: int) -> bool:
    return asyncio.run(is_refused([Endpoint("INTERNAL", host, port, is_internal=True)]))


def test_only_a_refusal_says_that_nobody_is_there() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        assert probe("127.0.0.1", port)
        held.listen()
        assert not probe("127.0.0.1", port)


@pytest.mark.parametrize("host", ["broker-0..svc", f"{'x' * 64}.svc"])
def test_a_host_that_is_no_name_says_nothing(host: str) -> None:
    assert not probe(host, 9092)


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_name_with_addresses_of_both_families_refuses_if_each_of_them_does(
    monkeypatch: pytest.MonkeyPatch, family: socket.AddressFamily
) -> None:
    look_up = socket.getaddrinfo
    hosts = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}

    def find_both(host: str, *arguments: Any, **named: Any) -> list[Any]:
        asked = hosts.values() if host == "both.svc" else [host]
        return [each for one in asked for each in look_up(one, *arguments, **named)]

    monkeypatch.setattr(socket, "getaddrinfo", find_both)
    with socket.socket(family) as held:
        held.bind((hosts[family], 0))
        port = held.getsockname()[1]
        assert probe("both.svc", port)
        held.listen()
        assert not probe("both.svc", port)
