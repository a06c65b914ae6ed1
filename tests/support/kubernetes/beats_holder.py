"""The candidate that holds the epoch, and standbys that listen to its beats."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from fairlead_controller.sessions.door import SessionDoor
from fairlead_controller.sessions.session_tls import OwnSessionTls
from fairlead_controller.zookeeper.beats import BEATS_PATH, Beats, HolderWatch
from fairlead_zookeeper.znodes import CandidateRecord

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SECRET: Final = b"0123456789abcdef0123456789abcdef"


@asynccontextmanager
async def holder(certificate: Any = None) -> AsyncIterator[CandidateRecord]:
    """Serve beats at a port of its own, over TLS if there is a certificate."""
    application = web.Application()
    application.router.add_get(BEATS_PATH, Beats(SECRET, is_holder=lambda: True).serve)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    door = SessionDoor(None if certificate is None else OwnSessionTls(certificate))
    host, port = await door.listen(runner, "127.0.0.1", 0)
    try:
        yield CandidateRecord("controller-10000", 10_000, host, port, 1)
    finally:
        await door.close()
        await runner.cleanup()


@asynccontextmanager
async def listening(watch: HolderWatch) -> AsyncIterator[None]:
    """Have a standby listen."""
    task = asyncio.create_task(watch.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
