"""Controllers and broker sessions: the real ones, over the simulated network and store.

`fairlead_controller`'s shell, committer, session server and liveness, and the broker's controller
session are real. Simulated are their sockets, the clock, the port probe and the source of
randomness, all of which are names in their modules.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import aiohttp
from aiohttp import WSMsgType
from aiohttp import web as aiohttp_web
from simulator.ensemble import Ensemble, SimKazoo, SimThread, SimTransaction, open_elected_store
from simulator.network import CONNECT_TIMEOUT_S
from simulator.replica_link import SimLeaderConnection
from simulator.store import SimStore
from simulator.virtual_loop import PROCESS, Process
from zookeeper_store import sweep_of

from fairlead_broker import broker as broker_module
from fairlead_broker.coordinator import loading as coordinator_loading
from fairlead_broker.session import controller_session, link
from fairlead_broker.tasks import leader_connecting
from fairlead_controller import reassigner
from fairlead_controller.controller import Controller, open_controller
from fairlead_controller.decisions import leadership, registration
from fairlead_controller.decisions.events import ElectLeaders
from fairlead_controller.decisions.tables import loading, table_plan
from fairlead_controller.decisions.tables.stored_table import StoreError
from fairlead_controller.reassigner import Reassigner
from fairlead_controller.sessions import handshake as session_handshake
from fairlead_controller.sessions import hearing as session_hearing
from fairlead_controller.sessions import publication
from fairlead_controller.sessions import server as session_server
from fairlead_controller.sessions.server import SessionServer
from fairlead_controller.stores import zookeeper as zookeeper_store
from fairlead_controller.stores import zookeeper_multis
from fairlead_controller.zookeeper import reign as zookeeper_reign
from fairlead_model.session.refusals import RefusedError
from fairlead_zookeeper import client as zookeeper_client

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

    from simulator.network import End, Network
    from simulator.world import World

    from fairlead_controller.stores.metadata_store import MetadataStore

SECRET = b"a secret of simulations"


class Frame(NamedTuple):
    """The parts of a WebSocket message that are used."""

    type: WSMsgType
    data: bytes = b""


_CLOSED = Frame(WSMsgType.CLOSED)


class SimSocket:
    """Either side of a WebSocket, over one end of a connection."""

    def __init__(self, end: End) -> None:
        self._end = end
        self._frames: list[Frame] = []
        self._waiter: asyncio.Future[None] | None = None
        end.on_message = self._on_data
        end.on_close = self._wake

    @property
    def closed(self) -> bool:
        return self._end.is_closed

    def is_closing(self) -> bool:
        """Tell whether the connection has ended, as a transport does."""
        return self._end.is_closed

    def get_extra_info(self, name: str) -> None:
        """Return None: no kernel watches the connection here."""

    def get_protocol(self) -> None:
        """Return None: only real sockets have unauthenticated peers."""

    async def send_bytes(self, data: bytes) -> None:
        if self._end.is_closed:
            raise ConnectionResetError("the connection is closed")
        self._end.send(data)

    async def receive(self) -> Frame:
        while not self._frames:
            if self._end.is_closed:
                return _CLOSED
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self._frames.pop(0)

    async def close(self, **_: Any) -> None:
        self._end.close()
        self._wake()

    def abort(self) -> None:
        """Abort as a transport does: close at once, and tell the peer if possible."""
        self._end.close()
        self._end.process.call_soon(self._wake)

    def _on_data(self, data: bytes) -> None:
        self._frames.append(Frame(WSMsgType.BINARY, data))
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class ServerSocket:
    """Replaces `aiohttp.web.WebSocketResponse`: takes its connection from the request."""

    def __init__(self, **_: Any) -> None:
        self._socket: SimSocket

    async def prepare(self, request: Any) -> None:
        self._socket = request.transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)


class ClientHttp:
    """Replaces `aiohttp.ClientSession`: connects over the simulated network."""

    network: Network

    def __init__(self, **_: Any) -> None: ...

    async def __aenter__(self) -> ClientHttp:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    def ws_connect(self, url: str, **_: Any) -> ClientConnection:
        host = url.removeprefix("ws://").split("/", 1)[0]
        return ClientConnection(self.network, host)


class ClientConnection:
    """The context manager that `ws_connect` returns."""

    def __init__(self, network: Network, host: str) -> None:
        self._network = network
        self._host = host
        self._socket: SimSocket | None = None

    async def __aenter__(self) -> SimSocket:
        process = PROCESS.get()
        assert process is not None
        end = self._network.connect(process, self._host)
        if end.peer is None:
            # The connection was refused, or there was no answer.
            refused = asyncio.get_running_loop().create_future()
            end.on_close = lambda: None if refused.done() else refused.set_result(None)
            done, _ = await asyncio.wait([refused], timeout=CONNECT_TIMEOUT_S)
            end.close()
            if done:
                key: Any = SimpleNamespace(host=self._host, port=0, ssl=False)
                raise aiohttp.ClientConnectorError(key, ConnectionRefusedError(self._host))
            raise aiohttp.ClientConnectionError(f"{self._host} cannot be reached")
        self._socket = SimSocket(end)
        return self._socket

    async def __aexit__(self, *_: object) -> None:
        if self._socket is not None:
            await self._socket.close()


class _Chance:
    """Replaces the module `random` of the broker's session."""

    def __init__(self, rng: random.Random) -> None:
        self.uniform = rng.uniform


class _Nonces:
    """Replaces the module `secrets`: nonces must differ, but need not be secret here."""

    def __init__(self) -> None:
        self._next = 0

    def token_bytes(self, size: int) -> bytes:
        self._next += 1
        return self._next.to_bytes(size, "big")


@contextmanager
def replaced_edges(world: World) -> Iterator[None]:
    """Replace the edges of sessions and fetchers during one run."""

    async def is_refused(endpoints: Any) -> bool:
        asking = PROCESS.get()
        assert asking is not None
        await asyncio.sleep(0.002)
        return bool(endpoints) and world.network.is_refused(endpoints[0].host, asking.name)

    nonces = _Nonces()
    ClientHttp.network = SimLeaderConnection.network = world.network
    web = SimpleNamespace(
        WebSocketResponse=ServerSocket,
        HTTPServiceUnavailable=aiohttp_web.HTTPServiceUnavailable,
    )
    replacements: list[tuple[Any, str, Any]] = [
        (session_server, "web", web),
        (session_server, "_monotonic_ms", world.loop.now_ms),
        (session_server, "time", SimpleNamespace(monotonic=world.loop.time)),
        (session_server, "is_refused", is_refused),
        (session_hearing, "is_refused", is_refused),
        (session_handshake, "secrets", nonces),
        (session_server, "TICK_S", 0.05),
        (reassigner, "time", SimpleNamespace(monotonic=world.loop.time)),
        # Short, so that some faults last longer.
        (reassigner, "GIVE_UP_S", 3.0),
        # Small, so that even the image of this small cluster comes in several messages.
        (publication, "CHANGES_PER_MESSAGE", 3),
        # Small, so that topics have several tables.
        (table_plan, "PARTITIONS_PER_TABLE", 4),
        (loading, "PARTITIONS_PER_TABLE", 4),
        # In every other seed one, so that a broker leaves even a few partitions in parts.
        (registration, "LEFT_PER_DECISION_MAX", 1 if world.seed % 2 else 5_000),
        # In every third one, so that even a few elections take several decisions.
        (leadership, "ELECTED_PER_DECISION_MAX", 5_000 if world.seed % 3 else 1),
        (link, "secrets", nonces),
        (controller_session, "random", _Chance(world.rng)),
        (broker_module, "random", SimpleNamespace(SystemRandom=lambda: world.rng)),
        (leader_connecting, "LeaderConnection", SimLeaderConnection),
        (coordinator_loading, "_read_slice", bytes),
        (
            controller_session,
            "aiohttp",
            SimpleNamespace(
                ClientSession=ClientHttp,
                ClientError=aiohttp.ClientError,
                ClientConnectorError=aiohttp.ClientConnectorError,
                ClientConnectorCertificateError=aiohttp.ClientConnectorCertificateError,
                TCPConnector=SimpleNamespace,
            ),
        ),
    ]
    if isinstance(world.store, Ensemble):
        SimKazoo.ensemble = world.store
        replacements += [
            (zookeeper_client, "KazooClient", SimKazoo),
            (zookeeper_client, "TransactionRequest", SimTransaction),
            (zookeeper_store, "ThreadPoolExecutor", SimThread),
            # Small, so that Kafka's znodes of one write need several multis.
            (zookeeper_multis, "MULTI_OPERATIONS_MAX", 6),
            (zookeeper_reign, "SWEEP_INTERVAL_S", 3.0),
        ]
    before = [(module, name, getattr(module, name)) for module, name, _ in replacements]
    for module, name, value in replacements:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


class ControllerHost:
    """One controller candidate: a name for controller processes."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.process: Process | None = None
        self.controller: Controller | None = None
        self.last_words = ""
        """Why its last process ended, if the store was the cause."""

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.is_alive

    @property
    def may_reign(self) -> bool:
        """Tell whether it holds the Lease: it runs, and no other has taken over since its start."""
        if not self.is_running:
            return False
        controller = self.controller
        newest = self.world.checker.reigning_epoch
        return controller is None or controller.committed.controller_epoch >= newest

    @property
    def controller_of_now(self) -> Controller | None:
        """The active controller of this candidate, if there is one."""
        return self.controller if self.is_running else None

    def start(self) -> None:
        self.process = Process(self.world.loop, self.name)
        self.controller = None
        self.process.spawn(self._run(self.process))

    def kill(self) -> None:
        if self.process is not None and self.process.is_alive:
            self.world.note("%s is killed", self.name)
            self.process.end()
            self.world.network.end_process(self.process, dark=False)

    async def _run(self, process: Process) -> None:
        world = self.world
        try:
            await self._reign(process)
        except* (StoreError, RefusedError) as group:
            reasons = [each for each in group.exceptions if isinstance(each, StoreError)]
            self.last_words = str((reasons or group.exceptions)[0])
            world.note("%s ends: %s", self.name, self.last_words)
        except* Exception as group:
            # Any other end of a controller is a finding.
            world.loop.failure = group
        # The process has ended; its sockets close.
        process.loop.call_soon(self._exit, process, context=world.network.context)

    def _exit(self, process: Process) -> None:
        if process.is_alive:
            process.end()
            self.world.network.end_process(process, dark=False)

    async def _reign(self, process: Process) -> None:
        world = self.world
        if isinstance(world.store, Ensemble):
            store: MetadataStore = await open_elected_store()
        else:
            store = SimStore(world.store, process)
        controller = await open_controller(
            store, now_ms=world.wall_clock_ms, random_source=world.rng
        )
        epoch = controller.committed.controller_epoch
        world.note("%s reigns with epoch %d", self.name, epoch)
        world.checker.on_reign(epoch)
        broken = controller.metrics.broken_decisions
        controller.subscribe(lambda changes, _: world.checker.on_published(epoch, changes, broken))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(controller.run())
            await controller.submit(ElectLeaders())
            server = SessionServer(controller, SECRET)
            world.network.listen(process, lambda end: _accept(server, end))
            self.controller = controller
            tasks.create_task(server.watch())
            tasks.create_task(Reassigner(controller).run())
            if isinstance(store, zookeeper_store.ZooKeeperStore):
                tasks.create_task(zookeeper_reign.keep_sweeping(sweep_of(store)))
                tasks.create_task(_end_with_session(store))


async def _end_with_session(store: zookeeper_store.ZooKeeperStore) -> None:
    """End a reign as the product's elector does: a lost session is a lost election."""
    await store._client.ended.wait()
    raise StoreError("the session with ZooKeeper has ended")


def _accept(server: SessionServer, end: End) -> None:
    socket = SimSocket(end)
    request = SimpleNamespace(transport=socket, remote=end.peer_host)
    end.process.spawn(_serve(server, request))


async def _serve(server: SessionServer, request: Any) -> None:
    try:
        await server.serve(request)
    except ConnectionError:
        request.transport.abort()
