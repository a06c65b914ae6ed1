"""What a port that is knocked at says about the process behind it."""

import asyncio
import socket

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
