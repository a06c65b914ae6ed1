"""A broker with real logs and a scripted controller, asked through its handlers."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from group_driver import GroupDriver

from fairlead_broker.api_registry import (
    HANDLERS,
    PENDING,
    ClientLogin,
    RequestContext,
    load_handlers,
)
from fairlead_broker.authorization import ANONYMOUS, Authorizer, Principal
from fairlead_broker.broker import Broker
from fairlead_broker.clock import Clock, ManualClock
from fairlead_broker.coordinator import slicing
from fairlead_broker.handlers import in_turns
from fairlead_broker.listener import Listener
from fairlead_broker.log.directory.log_directories import LogDirectories
from fairlead_broker.log.files.file_slice import FileSlice
from fairlead_broker.net.connection_quotas import ConnectionQuotas
from fairlead_broker.peer_check import BROKER_IDS, NO_BROKER_IDS, PeerCheck
from fairlead_broker.settings import build_settings
from fairlead_model.cluster import (
    BrokerChanged,
    BrokerRegistration,
    ClusterDelta,
    Endpoint,
    PartitionChanged,
    TopicChanged,
    TopicHeader,
    TopicRemoved,
    TopicState,
    empty_image,
)
from fairlead_model.ids import TopicId
from fairlead_model.partition import PartitionRegistration
from fairlead_wire.errors import ErrorCode, KafkaError
from fairlead_wire.messages import RESPONSES
from fairlead_wire.records import Record, encode_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Coroutine, Iterator
    from pathlib import Path

    from fairlead_broker.log.directory.log_directory import LogDirectory
    from fairlead_broker.replication.partition import Partition

NOW_MS = 1_700_000_000_000
CLIENT = Listener("CLIENT", "127.0.0.1", 9092, "127.0.0.1", 9092)
INTERNAL = Listener("INTERNAL", "127.0.0.1", 9192, "127.0.0.1", 9192, is_internal=True)

load_handlers()


class ScriptedController:
    """Answers calls by method; without a script there is no controller."""

    longest_stop_ms = 1_250
    has_session = True

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.script: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {}

    async def call(self, method: str, body: dict[str, Any], *, timeout_ms: int) -> dict[str, Any]:
        self.calls.append((str(method), body))
        await asyncio.sleep(0)
        if str(method) not in self.script:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"no controller after {timeout_ms} ms")
        return self.script[str(method)](body)


class Channel:
    """What a request came in on; keeps what was answered."""

    def __init__(self, broker: Broker, listener: Listener) -> None:
        self.broker = broker
        self.listener = listener
        self.client_host = "127.0.0.1"
        self.principal: Principal = ANONYMOUS
        self.authorizer: Authorizer | None = None
        self.peer_check: PeerCheck | None = None
        self.login: ClientLogin | None = None
        self.replica_ids: Container[int] = BROKER_IDS if listener.is_internal else NO_BROKER_IDS
        quotas = broker.client_quotas
        self.quotas = ConnectionQuotas(quotas, self) if quotas.binds_clients else None  # type: ignore[arg-type]
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.closed: str | None = None
        self.charged_ms = 0
        self.used_topic_ids: set[bytes] = set()
        self._task: asyncio.Task[Any] | None = None

    def on_response(self, context: RequestContext, response: Any) -> None:
        self.answer.set_result(response)

    def run_later(self, context: RequestContext, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._task = asyncio.get_running_loop().create_task(coroutine)
        self._task.add_done_callback(lambda task: self.answer.set_result(task.result()))

    def close(self, reason: str) -> None:
        self.closed = reason

    def on_proved(self) -> None:
        raise AssertionError("nothing is to be proved here")

    def charge(self, spent_ms: int) -> None:
        self.charged_ms += spent_ms


class Stage:
    """One broker, id 1, in a cluster that tests describe with `topic` and `neighbour`."""

    def __init__(self, directory: Path, settings: dict[str, str]) -> None:
        self.runner = asyncio.Runner()
        self.directory = directory
        self.clock = ManualClock(NOW_MS)
        self.controller = ScriptedController()
        self.authorizer: Authorizer | None = None
        self.used_topic_ids: set[bytes] = set()
        """All requests come on one connection."""
        self._settings = build_settings(
            file={
                "node.id": "1",
                "log.dirs": str(directory),
                "fairlead.cluster.secret.file": "secret",
                **settings,
            },
            environment={},
            assignments={},
        )
        self.broker = self.run(self._start())
        self.image = empty_image("test-cluster")
        self.publish(BrokerChanged(live_broker(1)))

    async def _start(self) -> Broker:
        directories = LogDirectories.open(self._settings.log_directories, node_id=1)
        directories.load(self.clock.now_ms(), config_for=lambda *_: self._settings.log_config({}))
        directories.confirm_start(7)
        broker = Broker(settings=self._settings, clock=self.clock, log_directories=directories)
        broker.controller = self.controller
        return broker

    @property
    def log_directory(self) -> LogDirectory:
        """The first one, mostly the only one."""
        directory: LogDirectory = self.broker.log_directories.directories[0]
        return directory

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(coroutine)

    def restart(
        self, *, without: str | None = None, meanwhile: Callable[[], object] = lambda: None
    ) -> None:
        """Stop cleanly, start again, and hear of an image, which may have forgotten one topic."""
        self.broker.log_directories.close(clean=True, broker_epoch=7)
        meanwhile()
        self.broker = self.run(self._start())
        changes = [*self.image.changes_from_nothing()]
        if without is not None:
            changes.append(TopicRemoved(self.image.names[without]))
        self.image = empty_image("test-cluster")
        self.publish(*changes)

    def close(self) -> None:
        self.broker.log_directories.close(clean=False)
        self.runner.close()

    def publish(self, *changes: Any) -> None:
        """Apply changes as the session would, and wait until they are acted on."""

        async def act() -> None:
            delta = ClusterDelta(tuple(changes))
            self.image = self.image.apply(delta)
            self.broker.publish(delta, self.image)
            await self.broker.replicas.settled()
            await asyncio.sleep(0)

        self.run(act())

    def topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        leader: int = 1,
        replicas: tuple[int, ...] = (1,),
        configs: dict[str, str] | None = None,
        topic_id: bytes | None = None,
    ) -> bytes:
        """A topic whose partitions all have the same replicas and leader."""
        topic_id = topic_id or topic_id_for(name)
        self.publish(
            TopicChanged(TopicHeader(name, TopicId(topic_id), partitions, configs=configs or {})),
            *(
                PartitionChanged(
                    TopicId(topic_id),
                    index,
                    PartitionRegistration(replicas=replicas, isr=replicas[:1], leader=leader),
                )
                for index in range(partitions)
            ),
        )
        return topic_id

    def change(self, name: str, index: int = 0, **fields: Any) -> None:
        """The controller changes fields of a partition's record."""
        topic = self.image.topic(name)
        assert topic is not None
        changed = topic.partitions[index].changed(**fields)
        self.publish(PartitionChanged(topic.topic_id, index, changed))

    def delete(self, *names: str) -> None:
        """The controller marks topics as being deleted."""
        changes = []
        for name in names:
            topic = self.image.topic(name)
            assert topic is not None
            header = replace(
                topic.header, state=TopicState.DELETING, unconfirmed_deletions=frozenset({1})
            )
            changes.append(TopicChanged(header))
        self.publish(*changes)

    def append(
        self, name: str, *values: bytes | None, index: int = 0, timestamp: int = NOW_MS
    ) -> int:
        """Append one batch; its first offset."""
        batch = bytearray(
            encode_batch(
                [
                    Record(offset=number, timestamp=timestamp + number, key=None, value=value)
                    for number, value in enumerate(values)
                ]
            )
        )

        async def act() -> int:
            result = self.partition(name, index).append_as_leader(
                memoryview(batch), required_acks=1, now_ms=self.clock.now_ms()
            )
            await asyncio.sleep(0)
            return result.first_offset

        return int(self.run(act()))

    def partition(self, name: str, index: int = 0) -> Partition:
        partition: Partition = self.broker.partitions[(name, index)]
        return partition

    def neighbour(self, broker_id: int, *, fenced: bool = False, rack: str | None = None) -> None:
        """Another broker, which may be dead."""
        self.publish(BrokerChanged(live_broker(broker_id, fenced=fenced, rack=rack)))

    def park(self, request: Any, version: int) -> asyncio.Future[Any]:
        """What a request that waits is answered in the end."""

        async def act() -> Channel:
            channel = Channel(self.broker, CLIENT)
            channel.authorizer = self.authorizer
            channel.used_topic_ids = self.used_topic_ids
            context = RequestContext(channel, request.API_KEY, version, 1, "test")
            assert HANDLERS[request.API_KEY].call_if_allowed(request, context) is PENDING
            return channel

        return self.run(act()).answer  # type: ignore[no-any-return]

    def ask(self, request: Any, version: int, *, internal: bool = False) -> Any:
        """The reply to a request, after a trip over the wire."""

        async def act() -> Any:
            channel = Channel(self.broker, INTERNAL if internal else CLIENT)
            context = RequestContext(channel, request.API_KEY, version, 1, "test")
            frame = b"".join(request.encode(version))
            decoded, _ = type(request).decode(memoryview(bytearray(frame)), 0, version)
            handler = HANDLERS[request.API_KEY]
            channel.authorizer = self.authorizer
            channel.used_topic_ids = self.used_topic_ids
            call = handler.call if self.authorizer is None else handler.call_if_allowed
            outcome = call(decoded, context)
            if outcome is PENDING:
                outcome = await asyncio.wait_for(channel.answer, 5)
            if not isinstance(outcome, bytes):
                outcome = b"".join(as_sent(part) for part in outcome.encode(version))
            response, position = RESPONSES[request.API_KEY].decode(memoryview(outcome), 0, version)
            assert position == len(outcome)
            return response

        return self.run(act())


def as_sent(segment: Any) -> bytes:
    """The bytes of a reply's segment; records are slices of files."""
    if isinstance(segment, FileSlice):
        return os.pread(segment.file.read_fd, segment.length, segment.position)
    return bytes(segment)


def topic_id_for(name: str) -> bytes:
    return name.encode()[:15].ljust(16, b"#")


def live_broker(
    broker_id: int, *, fenced: bool = False, rack: str | None = None
) -> BrokerRegistration:
    """A broker at 9092 + id and, for brokers, 9192 + id."""
    return BrokerRegistration(
        broker_id=broker_id,
        broker_epoch=broker_id,
        endpoints=(
            Endpoint("CLIENT", f"broker-{broker_id}", 9092 + broker_id),
            Endpoint("INTERNAL", f"broker-{broker_id}", 9192 + broker_id, is_internal=True),
        ),
        rack=rack,
        fenced=fenced,
    )


@pytest.fixture
def stage(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Stage]:
    """`@pytest.mark.parametrize("stage", [{...}], indirect=True)` gives it settings.

    Names in `log.dirs` are those of folders in the test's own one.
    """
    settings = dict(getattr(request, "param", {}))
    if "log.dirs" in settings:
        folders = [str(tmp_path / each) for each in settings["log.dirs"].split(",")]
        settings["log.dirs"] = ",".join(folders)
    made = Stage(tmp_path / "data", settings)
    yield made
    made.close()


@pytest.fixture
def later_steps(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """The steps of answers between which others are served, from now on."""
    found: list[None] = []
    in_slices = slicing.in_slices

    async def noted(steps: Iterator[None], clock: Clock) -> None:
        taken = list(steps)
        found.extend(taken)
        await in_slices(iter(taken), clock)

    monkeypatch.setattr(in_turns, "in_slices", noted)
    return found


@pytest.fixture
def group() -> GroupDriver:
    """A group without members."""
    return GroupDriver()


@pytest.fixture
def pair(group: GroupDriver) -> GroupDriver:
    """A group whose members m1, which leads, and m2 have joined generation 2 and may sync."""
    group.join("b")
    group.join("a")
    group.join("b2", "m1")
    return group
