"""The broker's session with the active controller: registration, image, calls, heartbeats.

One link to each candidate; the one that answers as active, with the highest controller epoch seen
so far, is in use. Which candidates there are may change at any time (`follow_candidates`). Without
a controller the broker keeps its image and goes on serving; calls wait for a controller until their
time is up.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import aiohttp

from fairlead_broker.session.fault_answers import FaultAnswers, FaultTarget
from fairlead_broker.session.image_follower import ImageFollower, Position
from fairlead_broker.session.link import Link, SessionRefusedError
from fairlead_model.broker import BrokerRegistration
from fairlead_model.cluster import ClusterDelta, ClusterImage
from fairlead_model.codec import KIND_LENGTH_MAX, encode_registration
from fairlead_model.ids import NO_BROKER_EPOCH
from fairlead_model.metadata_seen import NOTHING_SEEN, MetadataSeen
from fairlead_model.session.session_messages import is_call_acceptable, pack_message
from fairlead_model.session.session_protocol import (
    CALL_SIZE_MAX,
    CONTAINER_LENGTH_MAX,
    HEARTBEAT_INTERVAL_MS,
    OPTIONAL_MARK,
    SESSION_TIMEOUT_MS,
    MessageType,
    SessionProtocolError,
)
from fairlead_tls.engine import TlsRefusedError
from fairlead_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from fairlead_broker.session.resumption import Roles
    from fairlead_broker.session.role_journal import RoleJournal
    from fairlead_tls.followed_certificate import FollowedPeer

logger = logging.getLogger(__name__)

RECONNECT_DELAY_MIN_S: Final = 0.02
RECONNECT_DELAY_MAX_S: Final = 1.0
REFUSED_DELAY_MAX_S: Final = 0.2
"""The same without a controller, for a candidate whose port refuses: this costs almost nothing, and
a controller that takes over can tell from the brokers that connect at once which ones are dead."""
CALLS_IN_FLIGHT_MAX: Final = 1000
CANDIDATES_MAX: Final = 64
"""Controllers that a broker keeps a link to."""

UNKNOWN_KINDS_MAX: Final = 100
"""Kinds of messages and changes that are remembered as skipped, so that each is logged once."""

_PASSING_REFUSALS: Final = frozenset(
    {ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNSUPPORTED_VERSION}
)
"""A controller whose reign has just ended, that is overloaded, or that is of another release while
the controllers are being upgraded: no reason to give up."""

_ERROR_CODES: Final = {int(code): code for code in ErrorCode}

Publish = Callable[[ClusterDelta, ClusterImage], None]


class CallLostError(KafkaError):
    """The controller went away before it answered: it may or may not have done what was asked."""

    def __init__(self) -> None:
        super().__init__(
            ErrorCode.REQUEST_TIMED_OUT,
            "no controller: the connection to it was lost before it answered",
        )


class ControllerSession:
    """Made by the broker's main; lives as long as the process."""

    def __init__(
        self,
        urls: Sequence[str],
        secret: bytes,
        registration: BrokerRegistration,
        publish: Publish,
        *,
        cluster_id: str = "",
        progress: Callable[[], dict[str, Any]] = dict,
        replicas_seen: Callable[[], list[list[Any]]] = list,
        is_ready: bool = True,
        unclean: Sequence[tuple[str, int]] = (),
        metadata_seen: MetadataSeen = NOTHING_SEEN,
        faults: FaultTarget | None = None,
        certificate: "FollowedPeer | None" = None,
        journal: "RoleJournal | None" = None,
        is_cordoned: Callable[[], bool] = lambda: False,
    ) -> None:
        """`registration` carries what the broker says of itself; its epoch is ignored.

        `unclean` names replicas (topic, index) that are lost or damaged in spite of the rest.

        `cluster_id` is that of the data directory, empty for a new one. `progress` adds fields to
        heartbeats, `replicas_seen` gives the epochs of the replicas here (`LocalReplicas`),
        `metadata_seen` is what processes before this one have noted. With `is_ready` false the
        broker stays fenced until `set_ready`. `faults` carries out what a drill asks for. With a
        `certificate` all controllers are reached over TLS. `journal` notes what is published.
        `is_cordoned` tells whether the log directories take nothing new.
        """
        self.secret = secret
        self.certificate = certificate
        self.broker_epoch = NO_BROKER_EPOCH
        self.controller_epoch = -1
        self.metadata_seen = metadata_seen
        """The newest metadata that controllers have announced."""
        self._urls = self._addresses(urls)
        self._registration = registration
        self._publish = publish
        self._progress = progress
        self._replicas_seen = replicas_seen
        self._is_ready = is_ready
        self._unclean = [list(replica) for replica in unclean]
        self._faults = FaultAnswers(faults)
        self._journal = journal
        self._is_cordoned = is_cordoned
        self._has_told_cordoned = False
        self._follower = ImageFollower(cluster_id, self._note_skipped)
        self._skipped: set[str] = set()
        self._beating: asyncio.Task[None] | None = None
        self._linking: dict[str, asyncio.Task[None]] = {}
        """By address of a candidate: the task that keeps a link to it."""
        self._link: Link | None = None
        self._connected = asyncio.Event()
        self._registered: asyncio.Future[None] | None = None
        self._calls: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._next_call = 0
        self._failures: dict[str, str] = {}
        self._heartbeat_number = 0
        self._heard_at = 0.0
        self._interval_s = HEARTBEAT_INTERVAL_MS / 1000
        self._timeout_s = SESSION_TIMEOUT_MS / 1000

    @property
    def is_connected(self) -> bool:
        """True while a controller has this broker registered and its connection is up."""
        return self._link is not None

    @property
    def silence_s(self) -> float:
        """Time since a controller was heard last; since the machine's start, if never."""
        return asyncio.get_running_loop().time() - self._heard_at

    @property
    def longest_stop_ms(self) -> int:
        """How long this process may have been stopped and surely still have its session.

        The controller counts from the last heartbeat that it got, which may be a whole interval
        older than the stop.
        """
        return round((self._timeout_s - self._interval_s) * 1000)

    @property
    def has_session(self) -> bool:
        """True while the controller surely expects this broker to serve, or has told it not to."""
        return self.is_connected and self.silence_s * 1000 <= self.longest_stop_ms

    @property
    def image(self) -> ClusterImage:
        """The image that was published last."""
        return self._follower.image

    @property
    def cluster_id(self) -> str:
        """The cluster's id; empty until a new broker gets it from a controller."""
        return self._follower.image.cluster_id

    @property
    def position(self) -> Position:
        """How far the image has come."""
        return self._follower.position

    async def start(self) -> None:
        """Begin connecting to all candidates; returns at once."""
        self._registered = asyncio.get_running_loop().create_future()
        self._beating = asyncio.create_task(self._beat())
        self.follow_candidates(self._urls)

    @property
    def candidates(self) -> tuple[str, ...]:
        """Addresses of the controllers that may be active."""
        return self._urls

    def follow_candidates(self, urls: Sequence[str]) -> None:
        """Connect to these candidates from now on.

        A link to any other candidate is kept until it ends, because a candidate that is no longer
        listed may still be the active one. Of a longer list the first `CANDIDATES_MAX` count.
        """
        self._urls = self._addresses(urls)
        if self._beating is None:
            return  # Not started yet.
        for url in self._urls:
            if url not in self._linking:
                self._linking[url] = asyncio.create_task(self._keep_linked(url))

    def _addresses(self, urls: Sequence[str]) -> tuple[str, ...]:
        if self.certificate is not None:
            # A list of candidates cannot make this broker connect without TLS.
            urls = [f"wss://{url.partition('://')[2]}" for url in urls]
        return tuple(dict.fromkeys(urls))[:CANDIDATES_MAX]

    def go_on(self, roles: "Roles") -> None:
        """Take up what the process before this one had acted on, before any controller is heard.

        RuntimeError if a controller has answered: what it says counts.
        """
        if self.broker_epoch != NO_BROKER_EPOCH or self._follower.position.sequence >= 0:
            raise RuntimeError("a controller has registered this start")
        self.broker_epoch = roles.broker_epoch(self._registration.broker_id)
        self.controller_epoch = roles.controller_epoch
        self._follower.go_on(roles.image, roles.position)
        self._is_ready = True
        self._publish(ClusterDelta(tuple(roles.image.changes_from_nothing())), roles.image)

    async def maybe_rewrite_journal(self) -> None:
        """Keep the journal short."""
        journal, follower = self._journal, self._follower
        if journal is not None and journal.is_due and follower.is_between_publications:
            await journal.rewrite(follower.image, follower.position)

    async def wait_registered(self, timeout_s: float) -> None:
        """Wait until the broker has its epoch and the first image has been published.

        SessionRefusedError if the controller will not have this broker; TimeoutError.
        """
        if self._registered is None:
            raise RuntimeError("the session has not been started")
        async with asyncio.timeout(timeout_s):
            await asyncio.shield(self._registered)

    def set_ready(self) -> None:
        """Let the controller put this broker into service."""
        self._is_ready = True
        self._send_heartbeat(0.0)

    def set_stopping(self) -> None:
        """Ask for no service any more, should a controller have fenced this broker."""
        self._is_ready = False

    async def stop(self) -> None:
        """Say goodbye, which fences the broker at once, and close all links."""
        link = self._link
        if link is not None:
            link.send(pack_message(MessageType.GOODBYE))
            await link.close()
        tasks = self._tasks()
        self._beating = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._linking.clear()
        if self._registered is not None:
            self._registered.cancel()

    def _tasks(self) -> list[asyncio.Task[None]]:
        beating = [] if self._beating is None else [self._beating]
        return [*beating, *self._linking.values()]

    async def call(self, method: str, body: dict[str, Any], *, timeout_ms: int) -> dict[str, Any]:
        """Ask the controller; the deltas that the call causes are published before this returns.

        KafkaError with the controller's code, or REQUEST_TIMED_OUT when there is no controller or
        none answers in time: then the call may or may not have been carried out.
        """
        if len(self._calls) >= CALLS_IN_FLIGHT_MAX:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "too many calls wait for the controller")
        number = self._next_call
        self._next_call += 1
        message = pack_message(MessageType.CALL, id=number, method=str(method), body=body)
        if not is_call_acceptable(message):
            # The controller would close the session, and with it end every other call.
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"the request is too large for the controller: {len(message)} bytes; "
                f"{CALL_SIZE_MAX} bytes, or {CONTAINER_LENGTH_MAX} of a kind, are the most; "
                "send it in parts",
            )
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._connected.wait()
                future = asyncio.get_running_loop().create_future()
                self._calls[number] = future
                self._send(message)
                answer: dict[str, Any] = await future
                return answer
        except TimeoutError:
            what = "does not answer" if self.is_connected else "cannot be reached"
            raise KafkaError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"no controller: it {what} within {timeout_ms} ms",
            ) from None
        finally:
            self._calls.pop(number, None)

    def registration_message(self, controller_epoch: int) -> bytes:
        """Return the `register` message for a controller and the position that the broker has now.

        A controller with an epoch below those seen gets it, too: either it does not know yet that
        it was replaced, or its tables went back in time and it has to learn that.
        """
        position = self._follower.position
        return pack_message(
            MessageType.REGISTER,
            registration=encode_registration(self._registration),
            cluster_id=self._follower.image.cluster_id,
            position=[position.controller_epoch, position.sequence]
            if position.sequence >= 0
            else None,
            unclean=self._unclean,
            testimony=self._testimony_for(controller_epoch),
        )

    def _testimony_for(self, controller_epoch: int) -> list[Any]:
        """Return what this broker has seen; without replicas for a controller that knows them."""
        is_told = controller_epoch == self.controller_epoch
        replicas = [] if is_told else self._replicas_seen()
        return [self.controller_epoch, self.broker_epoch, replicas, list(self.metadata_seen)]

    def on_active(self, controller_epoch: int) -> None:
        """Judge a controller that has proved that it knows the secret."""
        # The image may be of an older one still than the one that this broker has registered with.
        if controller_epoch < self.controller_epoch:
            raise SessionProtocolError(
                f"the controller has epoch {controller_epoch}, "
                f"epoch {self.controller_epoch} has been seen"
            )
        self._follower.check_controller(controller_epoch)

    def on_registered(self, link: Link, message: dict[str, Any]) -> None:
        """Take a link into use."""
        try:
            broker_epoch = int(message["broker_epoch"])
            self._interval_s = max(int(message["heartbeat_interval_ms"]), 10) / 1000
            self._timeout_s = max(int(message["session_timeout_ms"]), 100) / 1000
            epoch, cluster_id = int(message["controller_epoch"]), str(message["cluster_id"])
        except (KeyError, TypeError, ValueError) as error:
            raise SessionProtocolError("bad answer to the registration") from error
        self.on_active(epoch)
        self._follower.begin(cluster_id, epoch)
        if self._journal is not None:
            self._journal.begin_session(cluster_id, epoch)
        self.broker_epoch, self.controller_epoch = broker_epoch, epoch
        if self._link is not None:
            # Asked of a controller that is not in charge any more: it will not answer.
            self._fail_calls()
        self._note_writes(message)
        # Answered: later registrations of this start are of replicas that may be well again.
        self._unclean.clear()
        self._link = link
        self._heard_at = asyncio.get_running_loop().time()
        self._connected.set()
        logger.info(
            "registered with the controller at %s: broker epoch %d, controller epoch %d, "
            "version %d of the session",
            link.url,
            self.broker_epoch,
            epoch,
            link.version,
        )
        if self._follower.position.sequence >= 0:
            self._send_heartbeat(0.0)

    def on_message(self, link: Link, message: dict[str, Any]) -> None:
        """Act on a message of the link in use."""
        if link is not self._link:
            raise SessionProtocolError("another controller has taken over")
        self._heard_at = asyncio.get_running_loop().time()
        match message["type"]:
            case MessageType.CHANGES:
                self._receive_changes(message)
            case MessageType.REPLY:
                self._receive_reply(message)
            case MessageType.HEARTBEAT_ACK:
                self._note_writes(message)
            case MessageType.FAULT:
                self._faults.receive(link, message)
            case str() as optional if optional.startswith(OPTIONAL_MARK):
                self._note_skipped(optional[:KIND_LENGTH_MAX])
            case unexpected:
                raise SessionProtocolError(f"unexpected message {unexpected[:40]!r}")

    def _note_writes(self, message: dict[str, Any]) -> None:
        """Note how far the metadata has come; a controller of an older release does not tell."""
        writes = message.get("writes")
        if type(writes) is int:
            self.metadata_seen = MetadataSeen(self.controller_epoch, writes)

    def _note_skipped(self, kind: str) -> None:
        """Log once that the controller sends something that this release does not know."""
        if kind not in self._skipped and len(self._skipped) < UNKNOWN_KINDS_MAX:
            self._skipped.add(kind)
            logger.warning("skipping %r of the controller, which is of a newer release", kind)

    def _receive_changes(self, message: dict[str, Any]) -> None:
        publication = self._follower.receive(message)
        if self._journal is not None:
            # Before anything is done: a process that goes on must not know less than was done.
            self._journal.note(message)
        if publication is None:
            return
        self._publish(publication.delta, publication.image)
        # Only now: if acting on it failed, the next connection brings it again.
        self._follower.commit(publication)
        if message["is_image"] or self._is_cordoned() != self._has_told_cordoned:
            self._send_heartbeat(0.0)
        if self._registered is not None and not self._registered.done():
            self._registered.set_result(None)

    def _receive_reply(self, message: dict[str, Any]) -> None:
        future = self._calls.get(message.get("id", -1))
        if future is None or future.done():
            return  # The caller has given up.
        code = message.get("error_code", 0)
        if not code:
            future.set_result(message.get("body") or {})
            return
        known = _ERROR_CODES.get(code, ErrorCode.UNKNOWN_SERVER_ERROR)
        future.set_exception(KafkaError(known, str(message.get("error_message"))))

    async def _keep_linked(self, url: str) -> None:
        delay_s = RECONNECT_DELAY_MIN_S
        # A candidate that comes back may have another address: its name is asked for every time.
        connector = aiohttp.TCPConnector(use_dns_cache=False)
        async with aiohttp.ClientSession(connector=connector) as http:
            while url in self._urls:
                link = Link(self, url)
                was_good = await self._run_link(link, http) or link.was_standby
                delay_s = RECONNECT_DELAY_MIN_S if was_good else delay_s * 1.6
                is_wanted = link.was_refused and self._link is None
                delay_s = min(delay_s, REFUSED_DELAY_MAX_S if is_wanted else RECONNECT_DELAY_MAX_S)
                # Brokers that lost one controller together must not come back in step.
                await asyncio.sleep(delay_s * random.uniform(0.5, 1.0))  # noqa: S311
        self._failures.pop(url, None)
        del self._linking[url]
        # It may be a candidate again since the last look: this task stood in the way of another.
        self.follow_candidates(self._urls)

    async def _run_link(self, link: Link, http: aiohttp.ClientSession) -> bool:
        """Run a link to its end; tell whether it was in use."""
        reason = "the connection closed"
        try:
            await link.run(http)
        except SessionRefusedError as error:
            reason = f"refused: {error.message}"
            is_final = error.code not in _PASSING_REFUSALS
            if is_final and self._registered is not None and not self._registered.done():
                self._registered.set_exception(error)
                # There may be no waiter yet.
                self._registered.exception()
        except SessionProtocolError as error:
            reason = str(error)
        except (TlsRefusedError, aiohttp.ClientConnectorCertificateError) as error:
            reason = f"no TLS: {error}"
        except aiohttp.ClientConnectorError as error:
            link.was_refused = isinstance(error.os_error, ConnectionRefusedError)
            reason = f"{type(error).__name__}: {error}"
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            reason = f"{type(error).__name__}: {error}"
        except Exception:
            logger.exception("acting on the controller at %s failed", link.url)
            reason = "an error of this broker"
        if self._link is not link:
            if self._failures.get(link.url) != reason:
                self._failures[link.url] = reason
                logger.info("no session with the controller at %s: %s", link.url, reason)
            return False
        self._failures.pop(link.url, None)
        self._link = None
        self._connected.clear()
        self._fail_calls()
        logger.warning("lost the controller at %s: %s", link.url, reason)
        return True

    def _fail_calls(self) -> None:
        for future in self._calls.values():
            if not future.done():
                future.set_exception(CallLostError())

    async def _beat(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            due = max(due + self._interval_s, loop.time())
            await asyncio.sleep(due - loop.time())
            lag_s = loop.time() - due
            self._send_heartbeat(lag_s)
            link = self._link
            # After a pause of our own, the answers may lie unread in the socket: look again.
            is_silent = loop.time() - self._heard_at > self._timeout_s
            if link is not None and is_silent and lag_s < self._interval_s:
                logger.warning("the controller at %s is silent", link.url)
                with suppress(TimeoutError):
                    async with asyncio.timeout(1):
                        await link.close()

    def _send_heartbeat(self, lag_s: float) -> None:
        self._heartbeat_number += 1
        position = self._follower.position
        self._has_told_cordoned = self._is_cordoned()
        self._send(
            pack_message(
                MessageType.HEARTBEAT,
                number=self._heartbeat_number,
                position=[position.controller_epoch, position.sequence],
                is_ready=self._is_ready,
                is_cordoned=self._has_told_cordoned,
                progress={"loop_lag_ms": int(lag_s * 1000), **self._progress()},
            )
        )

    def _send(self, data: bytes) -> None:
        if self._link is not None:
            self._link.send(data)
