"""Produces of a connection that wait behind one whose transaction is being verified.

A producer's batches have to reach the log in the order in which they came, so what comes on the
same connection waits for its turn. Kafka reads no further from such a connection; here the request
is taken in, and its records copied, because the receive buffer is needed for others.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class WaitingProduces:
    """By connection: the produces behind the one that is verified. Bounded by their bytes."""

    def __init__(self, *, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._behind: dict[object, deque[tuple[Callable[[], None], int]]] = {}
        self._verified_bytes: dict[object, int] = {}

    @property
    def bytes(self) -> int:
        """What all of them take."""
        return self._bytes

    def must_wait(self, connection: object) -> bool:
        """Tell whether a produce of this connection is being verified."""
        return connection in self._behind

    def begin(self, connection: object, size: int) -> bool:
        """Have others wait behind a produce of `size` bytes; False if too much waits already."""
        if self._bytes + size > self._bytes_max:
            return False
        self._bytes += size
        self._behind[connection] = deque()
        self._verified_bytes[connection] = size
        return True

    def wait(self, connection: object, go_on: Callable[[], None], size: int) -> bool:
        """Call `go_on` when its turn has come; False if too much waits already."""
        if self._bytes + size > self._bytes_max:
            return False
        self._bytes += size
        self._behind[connection].append((go_on, size))
        return True

    def finish(self, connection: object) -> None:
        """Let go on what waits, in order, until one of them is verified itself."""
        behind = self._leave(connection)
        while behind:
            if connection in self._behind:
                self._behind[connection].extend(behind)
                return
            go_on, size = behind.popleft()
            self._bytes -= size
            go_on()

    def forget(self, connection: object) -> None:
        """Drop what waits: the connection is closed."""
        behind = self._leave(connection)
        self._bytes -= sum(size for _, size in behind)

    def _leave(self, connection: object) -> deque[tuple[Callable[[], None], int]]:
        self._bytes -= self._verified_bytes.pop(connection)
        return self._behind.pop(connection)
