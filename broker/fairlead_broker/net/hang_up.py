"""Whether the peer of a socket has hung up, for sockets that are not being read."""

from __future__ import annotations

import fcntl
import select
import struct
import termios
from typing import Final

_COUNT: Final = struct.Struct("i")


def has_hung_up(fd: int) -> bool:
    """Tell whether the peer has closed its end or the connection has failed.

    What it sent before may be unread still.
    """
    poll = select.poll()
    poll.register(fd, select.POLLRDHUP)
    return bool(poll.poll(0))


def unread_bytes(fd: int) -> int:
    """Return how many bytes have come that were not read."""
    (count,) = _COUNT.unpack(fcntl.ioctl(fd, termios.FIONREAD, bytes(_COUNT.size)))
    return int(count)
