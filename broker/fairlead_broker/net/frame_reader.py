"""Bytes of one connection in, whole frames out, with bounded memory.

Small frames are handled where they arrived, in the receive buffer that all connections share: it is
free again when the callback returns. An incomplete large frame gets a buffer of its own that the
rest is received into, straight into place. The socket isn't read, which makes TCP slow the peer
down, while its connection has too much to answer or to send, or while frame memory is short.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

from fairlead_broker.limits import (
    BYTES_READ_PER_TURN,
    CARRY_BYTES_MAX,
    FRAME_DEADLINE_S,
    FRAME_RATE_MIN_BYTES_PER_S,
    FRAME_STEP_BYTES,
    KIB,
    RECEIVE_BUFFER_BYTES,
)
from fairlead_broker.net.hang_up import has_hung_up, unread_bytes

if TYPE_CHECKING:
    from fairlead_broker.net.carried_connection import CarriedConnection
    from fairlead_broker.net.connection_host import TransportHost

_LENGTH: Final = struct.Struct(">i")
_LENGTH_SIZE: Final = 4
_FIRST_FRAME_BYTES: Final = 16 * KIB
_LARGE_FRAME_BYTES: Final = 64 * KIB
_PEEK_BYTES: Final = 4 * KIB


class ReadSide(Protocol):
    """What a reader needs of a socket, or of what stands for one. BlockingIOError: not now."""

    def fileno(self) -> int:
        """Give the descriptor that tells when there is something to read."""
        ...

    def recv_into(self, buffer: memoryview, /) -> int:
        """Fill the beginning of a buffer; 0 at the end of the stream."""
        ...

    def recvmsg_into(self, buffers: list[memoryview], /) -> tuple[int, object, object, object]:
        """Fill several buffers, one after the other; how many bytes, and what sockets add."""
        ...


class FrameReader:
    """Cuts frames and hands each to its connection.

    At most one of three is in use: `_carry`, the beginning of a small frame; `_buffer`, the buffer
    of a large one of which `_filled` bytes of `_size` are here; `_stash`, frames that may not be
    handled yet. Ticks are seconds of the server's sweep.
    """

    __slots__ = (
        "_buffer",
        "_carry",
        "_connection",
        "_fd",
        "_filled",
        "_frame_tick",
        "_largest_frame",
        "_read_limit",
        "_server",
        "_size",
        "_socket",
        "_stash",
        "_stash_reserved",
        "_waits_for_memory",
        "is_reading",
        "read_tick",
    )

    farewell_bytes: ClassVar[int] = 0
    """What a peer may send before it hangs up that holds no whole request."""

    def __init__(
        self, connection: CarriedConnection, server: TransportHost, sock: ReadSide
    ) -> None:
        self.is_reading = True
        self.read_tick = server.tick
        self._connection = connection
        self._server = server
        self._socket = sock
        self._fd = sock.fileno()
        self._carry = b""
        self._stash = bytearray()
        self._stash_reserved = 0
        self._buffer: bytearray | None = None
        self._size = 0
        self._filled = 0
        self._frame_tick = server.tick
        self._largest_frame = _FIRST_FRAME_BYTES
        self._read_limit = RECEIVE_BUFFER_BYTES
        self._waits_for_memory = False
        server.loop.add_reader(self._fd, self.on_readable)

    def on_readable(self) -> None:
        """Read what the socket has, as far as this turn of the loop allows, and handle it."""
        self.read_tick = self._server.tick
        connection = self._connection
        left = BYTES_READ_PER_TURN
        try:
            while left > 0 and not connection.is_closed:
                if self._buffer is None:
                    self._receive_shared()
                if self._buffer is None or not self.is_reading:
                    return
                self._receive_own(self._buffer)
                if self._read_limit != _PEEK_BYTES or not self.is_reading:
                    return
                # A large frame is complete. The next one is often here already, and another turn
                # of the loop costs more than a read that finds nothing.
                left -= self._size
        except BlockingIOError:
            return
        except OSError:
            # The peer reset the connection, or the network gave it up: clients do that all day.
            connection.close()

    def _receive_shared(self) -> None:
        """One read into the shared buffer, behind what is left of the last one."""
        server = self._server
        view = server.receive_view
        start = len(self._carry)
        if start:
            view[:start] = self._carry
        limit = CARRY_BYTES_MAX if server.memory.waiting_count else self._read_limit
        count = self._socket.recv_into(view[start : start + limit])
        if count == 0:
            self._connection.close()
            return
        self._carry = b""
        self._read_limit = RECEIVE_BUFFER_BYTES
        frame_tick = self._frame_tick
        self._consume(view, start + count)
        if start and len(self._carry) == start + count:
            # Still the same frame: dripping bytes doesn't buy it time.
            self._frame_tick = frame_tick

    def _receive_own(self, buffer: bytearray) -> None:
        """One read straight into place; what follows a frame's end goes to the shared buffer."""
        end = min(self._size, len(buffer))
        wanted = end - self._filled
        rest = memoryview(buffer)[self._filled : min(end, self._filled + BYTES_READ_PER_TURN)]
        spare = 0
        if end == self._size and wanted < _LARGE_FRAME_BYTES:
            count = self._socket.recvmsg_into([rest, self._server.receive_view])[0]
            spare = max(0, count - wanted)
        else:
            count = self._socket.recv_into(rest)
        if count == 0:
            self._connection.close()
            return
        self._filled += count - spare
        if self._filled == self._size:
            self._finish_frame(buffer)
            if spare and not self._connection.is_closed:
                self._consume(self._server.receive_view, spare)
        elif self._filled == len(buffer):
            self._grow_frame(buffer)

    def _consume(self, view: memoryview, end: int) -> None:
        """Hand over the whole frames in `view[:end]` and keep the rest."""
        connection = self._connection
        frame_size_max = connection.frame_size_max
        position = 0
        connection.begin_frames()
        while end - position >= _LENGTH_SIZE and connection.close_reason is None:
            (size,) = _LENGTH.unpack_from(view, position)
            if not 0 <= size <= frame_size_max:
                connection.refuse(f"a frame of {size} bytes is not acceptable")
                break
            frame_end = position + _LENGTH_SIZE + size
            if frame_end > end or connection.is_over_limits():
                break
            connection.handle_frame(view[position + _LENGTH_SIZE : frame_end])
            position = frame_end
        connection.end_frames()
        if connection.is_closed:
            return
        if position < end:
            self._keep(view[position:end])
        self.update_reading()

    def _keep(self, rest: memoryview) -> None:
        """Hold what could not be handled yet."""
        if self._connection.is_over_limits():
            if not self._server.memory.reserve(len(rest)):
                self._connection.close("pipelines requests while request memory is used up")
                return
            self._stash = bytearray(rest)
            self._stash_reserved = len(rest)
            return
        self._frame_tick = self._server.tick
        size = _LENGTH.unpack_from(rest)[0] if len(rest) >= _LENGTH_SIZE else 0
        if size + _LENGTH_SIZE <= CARRY_BYTES_MAX:
            self._carry = bytes(rest)
        else:
            self._begin_frame(size, rest)

    def _begin_frame(self, size: int, rest: memoryview) -> None:
        """Move the beginning of a large frame into a buffer of its own.

        The buffer's first size follows what has arrived, or what this peer has sent before, never
        the claimed size alone.
        """
        received = len(rest) - _LENGTH_SIZE
        capacity = max(_FIRST_FRAME_BYTES, 8 * received, self._largest_frame)
        buffer = self._server.memory.acquire(min(size, capacity), self)
        if buffer is None:
            self._stash = bytearray(rest)
            self._waits_for_memory = True
            return
        buffer[:received] = rest[_LENGTH_SIZE:]
        self._buffer = buffer
        self._size = size
        self._filled = received

    def _grow_frame(self, buffer: bytearray) -> None:
        memory = self._server.memory
        larger = memory.acquire(min(self._size, 4 * len(buffer)), self)
        if larger is None:
            self._waits_for_memory = True
            self.update_reading()
            return
        larger[: self._filled] = buffer
        memory.release(buffer)
        self._buffer = larger

    def _finish_frame(self, buffer: bytearray) -> None:
        """Hand over the frame that is complete in its own buffer, and return the buffer back."""
        connection = self._connection
        size = self._size
        self._buffer = None
        connection.begin_frames()
        connection.handle_frame(memoryview(buffer)[:size])
        connection.end_frames()
        memory = self._server.memory
        memory.release(buffer)
        memory.finish(self)
        self._largest_frame = min(max(size, self._largest_frame), FRAME_STEP_BYTES)
        if size >= _LARGE_FRAME_BYTES:
            # Another large one is likely: read just its head here, the rest in place.
            self._read_limit = _PEEK_BYTES
        if not connection.is_closed:
            self.update_reading()

    def on_frame_memory(self) -> None:
        """Go on reading, because the memory budget has room again."""
        self._waits_for_memory = False
        self._frame_tick = self._server.tick
        if self._buffer is not None:
            self._grow_frame(self._buffer)
            if not self._waits_for_memory:
                self.update_reading()
        else:
            self._replay_stash()

    def maybe_resume(self) -> bool:
        """Go on with what was held back, if nothing stands against it; whether it did."""
        if self.is_reading or self._waits_for_memory or self._connection.is_over_limits():
            return False
        self._frame_tick = self._server.tick
        if self._stash:
            self._replay_stash()
        else:
            self.update_reading()
        return True

    def update_reading(self) -> None:
        """Listen to the socket exactly while its bytes could be handled."""
        wanted = not (self._waits_for_memory or self._stash or self._connection.is_over_limits())
        if wanted == self.is_reading or self._connection.is_closed:
            return
        self.is_reading = wanted
        if wanted:
            self._server.loop.add_reader(self._fd, self.on_readable)
        else:
            self._server.loop.remove_reader(self._fd)

    def overdue_s(self, tick: int) -> int:
        """Return the deadline that the frame at hand has missed, or 0, own pauses excluded."""
        if not self.is_reading or not self.has_partial_frame:
            return 0
        allowed_s = FRAME_DEADLINE_S
        if self._buffer is not None:
            allowed_s += self._filled // FRAME_RATE_MIN_BYTES_PER_S
        return allowed_s if tick - self._frame_tick > allowed_s else 0

    def has_ended(self) -> bool:
        """Tell whether the peer has hung up while it was not read, with all it sent handled.

        What was held back is handled first: somebody may have sent it and left on purpose.
        """
        if self.is_reading or self._stash or not has_hung_up(self._fd):
            return False
        return unread_bytes(self._fd) <= (0 if self.has_partial_frame else self.farewell_bytes)

    @property
    def has_partial_frame(self) -> bool:
        return self._buffer is not None or bool(self._carry)

    def close(self) -> None:
        """Stop reading and return all memory back."""
        self._server.loop.remove_reader(self._fd)
        memory = self._server.memory
        memory.unreserve(self._stash_reserved)
        self._stash = bytearray()
        self._stash_reserved = 0
        if self._buffer is not None:
            memory.release(self._buffer)
            self._buffer = None
        memory.forget(self)

    def _replay_stash(self) -> None:
        stash = self._stash
        self._stash = bytearray()
        self._server.memory.unreserve(self._stash_reserved)
        self._stash_reserved = 0
        self._consume(memoryview(stash), len(stash))
