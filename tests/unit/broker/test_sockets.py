"""Where a broker listens: one socket for both families, one family, and kernels without IPv6."""

import asyncio
import errno
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from needed_tools import need_ipv6

from fairlead_model.host_address import peer_address
from fairlead_sockets.connecting import connect_to
from fairlead_sockets.listening import bound_port, open_listening_socket


@pytest.fixture
def with_ipv6() -> None:
    need_ipv6()


def reach(host: str, port: int) -> None:
    socket.create_connection((host, port), timeout=5).close()


@contextmanager
def listening_at_ipv6_alone() -> Iterator[socket.socket]:
    """Listen at `::1` with a port where nobody listens at 127.0.0.1: held there, not listened at.

    A port of one family says nothing about the other's: any process may listen there.
    """
    for _ in range(100):
        with socket.socket(socket.AF_INET) as held:
            held.bind(("127.0.0.1", 0))
            try:
                listening = open_listening_socket("::1", bound_port(held), backlog=5)
            except OSError:
                continue  # somebody else's port in IPv6
            with listening:
                yield listening
            return
    pytest.fail("no port of a hundred was free in both families")


@pytest.mark.usefixtures("with_ipv6")
@pytest.mark.parametrize("host", ["", "0.0.0.0", "::"])
def test_every_address_is_one_of_both_families(host: str) -> None:
    with open_listening_socket(host, 0, backlog=5) as listening:
        listening.settimeout(5)
        for client in ("127.0.0.1", "::1"):
            reach(client, bound_port(listening))
            accepted, address = listening.accept()
            accepted.close()
            assert peer_address(address[0]) == client


@pytest.mark.usefixtures("with_ipv6")
def test_an_address_is_of_its_own_family_only() -> None:
    with listening_at_ipv6_alone() as listening:
        reach("::1", bound_port(listening))
        with pytest.raises(OSError, match="refused"):
            reach("127.0.0.1", bound_port(listening))


def test_without_ipv6_every_address_is_one_of_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    known = socket.socket

    def refuse(family: int = -1, *rest: Any, **named: Any) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        return known(family, *rest, **named)

    monkeypatch.setattr(socket, "socket", refuse)
    with open_listening_socket("::", 0, backlog=5) as listening:
        assert listening.family == socket.AF_INET
        assert listening.getsockname()[0] == "0.0.0.0"


def test_a_port_that_is_taken_is_an_error() -> None:
    with (
        open_listening_socket("", 0, backlog=5) as listening,
        pytest.raises(OSError, match=r"\*:[0-9]+: Address already in use"),
    ):
        open_listening_socket("", bound_port(listening), backlog=5)


@pytest.mark.usefixtures("with_ipv6")
def test_each_address_of_a_name_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """IPv4 first, as Java does; here only IPv6 answers."""
    asked: list[int] = []

    async def connect(port: int) -> None:
        stream = (socket.SOCK_STREAM, 6, "")

        async def look_up(*_arguments: object, **_named: object) -> Any:
            return [
                (socket.AF_INET6, *stream, ("::1", port, 0, 0)),
                (socket.AF_INET, *stream, ("127.0.0.1", port)),
            ]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", look_up)
        (await connect_to("broker.example", port, lambda sock: asked.append(sock.family))).close()

    with listening_at_ipv6_alone() as listening:
        asyncio.run(connect(bound_port(listening)))
    assert asked == [socket.AF_INET, socket.AF_INET6]


@pytest.mark.usefixtures("with_ipv6")
def test_a_port_that_is_taken_in_one_family_is_not_served_in_the_other_alone() -> None:
    with (
        open_listening_socket("::1", 0, backlog=5) as listening,
        pytest.raises(OSError, match="in use"),
    ):
        open_listening_socket("::", bound_port(listening), backlog=5)


@pytest.mark.parametrize("host", ["broker-0..svc", f"{'x' * 64}.svc", ".svc"])
def test_a_host_that_is_no_name_is_an_error_like_any_other(host: str) -> None:
    """A broker may say so of itself: others have to go on."""
    with pytest.raises(OSError, match="is no name of a host"):
        asyncio.run(connect_to(host, 9092, lambda _: None))
    with pytest.raises(OSError, match=f"{host}:0: '{host}' is no name of a host"):
        open_listening_socket(host, 0)
