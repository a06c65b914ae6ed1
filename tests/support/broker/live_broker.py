"""A server over real logs in a thread, and a client that sends frames, for tests.

There is no control plane: partitions are created and led on request. Everything between the socket
and the page cache is the product's.
"""

import asyncio
import random
import socket
import struct
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any, Self, TypeVar

from fairlead_broker.api_registry import HANDLERS
from fairlead_broker.authorization import Authorizer
from fairlead_broker.broker import Broker
from fairlead_broker.clock import SystemClock
from fairlead_broker.disk import RealDisk
from fairlead_broker.fetch_sessions.client_sessions import FetchSessions
from fairlead_broker.fetch_sessions.follower_sessions import FollowerSessions
from fairlead_broker.handlers.cluster import api_versions
from fairlead_broker.handlers.records import fetch, produce
from fairlead_broker.handlers.security import sasl_authenticate, sasl_handshake
from fairlead_broker.limits import WAITING_PRODUCE_BYTES_MAX
from fairlead_broker.listener import Listener
from fairlead_broker.log.directory.log_loader import LogLoader
from fairlead_broker.log.files.deferred_files import DeferredFiles
from fairlead_broker.log.files.read_cache import ReadCache
from fairlead_broker.measures.broker_metrics import BrokerMetrics
from fairlead_broker.net.logins import Logins
from fairlead_broker.net.server import Server, ServerLimits
from fairlead_broker.net.tls_listeners import TlsListeners
from fairlead_broker.net.transport import OpenTransport
from fairlead_broker.peer_check import MECHANISM, PeerProof
from fairlead_broker.quota.client_quotas import ClientQuotas
from fairlead_broker.quota.meter import Windows
from fairlead_broker.replication.partition import Partition
from fairlead_broker.replication.purgatory import Purgatory
from fairlead_broker.security.credentials import Credentials
from fairlead_broker.security.image_credentials import ImageCredentials
from fairlead_broker.security.listener_security import ListenerSecurity
from fairlead_broker.transaction.ending import TopicPartition
from fairlead_broker.transaction.verification import OnVerdicts
from fairlead_broker.transaction.waiting_produces import WaitingProduces
from fairlead_model.cluster import empty_image
from fairlead_model.configs.log_config import LogConfig
from fairlead_model.partition import PartitionRegistration
from fairlead_model.security.client_quota import QuotaEntity, Quotas
from fairlead_tls.peer_settings import PeerTlsSettings
from fairlead_wire.errors import ErrorCode
from fairlead_wire.header import decode_response, encode_request_frame
from fairlead_wire.messages.sasl_authenticate import SaslAuthenticateRequest
from fairlead_wire.messages.sasl_handshake import SaslHandshakeRequest
from fairlead_wire.records import Record, encode_batch

HANDLERS_LOADED = (api_versions, fetch, produce, sasl_authenticate, sasl_handshake)
SECRET = b"the secret of a test"
_Result = TypeVar("_Result")
DEADLINE_S = 60.0


class ScriptedVerification:
    """A transaction coordinator that answers on request, or at once with `verdict`."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, int, set[TopicPartition], bool]] = []
        self.waiting: list[tuple[set[TopicPartition], OnVerdicts]] = []
        self.verdict: ErrorCode | None = None

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
        *,
        supports_epoch_bump: bool,
        answer: OnVerdicts,
    ) -> None:
        named = set(partitions)
        self.asked.append(
            (transactional_id, producer_id, producer_epoch, named, supports_epoch_bump)
        )
        self.waiting.append((named, answer))
        if self.verdict is not None:
            self.answer(self.verdict)

    def answer(self, verdict: ErrorCode = ErrorCode.NONE) -> None:
        """Answer the oldest request."""
        partitions, answer = self.waiting.pop(0)
        answer(dict.fromkeys(partitions, verdict))


class BrokerOfLogs:
    """The parts of a broker that handlers need, without a cluster."""

    leading = Broker.leading
    may_be_replaced = Broker.may_be_replaced
    on_unreadable = Broker.on_unreadable

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.node_id = 0
        self.cluster_id = "test"
        self.image = empty_image(self.cluster_id)
        self.clock = SystemClock()
        self.metrics = BrokerMetrics()
        self.settings = SimpleNamespace(fetch_max_bytes=55 * 1024 * 1024)
        self.wake_check = SimpleNamespace(must_hold=lambda: False)
        self.controller = SimpleNamespace(has_session=True)
        self.waiting_produces = WaitingProduces(bytes_max=WAITING_PRODUCE_BYTES_MAX)
        self.verification = ScriptedVerification()
        self.follower_sessions = FollowerSessions(random.Random(2))
        self.partitions: dict[tuple[str, int], Partition] = {}
        self.topic_ids: dict[bytes, str] = {}
        self.fetch_purgatory = Purgatory(operations_max=1000, keys_max=10_000)
        self.produce_purgatory = Purgatory(operations_max=1000, keys_max=10_000)
        self.fetch_sessions = FetchSessions(
            slots=10, partitions_max=1000, eviction_ms=60_000, chance=random.Random(1)
        )
        disk = RealDisk()
        self._loader = LogLoader(disk, ReadCache(disk), DeferredFiles(disk))
        self.answering: AbstractContextManager[None] = nullcontext()
        self._advanced: list[Partition] = []

    def add_partition(
        self,
        topic: str,
        index: int,
        *,
        isr: tuple[int, ...] = (0,),
        config: LogConfig | None = None,
    ) -> Partition:
        topic_id = topic_id_of(topic)
        self.topic_ids[topic_id] = topic
        log = self._loader.create(
            str(self.directory / f"{topic}-{index}"),
            topic=topic,
            partition=index,
            topic_id=topic_id,
            config=config or LogConfig(),
            now_ms=self.clock.now_ms(),
        )
        partition = Partition(
            topic=topic,
            index=index,
            topic_id=topic_id,
            log=log,
            broker_id=0,
            high_watermark=0,
            on_advanced=self.on_partition_advanced,
        )
        partition.lead(PartitionRegistration(replicas=isr, isr=isr, leader=0, leader_epoch=3))
        self.partitions[topic, index] = partition
        return partition

    def topic_name(self, topic_id: bytes) -> str | None:
        return self.topic_ids.get(topic_id)

    def partition_error(self, topic: str, index: int) -> ErrorCode:
        partition = self.partitions.get((topic, index))
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE if partition.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def on_partition_advanced(self, partition: Partition) -> None:
        if not self._advanced:
            asyncio.get_running_loop().call_soon(self.check_purgatories)
        self._advanced.append(partition)

    def check_purgatories(self) -> None:
        advanced, self._advanced = self._advanced, []
        for partition in advanced:
            partition.is_advance_noted = False
        keys = [(partition.topic, partition.index) for partition in advanced]
        with self.answering:
            self.produce_purgatory.check(keys)
            self.follower_sessions.advanced(advanced)
            self.fetch_purgatory.check(keys)


class LiveBroker:
    """The server's thread. `run` executes a function on its loop and returns the result."""

    def __init__(
        self,
        directory: Path,
        limits: ServerLimits | None = None,
        transports: Mapping[str, OpenTransport] | None = None,
        authorizer: Authorizer | None = None,
        *,
        security: Mapping[str, ListenerSecurity] | None = None,
        credentials: Credentials | None = None,
        certificates_poll_s: float = 0.05,
        peer_tls: PeerTlsSettings | None = None,
        host: str = "127.0.0.1",
    ) -> None:
        self._host = host
        self._peer_tls = peer_tls
        self._security = security or {}
        self._credentials = credentials or ImageCredentials()
        self._certificates_poll_s = certificates_poll_s
        self._directory = directory
        self._limits = limits
        self._transports = transports or {}
        self._authorizer = authorizer
        self.quotas = ClientQuotas(Windows(11, 1000))
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._main, name="broker")
        self.errors: list[dict[str, Any]] = []
        self._other_handlers = {
            key: handler
            for key, handler in HANDLERS.items()
            if handler.call.__module__ not in {module.__name__ for module in HANDLERS_LOADED}
        }

    def __enter__(self) -> Self:
        # Other tests of this process may have loaded handlers that need a whole broker.
        for api_key in self._other_handlers:
            del HANDLERS[api_key]
        api_versions._bodies.clear()
        self._thread.start()
        assert self._ready.wait(DEADLINE_S)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(DEADLINE_S)
        HANDLERS.update(self._other_handlers)
        api_versions._bodies.clear()
        assert not self._thread.is_alive()
        assert self.errors == []

    def _main(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.loop.set_exception_handler(lambda _, context: self.errors.append(context))
        self._stopped = asyncio.Event()
        self.broker = BrokerOfLogs(self._directory)
        listeners = [
            Listener("CLIENT", self._host, 0, "127.0.0.1", 0),
            Listener("INTERNAL", "127.0.0.1", 0, "127.0.0.1", 0, is_internal=True),
        ]
        tls = TlsListeners(
            self._security,
            self.broker.metrics,
            peer_tls=self._peer_tls,
            poll_s=self._certificates_poll_s,
        )
        self.server = Server(
            self.broker,  # type: ignore[arg-type]
            listeners,
            self._limits,
            cluster_secret=SECRET,
            transports={**tls.transports, **self._transports},
            logins=self._open_logins(),
            authorizer=self._authorizer,
            client_quotas=self.quotas,
        )
        self.port, self.internal_port = (listener.port for listener in self.server.bind())
        self.server.start()
        tls.start()
        self._ready.set()
        await self._stopped.wait()
        await self.server.stop(grace_s=0.2)
        await tls.stop()
        for partition in self.broker.partitions.values():
            partition.log.close()

    def _open_logins(self) -> Logins | None:
        sasl = {name: each.sasl for name, each in self._security.items() if each.sasl is not None}
        if not sasl:
            return None
        return Logins(
            self.loop, sasl, self._credentials, cluster_secret=SECRET, failure_delay_ms=100
        )

    def run(self, function: Callable[[], _Result]) -> _Result:
        async def call() -> _Result:
            return function()

        return asyncio.run_coroutine_threadsafe(call(), self.loop).result(DEADLINE_S)

    def set_quotas(self, quotas: dict[QuotaEntity, Quotas]) -> None:
        """Set exactly these quotas."""
        self.run(lambda: self.quotas.publish(quotas))

    def add_partition(self, topic: str, index: int = 0, **options: Any) -> Partition:
        return self.run(lambda: self.broker.add_partition(topic, index, **options))

    def eventually(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition`, which runs on the loop, is true."""

        async def poll() -> None:
            async with asyncio.timeout(DEADLINE_S):
                while not condition():  # noqa: ASYNC110
                    await asyncio.sleep(0.005)

        asyncio.run_coroutine_threadsafe(poll(), self.loop).result(DEADLINE_S + 1)

    def pass_seconds(self, seconds: int) -> None:
        """Let the sweep's clock advance by this many seconds."""

        def sweep() -> None:
            for _ in range(seconds):
                self.server.tick += 1
                for connection in list(self.server.connections):
                    connection.check_deadlines(self.server.tick, self.server.limits.idle_s)
                for connection in self.server.strangers.take_overdue(self.server.tick):
                    connection.close("it was not let in")

        self.run(sweep)


class FrameClient:
    """A blocking client: frames out, frames in."""

    def __init__(self, port: int, *, receive_buffer: int = 0) -> None:
        self.socket = socket.socket()
        if receive_buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(DEADLINE_S)
        try:
            self.socket.connect(("127.0.0.1", port))
        except OSError:
            self.socket.close()
            raise
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def encode(self, message: Any, version: int) -> bytes:
        self.correlation_id += 1
        segments = encode_request_frame(
            message.API_KEY, version, self.correlation_id, "test", message
        )
        return b"".join(bytes(segment) for segment in segments)  # type: ignore[arg-type]

    def send(self, message: Any, version: int) -> int:
        self.socket.sendall(self.encode(message, version))
        return self.correlation_id

    def receive_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self.receive_exactly(4))
        return self.receive_exactly(size)

    def receive_exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self.socket.recv(min(size - len(data), 1 << 20))
            if not piece:
                raise ConnectionError("the broker closed the connection")
            data += piece
        return bytes(data)

    def receive(self, api_key: int, version: int) -> tuple[int, Any]:
        return decode_response(memoryview(self.receive_frame()), api_key, version)

    def call(self, message: Any, version: int) -> Any:
        sent = self.send(message, version)
        correlation_id, response = self.receive(message.API_KEY, version)
        assert correlation_id == sent
        return response

    def prove(self, secret: bytes = SECRET) -> Self:
        """Authenticate on the brokers' internal listener."""
        proof = PeerProof(secret)
        assert self.call(SaslHandshakeRequest(MECHANISM), 1).error_code == 0
        first = self.call(SaslAuthenticateRequest(proof.nonce), 2)
        answer = proof.answer(bytes(first.auth_bytes))
        assert self.call(SaslAuthenticateRequest(answer), 2).error_code == 0
        return self

    def is_closed_by_peer(self) -> bool:
        """Wait for the end of the stream; drop data that still arrives."""
        try:
            while self.socket.recv(1 << 16):
                pass
        except ConnectionError:
            return True
        except TimeoutError:
            return False
        return True


def topic_id_of(topic: str) -> bytes:
    return topic.encode().ljust(16, b"!")[:16]


def batch(*values: bytes, **options: Any) -> bytes:
    """A record batch of one record a value."""
    now_ms = SystemClock().now_ms()
    return encode_batch([Record(i, now_ms, None, v) for i, v in enumerate(values)], **options)


def has_no_connection_left(live: LiveBroker) -> bool:
    """Let a second pass, and tell whether the broker has closed all its connections."""
    live.pass_seconds(1)
    return not live.server.connections
