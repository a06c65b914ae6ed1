"""A controller server and broker sessions in one process, over real sockets."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from waiting import until

from fairlead_bench.peers.own_ports import take_ports
from fairlead_broker.session.controller_session import ControllerSession
from fairlead_controller.controller import Controller, open_controller
from fairlead_controller.decisions.events import DeclareTopics, ElectLeaders
from fairlead_controller.decisions.state import CountersChanged
from fairlead_controller.decisions.tables.table_plan import CLUSTER_TABLE, first_lines
from fairlead_controller.local.server import ControllerServer
from fairlead_controller.sessions import liveness
from fairlead_controller.sessions import server as session_server
from fairlead_controller.startup_topics import Declarations
from fairlead_controller.stores.file import open_file_store
from fairlead_controller.stores.metadata_store import TableWrite
from fairlead_model.broker import BrokerRegistration, Endpoint
from fairlead_model.cluster import ClusterDelta, ClusterImage
from fairlead_model.configs.controller_configs import DEFAULT_TIMING, SessionTiming
from fairlead_tls.followed_certificate import FollowedPeer

SECRET = b"0123456789abcdef0123456789abcdef"


@dataclass
class Node:
    """A broker's session and what it has published."""

    session: ControllerSession
    published: list[tuple[ClusterDelta, ClusterImage]] = field(default_factory=list)

    @property
    def image(self) -> ClusterImage:
        return self.session.image

    def is_live(self, broker_id: int) -> bool:
        return self.image.is_live(broker_id)

    async def create(
        self, name: str, partitions: int = 1, replication_factor: int = -1
    ) -> dict[str, Any]:
        """Create a topic over the session."""
        topic = {
            "name": name,
            "partitions": partitions,
            "replication_factor": replication_factor,
            "assignments": {},
            "configs": {},
        }
        body = {
            "topics": [topic],
            "validate_only": False,
            "default_partitions": 1,
            "default_replication_factor": 1,
        }
        return await self.session.call("create_topics", body, timeout_ms=30_000)


class Stage:
    """Starts and stops controllers and brokers of one test."""

    def __init__(self, directory: Path, stack: AsyncExitStack) -> None:
        self.directory = directory
        (self.port,) = take_ports(1)
        self.controller: Controller
        self.server: ControllerServer
        self._stack = stack
        self._reign: AsyncExitStack | None = None

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    async def found_cluster_without_levels(self) -> None:
        """Leave the metadata of a cluster that was made before there were feature levels."""
        store = await open_file_store(self.directory)
        first = first_lines("an-older-cluster", CountersChanged(1, 0))
        await store.write([TableWrite(CLUSTER_TABLE, None, 0, first)])
        await store.close()

    async def start_controller(
        self,
        *specs: Any,
        expected_brokers: int | None = None,
        timing: SessionTiming = DEFAULT_TIMING,
        certificate: FollowedPeer | None = None,
    ) -> None:
        """Start a controller on the port of the one before."""
        reign = AsyncExitStack()
        store = await open_file_store(self.directory)
        reign.push_async_callback(store.close)
        self.controller = await open_controller(store, now_ms=lambda: 0)
        await reign.enter_async_context(running(self.controller.run()))
        await self.controller.submit(ElectLeaders())
        declarations = Declarations(
            self.controller, DeclareTopics(specs), expected_brokers=expected_brokers
        )
        self.server = ControllerServer(
            self.controller, declarations, secret=SECRET, timing=timing, certificate=certificate
        )
        reign.push_async_callback(self.server.stop)
        await self.server.start(host="127.0.0.1", session_port=self.port, http_port=0)
        await reign.enter_async_context(running(self.server.sessions.watch()))
        await reign.enter_async_context(running(declarations.run()))
        self._reign = reign
        self._stack.push_async_callback(self.stop_controller)

    async def stop_controller(self) -> None:
        """Stop the controller, if one runs."""
        reign, self._reign = self._reign, None
        if reign is not None:
            await reign.aclose()

    def fencings(self) -> list[str]:
        """Who was taken out of service and why, as the controller says it."""
        told = [each["what"] for each in self.controller.journal.sentences()]
        return [sentence for sentence in told if "is fenced" in sentence]

    def node(self, broker_id: int, *, secret: bytes = SECRET, **options: Any) -> Node:
        """Make a broker's session, not started."""
        fields: dict[str, Any] = {
            "endpoints": (Endpoint("INTERNAL", "127.0.0.1", 1, is_internal=True),),
            "host_name": "here",
            "directory_id": f"disk-{broker_id}",
            "start_id": f"start-{broker_id}",
        }
        cordoned = options.pop("cordoned", lambda: False)
        for name in list(options):
            if name in BrokerRegistration.__dataclass_fields__:
                fields[name] = options.pop(name)
        published: list[tuple[ClusterDelta, ClusterImage]] = []
        session = ControllerSession(
            options.pop("urls", [self.url]),
            secret,
            BrokerRegistration(broker_id, **fields),
            lambda delta, image: published.append((delta, image)),
            is_cordoned=cordoned,
            **options,
        )
        self._stack.push_async_callback(session.stop)
        return Node(session, published)

    async def start_node(self, broker_id: int, **options: Any) -> Node:
        """Start a broker and wait until it is in service."""
        node = self.node(broker_id, **options)
        await node.session.start()
        await node.session.wait_registered(30)
        if options.get("is_ready", True):
            await until(lambda: node.is_live(broker_id))
        return node


@asynccontextmanager
async def running(work: Any) -> AsyncIterator[None]:
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def play(tmp_path: Path) -> Callable[[Callable[[Stage], Awaitable[None]]], None]:
    """Run a story on a stage."""

    def run(story: Callable[[Stage], Awaitable[None]]) -> None:
        async def whole() -> None:
            async with asyncio.timeout(60), AsyncExitStack() as stack:
                await story(Stage(tmp_path, stack))

        asyncio.run(whole())

    return run


@pytest.fixture
def endless_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose session has closed has for ever to come back: only something else can be its end."""
    for module in (liveness, session_server):
        monkeypatch.setattr(module, "RECONNECT_GRACE_MS", 3_600_000)


@pytest.fixture
def wait_until() -> Callable[..., Awaitable[None]]:
    return until
