"""One client connection: requests in, replies out, in order, within its bounds.

A raw non-blocking socket on `loop.add_reader` and `add_writer`; no transport, no task, no future.
One read brings many frames, which are handled in the callback; their replies leave in one write.
A request that must wait keeps its slot in a deque, so replies leave in the order of requests.
`FrameReader` knows how frames arrive, `Sender` how replies leave; a TLS twin brings its own two.
"""

from __future__ import annotations

import struct
from collections import deque
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final

from fairlead_broker.limits import (
    KIB,
    REQUESTS_IN_FLIGHT_MAX,
    UNPROVED_FRAME_BYTES_MAX,
    UNSENT_BYTES_MAX,
    WRITE_STALL_S,
)
from fairlead_broker.net.dispatch import dispatch, encode_reply, name_api
from fairlead_broker.net.frame_reader import FrameReader
from fairlead_broker.net.read_ahead import SliceLostError
from fairlead_broker.net.sender import Sender, SendState
from fairlead_broker.peer_check import PeerCheck
from fairlead_wire.errors import RemoteProtocolError

if TYPE_CHECKING:
    import socket
    from collections.abc import Coroutine

    from fairlead_broker.handlers.registry import RequestContext
    from fairlead_broker.listener import Listener
    from fairlead_broker.net.server import Server
    from fairlead_wire.segments import Segment

_FLUSH_BYTES: Final = 64 * KIB


class Connection:
    """Dispatches and replies. All of it runs on the loop.

    `_slots` holds the requests whose replies can't leave yet: the first of them is parked, or is
    answered and leaves at the end of this turn. `close_reason` is set while frames are handled
    and carried out after the replies of the earlier ones. For metrics, of the frames of one read:
    `arrived_ns` is when they came, `answered_count` how many of the API `run_api_key` have their
    answer, `handled_ns` when those of other APIs before them were done with.
    """

    __slots__ = (
        "_client_id",
        "_client_id_bytes",
        "_fd",
        "_is_dirty",
        "_is_handling",
        "_is_writing",
        "_out",
        "_out_size",
        "_progress_seen",
        "_progress_tick",
        "_reader",
        "_server",
        "_slots",
        "_socket",
        "answered_count",
        "arrived_ns",
        "broker",
        "client_host",
        "close_reason",
        "handled_ns",
        "is_closed",
        "listener",
        "metrics",
        "peer_check",
        "run_api_key",
        "sender",
        "times",
    )

    def __init__(
        self, server: Server, listener: Listener, sock: socket.socket, client_host: str
    ) -> None:
        self.broker = server.broker
        self.metrics = server.metrics
        self.times = server.metrics.times_on(is_internal=listener.is_internal)
        self.run_api_key = 0
        self.answered_count = 0
        self.arrived_ns = 0
        self.handled_ns = 0
        self.listener = listener
        self.client_host = client_host
        self.peer_check = PeerCheck(server.cluster_secret) if listener.is_internal else None
        self.sender = Sender(sock, server.read_ahead, self._on_warm)
        self.is_closed = False
        self.close_reason: str | None = None
        self._server = server
        self._socket = sock
        self._fd = sock.fileno()
        self._is_dirty = False
        self._is_handling = False
        self._is_writing = False
        self._slots: deque[RequestContext] = deque()
        self._out: list[Segment] = []
        self._out_size = 0
        self._progress_seen = 0
        self._progress_tick = server.tick
        self._client_id: str | None = None
        self._client_id_bytes: bytes | None = None
        self._reader = FrameReader(self, server, sock)

    # Frames, in a run between begin_frames and end_frames.

    def begin_frames(self) -> None:
        """Several frames may follow: replies and a close wait for `end_frames`."""
        self._is_handling = True
        self.arrived_ns = self.handled_ns = perf_counter_ns()

    def handle_frame(self, frame: memoryview) -> None:
        """One request; whatever is wrong with it ends this connection and nothing else."""
        try:
            context = dispatch(self, frame)
        except RemoteProtocolError as error:
            self.refuse(str(error))
            return
        except Exception:
            self._server.peer_log.warn(
                "handler failed",
                "handling %s of %s failed",
                _name_frame(frame),
                self.client_host,
                trace=True,
            )
            self.close("its request could not be handled")
            return
        if context is None:
            return
        segments = context.segments
        if segments is None or self._slots:
            self._slots.append(context)
            return
        self._out += segments
        for segment in segments:
            self._out_size += len(segment)
        if self._out_size >= _FLUSH_BYTES:
            self._send()

    def end_frames(self) -> None:
        """Send what was answered, then close if that was asked for."""
        if self._out:
            self._send()
        self._note_run()
        self._is_handling = False
        if self.close_reason is not None:
            self._close_now(self.close_reason)
        elif self._slots and self._slots[0].segments is not None:
            self._flush_soon()

    def begin_run(self, api_key: int) -> None:
        """The next frame is of another API than those before it in this read."""
        if self.answered_count:
            self._note_run()
        self.run_api_key = api_key

    def _note_run(self) -> None:
        """Note how long the requests took that were answered together.

        Their replies leave together, so each took as long as all: one look at the clock will do.
        """
        now_ns = perf_counter_ns()
        times = self.times[self.run_api_key]
        times.local_ns += now_ns - self.handled_ns
        self.handled_ns = now_ns
        if count := self.answered_count:
            self.answered_count = 0
            total_ns = now_ns - self.arrived_ns
            times.total_ns += total_ns * count
            times.counts[total_ns.bit_length()] += count

    @property
    def frame_size_max(self) -> int:
        """Peers that have not proved that they are brokers get small frames only."""
        if self.peer_check is None or self.peer_check.is_passed:
            return self._server.frame_size_max
        return min(UNPROVED_FRAME_BYTES_MAX, self._server.frame_size_max)

    def is_over_limits(self) -> bool:
        """Whether this peer must wait before any more of its requests are handled."""
        return (
            len(self._slots) >= REQUESTS_IN_FLIGHT_MAX
            or self.sender.unsent_bytes > UNSENT_BYTES_MAX
        )

    # Parked requests.

    def on_response(self, context: RequestContext, response: Any) -> None:
        """A parked request has its answer; it leaves with others that have theirs now."""
        if self.is_closed:
            return
        try:
            context.segments = encode_reply(context, response)
        except Exception:
            self._server.peer_log.warn(
                "reply failed",
                "encoding the reply to %s for %s failed",
                name_api(context.api_key),
                self.client_host,
                trace=True,
            )
            self.close("its reply could not be encoded")
            return
        if context.parked_ns:
            now_ns = perf_counter_ns()
            times = self.times[context.api_key]
            times.note(now_ns - context.arrived_ns)
            times.remote_ns += now_ns - context.parked_ns
        if self._slots and self._slots[0].segments is not None:
            self._flush_soon()

    def run_later(self, context: RequestContext, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._server.run_later(self, context, coroutine)

    def _flush_soon(self) -> None:
        if not self._is_dirty:
            self._is_dirty = True
            self._server.ready_replies.add(self)

    def send_answered(self) -> None:
        """Send all replies whose turn has come; called once after `_flush_soon`."""
        self._is_dirty = False
        if self.is_closed:
            return
        slots = self._slots
        while slots:
            segments = slots[0].segments
            if segments is None:
                break
            slots.popleft()
            self._out += segments
        if self._out:
            self._send()
        if not self.is_closed:
            self._reader.maybe_resume()

    # Sending.

    def _send(self) -> None:
        out, self._out = self._out, []
        self._out_size = 0
        if self.is_closed:
            return
        self.sender.push(out)
        if not self._is_writing:
            self._flush()

    def _flush(self) -> None:
        try:
            state = self.sender.flush()
        except SliceLostError as error:
            self.close(f"records went missing: {error}")
            return
        except (ConnectionError, TimeoutError):
            self.close()
            return
        except OSError as error:
            # Not the peer's doing: a disk that can't be read, most likely.
            self.close(f"sending failed: {error}")
            return
        wanted = state is SendState.FULL or state is SendState.TURN_OVER
        if wanted != self._is_writing:
            self._is_writing = wanted
            if wanted:
                self._server.loop.add_writer(self._fd, self._on_writable)
            else:
                self._server.loop.remove_writer(self._fd)

    def _on_writable(self) -> None:
        self._flush()
        if not self.is_closed:
            self._reader.maybe_resume()

    def _on_warm(self, error: BaseException | None) -> None:
        if self.is_closed:
            return
        if error is not None:
            self.close(f"reading ahead failed: {error}")
            return
        self._on_writable()

    # Life.

    def client_id_of(self, raw: bytes) -> str:
        """Decode a client id; connections hardly ever change theirs."""
        if raw == self._client_id_bytes and self._client_id is not None:
            return self._client_id
        try:
            client_id = raw.decode()
        except UnicodeDecodeError as error:
            raise RemoteProtocolError("the client id is not UTF-8") from error
        self._client_id = client_id
        self._client_id_bytes = raw
        return client_id

    def check_deadlines(self, tick: int, idle_s: int) -> None:
        """Close if the peer has been too slow; the server asks once a second."""
        sender = self.sender
        if sender.unsent_bytes == 0 or sender.is_cold or sender.progress != self._progress_seen:
            self._progress_seen = sender.progress
            self._progress_tick = tick
        elif tick - self._progress_tick >= WRITE_STALL_S:
            self.close(f"took no reply for {WRITE_STALL_S} s, {sender.unsent_bytes} bytes wait")
            return
        reader = self._reader
        if overdue_s := reader.overdue_s(tick):
            self.close(f"a frame didn't arrive within {overdue_s} s")
        elif tick - reader.read_tick >= idle_s and not (
            self._slots or sender.unsent_bytes or reader.has_partial_frame
        ):
            self.close()

    def refuse(self, reason: str) -> None:
        """Close because the peer broke the protocol."""
        self.metrics.protocol_errors += 1
        self.close(reason)

    def close(self, reason: str = "") -> None:
        """Close, and log the reason if there is one; at once, or after the frames at hand."""
        if self._is_handling:
            if self.close_reason is None:
                self.close_reason = reason
        elif not self.is_closed:
            self._close_now(reason)

    def _close_now(self, reason: str) -> None:
        self.is_closed = True
        if reason:
            self._server.peer_log.warn(
                "connection closed",
                "closing the connection of %s (client id %s): %s",
                self.client_host,
                ascii(self._client_id),
                reason,
            )
        if self._is_writing:
            self._server.loop.remove_writer(self._fd)
        for context in self._slots:
            if context.parked is not None:
                context.parked.cancel()
        self._slots.clear()
        self._reader.close()
        self._socket.close()
        self._server.forget(self)


def _name_frame(frame: memoryview) -> str:
    api_key, version = struct.unpack_from(">hh", frame)
    return f"{name_api(api_key)} version {version}"
