"""Fetch (key 1), versions 4 to 17.

Behaviour: whole batches from the one that holds the asked offset, sent from the file. The first
batch of a reply is complete even above `max_bytes` (KIP-74). Waits up to `max_wait_ms` for
`min_bytes`; an error in any partition, or a diverging epoch, answers at once. Partitions are read
in the order of the request; in a session a partition with records goes to the end. A partition that
is named twice is read once, as named last; no wait is longer than some minutes. Partitions are read
up to the high watermark. With read_committed they are read up to the last stable offset, and the
answer lists aborted transactions that may have records in it; without read_committed that list is
null. A client that has used up its `consumer_byte_rate` gets an empty answer with
`throttle_time_ms`, and its connection is muted for that time. `follower_fetch` serves followers,
from version 15 on and in sessions. A consumer that names its rack (KIP-392) reads from in-sync
followers, too, up to their own high watermark; with `replica.selector.class` a leader in another
rack sends it to the one in its own. An offset that the leader has committed and this follower does
not have yet is OFFSET_NOT_AVAILABLE; to a client without a rack a follower answers
NOT_LEADER_OR_FOLLOWER. This error and FENCED_LEADER_EPOCH come with the present leader, if this
broker knows it (`current_leader`). Batches with zstd are sent in every version, as by Apache Kafka:
clients that stayed at version 4 may well decompress it.
Versions:  5 log start offset · 7 sessions · 9 current leader epoch · 10 same as 9 · 11 rack and
           preferred read replica · 12 flexible, diverging epoch · 13 topic ids · 15 replica state ·
           16 the current leader · 17 the directory of a replica, which is ignored.
Missing:   high watermarks that followers tell (version 18, KIP-1166).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairlead_broker.api_registry import PENDING, Pending, handles
from fairlead_broker.authorization import Access, Operation
from fairlead_broker.fetch_sessions.client_sessions import (
    FINAL_EPOCH,
    NO_SESSION,
    FetchPlan,
    PartitionFetch,
    SessionKey,
    session_key,
)
from fairlead_broker.handlers.records.current_leader import current_leader
from fairlead_broker.handlers.records.follower_fetch import fetch_as_follower
from fairlead_broker.handlers.topic_rights import require_topic
from fairlead_broker.limits import (
    PARKED_WAIT_MAX_MS,
    PARTITIONS_PER_REQUEST_MAX,
    PARTITIONS_READ_AGAIN_MAX,
)
from fairlead_broker.replication.divergence import diverging_end
from fairlead_broker.replication.preferred_replica import Follower, preferred_follower
from fairlead_broker.replication.purgatory import PARKED_FAULT
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, KafkaError, RemoteProtocolError
from fairlead_wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from fairlead_wire.primitives import NULL_UUID

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fairlead_broker.api_registry import RequestContext
    from fairlead_broker.broker import Broker
    from fairlead_broker.log.files.file_slice import FileSlice
    from fairlead_broker.replication.leader_state import LeaderState
    from fairlead_broker.replication.partition import Partition
    from fairlead_broker.replication.purgatory import ParkedOperation, PurgatoryKey

_SESSIONS_SINCE: Final = 7
_TOPIC_IDS_SINCE: Final = 13
_REPLICA_STATE_SINCE: Final = 15
_CURRENT_LEADER_SINCE: Final = 16
_READ_COMMITTED: Final = 1
_UNKNOWN: Final = -1
_ERROR_NAMES: Final = {int(code): code.name for code in ErrorCode}
_NOTHING: Final = b""


@handles(ApiKey.FETCH, versions=(4, 17), access=Access.BY_RESOURCE)
def fetch(request: FetchRequest, context: RequestContext) -> FetchResponse | Pending:
    replica_id = _replica_id(request, context.version)
    if replica_id >= 0 and replica_id not in context.channel.replica_ids:
        return _refuse(request, context.version, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    broker = context.broker
    state = request.replica_state
    if state is not None and replica_id >= 0 and request.session_epoch != FINAL_EPOCH:
        return fetch_as_follower(
            request, context, replica_id=replica_id, broker_epoch=state.replica_epoch
        )
    uses_ids = context.version >= _TOPIC_IDS_SINCE
    plan = broker.fetch_sessions.begin(
        request.session_id,
        request.session_epoch,
        _wanted(request, broker, uses_ids=uses_ids),
        _forgotten(request, uses_ids=uses_ids),
        uses_ids=uses_ids,
        is_privileged=replica_id >= 0,
        now_ms=broker.clock.monotonic_ms(),
    )
    if isinstance(plan, ErrorCode):
        return FetchResponse(error_code=plan)
    # A consumer that says where it is may be answered by followers, or sent to one.
    reads_by_rack = bool(request.rack_id) and replica_id < 0
    reader = (_RackReader if reads_by_rack else _Reader)(request, context, plan, replica_id)
    reader.read()
    if request.max_wait_ms <= 0 or reader.is_answer():
        return reader.response()
    return _park(reader, context, request.max_wait_ms)


class _Reader:
    """Reads what a plan asks for, any number of times, and makes the reply of the last time."""

    __slots__ = (
        "_broker",
        "_context",
        "_has_news",
        "_isolation_level",
        "_max_bytes",
        "_min_bytes",
        "_plan",
        "_replica_id",
        "_results",
        "_size",
        "_sizes",
        "_version",
    )

    def __init__(
        self, request: FetchRequest, context: RequestContext, plan: FetchPlan, replica_id: int
    ) -> None:
        self._broker = context.broker
        self._context = context
        self._version = context.version
        self._plan = plan
        self._replica_id = replica_id
        self._isolation_level = request.isolation_level
        self._max_bytes = min(request.max_bytes, self._broker.settings.fetch_max_bytes)
        quotas = context.channel.quotas
        if quotas is not None and (most := quotas.fetch_bytes_max(context)) is not None:
            self._max_bytes = min(self._max_bytes, most)
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._results: list[tuple[PartitionFetch, PartitionData | None]] = []
        """None of a partition that has nothing for this reader; its marks are in no reply yet."""
        self._size = 0
        self._sizes: dict[PurgatoryKey, tuple[PartitionFetch, int]] | None = None
        """The last read of each partition; used when one of many has advanced."""
        self._has_news = False

    @property
    def keys(self) -> list[tuple[str, int]]:
        """What a parked fetch waits for."""
        return [fetch.key for fetch in self._plan.partitions]

    def is_answer(self) -> bool:
        """Tell whether what was read is worth answering before `max_wait_ms` is over."""
        return self._has_news or self._size >= self._min_bytes or not self._plan.partitions

    def read(self) -> None:
        """Read all partitions in order, within the byte limit of the reply."""
        results: list[tuple[PartitionFetch, PartitionData | None]] = []
        size = 0
        self._has_news = False
        for fetch in self._plan.partitions:
            if self._is_at_end(fetch):
                results.append((fetch, None))
                continue
            left = self._max_bytes - size
            try:
                data = self._read_partition(fetch, left, is_first=size == 0)
            except KafkaError as error:
                data = _failure(fetch.index, self._code_of(error, fetch))
                self._has_news = True
            results.append((fetch, data))
            if data.records is not None:
                size += len(data.records)
        self._results = results
        self._size = size
        self._sizes = None

    def read_moved(self, moved: Iterable[PurgatoryKey]) -> bool:
        """Tell whether an answer has come of partitions that have moved since all were read.

        Each is read as if it were alone, and what else there is counts as it was.
        """
        sizes = self._sizes
        if sizes is None:
            sizes = self._sizes = {
                fetch.key: (fetch, 0 if data is None else len(data.records or _NOTHING))
                for fetch, data in self._results
            }
        for key in moved:
            found = sizes.get(key)
            if found is None:
                continue
            fetch, before = found
            try:
                data = self._read_partition(fetch, self._max_bytes, is_first=True)
            except KafkaError:
                return True
            size = len(data.records or _NOTHING)
            sizes[key] = fetch, size
            self._size += size - before
        return self.is_answer()

    def _is_at_end(self, fetch: PartitionFetch) -> bool:
        """Tell whether `_read_partition` would find neither an error nor a record; False in doubt.

        It costs a fraction of that: a consumer of a thousand partitions asks for all of them
        whenever it gets a record of one.
        """
        partition = self._broker.partitions.get(fetch.key)
        if partition is None or (leader := partition.leader) is None:
            return False
        return (
            fetch.fetch_offset == leader.high_watermark
            and self._replica_id < 0
            and fetch.topic_id in (NULL_UUID, partition.topic_id)
            and fetch.current_leader_epoch in (_UNKNOWN, partition.leader_epoch)
            and fetch.last_fetched_epoch < 0
            and self._context.channel.authorizer is None
        )

    def _read_partition(self, fetch: PartitionFetch, left: int, *, is_first: bool) -> PartitionData:
        partition = self._find(fetch)
        if fetch.last_fetched_epoch >= 0:
            parting = diverging_end(
                partition.log,
                fetch.fetch_offset,
                fetch.last_fetched_epoch,
                is_replica=self._replica_id >= 0,
            )
            if parting is not None:
                self._has_news = True
                return self._answer(fetch, partition, _NOTHING, EpochEndOffset(*parting))
        result = partition.read(
            fetch.fetch_offset,
            min(fetch.max_bytes, left),
            isolation_level=self._isolation_level,
            replica_id=self._replica_id,
            minimum_one_batch=is_first,
        )
        records = result.records
        if records is None:
            return self._answer(fetch, partition, _NOTHING, None)
        aborted = None
        if self._isolation_level == _READ_COMMITTED and partition.log.has_aborted:
            aborted = _aborted(partition, fetch.fetch_offset, records)
        data = self._answer(fetch, partition, records, None)
        if aborted is not None:
            data.aborted_transactions = aborted
        return data

    def _code_of(self, error: KafkaError, fetch: PartitionFetch) -> ErrorCode:
        """Return the error: an offset that a successor may have is not out of range.

        After OFFSET_OUT_OF_RANGE a consumer begins elsewhere, perhaps at the first record; after
        NOT_LEADER_OR_FOLLOWER it asks for the leader. Consumers that know a newer leader epoch are
        refused before.
        """
        if error.code is ErrorCode.OFFSET_OUT_OF_RANGE and self._replica_id < 0:
            partition = self._broker.partitions[fetch.key]
            is_above = fetch.fetch_offset > partition.log.log_end_offset
            if is_above and partition.is_leader and self._broker.may_be_replaced:
                return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return error.code

    def _find(self, fetch: PartitionFetch) -> Partition:
        """Return the partition, as its leader and in the epoch that the client means."""
        broker = self._broker
        if fetch.topic is None:
            name = broker.topic_name(fetch.topic_id)
            if name is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            fetch.topic = name
            fetch.key = (name, fetch.index)
        if self._context.channel.authorizer is not None:
            topic_id = fetch.topic_id if self._version >= _TOPIC_IDS_SINCE else None
            require_topic(self._context, Operation.READ, fetch.topic, topic_id=topic_id)
        return broker.leading(
            fetch.key,
            topic_id=fetch.topic_id,
            current_leader_epoch=fetch.current_leader_epoch,
        )

    def _answer(
        self,
        fetch: PartitionFetch,
        partition: Partition,
        records: object,
        diverging: EpochEndOffset | None,
    ) -> PartitionData:
        return PartitionData(
            partition_index=fetch.index,
            high_watermark=partition.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_start_offset=partition.log_start_offset,
            diverging_epoch=diverging,
            aborted_transactions=[] if self._isolation_level == _READ_COMMITTED else None,
            records=records,  # type: ignore[arg-type]
        )

    def response(self) -> FetchResponse:
        """Return the reply; in an incremental session only what the client doesn't know yet."""
        plan = self._plan
        quotas = self._context.channel.quotas
        if quotas is not None and (throttle_ms := quotas.throttle_fetch(self._context, self._size)):
            return self._throttled(throttle_ms)
        session = plan.session
        topics: list[FetchableTopicResponse] = []
        endpoints: dict[int, NodeEndpoint] = {}
        served: list[SessionKey] = []
        uses_ids = self._version >= _TOPIC_IDS_SINCE
        metrics = self._broker.metrics
        for fetch, found in self._results:
            traffic = metrics.traffic.find(fetch.topic)
            traffic.fetches += 1
            data = self._marks(fetch) if found is None else found
            if data is None:
                continue
            has_records = bool(data.records)
            if has_records:
                size = len(data.records)  # type: ignore[arg-type]
                traffic.bytes_out += size
                partition = self._broker.partitions.get(fetch.key)
                if partition is not None:
                    partition.flow.bytes_out += size
            if session is not None:
                is_news = fetch.note_told(
                    high_watermark=data.high_watermark,
                    log_start_offset=data.log_start_offset,
                    is_error=bool(data.error_code) or data.diverging_epoch is not None,
                )
                if plan.is_incremental and not (is_news or has_records):
                    continue
                if has_records:
                    served.append(session_key(fetch, uses_ids=uses_ids))
            if data.error_code:
                metrics.errors[_ERROR_NAMES[data.error_code]] += 1
                traffic.failed_fetches += 1
                if self._version >= _CURRENT_LEADER_SINCE and fetch.topic is not None:
                    _tell_leader(self._context, fetch.topic, data, endpoints)
            last = topics[-1] if topics else None
            name = fetch.topic or ""
            if last is None or last.topic != name or last.topic_id != fetch.topic_id:
                last = FetchableTopicResponse(name, fetch.topic_id)
                topics.append(last)
            last.partitions.append(data)
        if session is not None:
            session.move_to_end(served)
        return FetchResponse(
            session_id=plan.session_id, responses=topics, node_endpoints=list(endpoints.values())
        )

    def _marks(self, fetch: PartitionFetch) -> PartitionData | None:
        """Return the reply of a partition that has nothing to read; None if its client knows it."""
        partition = self._broker.partitions[fetch.key]
        if self._plan.is_incremental and fetch.knows(
            partition.high_watermark, partition.log_start_offset
        ):
            return None
        return self._answer(fetch, partition, _NOTHING, None)

    def _throttled(self, throttle_ms: int) -> FetchResponse:
        """Return an empty reply without a session: it could not list a new session's partitions."""
        plan = self._plan
        if plan.is_incremental:
            return FetchResponse(throttle_ms, session_id=plan.session_id)
        self._broker.fetch_sessions.end(plan)
        return FetchResponse(throttle_ms, session_id=NO_SESSION)


class _RackReader(_Reader):
    """Reads for a consumer that names its rack: as a follower, too, or it is sent to one (KIP-392).

    A follower reads up to its own high watermark and last stable offset. An offset that the leader
    has committed and this follower does not have yet is OFFSET_NOT_AVAILABLE, after which clients
    go back to the leader and keep their position; after OFFSET_OUT_OF_RANGE of a leader they reset
    it.
    """

    __slots__ = ("_rack",)

    def __init__(
        self, request: FetchRequest, context: RequestContext, plan: FetchPlan, replica_id: int
    ) -> None:
        super().__init__(request, context, plan, replica_id)
        self._rack = request.rack_id

    def _is_at_end(self, fetch: PartitionFetch) -> bool:
        """Return False: whoever is at the end may be sent to another broker."""
        return False

    def _find(self, fetch: PartitionFetch) -> Partition:
        try:
            return super()._find(fetch)
        except KafkaError as error:
            followed = self._broker.partitions.get(fetch.key)
            is_elsewhere = error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
            if not is_elsewhere or followed is None or not followed.is_in_sync_follower:
                raise
        # It is the topic and the epoch that the client means, which is looked at first.
        return followed

    def _read_partition(self, fetch: PartitionFetch, left: int, *, is_first: bool) -> PartitionData:
        partition = self._find(fetch)
        leader = partition.leader
        if leader is not None:
            elsewhere = self._preferred(fetch, partition, leader)
            if elsewhere is None:
                return super()._read_partition(fetch, left, is_first=is_first)
            return self._send_elsewhere(fetch, partition, elsewhere)
        try:
            data = super()._read_partition(fetch, left, is_first=is_first)
        except KafkaError as error:
            if error.code is ErrorCode.OFFSET_OUT_OF_RANGE and partition.awaits(fetch.fetch_offset):
                raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE) from error
            raise
        self._broker.metrics.follower_reads += bool(data.records)
        return data

    def _preferred(
        self, fetch: PartitionFetch, partition: Partition, leader: LeaderState
    ) -> int | None:
        """Return the broker to read from instead of this one; None: this one."""
        broker = self._broker
        if not broker.settings.selects_replicas_by_rack:
            return None
        if not partition.log_start_offset <= fetch.fetch_offset <= partition.high_watermark:
            return None
        brokers, listener = broker.image.brokers, self._context.listener.name
        followers = [
            Follower(each.broker_id, each.rack, leader.followers[each.broker_id].end_offset)
            for each in map(brokers.get, partition.isr)
            if each is not None
            and each.broker_id in leader.followers
            and each.may_lead
            and each.endpoint(listener) is not None
        ]
        return preferred_follower(self._rack, broker.settings.rack, fetch.fetch_offset, followers)

    def _send_elsewhere(
        self, fetch: PartitionFetch, partition: Partition, broker_id: int
    ) -> PartitionData:
        data = self._answer(fetch, partition, _NOTHING, None)
        data.preferred_read_replica = broker_id
        fetch.tell_again()
        self._has_news = True
        partition.hasten_followers(self._broker.clock.monotonic_ms())
        self._broker.metrics.preferred_read_replicas += 1
        return data


def _tell_leader(
    context: RequestContext, topic: str, data: PartitionData, endpoints: dict[int, NodeEndpoint]
) -> None:
    """Add the leader and its address to an error."""
    leader = current_leader(context, topic, data.partition_index, data.error_code)
    if leader is not None:
        data.current_leader = LeaderIdAndEpoch(leader.broker_id, leader.leader_epoch)
        endpoints[leader.broker_id] = NodeEndpoint(
            leader.broker_id, leader.host, leader.port, leader.rack
        )


class _ParkedFetch:
    """A fetch that waits for more bytes.

    One of many partitions is told which of them have moved, and has these read. Only once that
    makes an answer are all of them, in their order and within the limit of the reply.
    """

    __slots__ = ("context", "parked", "reader")

    def __init__(self, reader: _Reader, context: RequestContext) -> None:
        self.reader = reader
        self.context = context
        self.parked: ParkedOperation | None = None

    def try_complete(self) -> bool:
        moved = None if self.parked is None else self.parked.moved
        if moved is None:
            self.reader.read()
            if not self.reader.is_answer():
                return False
        else:
            is_enough = self.reader.read_moved(moved)
            moved.clear()
            if not is_enough:
                return False
            self.reader.read()
        self.context.respond(self.reader.response())
        return True

    def on_expire(self) -> None:
        self.reader.read()
        self.context.respond(self.reader.response())

    def on_fault(self) -> None:
        self.context.close_connection(PARKED_FAULT)


def _aborted(
    partition: Partition, fetch_offset: int, records: FileSlice
) -> list[AbortedTransaction]:
    """Return what a client has to leave out of what it reads."""
    upper_offset = min(
        partition.log.upper_offset(fetch_offset, records), partition.last_stable_offset
    )
    return [
        AbortedTransaction(aborted.producer_id, aborted.first_offset)
        for aborted in partition.log.aborted_transactions(fetch_offset, upper_offset)
    ]


def _park(reader: _Reader, context: RequestContext, max_wait_ms: int) -> FetchResponse | Pending:
    broker = context.broker
    # The client may be gone, and a request that waits for days keeps its place all that time.
    deadline_ms = broker.clock.monotonic_ms() + min(max_wait_ms, PARKED_WAIT_MAX_MS)
    operation, keys = _ParkedFetch(reader, context), reader.keys
    parked = broker.fetch_purgatory.park(operation, keys, deadline_ms)
    if parked is not None and len(keys) > PARTITIONS_READ_AGAIN_MAX:
        parked.moved, operation.parked = set(), parked
    if parked is None:
        # No room to wait: an early, empty reply is allowed, and the client asks again.
        return reader.response()
    context.parked = parked
    return PENDING


def _replica_id(request: FetchRequest, version: int) -> int:
    if version < _REPLICA_STATE_SINCE:
        return request.replica_id
    state = request.replica_state
    return _UNKNOWN if state is None else state.replica_id


def _wanted(request: FetchRequest, broker: Broker, *, uses_ids: bool) -> list[PartitionFetch]:
    """Return what the request names, each partition once, as objects that a session can keep."""
    wanted: list[PartitionFetch] = []
    topics_count = max(len(request.topics), len(request.forgotten_topics_data))
    if topics_count > PARTITIONS_PER_REQUEST_MAX:
        raise RemoteProtocolError(f"a fetch of {topics_count} topics")
    for topic in request.topics:
        name = broker.topic_name(topic.topic_id) if uses_ids else topic.topic
        if len(wanted) + len(topic.partitions) > PARTITIONS_PER_REQUEST_MAX:
            raise RemoteProtocolError("a fetch of too many partitions")
        for partition in topic.partitions:
            wanted.append(
                PartitionFetch(
                    name,
                    topic.topic_id,
                    partition.partition,
                    fetch_offset=partition.fetch_offset,
                    max_bytes=partition.partition_max_bytes,
                    current_leader_epoch=partition.current_leader_epoch,
                    last_fetched_epoch=partition.last_fetched_epoch,
                )
            )
    if len(wanted) < 2 or len({fetch.key for fetch in wanted}) == len(wanted):
        return wanted
    return list({session_key(fetch, uses_ids=uses_ids): fetch for fetch in wanted}.values())


def _forgotten(request: FetchRequest, *, uses_ids: bool) -> list[SessionKey]:
    return [
        (topic.topic_id if uses_ids else topic.topic, index)
        for topic in request.forgotten_topics_data
        for index in topic.partitions
    ]


def _failure(index: int, code: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=_UNKNOWN,
        aborted_transactions=None,
        records=_NOTHING,
    )


def _refuse(request: FetchRequest, version: int, code: ErrorCode) -> FetchResponse:
    """Return an error for the request; before version 7 only partitions have a place for it."""
    if version >= _SESSIONS_SINCE:
        return FetchResponse(error_code=code, session_id=NO_SESSION)
    topics = [
        FetchableTopicResponse(
            topic.topic,
            topic.topic_id,
            [_failure(partition.partition, code) for partition in topic.partitions],
        )
        for topic in request.topics
    ]
    return FetchResponse(responses=topics)
