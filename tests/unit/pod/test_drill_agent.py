"""What the pod of a drill answers to who has no token."""

import asyncio
import logging
from typing import Any

import pytest
from aiohttp import web

from fairlead_pod.drill_agent import AgentServer


class Idle:
    """A drill that has nothing to tell."""

    def as_json(self) -> dict[str, Any]:
        return {"phase": "steady"}


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (b"Bearer right", b"200"),
        (b"Bearer wrong", b"401"),
        (b"Bearer \xff\xfe", b"401"),
        ("Bearer tökén".encode(), b"401"),
    ],
)
def test_only_who_has_the_token_is_answered_whatever_the_bytes_of_another(
    header: bytes, status: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    drill: Any = Idle()

    async def ask() -> bytes:
        runner = web.AppRunner(AgentServer(drill, "right").build_app(), access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        reader, writer = await asyncio.open_connection(*runner.addresses[0][:2])
        try:
            writer.write(
                b"GET /state HTTP/1.1\r\nHost: a\r\nAuthorization: " + header + b"\r\n\r\n"
            )
            return await reader.readline()
        finally:
            writer.close()
            await runner.cleanup()

    with caplog.at_level(logging.ERROR):
        assert (asyncio.run(ask())).split()[1] == status
    assert not caplog.records
