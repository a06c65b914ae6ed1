"""A follower's connection to a leader: what happens when taking an answer in goes wrong."""

import asyncio
import socket
from typing import Any

import pytest

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
