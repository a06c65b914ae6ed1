"""Sockets of addresses that connect too often: closed after a while, with nothing said or read.

An address that is refused at once would try again at once (KIP-612).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.limits import DELAYED_SOCKETS_MAX

if TYPE_CHECKING:
    import asyncio
    import socket


class DelayedSockets:
    """At most `DELAYED_SOCKETS_MAX`; of more the oldest is closed before its time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: dict[socket.socket, asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def close_later(self, sock: socket.socket, delay_ms: int) -> None:
        """Close a socket when its time is over."""
        if len(self._waiting) >= DELAYED_SOCKETS_MAX:
            self._close_one(next(iter(self._waiting)))
        self._waiting[sock] = self._loop.call_later(delay_ms / 1000, self._close_one, sock)

    def close(self) -> None:
        """Close all of them now."""
        for sock in list(self._waiting):
            self._close_one(sock)

    def _close_one(self, sock: socket.socket) -> None:
        self._waiting.pop(sock).cancel()
        sock.close()
