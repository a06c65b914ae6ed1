"""The threads in which TLS handshakes compute.

A step takes up to a millisecond and releases the interpreter's lock, so two thousand clients that
reconnect at once delay no other client. Each connection has at most one step here, and cancels it
when it closes. So at most as many steps wait as there are connections in their handshake.
"""

from __future__ import annotations

import logging
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from fairlead_tls.engine import TlsRefusedError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

logger = logging.getLogger(__name__)

HANDSHAKE_THREADS: Final = 2
HANDSHAKES_WAITING_MAX: Final = 64
"""Most unfinished steps; above this number, new connections should wait in the kernel's queue.

There they wait for their turn. An accepted connection has limited time, and accepted connections
have a limit. So a flood of slow handshakes could end the handshakes of others before their turn.
"""

Result = TypeVar("Result")


class HandshakePool:
    """Runs steps in threads, and reports each result on the loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        on_room: Callable[[], None] | None = None,
    ) -> None:
        """`on_room` is called on the loop when `has_room` becomes true again."""
        self._loop = loop
        self._on_room = on_room
        self._pool: ThreadPoolExecutor | None = None
        self._unfinished = 0
        self._has_failed = False

    @property
    def has_room(self) -> bool:
        """Whether few enough steps wait for new connections to be accepted."""
        return self._unfinished < HANDSHAKES_WAITING_MAX

    def run(
        self,
        step: Callable[[], Result],
        done: Callable[[Future[Result]], None],
    ) -> Future[Result]:
        """Run `step` in a thread, then call `done` on the loop.

        Whatever a step fails with, its future has a TlsRefusedError: who waits for it goes on.
        A caller that no longer needs the step cancels the returned future: a waiting step then does
        not run, and `done` is not called.
        """
        if self._pool is None:
            self._pool = ThreadPoolExecutor(HANDSHAKE_THREADS, "tls-handshake")
        self._unfinished += 1
        future = self._pool.submit(self._do, step)
        future.add_done_callback(partial(self._on_done, done))
        return future

    def close(self) -> None:
        """Wait for the running steps; waiting steps never start."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None

    def _do(self, step: Callable[[], Result]) -> Result:
        try:
            return step()
        except TlsRefusedError:
            raise
        except BaseException as error:
            # A library in Rust that panics over a peer's certificate raises no Exception.
            if not self._has_failed:
                # Peers may repeat what leads here; each is refused with the words of the error.
                self._has_failed = True
                logger.exception("a step of a TLS handshake failed")
            raise TlsRefusedError(f"its step failed: {error!r}") from error

    def _on_done(self, done: Callable[[Future[Result]], None], future: Future[Result]) -> None:
        """Continue on the loop. Called in a thread, or on the loop if the step was cancelled."""
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
