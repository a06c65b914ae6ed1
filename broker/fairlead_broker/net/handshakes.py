"""The threads in which TLS handshakes compute.

A step takes up to a millisecond and releases the interpreter's lock, so two thousand clients that
come back at once hold up nobody. Each connection has at most one step under way, and the server
bounds how many connections have yet to be let in: so is what waits here.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from fairlead_broker.limits import TLS_HANDSHAKE_THREADS

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

Result = TypeVar("Result")


class HandshakePool:
    """Runs steps; tells on the loop how each came out."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._pool: ThreadPoolExecutor | None = None

    def run(
        self,
        step: Callable[[], Result],
        done: Callable[[Future[Result]], None],
    ) -> None:
        """Run `step` in a thread, then call `done` on the loop."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(TLS_HANDSHAKE_THREADS, "tls-handshake")

        def finished(future: Future[Result]) -> None:
            if not future.cancelled() and not self._loop.is_closed():
                self._loop.call_soon_threadsafe(done, future)

        self._pool.submit(step).add_done_callback(finished)

    def close(self) -> None:
        """Let running steps end; those that wait never start."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None
