"""The sessions of all brokers: handshake, registration, deltas, calls, and who is dead.

It runs on the controller's event loop. A broker's registration, its position in the stream of
deltas and its image are taken in one step without an await, so that no delta is missed or sent
twice.

Parts of the class: opening a session, running it, and the timers that find dead brokers.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import Any, Final

from aiohttp import WSCloseCode, web

from fairlead_controller.controller import Controller
from fairlead_controller.decisions.events import (
    CordonBroker,
    FenceBroker,
    FenceReason,
    RegisterBroker,
    UnfenceBroker,
    UnregisterBroker,
)
from fairlead_controller.decisions.registration import registration_problem
from fairlead_controller.decisions.state import ControllerState
from fairlead_controller.decisions.tables.regressions import read_testimony
from fairlead_controller.sessions.call_parsing import parse_call
from fairlead_controller.sessions.handshake import Introduction, authenticate, turn_away
from fairlead_controller.sessions.hearing import NEWCOMERS_S, Hearing
from fairlead_controller.sessions.liveness import RECONNECT_GRACE_MS, Liveness
from fairlead_controller.sessions.messages import (
    answer_reply,
    error_reply,
    read_position,
    read_replicas,
    receive,
    receive_any,
)
from fairlead_controller.sessions.port_probe import is_refused
from fairlead_controller.sessions.publication import DeltaLog
from fairlead_controller.sessions.rare_log import RareLog
from fairlead_controller.sessions.session import CALLS_IN_FLIGHT_MAX, BrokerSession
from fairlead_controller.sessions.session_tls import peer_of
from fairlead_model.broker import BrokerRegistration
from fairlead_model.cluster import BrokerChanged, BrokerRemoved, Change
from fairlead_model.codec import (
    KIND_LENGTH_MAX,
    CodecError,
    decode_registration,
    flag,
    text,
    whole,
)
from fairlead_model.configs.controller_configs import DEFAULT_TIMING, SessionTiming
from fairlead_model.ids import BrokerEpoch, BrokerId
from fairlead_model.session.refusals import RefusalCode, RefusedError
from fairlead_model.session.session_messages import pack_message
from fairlead_model.session.session_protocol import (
    HANDSHAKE_TIMEOUT_S,
    MESSAGE_SIZE_MAX,
    OPTIONAL_MARK,
    MessageType,
    SessionProtocolError,
)

logger = logging.getLogger(__name__)
_log = RareLog(logger)

TICK_S: Final = 0.02
PROBE_INTERVAL_S: Final = 0.01
PROBE_INTERVAL_MAX_S: Final = 1.0
REFUSED_MAX: Final = 1000
"""How many refused brokers are remembered; the one that was refused longest ago is forgotten."""
SLEPT_MS: Final = 300
"""A tick that is so late means that the controller process itself did not run."""

Locate = Callable[[BrokerRegistration], BrokerRegistration]


class SessionServer:
    """Serves brokers for one reign of a controller."""

    def __init__(
        self,
        controller: Controller,
        secret: bytes,
        *,
        locate: Locate = lambda asking: asking,
        timing: SessionTiming = DEFAULT_TIMING,
    ) -> None:
        """`locate` adds to a registration what is known of the broker's machine."""
        self._controller = controller
        self._locate = locate
        self._secret = secret
        self._sessions: dict[BrokerId, BrokerSession] = {}
        self._timing = timing
        self._liveness = Liveness(timing.session_timeout_ms)
        self._deltas = DeltaLog(controller.committed.controller_epoch)
        self._tasks: set[asyncio.Task[None]] = set()
        self._hearing = Hearing(controller)
        self._arrivals = count()
        self._newest: dict[BrokerId, int] = {}
        """The newest arrival of each broker whose registration was decided or is being decided."""
        self._registering: dict[BrokerId, str] = {}
        """Start ids of the brokers whose registration is being decided."""
        self._heartbeat = asyncio.Event()
        """Set by each heartbeat, for callers that wait for one."""
        self.refused: dict[BrokerId, str] = {}
        """Brokers that were refused when they last asked, and why."""
        self.fencings: Counter[str] = Counter()
        """Brokers that were fenced, by the name of the reason."""
        self.fencing_seconds = 0.0
        """Total time from the verdicts until the new leaders were durable and published."""
        controller.subscribe(self._on_changes)
        for broker in controller.committed.image.brokers.values():
            if not broker.fenced:
                self._liveness.expect(broker.broker_id, broker.broker_epoch, _monotonic_ms())

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Serve one connection of a broker from its handshake to its end."""
        socket = web.WebSocketResponse(max_msg_size=MESSAGE_SIZE_MAX, compress=False, timeout=1.0)
        try:
            await socket.prepare(request)
        except ConnectionError:
            # The peer left first, or newer connections displaced it before it had authenticated.
            return web.Response()
        try:
            session = await self._open(socket, request)
        except (SessionProtocolError, CodecError, TimeoutError, RefusedError) as error:
            await turn_away(socket, request.remote, error)
        else:
            await self._run(session, socket)
        return socket

    async def serve_waiting(self, socket: web.WebSocketResponse, request: web.Request) -> None:
        """Serve a broker that has proved itself to a standby, which has become this controller."""
        epoch = self._controller.committed.controller_epoch
        try:
            await socket.send_bytes(pack_message(MessageType.ACTIVE, controller_epoch=epoch))
            arrival = next(self._arrivals)
            async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
                asking = await receive(socket, MessageType.REGISTER, size_max=MESSAGE_SIZE_MAX)
            session = await self._register(socket, request, asking, arrival)
        except (SessionProtocolError, CodecError, TimeoutError, RefusedError) as error:
            await turn_away(socket, request.remote, error)
        else:
            await self._run(session, socket)

    def set_timing(self, timing: SessionTiming) -> None:
        """Set the timing of sessions that begin from now on; open ones keep theirs."""
        self._timing = timing
        self._liveness.session_timeout_ms = timing.session_timeout_ms

    @property
    def session_count(self) -> int:
        """How many brokers have a session now."""
        return len(self._sessions)

    async def inject_fault(
        self, broker_id: BrokerId, fault: str, duration_ms: int, turns: tuple[int, int] = (0, 0)
    ) -> None:
        """Inject a drill's fault into a broker; RefusedError if that is impossible or not allowed.

        If the connection ends before the answer, the fault most likely ended it.
        """
        session = self._sessions.get(broker_id)
        if session is None:
            raise RefusedError(
                RefusalCode.BROKER_NOT_AVAILABLE, f"broker {broker_id} has no session"
            )
        await session.inject_fault(fault, duration_ms, turns)

    async def unregister(self, broker_id: BrokerId) -> None:
        """Unregister a broker for good; RefusedError while anything prevents that."""
        is_alive = self._liveness.is_alive(broker_id)
        await self._controller.submit(UnregisterBroker(broker_id, has_session=is_alive))

    async def watch(self) -> None:
        """Find dead brokers, as long as the controller lives."""
        self._begin(self._hearing.excuse_dead())
        last_ms = _monotonic_ms()
        looks_at_ms: int | None = last_ms + int(NEWCOMERS_S * 1000)
        while True:
            await asyncio.sleep(TICK_S)
            now_ms = _monotonic_ms()
            if now_ms - last_ms > SLEPT_MS:
                logger.warning("the controller did not run for %d ms", now_ms - last_ms)
                self._liveness.on_slept(now_ms)
            last_ms = now_ms
            if looks_at_ms is not None and now_ms >= looks_at_ms and self._probe_absent():
                looks_at_ms = None
            self._fence_dead(now_ms)

    async def close(self) -> None:
        """End all sessions; brokers keep their image and look for another controller."""
        for session in list(self._sessions.values()):
            session.abort()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _open(self, socket: web.WebSocketResponse, request: web.Request) -> BrokerSession:
        async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
            state = self._controller.committed
            introduction = Introduction(
                state.image.cluster_id, state.controller_epoch, is_active=True
            )
            await authenticate(socket, request, self._secret, introduction)
            arrival = next(self._arrivals)
            message = await receive(socket, MessageType.REGISTER, size_max=MESSAGE_SIZE_MAX)
        return await self._register(socket, request, message, arrival)

    async def _register(
        self,
        socket: web.WebSocketResponse,
        request: web.Request,
        message: dict[str, Any],
        arrival: int,
    ) -> BrokerSession:
        """Have a broker registered; `arrival` grows with each connection that has come."""
        asking = self._locate(decode_registration(message.get("registration")))
        peer = peer_of(request)
        if peer is not None and peer.broker_id != asking.broker_id:
            raise RefusedError(
                RefusalCode.CLUSTER_AUTHORIZATION_FAILED,
                f"the certificate is that of {peer}, which does not register as broker "
                f"{asking.broker_id}",
            )
        testimony = read_testimony(message.get("testimony"))
        event = RegisterBroker(
            asking,
            text(message.get("cluster_id")),
            is_predecessor_alive=self._liveness.is_alive(asking.broker_id),
            unclean=read_replicas(message.get("unclean")),
            held=tuple([(seen.topic_id, seen.index) for seen in testimony.replicas]),
        )
        position = read_position(message.get("position"))
        if registration_problem(self._controller.committed, event) is None:
            # What a broker of another cluster has seen does not contradict these tables.
            await self._hearing.hear(asking, testimony)
            self._refuse_older(asking.broker_id, arrival)
            await self._make_way(event)
        if _is_closed(socket, request):
            # The broker's process is gone, and another one may have been admitted meanwhile.
            raise SessionProtocolError("the connection closed before the registration")
        answer = await self._submit_registration(event, arrival)
        self.refused.pop(asking.broker_id, None)
        if socket.closed:
            raise SessionProtocolError("the connection closed during the registration")
        if asking.broker_id not in self._controller.committed.image.brokers:
            raise SessionProtocolError("it was unregistered while it registered; it asks again")
        return self._admit(socket, request, asking.broker_id, answer["broker_epoch"], position)

    async def _make_way(self, event: RegisterBroker) -> None:
        """Have the start before this one fenced first if that takes several decisions."""
        broker_id = event.registration.broker_id
        before = self._controller.committed.image.brokers.get(broker_id)
        is_alive = self._liveness.is_alive(broker_id)
        await self._controller.make_way(replace(event, is_predecessor_alive=is_alive))
        after = self._controller.committed.image.brokers.get(broker_id)
        if before is not None and after is not None and after.broker_epoch != before.broker_epoch:
            # This process may be gone, though its connection is not closed yet.
            raise SessionProtocolError("another start was registered meanwhile; it asks again")

    async def _submit_registration(self, event: RegisterBroker, arrival: int) -> Mapping[str, Any]:
        """Have a registration decided; RefusedError if the controller refuses it.

        All brokers register at the same moment after the hearing: another process of this id may
        have registered just before, and have no session yet.
        """
        broker_id, start_id = event.registration.broker_id, event.registration.start_id
        self._refuse_older(broker_id, arrival)
        before = self._newest.get(broker_id)
        self._newest[broker_id] = arrival
        first = self._registering.setdefault(broker_id, start_id)
        is_alive = first != start_id or self._liveness.is_alive(broker_id)
        try:
            return await self._controller.submit(replace(event, is_predecessor_alive=is_alive))
        except RefusedError as refusal:
            self._note_refused(broker_id, refusal.message)
            if self._newest.get(broker_id) == arrival:
                self._forget_arrival(broker_id, before)
            raise
        finally:
            if first == start_id:
                self._registering.pop(broker_id, None)

    def _refuse_older(self, broker_id: BrokerId, arrival: int) -> None:
        """SessionProtocolError if a broker has registered by a newer connection since.

        The end of a connection can get lost; what its process asked for must not end the next one.
        """
        if arrival < self._newest.get(broker_id, arrival):
            raise SessionProtocolError("this broker has registered by a newer connection since")

    def _forget_arrival(self, broker_id: BrokerId, before: int | None) -> None:
        """Let the arrival before a refused one count again, if there was any."""
        if before is None:
            self._newest.pop(broker_id, None)
        else:
            self._newest[broker_id] = before

    def _note_refused(self, broker_id: BrokerId, why: str) -> None:
        """Remember why a broker was refused; a peer that knows the secret may use any id."""
        self.refused.pop(broker_id, None)
        if len(self.refused) >= REFUSED_MAX:
            del self.refused[next(iter(self.refused))]
        self.refused[broker_id] = why

    def _admit(
        self,
        socket: web.WebSocketResponse,
        request: web.Request,
        broker_id: BrokerId,
        broker_epoch: BrokerEpoch,
        position: tuple[int, int] | None,
    ) -> BrokerSession:
        """Make the session, without an await, so that its deltas begin where its image ends."""
        state = self._controller.committed
        start = (self._deltas.controller_epoch, self._deltas.sequence)
        session = BrokerSession(socket, request, broker_id, broker_epoch, start)
        predecessor = self._sessions.get(broker_id)
        if predecessor is not None:
            predecessor.abort()
        self._sessions[broker_id] = session
        self._liveness.on_connected(broker_id, broker_epoch, _monotonic_ms())
        session.send(
            pack_message(
                MessageType.REGISTERED,
                broker_epoch=broker_epoch,
                controller_epoch=state.controller_epoch,
                cluster_id=state.image.cluster_id,
                heartbeat_interval_ms=self._timing.heartbeat_interval_ms,
                session_timeout_ms=self._timing.session_timeout_ms,
                writes=self._controller.writes,
            )
        )
        missed = None if position is None else self._deltas.since(*position)
        if missed is None:
            session.send_all(self._deltas.image_messages(state.image))
        else:
            session.send_all(iter(missed))
        return session

    async def _run(self, session: BrokerSession, socket: web.WebSocketResponse) -> None:
        writer = asyncio.create_task(session.write())
        try:
            while (message := await receive_any(socket)) is not None:
                if self._sessions.get(session.broker_id) is not session:
                    break  # A late message; another session has replaced this one.
                self._liveness.on_heard(session.broker_id, _monotonic_ms())
                self._on_message(session, message)
        except (SessionProtocolError, CodecError) as error:
            logger.warning("ended the session of broker %d: %s", session.broker_id, error)
            await socket.close(code=WSCloseCode.POLICY_VIOLATION)
        finally:
            writer.cancel()
            try:
                with suppress(asyncio.CancelledError, ConnectionError):
                    await writer
            except Exception:
                logger.exception("writing to broker %d failed", session.broker_id)
            self._on_closed(session)

    def _on_message(self, session: BrokerSession, message: dict[str, Any]) -> None:
        match message["type"]:
            case MessageType.HEARTBEAT:
                session.send(
                    pack_message(
                        MessageType.HEARTBEAT_ACK,
                        number=whole(message.get("number")),
                        writes=self._controller.writes,
                    )
                )
                session.position = read_position(message.get("position"), minimum=-1)
                self._heartbeat.set()
                self._maybe_cordon(session, message)
                self._maybe_unfence(session, message)
            case MessageType.CALL:
                self._begin_call(session, message)
            case MessageType.FAULT_REPLY:
                session.on_fault_reply(message)
            case MessageType.GOODBYE:
                session.has_said_goodbye = True
                self._liveness.forget(session.broker_id)
                self._begin(self._fence(session.broker_id, session.broker_epoch))
            case str() as optional if optional.startswith(OPTIONAL_MARK):
                _log.note(
                    "optional messages",
                    "skipping %r of broker %d, which is of a newer release",
                    optional[:KIND_LENGTH_MAX],
                    session.broker_id,
                )
            case unexpected:
                raise SessionProtocolError(f"unexpected message {unexpected[:40]!r}")

    async def until_heard(self, timeout_s: float) -> set[BrokerId]:
        """Wait until all brokers in service have applied what is durable now.

        Return those that have not. Brokers report it in their heartbeats.
        """
        position = (self._deltas.controller_epoch, self._deltas.sequence)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._behind(position):
                    self._heartbeat.clear()
                    await self._heartbeat.wait()
        return self._behind(position)

    def _behind(self, position: tuple[int, int]) -> set[BrokerId]:
        behind = set()
        for broker_id, broker in self._controller.committed.image.brokers.items():
            session = self._sessions.get(broker_id)
            told = None if session is None else session.position
            if not broker.fenced and (told is None or told < position):
                behind.add(broker_id)
        return behind

    def _maybe_unfence(self, session: BrokerSession, message: dict[str, Any]) -> None:
        """Unfence a broker when it reports that it is ready and has caught up."""
        broker = self._controller.committed.image.brokers.get(session.broker_id)
        if broker is None or not broker.fenced or broker.broker_epoch != session.broker_epoch:
            return
        is_wanted = flag(message.get("is_ready")) and not session.has_said_goodbye
        is_wanted &= session.broker_id not in self._controller.committed.ordered_out
        if session.has_caught_up and is_wanted and not session.is_unfencing:
            session.is_unfencing = True
            self._begin(self._unfence(session))

    def _maybe_cordon(self, session: BrokerSession, message: dict[str, Any]) -> None:
        """Note whether a broker's log directories accept new replicas.

        Before it has caught up, it does not know what was set while it was away.
        """
        broker = self._controller.committed.image.brokers.get(session.broker_id)
        is_cordoned = flag(message.get("is_cordoned", False))
        if broker is None or broker.broker_epoch != session.broker_epoch or session.is_cordoning:
            return
        if session.has_caught_up and is_cordoned != broker.is_cordoned:
            session.is_cordoning = True
            self._begin(self._cordon(session, is_cordoned=is_cordoned))

    async def _cordon(self, session: BrokerSession, *, is_cordoned: bool) -> None:
        try:
            await self._controller.submit(
                CordonBroker(session.broker_id, session.broker_epoch, is_cordoned)
            )
        except RefusedError as refusal:
            logger.info("broker %d tells of cordons in vain: %s", session.broker_id, refusal)
        finally:
            session.is_cordoning = False

    async def _unfence(self, session: BrokerSession) -> None:
        try:
            await self._controller.submit(UnfenceBroker(session.broker_id, session.broker_epoch))
        except RefusedError as refusal:
            logger.info("broker %d stays fenced: %s", session.broker_id, refusal.message)
        finally:
            session.is_unfencing = False

    async def _fence(
        self,
        broker_id: BrokerId,
        broker_epoch: BrokerEpoch,
        reason: FenceReason = FenceReason.STOPPED,
    ) -> None:
        """Fence a broker that `liveness` has forgotten: it may be back and watched by now."""
        started = time.monotonic()
        with suppress(RefusedError):
            await self._controller.submit(FenceBroker(broker_id, broker_epoch, reason))
            self.fencings[reason.name.lower()] += 1
            self.fencing_seconds += time.monotonic() - started

    def _begin_call(self, session: BrokerSession, message: dict[str, Any]) -> None:
        number = whole(message.get("id"))
        if len(session.calls) >= CALLS_IN_FLIGHT_MAX:
            refusal = RefusedError(RefusalCode.REQUEST_TIMED_OUT, "too many calls at once")
            session.send(error_reply(number, refusal))
            return
        task = asyncio.create_task(self._call(session, number, message))
        session.calls.add(task)
        task.add_done_callback(session.calls.discard)

    async def _call(self, session: BrokerSession, number: int, message: dict[str, Any]) -> None:
        try:
            event = parse_call(
                message.get("method"),
                message.get("body"),
                broker_id=session.broker_id,
                broker_epoch=session.broker_epoch,
            )
            if isinstance(event, UnregisterBroker):
                await self.unregister(event.broker_id)
                body: Mapping[str, Any] = {}
            else:
                body = await self._controller.submit(event)
        except CodecError as error:
            session.send(error_reply(number, RefusedError(RefusalCode.INVALID_REQUEST, str(error))))
        except RefusedError as refusal:
            session.send(error_reply(number, refusal))
        except Exception:
            logger.exception("a call of broker %d failed", session.broker_id)
            failure = RefusedError(RefusalCode.UNKNOWN_SERVER_ERROR, "the controller failed")
            session.send(error_reply(number, failure))
        else:
            session.send(answer_reply(number, body))

    def _on_changes(self, changes: tuple[Change, ...], state: ControllerState) -> None:
        messages = self._deltas.append(changes)
        position = (self._deltas.controller_epoch, self._deltas.sequence)
        for session in self._sessions.values():
            for message in messages:
                session.send(message)
        for change in changes:
            if isinstance(change, BrokerChanged) and change.registration.fenced:
                fenced = self._sessions.get(change.registration.broker_id)
                if fenced is not None and change.registration.broker_epoch != fenced.broker_epoch:
                    # Another start of the broker was registered. If that process is gone, this one
                    # asks again.
                    fenced.abort()
                elif fenced is not None and not state.image.is_live(fenced.broker_id):
                    # The broker has to see that it was fenced before it serves again.
                    fenced.start_position = position
            elif isinstance(change, BrokerRemoved) and change.broker_id in self._sessions:
                # The broker came back just now, and has to register again.
                self._sessions[change.broker_id].abort()

    def _on_closed(self, session: BrokerSession) -> None:
        session.on_closed()
        if self._sessions.get(session.broker_id) is not session:
            return  # A newer connection of the broker has taken its place.
        del self._sessions[session.broker_id]
        if session.has_said_goodbye:
            return
        self._liveness.on_closed(session.broker_id, _monotonic_ms())
        self._begin(self._probe(session.broker_id, session.broker_epoch))

    def _probe_absent(self) -> bool:
        """Probe the ports of brokers that have not connected; tell whether that is possible yet.

        A broker that died together with the earlier controller has no session here that could
        close.
        """
        absent = self._liveness.absent()
        for broker_id, broker_epoch in absent or ():
            self._begin(self._probe(broker_id, broker_epoch))
        return absent is not None

    async def _probe(self, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> None:
        """Probe the port of a broker without a session, to find out whether its process is gone.

        The probe is repeated during the grace, because a dying process closes its sockets one by
        one. After the grace it is repeated less and less often, while all brokers are missing and
        none is declared dead.
        """
        interval_s = PROBE_INTERVAL_S
        until_s = time.monotonic() + RECONNECT_GRACE_MS / 1000
        while True:
            broker = self._controller.committed.image.brokers.get(broker_id)
            is_current = broker is not None and broker.broker_epoch == broker_epoch
            if broker is None or not is_current or broker_id in self._sessions:
                return
            if not self._liveness.is_suspect(broker_id):
                return
            if await is_refused(broker.endpoints):
                now_ms = _monotonic_ms()
                self._liveness.on_refused(broker_id, now_ms)
                self._fence_dead(now_ms)
                return
            await asyncio.sleep(interval_s)
            if time.monotonic() > until_s:
                interval_s = min(2 * interval_s, PROBE_INTERVAL_MAX_S)

    def _fence_dead(self, now_ms: int) -> None:
        for verdict in self._liveness.tick(now_ms):
            session = self._sessions.get(verdict.broker_id)
            if session is not None:
                session.abort()
            self._begin(self._fence(verdict.broker_id, verdict.broker_epoch, verdict.reason))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _is_closed(socket: web.WebSocketResponse, request: web.Request) -> bool:
    """Tell whether the peer has closed the connection, as far as known, even if still unread."""
    transport = request.transport
    return socket.closed or transport is None or transport.is_closing()


def _monotonic_ms() -> int:
    return time.monotonic_ns() // 1_000_000
