"""Brokers that replicate to each other, in one process and loop, under a scripted controller.

Logs, sockets, fetchers and ISR proposals are the product's. The controller is a short stand-in in
this module: it has the image, sends the changes to all brokers, and checks the epochs of ISR
proposals. Tests choose the leaders; there are no elections.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

from fairlead_broker.api_registry import load_handlers
from fairlead_broker.broker import Broker
from fairlead_broker.clock import SystemClock
from fairlead_broker.log.directory.log_directories import LogDirectories
from fairlead_broker.net.server import Server
from fairlead_broker.net.tls_listeners import TlsListeners
from fairlead_broker.settings import build_settings
from fairlead_broker.tasks.background import Background
from fairlead_model.cluster import (
    BrokerChanged,
    BrokerRegistration,
    ClusterDelta,
    Endpoint,
    PartitionChanged,
    TopicChanged,
    TopicHeader,
    empty_image,
)
from fairlead_model.ids import TopicId
from fairlead_model.metadata_seen import NOTHING_SEEN
from fairlead_model.partition import PartitionRegistration
from fairlead_model.session.calls import Method
from fairlead_tls.protocol_map import PROTOCOL_MAP
from fairlead_wire.errors import ErrorCode
from fairlead_wire.records import Record, encode_batch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from peer_certificates import PeerCertificates

    from fairlead_broker.replication.partition import Partition

SECRET = b"the secret of a test cluster"
DEADLINE_S = 60.0

load_handlers()


class Member:
    """One broker of the cluster, from start to stop; its directory outlives it."""

    def __init__(self, cluster: ReplicaCluster, broker_id: int, broker_epoch: int) -> None:
        self.cluster = cluster
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.executor = ThreadPoolExecutor(2)
        rack = cluster.racks.get(broker_id)
        settings = build_settings(
            file={
                "node.id": str(broker_id),
                "log.dirs": str(cluster.directory / f"broker-{broker_id}"),
                "listeners": "CLIENT://127.0.0.1:0,INTERNAL://127.0.0.1:0",
                "fairlead.cluster.secret.file": "secret",
                **cluster.settings,
                **cluster.tls_settings(broker_id),
                **({"broker.rack": rack} if rack is not None else {}),
            },
            environment={},
            assignments={},
        )
        clock = SystemClock()
        self.log_directories = LogDirectories.open(settings.log_directories, node_id=broker_id)
        self.log_directories.load(clock.now_ms(), config_for=lambda *_: settings.log_config({}))
        self.log_directories.confirm_start(broker_epoch)
        self.broker = Broker(settings=settings, clock=clock, log_directories=self.log_directories)
        self.broker.controller = cluster
        self.broker.wake_check.follow_session()
        secret = cluster.secrets.get(broker_id, SECRET)
        self.tls = TlsListeners({}, self.broker.metrics, peer_tls=settings.peer_tls, poll_s=0.05)
        self.broker.peer_certificate = self.tls.peer
        self.server = Server(
            self.broker,
            settings.listeners,
            cluster_secret=secret,
            transports=self.tls.transports,
        )
        self.server.bind()
        self.background = Background(self.broker, self.executor, secret)

    def registration(self, *, fenced: bool = False) -> BrokerRegistration:
        return BrokerRegistration(
            broker_id=self.broker_id,
            broker_epoch=self.broker_epoch,
            endpoints=tuple(
                Endpoint(each.name, each.host, each.port, is_internal=each.is_internal)
                for each in self.server.listeners
            ),
            rack=self.cluster.racks.get(self.broker_id),
            fenced=fenced,
        )

    def start(self) -> None:
        self.background.start_replicating(lambda: NOTHING_SEEN, keep_journal=_keep_no_journal)
        self.background.start()
        self.server.start()
        self.tls.start()

    async def stop(self, *, clean: bool) -> None:
        """Stop at once; if not clean, as if killed: written data stays in the page cache."""
        await self.server.stop(grace_s=0)
        await self.tls.stop()
        await self.background.stop()
        self.log_directories.close(clean=clean, broker_epoch=self.broker_epoch)
        self.executor.shutdown()


class ReplicaCluster:
    """Brokers 1 to `size`, and the stand-in for their controller."""

    longest_stop_ms = 60_000
    """In these tests a loop that waits for the processor does not count as suspended."""
    has_session = True

    def __init__(
        self,
        directory: Path,
        *,
        size: int = 3,
        peers: PeerCertificates | None = None,
        racks: Mapping[int, str] = MappingProxyType({}),
        **settings: str,
    ) -> None:
        """With `peers` brokers use TLS with each other; `racks` are those of the brokers."""
        self.peers = peers
        self.directory = directory
        self.size = size
        self.racks = racks
        self.settings = {name.replace("_", "."): value for name, value in settings.items()}
        self.members: dict[int, Member] = {}
        self.image = empty_image("test-cluster")
        self.secrets: dict[int, bytes] = {}
        self.is_controller_away = False
        self.proposals: list[dict[str, Any]] = []
        self._next_epoch = 1

    def tls_settings(self, broker_id: int) -> dict[str, str]:
        """Return a broker's settings of TLS; create its certificate unless it exists."""
        if self.peers is None:
            return {}
        path = self.peers.directory / f"broker-{broker_id}.pem"
        if not path.exists():
            self.peers.of(broker_id)
        return {
            PROTOCOL_MAP: "CLIENT:PLAINTEXT,INTERNAL:SSL",
            **self.peers.settings("INTERNAL", path),
        }

    async def __aenter__(self) -> Self:
        for broker_id in range(1, self.size + 1):
            await self.start(broker_id)
        return self

    async def __aexit__(self, *_: object) -> None:
        for broker_id in list(self.members):
            await self.stop(broker_id)

    async def start(self, broker_id: int) -> Member:
        """Start a process: it gets a new broker epoch and the whole image, and then serves."""
        member = self.members[broker_id] = Member(self, broker_id, self._next_epoch)
        self._next_epoch += 1
        self.publish(BrokerChanged(member.registration()), without=member)
        changes = tuple(self.image.changes_from_nothing())
        member.broker.publish(ClusterDelta(changes), self.image)
        await member.broker.replicas.settled()
        member.start()
        return member

    async def stop(self, broker_id: int, *, clean: bool = False) -> None:
        member = self.members.pop(broker_id)
        await member.stop(clean=clean)

    def publish(self, *changes: Any, without: Member | None = None) -> None:
        delta = ClusterDelta(tuple(changes))
        self.image = self.image.apply(delta)
        for member in list(self.members.values()):
            if member is not without:
                member.broker.publish(delta, self.image)

    async def call(self, method: str, body: dict[str, Any], *, timeout_ms: int) -> dict[str, Any]:
        """Handle calls of brokers: ISR proposals, and reports of replicas on a failed disk."""
        await asyncio.sleep(0)
        while self.is_controller_away:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        if method == Method.REPORT_OFFLINE:
            self._take_out(body)
            return {}
        if method == Method.CONFIRM_DELETIONS:
            return {}
        assert method == Method.ALTER_PARTITION, method
        return {"partitions": [self._alter(proposal) for proposal in body["partitions"]]}

    def _alter(self, proposal: dict[str, Any]) -> dict[str, Any]:
        self.proposals.append(proposal)
        topic_id, index = TopicId(proposal["topic_id"]), proposal["index"]
        topic = self.image.topic_by_id(topic_id)
        assert topic is not None
        record = topic.partitions[index]
        code = ErrorCode.NONE
        if proposal["leader_epoch"] != record.leader_epoch:
            code = ErrorCode.FENCED_LEADER_EPOCH
        elif proposal["partition_epoch"] != record.partition_epoch:
            code = ErrorCode.INVALID_UPDATE_VERSION
        elif any(
            not self.image.is_live(replica) or self.image.brokers[replica].broker_epoch != epoch
            for replica, epoch in proposal["isr"]
        ):
            code = ErrorCode.INELIGIBLE_REPLICA
        else:
            record = record.changed(isr=tuple(replica for replica, _ in proposal["isr"]))
            self.publish(PartitionChanged(topic_id, index, record))
        return {
            "topic_id": topic_id,
            "index": index,
            "error_code": int(code),
            "error_message": None,
            "leader": record.leader,
            "leader_epoch": record.leader_epoch,
            "partition_epoch": record.partition_epoch,
            "isr": list(record.isr),
        }

    def _take_out(self, body: dict[str, Any]) -> None:
        (broker_id,) = (
            each for each in self.members if self.members[each].broker_epoch == body["broker_epoch"]
        )
        for item in body["partitions"]:
            topic = self.image.topic_by_id(TopicId(item["topic_id"]))
            assert topic is not None
            rest = [each for each in topic.partitions[item["index"]].isr if each != broker_id]
            self.change(topic.name, item["index"], isr=tuple(rest))

    def create(
        self,
        name: str,
        *,
        partitions: int = 1,
        leader: int = 1,
        configs: dict[str, str] | None = None,
        min_insync_replicas: int = 1,
    ) -> None:
        """Create a topic on all brokers, with all replicas in sync."""
        topic_id = TopicId(name.encode()[:15].ljust(16, b"#"))
        while topic_id in self.image.topics_by_id:
            # One of that name is being deleted.
            topic_id = TopicId(topic_id[:15] + bytes([topic_id[15] + 1]))
        replicas = tuple(range(1, self.size + 1))
        record = PartitionRegistration(
            replicas=replicas,
            isr=replicas,
            leader=leader,
            min_insync_replicas=min_insync_replicas,
        )
        self.publish(
            TopicChanged(TopicHeader(name, topic_id, partitions, configs=configs or {})),
            *(PartitionChanged(topic_id, index, record) for index in range(partitions)),
        )

    def change(self, name: str, index: int = 0, **fields: Any) -> None:
        """Change fields of a partition's record, as the controller would."""
        topic = self.image.topic(name)
        assert topic is not None
        record = topic.partitions[index].changed(**fields)
        self.publish(PartitionChanged(topic.topic_id, index, record))

    def fence(self, broker_id: int, *, fenced: bool = True) -> None:
        registration = self.image.brokers[broker_id]
        self.publish(
            BrokerChanged(
                BrokerRegistration(
                    broker_id=broker_id,
                    broker_epoch=registration.broker_epoch,
                    endpoints=registration.endpoints,
                    rack=registration.rack,
                    fenced=fenced,
                )
            )
        )

    def partition(self, broker_id: int, name: str, index: int = 0) -> Partition:
        return self.members[broker_id].broker.partitions[name, index]

    def isr(self, name: str, index: int = 0) -> set[int]:
        record = self.image.partition(name, index)
        assert record is not None
        return set(record.isr)

    def append(
        self, broker_id: int, name: str, *values: bytes, index: int = 0, acks: int = 1
    ) -> int:
        """Append one batch at a leader; return its last offset + 1."""
        broker = self.members[broker_id].broker
        now_ms = broker.clock.now_ms()
        records = [Record(number, now_ms, None, value) for number, value in enumerate(values)]
        batch = memoryview(bytearray(encode_batch(records)))
        partition = self.partition(broker_id, name, index)
        return partition.append_as_leader(batch, required_acks=acks, now_ms=now_ms).last_offset + 1

    async def until(self, condition: Callable[[], bool]) -> None:
        """Let all brokers work until `condition` is true."""
        async with asyncio.timeout(DEADLINE_S):
            while not condition():  # noqa: ASYNC110 (nobody tells a test when a log has grown)
                await asyncio.sleep(0.002)

    def content(self, broker_id: int, name: str, index: int = 0) -> bytes:
        """Return the bytes of a replica's log, with all segments joined."""
        log = self.partition(broker_id, name, index).log
        return b"".join(
            (log.directory / f"{segment.base_offset:020d}.log").read_bytes()[: segment.size]
            for segment in log.segments
        )


async def _keep_no_journal() -> None:
    """Do nothing: the tests are the controller of these brokers."""
