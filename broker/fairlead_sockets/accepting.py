"""Accept connections for asyncio protocols, a few in each iteration of the event loop.

asyncio's own servers accept as long as they are open. This one leaves new connections in the
kernel's queue while there is no room for them, and loses no accepted connection when it stops.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

logger = logging.getLogger(__name__)

_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_EXHAUSTED_PAUSE_S: Final = 1.0
"""Pause before the next accept after the process or the kernel had no resources for one."""


class Acceptor:
    """Accepts connections from one listening socket. Use it on a running loop."""

    def __init__(
        self,
        listening: socket.socket,
        open_protocol: Callable[[], asyncio.BaseProtocol],
        *,
        per_turn: int,
        has_room: Callable[[], bool] = lambda: True,
    ) -> None:
        """Accept nothing before `resume`.

        `open_protocol` is called for each connection; `per_turn` limits the connections of one loop
        iteration. `has_room` is called before each accept. If it returns False, the acceptor pauses
        until `resume`.
        """
        self._listening = listening
        self._open_protocol = open_protocol
        self._per_turn = per_turn
        self._has_room = has_room
        self._loop = asyncio.get_running_loop()
        self._opening: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._is_accepting = False
        self._is_closed = False

    def resume(self) -> None:
        """Accept connections from now on, as long as there is room."""
        if not self._is_accepting and not self._is_closed and self._timer is None:
            self._is_accepting = True
            self._loop.add_reader(self._listening.fileno(), self._accept)

    async def close(self) -> None:
        """Stop accepting; return once each accepted connection has its protocol."""
        self._pause()
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._listening.close()
        await asyncio.gather(*self._opening)

    def _pause(self) -> None:
        if self._is_accepting:
            self._is_accepting = False
            self._loop.remove_reader(self._listening.fileno())

    def _accept(self) -> None:
        for _ in range(self._per_turn):
            if not self._has_room():
                self._pause()
                return
            try:
                sock, _ = self._listening.accept()
            except OSError as error:
                # Mostly no connection waits (EAGAIN), or the client has closed it.
                if error.errno in _EXHAUSTED:
                    logger.warning("cannot accept connections: %s", error.strerror)
                    self._pause()
                    self._timer = self._loop.call_later(_EXHAUSTED_PAUSE_S, self._go_on)
                return
            sock.setblocking(False)
            opening = self._loop.create_task(self._open(sock))
            self._opening.add(opening)
            opening.add_done_callback(self._opening.discard)

    def _go_on(self) -> None:
        self._timer = None
        self.resume()

    async def _open(self, sock: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._open_protocol, sock)
        except Exception:
            # This affects one connection only.
            logger.exception("a connection that was accepted cannot be opened")
            sock.close()
