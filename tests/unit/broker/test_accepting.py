"""Accepting for protocols of asyncio: only while there is room, and nothing that came is lost."""

import asyncio
import errno
import os
import socket
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
from waiting import until

from fairlead_sockets import accepting
from fairlead_sockets.accepting import Acceptor
from fairlead_sockets.listening import bound_port, open_listening_socket


class Protocol(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)


class Stage:
    """An acceptor with room for `room` connections, and clients."""

    def __init__(self, *, room: int, per_turn: int = 4) -> None:
        self.room = room
        self.listening: Any = open_listening_socket("127.0.0.1", 0, backlog=100)
        self.port = bound_port(self.listening)
        self.protocols: list[Protocol] = []
        self.clients: list[socket.socket] = []
        self.acceptor = Acceptor(
            self.listening, self.open, per_turn=per_turn, has_room=lambda: self.room > 0
        )

    def open(self) -> Protocol:
        self.room -= 1
        protocol = Protocol()
        self.protocols.append(protocol)
        return protocol

    def connect(self, count: int) -> None:
        self.clients += [
            socket.create_connection(("127.0.0.1", self.port), timeout=30) for _ in range(count)
        ]

    async def close(self) -> None:
        await self.acceptor.close()
        for protocol in self.protocols:
            protocol.transport.abort()
        for client in self.clients:
            client.close()


def play(stage: Callable[[], Stage], story: Callable[[Stage], Awaitable[None]]) -> None:
    async def run() -> None:
        made = stage()
        try:
            await story(made)
        finally:
            await made.close()

    asyncio.run(run())


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0.001)


def test_newcomers_wait_in_the_kernel_until_there_is_room() -> None:
    async def story(stage: Stage) -> None:
        stage.connect(20)
        await turns(10)
        assert not stage.protocols
        stage.acceptor.resume()
        await until(lambda: stage.room <= 0)
        await turns(10)
        # A turn's worth may be under way before the first of it has taken its room.
        came = len(stage.protocols)
        assert 10 <= came < 10 + 4
        stage.room = 100
        await turns(10)
        assert len(stage.protocols) == came
        stage.acceptor.resume()
        stage.acceptor.resume()
        await until(lambda: len(stage.protocols) == 20)

    play(lambda: Stage(room=10), story)


def test_what_was_accepted_is_known_once_it_is_closed() -> None:
    async def story(stage: Stage) -> None:
        stage.connect(3)
        stage.acceptor.resume()
        stage.acceptor._accept()
        assert not stage.protocols
        await stage.acceptor.close()
        assert [hasattr(protocol, "transport") for protocol in stage.protocols] == [True] * 3
        stage.acceptor.resume()
        with pytest.raises(ConnectionRefusedError):
            stage.connect(1)

    play(lambda: Stage(room=10), story)


class Exhausted:
    """A listening socket that has no descriptors left for what it accepts."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening
        self.asked = 0
        self.is_exhausted = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._listening, name)

    def accept(self) -> Any:
        self.asked += 1
        if self.is_exhausted:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return self._listening.accept()


def test_a_process_without_descriptors_asks_seldom_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(accepting, "_EXHAUSTED_PAUSE_S", 0.2)

    async def story(stage: Stage) -> None:
        exhausted = stage.acceptor._listening = Exhausted(stage.listening)  # type: ignore[assignment]
        stage.connect(1)
        stage.acceptor.resume()
        await until(lambda: exhausted.asked)
        # Room for others does not cut the pause short.
        stage.acceptor.resume()
        await turns(20)
        assert exhausted.asked < 10
        exhausted.is_exhausted = False
        await until(lambda: stage.protocols)

    play(lambda: Stage(room=10), story)
    assert "cannot accept connections: Too many open files" in caplog.text


def test_a_connection_that_cannot_be_opened_ends_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def story(stage: Stage) -> None:
        opened = stage.acceptor._open_protocol

        def fail() -> asyncio.BaseProtocol:
            stage.acceptor._open_protocol = opened
            raise ValueError("no")

        stage.acceptor._open_protocol = fail
        stage.connect(2)
        stage.acceptor.resume()
        await until(lambda: stage.protocols)
        assert await asyncio.to_thread(stage.clients[0].recv, 1) == b""

    play(lambda: Stage(room=10), story)
    assert "cannot be opened" in caplog.text
