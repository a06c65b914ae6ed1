"""A follower's connection to a leader: what happens when taking an answer in goes wrong."""

import asyncio
import socket
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from waiting import until

from fairlead_broker.limits import FRAME_SIZE_MAX
from fairlead_broker.peer_check import PeerProof
from fairlead_broker.tasks.leader_connection import LeaderConnection
from fairlead_wire.errors import RemoteProtocolError


@pytest.mark.parametrize("error", [RemoteProtocolError("what is this?"), KeyError("a defect")])
def test_an_answer_that_cannot_be_taken_in_is_not_taken_in_twice(error: Exception) -> None:
    handed_over: list[bytes] = []
    unheard: list[Any] = []

    def refuse(frame: memoryview) -> None:
        handed_over.append(bytes(frame))
        raise error

    async def story() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: unheard.append(context["exception"]))
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            connection = LeaderConnection(ours, "replica-1")
            connection.on_reply = refuse
            theirs.sendall(b"\0\0\0\1a\0\0\0\1b")
            async with asyncio.timeout(30):
                await connection.closed

    asyncio.run(story())
    assert handed_over == [b"a"]
    assert unheard == ([] if isinstance(error, RemoteProtocolError) else [error])


@pytest.mark.parametrize("is_proved", [True, False])
def test_only_a_broker_sends_large_answers(
    is_proved: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch may be as large as its topic allows; else no partition of its leader is copied."""

    async def succeed(*_: object) -> SimpleNamespace:
        return SimpleNamespace(error_code=0, auth_bytes=b"")

    monkeypatch.setattr(LeaderConnection, "call", succeed)
    monkeypatch.setattr(PeerProof, "answer", lambda *_: b"")
    handed_over: list[int] = []
    size = FRAME_SIZE_MAX + 1

    async def story() -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        with theirs:
            connection = LeaderConnection(ours, "replica-1")
            if is_proved:
                await connection.prove(b"secret")
            connection.on_reply = lambda frame: handed_over.append(len(frame))
            with suppress(ConnectionError):
                await asyncio.to_thread(theirs.sendall, size.to_bytes(4, "big") + bytes(size))
            await until(lambda: handed_over or connection.closed.done(), deadline_s=30)
            connection.close()

    asyncio.run(story())
    assert handed_over == ([size] if is_proved else [])


@pytest.mark.parametrize("is_aborted", [True, False])
def test_what_the_peer_has_not_got_is_gone_with_an_abort(is_aborted: bool) -> None:
    """A close leaves it to the kernel, which delivers it even much later."""
    size = 8 << 20

    async def story(listener: socket.socket) -> int:
        ours = socket.create_connection(listener.getsockname())
        ours.setblocking(False)
        connection = LeaderConnection(ours, "transactions-1")
        with pytest.raises(BlockingIOError):
            while True:
                sent.append(ours.send(bytes(size)))
        connection.abort() if is_aborted else connection.close()
        assert connection.closed.done()
        return await asyncio.to_thread(receive, listener)

    def receive(listener: socket.socket) -> int:
        received = 0
        theirs, _ = listener.accept()
        with theirs, suppress(ConnectionResetError):
            while data := theirs.recv(1 << 20):
                received += len(data)
        return received

    sent: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        received = asyncio.run(story(listener))
    assert (received == sum(sent)) is not is_aborted
