"""A read of an instance: from all its partitions, on whichever brokers lead them, by the deadline.

The read sends one fetch to each broker that leads some of the partitions. The first fetches do not
wait. Only if they return no records, new fetches wait at all brokers, and the first one that
returns records ends the wait. Nothing is read ahead: between two reads an instance has no records.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from fairlead_broker.authorization import Operation, ResourceType
from fairlead_broker.limits import REST_READ_HOP_MS, REST_READ_STEP_BYTES
from fairlead_broker.net.read_ahead import SliceLostError
from fairlead_broker.rest.calls import RETRY_S, SPOKEN_VERSIONS
from fairlead_broker.rest.peers import PeerUnreachableError
from fairlead_broker.rest.problems import KAFKA_ERROR, ProblemError, error_code, raise_code
from fairlead_broker.rest.records.rendering import Form, RecordShape
from fairlead_model.ids import NO_LEADER
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, RemoteProtocolError
from fairlead_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairlead_broker.rest.instances.instance_request import InstanceRequest
    from fairlead_broker.rest.instances.positions import Position, Positions, TopicPartition
    from fairlead_wire.messages.fetch import FetchResponse, PartitionData

_HOP_S = REST_READ_HOP_MS / 1000


class ReadShape(NamedTuple):
    """What a read has to answer with."""

    form: Form
    isolation_level: int
    min_bytes: int
    bytes_max: int


class _Asked(NamedTuple):
    """A partition of a fetch: its records are used only if the position has not changed since."""

    position: Position
    offset: int


class Poll:
    """One read.

    `changed` returns a future that is done when the partitions or their positions have changed.
    `on_reset` is called when a position has to be looked up again.
    """

    def __init__(
        self,
        request: InstanceRequest,
        positions: Positions,
        shape: ReadShape,
        changed: Callable[[], asyncio.Future[None]],
        on_reset: Callable[[], None],
    ) -> None:
        self._request = request
        self._kafka = request.kafka
        self._fetches = request.kafka.host.fetches
        self._positions = positions
        self._shape = shape
        self._changed = changed
        self._on_reset = on_reset
        self._loop = asyncio.get_running_loop()
        self._records: list[bytes] = []
        self._size = 0
        self._taken_bytes = 0
        """Bytes of the log that have been read: `fetch.min.bytes` is compared with them."""
        self._moved: dict[TopicPartition, tuple[Position, int, int]] = {}
        self._is_troubled = False

    async def run(self, deadline_s: float, is_over: Callable[[], bool]) -> list[bytes]:
        """Return records as JSON, an empty list if none come until the deadline or `is_over`.

        ProblemError or KafkaError, after which the positions are what they were before. It is a
        429 while the client exceeds its fetch quota.
        """
        quotas = self._kafka.quotas
        if quotas is not None:
            quotas.admit_read()
            bytes_max = quotas.bound_read(self._shape.bytes_max)
            self._shape = self._shape._replace(bytes_max=bytes_max)
        try:
            await self._run(deadline_s, is_over)
        except BaseException:
            self.rewind()
            raise
        if quotas is not None:
            quotas.charge_read(self._size)
        return self._records

    def rewind(self) -> None:
        """Set positions back to where the read began, unless they have changed since its end."""
        for key, (position, before, after) in self._moved.items():
            if self._positions.get(key) is position and position.offset == after:
                position.offset = before
        self._moved.clear()

    async def _run(self, deadline_s: float, is_over: Callable[[], bool]) -> None:
        until_s = max(deadline_s, self._loop.time() + _HOP_S)
        while True:
            changed = self._changed()
            self._is_troubled = False
            if await self._round(until_s):
                return
            has_enough = self._records and self._taken_bytes >= self._shape.min_bytes
            if has_enough or self._loop.time() >= deadline_s or is_over():
                return
            if self._is_troubled:
                # A leader is changing: it would not help to ask again at once.
                await self._pause(min(deadline_s, self._loop.time() + RETRY_S))
            elif await self._wait(changed, deadline_s) or self._request.stopping.is_set():
                return

    async def _round(self, deadline_s: float) -> bool:
        """Take the records that exist now; return whether the answer is full."""
        while True:
            found = len(self._records)
            asked = self._asked()
            for response in await asyncio.gather(
                *(
                    self._fetch(leader_id, keys, asked, deadline_s, is_waiting=False)
                    for leader_id, keys in self._by_leader(asked).items()
                )
            ):
                if response is not None and await self._take_all(response, asked):
                    return True
            if len(self._records) == found or self._loop.time() >= deadline_s:
                return False

    async def _wait(self, changed: asyncio.Future[None], deadline_s: float) -> bool:
        """Wait until a leader has records, the partitions change, or the deadline is over.

        Return whether the answer is full.
        """
        asked = self._asked()
        tasks = [
            self._loop.create_task(self._fetch(leader_id, keys, asked, deadline_s, is_waiting=True))
            for leader_id, keys in self._by_leader(asked).items()
        ]
        waited: set[asyncio.Future[Any]] = {*tasks, changed}
        waiting = asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        try:
            await self._fetches.wait(waiting, deadline_s + _HOP_S if tasks else deadline_s)
            for task in tasks:
                response = task.result() if task.done() else None
                if response is not None and await self._take_all(response, asked):
                    return True
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return False

    def _asked(self) -> dict[TopicPartition, _Asked]:
        return {
            key: _Asked(position, offset) for key, position, offset in self._positions.readable()
        }

    async def _pause(self, until_s: float) -> None:
        news = self._kafka.host.news(max(until_s - self._loop.time(), 0))
        await self._fetches.wait(news, until_s)

    def _by_leader(self, asked: dict[TopicPartition, _Asked]) -> dict[int, list[TopicPartition]]:
        """Group partitions by their leaders, in the order in which they are read."""
        by_leader: dict[int, list[TopicPartition]] = {}
        for key in asked:
            # The leader on another broker knows this broker, but not the client.
            self._kafka.require(Operation.READ, ResourceType.TOPIC, key[0])
            partition = self._request.broker.image.partition(*key)
            if partition is None or partition.leader == NO_LEADER:
                self._is_troubled = True
                continue
            by_leader.setdefault(partition.leader, []).append(key)
        return by_leader

    async def _fetch(
        self,
        leader_id: int,
        keys: list[TopicPartition],
        asked: dict[TopicPartition, _Asked],
        deadline_s: float,
        *,
        is_waiting: bool,
    ) -> FetchResponse | None:
        """Fetch from one leader all partitions that it leads; None if it cannot be reached."""
        topics: dict[str, FetchTopic] = {}
        for topic, index in keys:
            part = FetchPartition(
                index,
                fetch_offset=asked[topic, index].offset,
                partition_max_bytes=REST_READ_STEP_BYTES,
            )
            topics.setdefault(topic, FetchTopic(topic)).partitions.append(part)
        left_ms = max(int((deadline_s - self._loop.time()) * 1000), 0)
        request = FetchRequest(
            max_wait_ms=left_ms if is_waiting else 0,
            min_bytes=max(self._shape.min_bytes - self._taken_bytes, 1) if is_waiting else 0,
            max_bytes=REST_READ_STEP_BYTES,
            isolation_level=self._shape.isolation_level,
            topics=list(topics.values()),
        )
        response: FetchResponse
        if leader_id == self._request.broker.node_id:
            response = await self._kafka.ask(request)
            return response
        peers = self._fetches.peers if is_waiting else self._kafka.host.peers
        try:
            version = SPOKEN_VERSIONS[ApiKey.FETCH]
            response = await peers.ask(leader_id, request, version, deadline_s + _HOP_S)
        except PeerUnreachableError:
            self._is_troubled = True
            return None
        return response

    async def _take_all(self, response: FetchResponse, asked: dict[TopicPartition, _Asked]) -> bool:
        for topic in response.responses:
            for data in topic.partitions:
                key = topic.topic, data.partition_index
                if await self._take(key, data, asked[key]):
                    return True
        return False

    async def _take(self, key: TopicPartition, data: PartitionData, asked: _Asked) -> bool:
        """Take records of one partition; return whether the answer is full."""
        if not self._is_current(key, asked):
            return False
        code = error_code(data.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            asked.position.reset()
            self._on_reset()
            return False
        if code.retriable:
            self._is_troubled = True
            return False
        raise_code(code)
        if not data.records:
            return False
        # The client's rights may have changed since the wait began.
        self._kafka.require(Operation.READ, ResourceType.TOPIC, key[0])
        shape = RecordShape(*key, self._shape.form)
        room = self._shape.bytes_max - self._size
        try:
            rendered = await self._fetches.render(
                data, shape, offset=asked.offset, bytes_max=room, one_at_least=not self._records
            )
            if rendered.next_offset == asked.offset and not rendered.is_full:
                raise RemoteProtocolError("a batch is cut off")
        except (OSError, SliceLostError, RemoteProtocolError) as error:
            message = (
                f"the records of {key[0]}-{key[1]}, offset {asked.offset} cannot be read: {error}"
            )
            raise ProblemError(500, message, code=KAFKA_ERROR) from error
        # Other tasks have run meanwhile: the partition may belong to another member by now.
        if not self._is_current(key, asked):
            return False
        try:
            self._request.hold(rendered.size)
        except ProblemError:
            if self._records:
                return True
            raise
        _, before, _ = self._moved.get(key, (None, asked.offset, None))
        self._moved[key] = asked.position, before, rendered.next_offset
        asked.position.offset = rendered.next_offset
        self._records += [each.data for each in rendered.records]
        self._size += rendered.size
        self._taken_bytes += len(data.records)
        if rendered.next_offset != asked.offset:
            # A partition that gave no records stays first, so the next read reports its error.
            self._positions.served(key)
        return rendered.is_full

    def _is_current(self, key: TopicPartition, asked: _Asked) -> bool:
        position = self._positions.get(key)
        return position is asked.position and position.offset == asked.offset
