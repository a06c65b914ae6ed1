"""One client connection: requests in, replies out, in order, within its bounds.

A raw non-blocking socket on `loop.add_reader` and `add_writer`; no transport, no task, no future.
One read brings many frames, which are handled in the callback; their replies leave in one write.
A request that must wait keeps its slot in a deque, so replies leave in the order of requests.
A request that reads offsets is handled once all before it are answered: see `_READS_IN_TURN`.
How frames arrive and replies leave is its listener's choice: see `transport`.
"""

from __future__ import annotations

import struct
from collections import deque
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, Final

from fairlead_broker.authorization import ANONYMOUS, BROKER
from fairlead_broker.limits import (
    CARRY_BYTES_MAX,
    KIB,
    REQUESTS_IN_FLIGHT_MAX,
    UNPROVED_FRAME_BYTES_MAX,
    UNPROVED_UNSENT_BYTES_MAX,
    UNSENT_BYTES_MAX,
    WRITE_STALL_S,
)
from fairlead_broker.net.dispatch import dispatch, encode_reply, name_api
from fairlead_broker.net.read_ahead import SliceLostError
from fairlead_broker.net.sender import SendState
from fairlead_broker.peer_check import BROKER_IDS, NO_BROKER_IDS, PeerCheck
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import RemoteProtocolError

if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import Container, Coroutine

    from fairlead_broker.api_registry import ClientLogin, RequestContext
    from fairlead_broker.authorization import Principal
    from fairlead_broker.listener import Listener
    from fairlead_broker.net.connection_host import ConnectionHost
    from fairlead_broker.net.transport import FrameSource, OpenTransport, ReplySink
    from fairlead_wire.segments import Segment

_FLUSH_BYTES: Final = 64 * KIB
_READS_IN_TURN: Final = frozenset(
    (ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FETCH, ApiKey.OFFSET_FOR_LEADER_EPOCH)
)
"""APIs that are handled when their turn to be answered has come, as by Apache Kafka.

A client takes what it hears last for the newest. An offset that was looked up while a Fetch before
it was parked would arrive after records beyond it: Kafka Streams then waits for ever, because its
high watermark is below its position. These requests change nothing, and waiting costs no time.
"""
_API_KEY: Final = struct.Struct(">h")


class Connection:
    """One connection: frames, parked requests, sending, closing. All of it runs on the loop.

    `_slots` holds the requests whose replies can't leave yet: the first of them is parked, or is
    answered and leaves at the end of this turn. `close_reason` is set while frames are handled
    and carried out after the replies of the earlier ones. `_waiting_frame` is a request that waits
    for its turn; none behind it is handled. For metrics, of the frames of one read:
    `arrived_ns` is when they came, `answered_count` how many of the API `run_api_key` have their
    answer, `handled_ns` when those of other APIs before them were done with.
    """

    __slots__ = (
        "_client_id",
        "_client_id_bytes",
        "_fd",
        "_in_flight_max",
        "_is_dirty",
        "_is_handling",
        "_is_writing",
        "_mute_timer",
        "_out",
        "_out_size",
        "_progress_seen",
        "_progress_tick",
        "_reader",
        "_server",
        "_slots",
        "_socket",
        "_unsent_bytes_max",
        "_waiting_frame",
        "answered_count",
        "arrived_ns",
        "authorizer",
        "broker",
        "charged_ms",
        "client_host",
        "close_reason",
        "handled_ns",
        "is_closed",
        "listener",
        "login",
        "metrics",
        "peer_check",
        "principal",
        "quotas",
        "replica_ids",
        "run_api_key",
        "sender",
        "times",
        "used_topic_ids",
    )

    replica_ids: Container[int]
    sender: ReplySink
    _reader: FrameSource

    def __init__(
        self,
        server: ConnectionHost[Connection],
        listener: Listener,
        sock: socket.socket,
        client_host: str,
        open_transport: OpenTransport,
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
        self.principal = ANONYMOUS
        self.login: ClientLogin | None = None
        # A peer that has passed the check of the brokers' listener is a broker, and may do
        # everything.
        self.authorizer = None if listener.is_internal else server.authorizer
        self.peer_check = PeerCheck(server.cluster_secret) if listener.is_internal else None
        self.replica_ids = BROKER_IDS if listener.is_internal else NO_BROKER_IDS
        self.quotas = server.quotas_for(self)
        self.is_closed = False
        self.close_reason: str | None = None
        self._unsent_bytes_max = (
            UNPROVED_UNSENT_BYTES_MAX if listener.is_internal else UNSENT_BYTES_MAX
        )
        self._in_flight_max = REQUESTS_IN_FLIGHT_MAX
        self._mute_timer: asyncio.TimerHandle | None = None
        self.charged_ms = 0
        self.used_topic_ids: set[bytes] = set()
        self._server = server
        self._socket = sock
        self._fd = sock.fileno()
        self._is_dirty = False
        self._is_handling = False
        self._is_writing = False
        self._slots: deque[RequestContext] = deque()
        self._waiting_frame: bytes | None = None
        self._out: list[Segment] = []
        self._out_size = 0
        self._progress_seen = 0
        self._progress_tick = server.tick
        self._client_id: str | None = None
        self._client_id_bytes: bytes | None = None
        self._reader, self.sender = open_transport(self, server, sock)

    def begin_frames(self) -> None:
        """Several frames may follow: replies and a close wait for `end_frames`."""
        self._is_handling = True
        self.arrived_ns = self.handled_ns = perf_counter_ns()

    def handle_frame(self, frame: memoryview) -> None:
        """Handle one request; an error in it ends this connection and nothing else."""
        if self._slots and self._must_wait(frame):
            return
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

    def _must_wait(self, frame: memoryview) -> bool:
        """Keep a request whose turn has not come; tell whether it is one."""
        if len(frame) < _API_KEY.size or _API_KEY.unpack_from(frame)[0] not in _READS_IN_TURN:
            return False
        if self._server.memory.reserve(_counted_bytes(frame)):
            self._waiting_frame = bytes(frame)
        else:
            self.close("pipelines requests while request memory is used up")
        return True

    def _go_on(self) -> None:
        """Handle the request that waited for its turn, if that has come, and those behind it."""
        frame = self._waiting_frame
        if frame is not None and not self._slots and not self.is_muted:
            self._drop_waiting()
            self.begin_frames()
            self.handle_frame(memoryview(frame))
            self.end_frames()
        if not self.is_closed:
            self._reader.maybe_resume()

    def _drop_waiting(self) -> None:
        if self._waiting_frame is not None:
            self._server.memory.unreserve(_counted_bytes(self._waiting_frame))
            self._waiting_frame = None

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
        """Begin a run of another API than that of the frames before in this read."""
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

    @property
    def is_known(self) -> bool:
        """Whether the client has authenticated, if its listener requires it; for quotas."""
        return True

    def is_over_limits(self) -> bool:
        """Tell whether this peer must wait before any more of its requests are handled."""
        return (
            self._waiting_frame is not None
            or len(self._slots) >= self._in_flight_max
            or self.sender.unsent_bytes > self._unsent_bytes_max
        )

    def mute(self, throttle_ms: int) -> None:
        """Handle no more requests for a time, or for what is left of a longer one (KIP-219).

        Replies that are ready are sent.
        """
        loop = self._server.loop
        end_s = loop.time() + throttle_ms / 1000
        if self._mute_timer is not None:
            if self._mute_timer.when() >= end_s:
                return
            self._mute_timer.cancel()
        self._in_flight_max = 0
        self._mute_timer = loop.call_at(end_s, self.unmute)

    def charge(self, spent_ms: int) -> None:
        """Have the peer wait as long as work for its request has kept others waiting."""
        if spent_ms > 0:
            self.charged_ms += spent_ms
            self.mute(self.charged_ms)

    def unmute(self) -> None:
        """Go on with requests: the time is over, or quotas have changed."""
        if self._mute_timer is None:
            return
        self._mute_timer.cancel()
        self._mute_timer = None
        self.charged_ms = 0
        self._in_flight_max = REQUESTS_IN_FLIGHT_MAX
        # It was not the peer that was silent.
        self._reader.read_tick = self._server.tick
        self._go_on()

    @property
    def is_muted(self) -> bool:
        """Whether the peer has used more than its quotas allow and has to wait."""
        return self._mute_timer is not None

    def on_secure(self, principal: Principal) -> None:
        """Let the peer in: its TLS handshake is done, and its certificate is that of `principal`.

        It is not called for plain sockets.
        """
        self.principal = principal
        self._server.on_let_in(self)

    def on_proved(self) -> None:
        """Lift the limits, because the peer has proved that it is a broker."""
        self.principal = BROKER
        self._unsent_bytes_max = UNSENT_BYTES_MAX
        self._server.on_proved(self)

    def on_response(self, context: RequestContext, response: Any) -> None:
        """Take the answer of a parked request; it leaves with others that have theirs now."""
        if self.is_closed:
            return
        if self.quotas is not None:
            response = self.quotas.complete(context, response)
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
            self._go_on()

    def _send(self) -> None:
        out, self._out = self._out, []
        self._out_size = 0
        if self.is_closed:
            return
        self.sender.push(out)
        if not self._is_writing:
            self.flush()

    def flush(self) -> None:
        """Send what the socket takes now, and the rest when it takes more."""
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
        self.flush()
        if not self.is_closed:
            self._reader.maybe_resume()

    def on_warm(self, error: BaseException | None) -> None:
        """Go on sending: what the sender waited for has been read, or could not be."""
        if self.is_closed:
            return
        if error is not None:
            self.close(f"reading ahead failed: {error}")
            return
        self._on_writable()

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

    def check_deadlines(self, tick: int, idle_s: int | None) -> None:
        """Close if the peer has been too slow, or has gone unseen; the server asks once a second.

        A client that is not read, because too many of its requests wait, may hang up without an
        event.
        """
        sender = self.sender
        if sender.unsent_bytes == 0 or sender.is_cold or sender.progress != self._progress_seen:
            self._progress_seen = sender.progress
            self._progress_tick = tick
        elif tick - self._progress_tick >= WRITE_STALL_S:
            self.close(f"took no reply for {WRITE_STALL_S} s, {sender.unsent_bytes} bytes wait")
            return
        reader = self._reader
        if self._slots or sender.unsent_bytes:
            # It is the peer that waits: its idle time begins when it has its answers.
            reader.read_tick = tick
        if overdue_s := reader.overdue_s(tick):
            self.close(f"a frame didn't arrive within {overdue_s} s")
        elif not sender.unsent_bytes and (reader.has_ended() or self._is_idle(tick, idle_s)):
            self.close()

    def _is_idle(self, tick: int, idle_s: int | None) -> bool:
        """Tell whether the peer has waited for nothing for long, and has said nothing."""
        if idle_s is None:
            return False
        reader = self._reader
        return tick - reader.read_tick >= idle_s and not (reader.has_partial_frame or self.is_muted)

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
        if self._mute_timer is not None:
            self._mute_timer.cancel()
            self._mute_timer = None
        if self._is_writing:
            self._server.loop.remove_writer(self._fd)
        for context in self._slots:
            if context.parked is not None:
                context.parked.cancel()
        self._slots.clear()
        self._drop_waiting()
        self._reader.close()
        self._socket.close()
        self._server.forget(self)


def _counted_bytes(frame: bytes | memoryview) -> int:
    """Return what a request that waits counts as; small ones wait while memory is short, too."""
    size = len(frame)
    return size if size > CARRY_BYTES_MAX else 0


def _name_frame(frame: memoryview) -> str:
    api_key, version = struct.unpack_from(">hh", frame)
    return f"{name_api(api_key)} version {version}"
