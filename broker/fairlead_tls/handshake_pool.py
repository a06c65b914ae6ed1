"""The threads in which TLS handshakes compute.

A step takes up to a millisecond and releases the interpreter's lock, so two thousand clients that
come back at once hold up nobody. Each connection has at most one step under way, which it takes
along when it closes. So no more waits here than there are connections that have yet to be let in.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

HANDSHAKE_THREADS: Final = 2
HANDSHAKES_WAITING_MAX: Final = 64
"""Steps that are not done; beyond, newcomers had better wait in the kernel's queue.

There they wait their turn. Those that are let in have a bounded number and time instead, so that a
flood of handshakes that compute slowly would end those of others before their turn comes.
"""

Result = TypeVar("Result")


class HandshakePool:
    """Runs steps; tells on the loop how each came out."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_room: Callable[[], None] | None = None,
    ) -> None:
        """`on_room` is called on the loop when `has_room` has become true again."""
        self._loop = loop
        self._on_room = on_room
        self._pool: ThreadPoolExecutor | None = None
        self._unfinished = 0

    @property
    def has_room(self) -> bool:
        """Whether so few steps wait that newcomers may come."""
        return self._unfinished < HANDSHAKES_WAITING_MAX

    def run(
        self,
        step: Callable[[], Result],
        done: Callable[[Future[Result]], None],
    ) -> Future[Result]:
        """Run `step` in a thread, then call `done` on the loop.

        Who has no more use for it cancels what is returned: a step that waits does not run then,
        and `done` is not called.
        """
        if self._pool is None:
            self._pool = ThreadPoolExecutor(HANDSHAKE_THREADS, "tls-handshake")
        self._unfinished += 1
        future = self._pool.submit(step)
        future.add_done_callback(partial(self._on_done, done))
        return future

    def close(self) -> None:
        """Let running steps end; those that wait never start."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None

    def _on_done(self, done: Callable[[Future[Result]], None], future: Future[Result]) -> None:
        """Go on on the loop. In a thread, or on the loop if the step was cancelled."""
        if future.cancelled():
            self._count_down()
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._tell, done, future)

    def _tell(self, done: Callable[[Future[Result]], None], future: Future[Result]) -> None:
        self._count_down()
        done(future)

    def _count_down(self) -> None:
        had_room = self.has_room
        self._unfinished -= 1
        if self._on_room is not None and self.has_room and not had_room:
            self._on_room()
