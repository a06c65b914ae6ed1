"""Members of a KIP-848 group that cost next to nothing, so that a hundred fit beside their brokers.

They use Kafka's protocol with real brokers and wait as real clients do: a heartbeat at the
coordinator's interval, one fetch at a time at each leader, `retry.backoff.ms` of 100 after a failed
request. They send a heartbeat at once after they have found a new coordinator. They are cheap
because they have no threads, and decode equal answers to Metadata only once.
"""

from __future__ import annotations

import asyncio
import struct
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from fairlead_wire.errors import ErrorCode
from fairlead_wire.header import decode_response, encode_request_frame
from fairlead_wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    RequestTopicPartitions,
)
from fairlead_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fairlead_wire.messages.find_coordinator import FindCoordinatorRequest
from fairlead_wire.messages.metadata import MetadataRequest, MetadataRequestTopic

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HOST: Final = "127.0.0.1"
RETRY_BACKOFF_S: Final = 0.1
CONNECT_TIMEOUT_S: Final = 5.0
CALL_TIMEOUT_S: Final = 30.0
FETCH_WAIT_MS: Final = 500
PARTITION_BYTES: Final = 1 << 20
REBALANCE_TIMEOUT_MS: Final = 45_000
FETCH, METADATA, HEARTBEAT, FIND_COORDINATOR = 13, 12, 1, 4
_BATCH: Final = struct.Struct(">qi")
_LAST_OFFSET_DELTA: Final = struct.Struct(">i")
_LAST_OFFSET_DELTA_AT: Final = 23


class Connection:
    """Requests and their replies, one at a time; closed once anything fails."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._number = 0

    @classmethod
    async def open(cls, port: int) -> Connection:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            return cls(*await asyncio.open_connection(HOST, port))

    async def ask(self, request: Any, version: int) -> memoryview:
        """The reply's frame without its length; OSError or EOFError once the broker is gone."""
        self._number += 1
        key = type(request).API_KEY
        for part in encode_request_frame(key, version, self._number, "light", request):
            self._writer.write(bytes(part))  # type: ignore[arg-type]
        async with asyncio.timeout(CALL_TIMEOUT_S):
            (size,) = struct.unpack(">i", await self._reader.readexactly(4))
            return memoryview(await self._reader.readexactly(size))

    async def call(self, request: Any, version: int) -> Any:
        frame = await self.ask(request, version)
        return decode_response(frame, type(request).API_KEY, version)[1]

    async def wait_closed(self) -> None:
        """Until the broker has closed it; only while nothing is asked."""
        await self._reader.read(1)

    def close(self) -> None:
        self._writer.close()


class ClusterView:
    """The parts of a Metadata reply that members need."""

    def __init__(self, reply: Any) -> None:
        self.ports = {broker.node_id: broker.port for broker in reply.brokers}
        (topic,) = reply.topics
        self.topic_id = topic.topic_id
        self.leaders = {
            each.partition_index: (each.leader_id, each.leader_epoch) for each in topic.partitions
        }


class LightGroup:
    """All members of one group on one topic, and their results."""

    def __init__(self, ports: Sequence[int], group: str, topic: str, members: int) -> None:
        self.ports, self.group, self.topic = list(ports), group, topic
        self.sought = b""
        """Text in the records that the test waits for."""
        self.found_at: dict[int, float] = {}
        """When each partition delivered such a record."""
        self.heartbeats: dict[int, float] = {}
        """When each member last had a successful heartbeat."""
        self.fenced: list[tuple[int, ErrorCode]] = []
        """Members that the coordinator no longer knew."""
        self._views: dict[bytes, ClusterView] = {}
        self.members = [LightMember(self, number) for number in range(members)]
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> LightGroup:
        self._tasks = [asyncio.create_task(each.run()) for each in self.members]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def held(self) -> list[int]:
        """Partitions that members have, in order."""
        return sorted(each for member in self.members for each in member.positions)

    def seek(self, value: bytes) -> None:
        """Look for records with a value from now on."""
        self.sought = value
        self.found_at.clear()

    async def until(self, is_so: Any, what: str, deadline_s: float = 120.0) -> None:
        deadline = time.monotonic() + deadline_s
        while not is_so():
            for task in self._tasks:
                if task.done():
                    task.result()
            assert time.monotonic() < deadline, what
            await asyncio.sleep(0.005)

    def view_of(self, frame: memoryview) -> ClusterView:
        content = bytes(frame[4:])
        view = self._views.get(content)
        if view is None:
            if len(self._views) > 100:
                self._views.clear()
            reply = decode_response(frame, MetadataRequest.API_KEY, METADATA)[1]
            view = self._views[content] = ClusterView(reply)
        return view


class LightMember:
    """One member: a task keeps its membership, and one fetches from each broker."""

    def __init__(self, group: LightGroup, number: int) -> None:
        self.number = number
        self.positions: dict[int, int] = {}
        """The next offset of each partition that the member has."""
        self._group = group
        self._member_id = f"light-{number}"
        self._epoch = 0
        self._view: ClusterView | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._unreachable: set[int] = set()
        """Brokers that closed a connection, or refused one, since the view was made."""
        self._turn = number

    async def run(self) -> None:
        await self._refresh()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._stay())
            for node in sorted(self._view.ports if self._view else ()):
                tasks.create_task(self._fetch_from(node))

    async def _stay(self) -> None:
        """Keep the membership: find the coordinator, send heartbeats, take assignments."""
        while True:
            try:
                port = await self._find_coordinator()
                if port is not None:
                    await self._heartbeat_at(port)
            except (OSError, EOFError, TimeoutError):
                pass
            await asyncio.sleep(RETRY_BACKOFF_S)

    async def _find_coordinator(self) -> int | None:
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=[self._group.group])
        async with _opened(self._next_port()) as connection:
            (found,) = (await connection.call(request, FIND_COORDINATOR)).coordinators
        return None if found.error_code else int(found.port)

    async def _heartbeat_at(self, port: int) -> None:
        told: set[int] | None = None
        async with _opened(port) as connection:
            while True:
                reply = await connection.call(self._heartbeat(told), HEARTBEAT)
                told = None
                error = ErrorCode(reply.error_code)
                if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
                    self._group.fenced.append((self.number, error))
                    self._epoch, told = 0, None
                    self.positions.clear()
                    continue
                if error:
                    return
                self._epoch = reply.member_epoch
                self._group.heartbeats[self.number] = time.monotonic()
                if reply.assignment is not None:
                    told = {
                        each
                        for topic in reply.assignment.topic_partitions
                        for each in topic.partitions
                    }
                    self.positions = {each: self.positions.get(each, 0) for each in told}
                    self._wake()
                    continue
                with suppress(TimeoutError):
                    async with asyncio.timeout(reply.heartbeat_interval_ms / 1000):
                        await connection.wait_closed()
                        return

    def _heartbeat(self, told: set[int] | None) -> ConsumerGroupHeartbeatRequest:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self._group.group, member_id=self._member_id, member_epoch=self._epoch
        )
        if not self._epoch:
            request.rebalance_timeout_ms = REBALANCE_TIMEOUT_MS
            request.subscribed_topic_names = [self._group.topic]
            request.topic_partitions = []
        elif told is not None and self._view is not None:
            owned = [RequestTopicPartitions(self._view.topic_id, sorted(told))] if told else []
            request.topic_partitions = owned
        return request

    async def _fetch_from(self, node: int) -> None:
        """Fetch what the member has and this broker leads, for as long as the member lives."""
        while True:
            try:
                await self._wait_wanted(node)
                assert self._view is not None
                async with _opened(self._view.ports[node]) as connection:
                    while wanted := self._wanted(node):
                        request = self._fetch(wanted)
                        reply = await connection.call(request, FETCH)
                        if self._take(reply):
                            self._ask_again()
                            await self._wait_changed()
            except (OSError, EOFError, TimeoutError):
                self._unreachable.add(node)
                self._ask_again()
                await asyncio.sleep(RETRY_BACKOFF_S)

    def _wanted(self, node: int) -> list[tuple[int, int]]:
        """Partitions to fetch from a broker, with the epoch of its leadership."""
        if self._view is None or node not in self._view.ports or node in self._unreachable:
            return []
        found = []
        for partition in self.positions:
            leader, epoch = self._view.leaders[partition]
            if leader == node:
                found.append((partition, epoch))
        return found

    async def _wait_wanted(self, node: int) -> None:
        while not self._wanted(node):
            await self._wait_changed()

    async def _wait_changed(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _wake(self) -> None:
        self._changed.set()

    def _fetch(self, wanted: list[tuple[int, int]]) -> FetchRequest:
        assert self._view is not None
        partitions = [
            FetchPartition(
                partition=partition,
                current_leader_epoch=epoch,
                fetch_offset=self.positions[partition],
                partition_max_bytes=PARTITION_BYTES,
            )
            for partition, epoch in wanted
        ]
        topic = FetchTopic(topic_id=self._view.topic_id, partitions=partitions)
        return FetchRequest(max_wait_ms=FETCH_WAIT_MS, min_bytes=1, topics=[topic])

    def _take(self, reply: Any) -> bool:
        """Handle what was read; return whether leaders have to be looked up."""
        is_stale = bool(reply.error_code)
        for topic in reply.responses:
            for each in topic.partitions:
                partition = each.partition_index
                if each.error_code:
                    is_stale = True
                elif each.records is not None and partition in self.positions:
                    for start, data in _batches(bytes(each.records)):
                        (delta,) = _LAST_OFFSET_DELTA.unpack_from(data, _LAST_OFFSET_DELTA_AT)
                        self.positions[partition] = start + delta + 1
                        if self._group.sought and self._group.sought in data:
                            self._group.found_at.setdefault(partition, time.monotonic())
        return is_stale

    def _ask_again(self) -> None:
        """Look up leaders until each one can be reached."""
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._refresh())

    async def _refresh(self) -> None:
        while True:
            with suppress(OSError, EOFError, TimeoutError):
                request = MetadataRequest(topics=[MetadataRequestTopic(name=self._group.topic)])
                async with _opened(self._next_port()) as connection:
                    frame = await connection.ask(request, METADATA)
                self._view = self._group.view_of(frame)
                leaders = {self._view.leaders[each][0] for each in self.positions}
                self._unreachable &= leaders
                self._wake()
                if not self._unreachable and leaders <= self._view.ports.keys():
                    return
                # Try the unreachable brokers again, because they may be back.
                self._unreachable.clear()
            await asyncio.sleep(RETRY_BACKOFF_S)

    def _next_port(self) -> int:
        """Return the port of another broker for each request."""
        self._turn += 1
        return self._group.ports[self._turn % len(self._group.ports)]


class _opened:  # noqa: N801
    def __init__(self, port: int) -> None:
        self._port = port
        self._connection: Connection | None = None

    async def __aenter__(self) -> Connection:
        self._connection = await Connection.open(self._port)
        return self._connection

    async def __aexit__(self, *_: object) -> None:
        assert self._connection is not None
        self._connection.close()


def _batches(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Whole batches, each with its base offset."""
    position = 0
    while position + _BATCH.size <= len(data):
        start, size = _BATCH.unpack_from(data, position)
        end = position + _BATCH.size + size
        if end > len(data):
            return
        yield start, data[position:end]
        position = end
