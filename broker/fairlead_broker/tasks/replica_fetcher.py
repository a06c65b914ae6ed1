"""Follows one leader's broker: fetches every partition that it leads and this broker follows.

One connection, one incremental fetch session. An answer is taken in, and the next fetch, which
says so, leaves in the same turn of the loop: producers wait for it. A fetch that the leader keeps
waiting is no obstacle: what becomes new meanwhile (another partition to follow) goes in a second
fetch, which ends the wait of the first.

`FollowerState` decides what each answer means, and the partition carries that out; this module has
the connection, the session, and when to fetch again.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from fairlead_broker.limits import FOLLOWER_FETCHES_IN_FLIGHT_MAX, PARTITIONS_PER_REQUEST_MAX
from fairlead_broker.peer_check import PeerProofError
from fairlead_broker.replication.follower_state import (
    RETRY_DELAY_MAX_MS,
    RETRY_DELAY_MIN_MS,
    Append,
    FetchedPartition,
    FetchPosition,
    Retry,
)
from fairlead_broker.tasks.leader_connecting import connect_to_leader
from fairlead_model.invariants import InvariantViolation
from fairlead_wire.errors import RemoteProtocolError
from fairlead_wire.replica_fetch import decode_reply, encode_fetch

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairlead_broker.broker import Broker
    from fairlead_broker.replication.partition import Partition
    from fairlead_broker.tasks.leader_connection import LeaderConnection
    from fairlead_wire.replica_fetch import FetchedRange, Position

logger = logging.getLogger(__name__)

SILENCE_MAX_S: Final = 10.0
"""A leader without an answer for so long, long polls aside, gets a new connection."""
_NO_SESSION: Final = 0
_INITIAL_EPOCH: Final = 0
_INT32_MAX: Final = 2**31 - 1

_PartitionKey = tuple[bytes, int]


class ReplicaFetcher:
    """Fetches from one leader.

    `_changed` are partitions that the next fetch has to name: new ones, and those whose last answer
    was taken in. `_asked` holds what was asked of each that is named, and in which fetch; a
    partition in neither is put off until its delay is over.
    """

    def __init__(
        self,
        broker: Broker,
        leader_id: int,
        secret: bytes,
        *,
        on_truncated: Callable[[], None],
    ) -> None:
        """`on_truncated`: a log takes appends again only after a checkpoint has been written."""
        self.leader_id = leader_id
        self._broker = broker
        self._secret = secret
        self._client_id = f"replica-{broker.node_id}".encode()
        self._on_truncated = on_truncated
        self._partitions: dict[_PartitionKey, Partition] = {}
        self._changed: dict[_PartitionKey, None] = {}
        self._asked: dict[_PartitionKey, tuple[FetchPosition, int]] = {}
        self._forgotten: dict[_PartitionKey, None] = {}
        self._connection: LeaderConnection | None = None
        self._session_id = _NO_SESSION
        self._session_epoch = _INITIAL_EPOCH
        self._in_flight = 0
        self._sent = 0
        self._heard_s = 0.0
        self._failures = 0
        self._is_send_due = False
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._run(), name=f"fetcher of broker {leader_id}")

    def __len__(self) -> int:
        return len(self._partitions)

    def follow(self, partition: Partition) -> None:
        """Fetch `partition`, too, or start again if it is followed already in another epoch."""
        key = (partition.topic_id, partition.index)
        asked = self._asked.get(key)
        if (
            asked is not None
            and self._partitions.get(key) is partition
            and asked[0].current_leader_epoch == partition.leader_epoch
        ):
            return  # Only its replicas in sync are others: what it waits for is the same.
        self._partitions[key] = partition
        self._forgotten.pop(key, None)
        self._ask_about(key)

    def leave(self, partition: Partition) -> None:
        """Fetch `partition` no longer."""
        key = (partition.topic_id, partition.index)
        if self._partitions.pop(key, None) is not None:
            self._changed.pop(key, None)
            if self._asked.pop(key, None) is not None:
                self._forgotten[key] = None

    async def stop(self) -> None:
        """Close the connection and end."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        """Keep connected until cancelled."""
        while True:
            reason = "the leader closed the connection"
            try:
                await self._connect_and_fetch()
            except TimeoutError as error:
                reason = str(error) or type(error).__name__
            except (OSError, PeerProofError, RemoteProtocolError) as error:
                self._doubt_leader()
                reason = str(error) or type(error).__name__
            except Exception:
                self._broker.metrics.task_failures += 1
                logger.exception("fetching from broker %d failed", self.leader_id)
            else:
                self._doubt_leader()
            finally:
                self._disconnect()
            if self._failures == 0:
                logger.info("fetching from broker %d is interrupted: %s", self.leader_id, reason)
            delay_ms = min(RETRY_DELAY_MIN_MS << min(self._failures, 10), RETRY_DELAY_MAX_MS)
            self._failures += 1
            await asyncio.sleep(delay_ms / 1000)

    async def _connect_and_fetch(self) -> None:
        connection = await connect_to_leader(
            self._broker.image,
            self.leader_id,
            self._secret,
            client_id=self._client_id.decode(),
            certificate=self._broker.peer_certificate,
        )
        try:
            self._broker.leader_doubts.trust(self.leader_id)
            self._connection = connection
            connection.on_reply = self._on_reply
            self._begin_session()
            wait_s = SILENCE_MAX_S + self._broker.settings.replica_fetch_wait_max_ms / 1000
            while not connection.closed.done():
                await asyncio.wait((connection.closed,), timeout=wait_s / 2)
                if self._in_flight and self._loop.time() - self._heard_s > wait_s:
                    raise TimeoutError(f"no answer for {wait_s:.0f} s")
        finally:
            connection.close()

    def look(self) -> None:
        """Notice at once if the leader has hung up.

        In one turn of the loop a client's question may come before the end of this connection.
        """
        if self._connection is not None and self._connection.has_hung_up():
            self._doubt_leader()

    def _doubt_leader(self) -> None:
        self._broker.leader_doubts.doubt(self.leader_id, self._broker.clock.monotonic_ms())

    def _disconnect(self) -> None:
        self._connection = None
        self._in_flight = 0

    def _begin_session(self) -> None:
        """Begin a fetch session: its first fetch names every partition."""
        self._session_id = _NO_SESSION
        self._session_epoch = _INITIAL_EPOCH
        self._in_flight = 0
        self._asked.clear()
        self._forgotten.clear()
        self._changed = dict.fromkeys(self._partitions)
        self._send()

    def _ask_about(self, key: _PartitionKey) -> None:
        """Name a partition soon; all that come up in one turn go together."""
        self._changed[key] = None
        if not self._is_send_due:
            self._is_send_due = True
            self._loop.call_soon(self._send_changed)

    def _send_changed(self) -> None:
        self._is_send_due = False
        if self._changed and self._in_flight < FOLLOWER_FETCHES_IN_FLIGHT_MAX:
            self._send()

    def _send(self) -> None:
        connection = self._connection
        if connection is None or connection.closed.done():
            return
        if self._in_flight and self._session_id == _NO_SESSION:
            return  # The session's id is on its way.
        broker = self._broker
        settings = broker.settings
        frame = encode_fetch(
            correlation_id=connection.next_correlation_id(),
            client_id=self._client_id,
            replica_id=broker.node_id,
            replica_epoch=broker.broker_epoch,
            max_wait_ms=settings.replica_fetch_wait_max_ms,
            max_bytes=settings.replica_fetch_response_max_bytes,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=self._name_changed(settings.replica_fetch_max_bytes),
            forgotten=self._forgotten,
        )
        self._forgotten.clear()
        self._session_epoch = 1 if self._session_epoch == _INT32_MAX else self._session_epoch + 1
        if not self._in_flight:
            self._heard_s = self._loop.time()
        self._in_flight += 1
        self._sent += 1
        connection.send_frame(frame)

    def _name_changed(self, max_bytes: int) -> dict[bytes, list[Position]]:
        topics: dict[bytes, list[Position]] = {}
        keys = list(self._changed)
        if len(keys) > PARTITIONS_PER_REQUEST_MAX:
            keys = keys[:PARTITIONS_PER_REQUEST_MAX]
        for key in keys:
            del self._changed[key]
            partition = self._partitions[key]
            position = partition.next_fetch()
            if position is None:
                lacks_room = partition.log.lacks_room
                self._put_off(key, RETRY_DELAY_MAX_MS if lacks_room else RETRY_DELAY_MIN_MS)
                continue
            if partition.has_outsiders:
                delay_ms = self._broker.replication_throttle.delay_ms(partition)
                if delay_ms:
                    self._put_off(key, delay_ms)
                    continue
            self._asked[key] = position, self._sent + 1
            topic_id, index = key
            fetch_offset, last_fetched_epoch, leader_epoch = position
            log_start = partition.log_start_offset
            named = (index, leader_epoch, fetch_offset, last_fetched_epoch, log_start, max_bytes)
            topic = topics.get(topic_id)
            if topic is None:
                topics[topic_id] = [named]
            else:
                topic.append(named)
        return topics

    def _put_off(self, key: _PartitionKey, delay_ms: int) -> None:
        """Do not fetch a partition for a while. Another broker may lead it by then."""
        self._asked.pop(key, None)
        partition = self._partitions.get(key)
        if partition is None or partition.log.is_offline:
            return  # A disk that fails takes the partition from here while its answer is taken in.

        def resume() -> None:
            if self._partitions.get(key) is partition and key not in self._asked:
                self._ask_about(key)

        self._loop.call_later(delay_ms / 1000, resume)

    def _on_reply(self, frame: memoryview) -> None:
        error_code, session_id, ranges = decode_reply(frame)
        self._in_flight -= 1
        self._heard_s = self._loop.time()
        if error_code:
            # The leader has forgotten the session, or never knew this start of ours. One that
            # refuses each new session is asked ever less often.
            self._restart_session(error_code)
            return
        self._failures = 0
        self._session_id = session_id
        now_ms = self._broker.clock.now_ms()
        for fetched in ranges:
            self._take(fetched, now_ms)
        if self._in_flight == 0 or (
            self._changed and self._in_flight < FOLLOWER_FETCHES_IN_FLIGHT_MAX
        ):
            self._send()

    def _restart_session(self, error_code: int) -> None:
        logger.info(
            "the fetch session with broker %d begins anew: error %d",
            self.leader_id,
            error_code,
        )
        if self._connection is not None:
            self._connection.close()

    def _take(self, fetched: FetchedRange, now_ms: int) -> None:
        key = fetched.key
        asked, number = self._asked.get(key, (None, 0))
        if asked is None:
            return  # Left, or put off, since it was asked about.
        if number > self._sent - self._in_flight:
            return  # It answers an earlier fetch; the one that asked last has its own answer (R5).
        partition = self._partitions[key]
        reply = FetchedPartition(
            asked,
            fetched.error_code,
            fetched.high_watermark,
            fetched.log_start_offset,
            fetched.diverging_epoch,
            fetched.diverging_end_offset,
            fetched.records,
        )
        log_start_offset = partition.log_start_offset
        try:
            action = partition.take(reply, now_ms=now_ms)
        except InvariantViolation:
            # The leader's answer is impossible: this replica stops, the others go on.
            logger.exception("%s stops following broker %d", partition, self.leader_id)
            self._put_off(key, RETRY_DELAY_MAX_MS)
            return
        if isinstance(action, Append):
            if not reply.records and partition.log_start_offset == log_start_offset:
                return  # Marks only: the leader goes on with what it was asked.
            # A changed log start is sent at once: a DeleteRecords may wait for it.
            self._broker.metrics.replicated_in_bytes += len(reply.records)
            if partition.has_outsiders:
                self._broker.replication_throttle.note_taken(partition, len(reply.records))
        elif isinstance(action, Retry):
            self._put_off(key, action.after_ms)
            return
        elif action is None:
            self._put_off(key, RETRY_DELAY_MAX_MS)
            return
        elif partition.log.refusal is not None:
            self._on_truncated()
        self._changed[key] = None
