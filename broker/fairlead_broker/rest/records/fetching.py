"""Fetches for HTTP clients: how reads wait for records, and how batches become answers.

A read waits in the purgatory of the leader, as a Kafka client's fetch does. If another broker
leads, all reads that wait for the same offset share one fetch and one connection to that broker:
many clients may follow the end of the same partition.
One thread, not the event loop, reads batches from disk, decompresses and renders them.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from fairlead_broker.limits import (
    REST_READ_PEER_CONNECTIONS_MAX,
    REST_READ_STEP_BYTES,
    REST_READ_TIMEOUT_MAX_MS,
)
from fairlead_broker.log.files.file_slice import FileSlice
from fairlead_broker.net.read_ahead import read_exactly
from fairlead_broker.rest.peers import Peers
from fairlead_broker.rest.records.rendering import RecordShape, Rendered, render_batches
from fairlead_wire.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from fairlead_broker.broker import Broker
    from fairlead_wire.message import Message

T = TypeVar("T")

_ANSWER_GRACE_S = 1.0


class Position(NamedTuple):
    """What a read asks for next."""

    topic: str
    partition: int
    offset: int
    isolation_level: int


class _Shared:
    """One fetch that several reads wait for."""

    __slots__ = ("task", "waiters")

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self.task = task
        self.waiters = 0


class Fetches:
    """Fetches, connections and the thread that all reads of this process share."""

    def __init__(self, broker: Broker, secret: bytes) -> None:
        self.peers = Peers(broker, secret, connections_max=REST_READ_PEER_CONNECTIONS_MAX)
        """Separate connections: fetches that wait must not delay requests that write."""
        self._shared: dict[tuple[Any, ...], _Shared] = {}
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rest")
        self._waits: set[asyncio.Timeout] = set()
        self._is_stopping = False

    async def wait(self, coroutine: Coroutine[Any, Any, T], deadline_s: float) -> T | None:
        """Return the answer of a fetch; None if the deadline passes or this broker stops first."""
        if self._is_stopping:
            coroutine.close()
            return None
        timeout = asyncio.timeout_at(deadline_s)
        try:
            async with timeout:
                self._waits.add(timeout)
                return await coroutine
        except TimeoutError:
            return None
        finally:
            self._waits.discard(timeout)

    def end_waits(self) -> None:
        """End all waits now, and let later reads answer without a wait."""
        self._is_stopping = True
        now_s = asyncio.get_running_loop().time()
        for timeout in self._waits:
            if not timeout.expired():
                timeout.reschedule(now_s)

    async def ask(self, broker_id: int, request: Message, version: int, deadline_s: float) -> Any:
        """Return another broker's answer to a fetch that waits, an empty one at the deadline.

        PeerUnreachableError.
        """
        if not isinstance(request, FetchRequest):
            raise TypeError("only fetches are shared")
        topic = request.topics[0]
        asked = topic.partitions[0]
        key = (
            *(broker_id, topic.topic, asked.partition, asked.fetch_offset),
            *(request.isolation_level, request.min_bytes),
        )
        shared = self._shared.get(key)
        loop = asyncio.get_running_loop()
        if shared is None or shared.task.done():
            request.max_wait_ms = REST_READ_TIMEOUT_MAX_MS
            until_s = loop.time() + REST_READ_TIMEOUT_MAX_MS / 1000 + _ANSWER_GRACE_S
            shared = _Shared(loop.create_task(self.peers.ask(broker_id, request, version, until_s)))
            self._shared[key] = shared
        shared.waiters += 1
        try:
            await asyncio.wait((shared.task,), timeout=max(deadline_s - loop.time(), 0))
            if shared.task.done():
                return shared.task.result()
        finally:
            shared.waiters -= 1
            if not shared.waiters:
                shared.task.cancel()
                if self._shared.get(key) is shared:
                    del self._shared[key]
        nothing = PartitionData(asked.partition, records=b"")
        return FetchResponse(responses=[FetchableTopicResponse(topic.topic, partitions=[nothing])])

    async def render(
        self,
        data: PartitionData,
        shape: RecordShape,
        *,
        offset: int,
        bytes_max: int,
        one_at_least: bool,
    ) -> Rendered:
        """Render the records of a fetch. RemoteProtocolError or OSError if they are unreadable."""
        return await asyncio.get_running_loop().run_in_executor(
            self._thread, _render, data, shape, offset, bytes_max, one_at_least
        )

    def publish(self, broker: Broker) -> None:
        """Use a new image of the cluster."""
        self.peers.publish(broker.image)

    def close(self) -> None:
        """Close all connections, and end the thread when it is idle."""
        self.peers.close()
        self._thread.shutdown(wait=False, cancel_futures=True)


def fetch_request(position: Position, *, max_wait_ms: int, min_bytes: int) -> FetchRequest:
    """Return the fetch request of one step of a read."""
    partition = FetchPartition(
        position.partition,
        fetch_offset=position.offset,
        partition_max_bytes=REST_READ_STEP_BYTES,
    )
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=REST_READ_STEP_BYTES,
        isolation_level=position.isolation_level,
        topics=[FetchTopic(position.topic, partitions=[partition])],
    )


def partition_data(response: FetchResponse) -> PartitionData:
    """Return the only partition of an answer."""
    return response.responses[0].partitions[0]


def _render(
    data: PartitionData, shape: RecordShape, offset: int, bytes_max: int, one_at_least: bool
) -> Rendered:
    """Read and render records. Runs in the thread."""
    records: Any = data.records
    if isinstance(records, FileSlice):
        buffer = memoryview(bytearray(len(records)))
        read_exactly(records.file.read_fd, buffer, records.position)
        records = buffer
    return render_batches(
        records,
        shape,
        offset=offset,
        aborted=data.aborted_transactions or (),
        bytes_max=bytes_max,
        one_at_least=one_at_least,
    )
