"""Memory for frames that don't fit the shared receive buffer: budgeted, recycled, never trusted.

A frame's own buffer begins small and grows with the bytes that arrive, so a length field alone
buys nothing. All such buffers together stay within a budget. Beyond it a connection isn't read
until others have finished; one at a time may overdraw the budget by its one frame, because
otherwise half-received frames could wait for each other for ever.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Protocol

from fairlead_broker.limits import KIB

_CLASSES: Final = (16 * KIB, 64 * KIB, 256 * KIB, 1088 * KIB)
"""Sizes that are recycled; the largest fits a batch of the default `max.message.bytes`."""


class MemoryUser(Protocol):
    """A connection that waits for frame memory."""

    def on_frame_memory(self) -> None:
        """Try again: others have given memory back."""
        ...


class FrameMemory:
    """The budget, the free buffers by size class, and who waits.

    `used_bytes` counts buffers and stashes handed out. It exceeds the budget only by what the
    current `_overdrawer` holds.
    """

    __slots__ = ("_budget_bytes", "_free", "_free_bytes", "_free_bytes_max", "_overdrawer",
                 "_waiting", "used_bytes")  # fmt: skip

    def __init__(self, *, budget_bytes: int, free_bytes_max: int) -> None:
        self.used_bytes = 0
        self._budget_bytes = budget_bytes
        self._free: dict[int, list[bytearray]] = {size: [] for size in _CLASSES}
        self._free_bytes = 0
        self._free_bytes_max = free_bytes_max
        self._overdrawer: MemoryUser | None = None
        self._waiting: deque[MemoryUser] = deque()

    @property
    def waiting_count(self) -> int:
        """Connections that aren't read until memory is given back."""
        return len(self._waiting)

    def acquire(self, size: int, user: MemoryUser) -> bytearray | None:
        """Return a buffer of at least `size` bytes; None: `user` is called to try again."""
        for size_class in _CLASSES:
            if size <= size_class:
                size = size_class
                break
        if self.used_bytes + size > self._budget_bytes:
            if self._overdrawer is None:
                self._overdrawer = user
            elif self._overdrawer is not user:
                self._waiting.append(user)
                return None
        self.used_bytes += size
        free = self._free.get(size)
        if free:
            self._free_bytes -= size
            return free.pop()
        return bytearray(size)

    def release(self, buffer: bytearray) -> None:
        """Return a buffer back; nothing may refer to it any more."""
        size = len(buffer)
        self.used_bytes -= size
        free = self._free.get(size)
        if free is not None and self._free_bytes + size <= self._free_bytes_max:
            free.append(buffer)
            self._free_bytes += size

    def reserve(self, size: int) -> bool:
        """Count `size` bytes that are held elsewhere; False, and nothing counted, when over."""
        if self.used_bytes + size > self._budget_bytes:
            return False
        self.used_bytes += size
        return True

    def unreserve(self, size: int) -> None:
        self.used_bytes -= size

    def finish(self, user: MemoryUser) -> None:
        """`user` has released all it held: its turn to overdraw is over, waiting ones may go."""
        if self._overdrawer is user:
            self._overdrawer = None
        if self._waiting:
            self._wake()

    def forget(self, user: MemoryUser) -> None:
        """`user` is gone and must not be called any more."""
        if user in self._waiting:
            self._waiting.remove(user)
        self.finish(user)

    def _wake(self) -> None:
        # Each is called at most once here: one that still gets no buffer queues again.
        for _ in range(len(self._waiting)):
            if self._overdrawer is not None and self.used_bytes >= self._budget_bytes:
                return
            if not self._waiting:
                return
            self._waiting.popleft().on_frame_memory()
