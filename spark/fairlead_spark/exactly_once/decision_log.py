"""The topic with the decisions of exactly-once writes: reads it to its end, and writes to it.

It has one partition and is compacted, so that it stays short however long queries run. A reader
that has read it before goes on from there.
"""

import logging
import time
from typing import Any, Final

from fairlead_spark import limits
from fairlead_spark.cluster import CONNECTION_ERRORS, Cluster, PassingError, Topic
from fairlead_spark.errors import FENCED_IN_PRODUCE, SinkError, TakenOverError, error_of
from fairlead_spark.exactly_once.batch_decision import Decision
from fairlead_spark.exactly_once.decision_records import (
    DECISIONS_TOPIC,
    DecisionReplay,
    encode_decision,
)
from fairlead_spark.offsets import EARLIEST, LATEST, TopicPartition
from fairlead_spark.prepared_transaction import PreparedTransaction
from fairlead_spark.reading.range_reader import FETCH_VERSION
from fairlead_spark.transactions import TransactionClient
from fairlead_spark.writing.outgoing_batches import PRODUCE_VERSION
from fairlead_wire.compression import Codec
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from fairlead_wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from fairlead_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fairlead_wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from fairlead_wire.records import Record, decode_batch, encode_batch, iter_batches

logger = logging.getLogger(__name__)

CREATE_TOPICS_VERSION: Final = 5
DESCRIBE_CONFIGS_VERSION: Final = 1
_WHERE: Final = TopicPartition(DECISIONS_TOPIC, 0)
_ALL: Final = -1
_TOPIC_RESOURCE: Final = 2
_CLEANUP_POLICY: Final = "cleanup.policy"
_COMPACT: Final = "compact"
_CONFIG: Final = {
    _CLEANUP_POLICY: _COMPACT,
    # A new reader reads the whole topic: small segments that are cleaned soon keep it short.
    "segment.bytes": str(4 * 1024 * 1024),
    "min.cleanable.dirty.ratio": "0.1",
}


class DecisionLog:
    """The decisions of the query in `replay`."""

    def __init__(self, cluster: Cluster, replay: DecisionReplay) -> None:
        self._cluster = cluster
        self.replay = replay

    def read(self) -> Decision | None:
        """Read to the end of the log, and return the last decision that is committed.

        SinkError if brokers would delete decisions.
        """
        topic_id = self._ensure_topic()
        if self.replay.topic_id != topic_id:
            self._cluster.retry(self._check_is_kept, f"topic {DECISIONS_TOPIC}")
        end = self._cluster.list_offsets({_WHERE: LATEST})[_WHERE]
        if self.replay.topic_id != topic_id or self.replay.next_offset > end:
            # The topic was created again: its offsets belong to other records.
            self.replay = DecisionReplay(self.replay.name, topic_id=topic_id)
        self._read_until(end)
        return self.replay.decision

    def write(
        self,
        decision: Decision | None,
        behind: Decision | None,
        *,
        client: TransactionClient,
        owner: PreparedTransaction,
        sequence: int,
    ) -> None:
        """Write a decision in its own transaction, if the last one is `behind`.

        None is a tombstone: nothing of the query needs to be known any more.
        TakenOverError if the last decision is not `behind`, or if another driver has taken over.
        What this driver read may be old, because a replaced leader that does not know it yet
        answers, too. So it reads again, up to its own record, before it commits that record.
        """
        now_ms = time.time_ns() // 1_000_000
        value = None if decision is None else encode_decision(decision)
        record = Record(0, now_ms, self.replay.name.encode(), value)
        batch = encode_batch(
            [record],
            codec=Codec.GZIP,
            producer_id=owner.producer_id,
            producer_epoch=owner.producer_epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        self._cluster.retry(
            lambda: client.add_partitions(owner, [_WHERE]), f"topic {DECISIONS_TOPIC}"
        )
        offset = self._cluster.retry(
            lambda: self._produce(batch, owner.transactional_id), f"topic {DECISIONS_TOPIC}"
        )
        self._read_until(offset)
        is_last = self.replay.decision == behind
        if client.end([owner], is_commit=is_last) or not is_last:
            raise TakenOverError(f"{owner.transactional_id}: another driver has taken over")

    def note_given_up(self, key: str) -> None:
        """Write a tombstone, which stays for `delete.retention.ms` after the next compaction."""
        self._ensure_topic()
        record = Record(0, time.time_ns() // 1_000_000, key.encode(), None)
        batch = encode_batch([record], codec=Codec.GZIP)
        self._cluster.retry(lambda: self._produce(batch, None), f"topic {DECISIONS_TOPIC}")

    def _produce(self, batch: bytes, transactional_id: str | None) -> int:
        """Return the offset of the record."""
        timeout_s = self._cluster.settings.request_timeout_s
        partition = PartitionProduceData(_WHERE.partition, batch)
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=_ALL,
            timeout_ms=round(timeout_s * 1000),
            topic_data=[TopicProduceData(name=DECISIONS_TOPIC, partition_data=[partition])],
        )
        reply = self._ask_leader(request, PRODUCE_VERSION)
        written = reply.responses[0].partition_responses[0]
        error = error_of(written.error_code)
        if error is ErrorCode.NONE:
            return int(written.base_offset)
        self._cluster.forget_leaders()
        text = f"a decision for {_WHERE}: {error.name}: {error.description}"
        if error in FENCED_IN_PRODUCE:
            raise TakenOverError(text)
        raise PassingError(text) if error.retriable else SinkError(text)

    def _read_until(self, end: int) -> None:
        while self.replay.next_offset < end:
            self._cluster.retry(self._read_on, f"topic {DECISIONS_TOPIC}")

    def _read_on(self) -> None:
        leader, topic = self._leader()
        partition = FetchPartition(
            partition=_WHERE.partition,
            fetch_offset=self.replay.next_offset,
            partition_max_bytes=limits.FETCH_BYTES,
        )
        request = FetchRequest(
            max_wait_ms=limits.DECISION_WAIT_MS,
            min_bytes=1,
            max_bytes=limits.FETCH_BYTES,
            topics=[
                FetchTopic(topic=DECISIONS_TOPIC, topic_id=topic.topic_id, partitions=[partition])
            ],
        )
        reply = self._call(leader, request, FETCH_VERSION)
        self._check(reply.error_code)
        found = reply.responses[0].partitions[0]
        if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            first = self._cluster.list_offsets({_WHERE: EARLIEST})[_WHERE]
            self.replay = DecisionReplay(
                self.replay.name, next_offset=first, topic_id=self.replay.topic_id
            )
            return
        self._check(found.error_code)
        data = memoryview(found.records or b"")
        replay = self.replay
        for position, header in iter_batches(data):
            if header.next_offset > replay.next_offset:
                replay = replay.apply(header, decode_batch(data, position))
        if replay is self.replay:
            self._cluster.forget_leaders()
            raise PassingError(f"{_WHERE} at offset {replay.next_offset}: nothing comes")
        self.replay = replay

    def _ask_leader(self, request: Any, version: int) -> Any:
        leader, _ = self._leader()
        return self._call(leader, request, version)

    def _leader(self) -> tuple[int, Topic]:
        try:
            return self._cluster.leader_of(*_WHERE)
        except PassingError:
            self._cluster.forget_leaders()
            raise

    def _call(self, leader: int, request: Any, version: int) -> Any:
        try:
            return self._cluster.call(leader, request, version)
        except CONNECTION_ERRORS:
            self._cluster.forget_leaders()
            raise

    def _check(self, code: int) -> None:
        if code == ErrorCode.NONE:
            return
        error = error_of(code)
        self._cluster.forget_leaders()
        text = f"topic {DECISIONS_TOPIC}: {error.name}: {error.description}"
        raise PassingError(text) if error.retriable else SinkError(text)

    def _check_is_kept(self) -> None:
        """Check that brokers keep a decision until the query has a later one.

        If the user may not read the topic's configs, this check is skipped.
        """
        resource = DescribeConfigsResource(_TOPIC_RESOURCE, DECISIONS_TOPIC, [_CLEANUP_POLICY])
        request = DescribeConfigsRequest(resources=[resource])
        (found,) = self._cluster.call_any(request, DESCRIBE_CONFIGS_VERSION).results
        if found.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return
        self._check(found.error_code)
        for each in found.configs:
            if each.name == _CLEANUP_POLICY and each.value != _COMPACT:
                raise SinkError(
                    f"topic {DECISIONS_TOPIC} has {_CLEANUP_POLICY}={each.value}: brokers would "
                    "delete decisions that a query needs to write each row once; set "
                    f"{_CLEANUP_POLICY}={_COMPACT}"
                )

    def _ensure_topic(self) -> bytes:
        """Return the topic's id; create the topic if it does not exist."""
        found = self._cluster.read_topics([DECISIONS_TOPIC]).get(DECISIONS_TOPIC)
        if found is not None:
            return found.topic_id
        topic = CreatableTopic(
            name=DECISIONS_TOPIC,
            num_partitions=1,
            replication_factor=-1,
            configs=[CreatableTopicConfig(name, value) for name, value in _CONFIG.items()],
        )
        request = CreateTopicsRequest(topics=[topic])

        def ask() -> None:
            (made,) = self._cluster.call_any(request, CREATE_TOPICS_VERSION).topics
            if made.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
                self._check(made.error_code)

        self._cluster.retry(ask, f"topic {DECISIONS_TOPIC}")
        _, made = self._cluster.retry(self._leader, f"topic {DECISIONS_TOPIC}")
        return made.topic_id
