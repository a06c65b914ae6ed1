"""What read_committed consumers see of a partition on which a transaction is open.

`HeldPartition` stands for a partition with transactions: its last stable offset stays behind.
"""

from typing import Any

import pytest
from live_broker import FrameClient, LiveBroker, batch, topic_id_of
from transactional_producer import TransactionalProducer

from fairlead_broker.replication.mark_order import check_mark_order
from fairlead_broker.replication.partition import Partition
from fairlead_model.invariants import InvariantViolation
from fairlead_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from fairlead_wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from fairlead_wire.record_batch import decode_batch_header

NOW_MS = 1_700_000_000_000
UNCOMMITTED, COMMITTED = 0, 1
LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3


class HeldPartition(Partition):
    """A partition whose last stable offset is where a test holds it."""

    __slots__ = ()
    held_at = 0

    @property
    def last_stable_offset(self) -> int:
        return self.held_at

    def release(self, offset: int) -> None:
        """The transaction is over: what it held back can be seen."""
        HeldPartition.held_at = offset
        self._note_advance()


def hold(partition: Partition, offset: int) -> HeldPartition:
    HeldPartition.held_at = offset
    partition.__class__ = HeldPartition
    assert isinstance(partition, HeldPartition)
    return partition


def fetch(offset: int, isolation_level: int, max_wait_ms: int = 0) -> FetchRequest:
    asked = FetchPartition(0, fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(
        topics=[FetchTopic("t", topic_id_of("t"), [asked])],
        isolation_level=isolation_level,
        max_wait_ms=max_wait_ms,
        min_bytes=1,
    )


def answer(response: Any) -> PartitionData:
    data: PartitionData = response.responses[0].partitions[0]
    return data


def end_of(data: PartitionData) -> int:
    """Exclusive end of the records in an answer; -1 if there are none."""
    records = memoryview(data.records or b"")  # type: ignore[arg-type]
    position, end = 0, -1
    while position < len(records):
        header = decode_batch_header(records, position)
        end = header.base_offset + header.last_offset_delta + 1
        position += header.size
    return end


@pytest.fixture
def held(live: LiveBroker) -> HeldPartition:
    """Three batches of two records, of which the first is stable."""
    partition = live.add_partition("t")

    def fill() -> None:
        for _ in range(3):
            data = memoryview(bytearray(batch(b"v", b"w")))
            partition.append_as_leader(data, required_acks=1, now_ms=live.broker.clock.now_ms())

    live.run(fill)
    return hold(partition, 2)


@pytest.mark.parametrize("version", range(4, 18))
def test_a_fetch_ends_at_the_last_stable_offset(
    live: LiveBroker, held: HeldPartition, version: int
) -> None:
    with FrameClient(live.port) as client:
        committed = answer(client.call(fetch(0, COMMITTED), version))
        assert (end_of(committed), committed.last_stable_offset, committed.high_watermark) == (
            2,
            2,
            6,
        )
        assert committed.aborted_transactions == []
        uncommitted = answer(client.call(fetch(0, UNCOMMITTED), version))
        assert (end_of(uncommitted), uncommitted.last_stable_offset) == (6, 2)
        assert uncommitted.aborted_transactions is None
        beyond = answer(client.call(fetch(4, COMMITTED), version))
        assert (beyond.error_code, end_of(beyond)) == (0, -1)


def test_a_parked_fetch_waits_for_the_last_stable_offset(
    live: LiveBroker, held: HeldPartition
) -> None:
    with FrameClient(live.port) as client, FrameClient(live.port) as other:
        client.send(fetch(2, COMMITTED, max_wait_ms=20_000), 12)
        other.send(fetch(6, UNCOMMITTED, max_wait_ms=20_000), 12)
        live.eventually(lambda: len(live.broker.fetch_purgatory) == 2)

        def append() -> None:
            data = memoryview(bytearray(batch(b"x")))
            held.append_as_leader(data, required_acks=1, now_ms=live.broker.clock.now_ms())

        live.run(append)
        # The high watermark wakes both, and is enough for only one of them.
        assert end_of(answer(other.receive(FetchRequest.API_KEY, 12)[1])) == 7
        live.eventually(lambda: len(live.broker.fetch_purgatory) == 1)
        live.run(lambda: held.release(4))
        data = answer(client.receive(FetchRequest.API_KEY, 12)[1])
        assert (end_of(data), data.last_stable_offset, data.high_watermark) == (4, 4, 7)


def test_a_marker_wakes_who_waits_for_committed_records(live: LiveBroker) -> None:
    partition = live.add_partition("t")
    producer = TransactionalProducer(7, now_ms=NOW_MS)
    live.run(lambda: producer.put(partition, b"a", b"b"))
    with FrameClient(live.port) as client:
        client.send(fetch(0, COMMITTED, max_wait_ms=20_000), 12)
        live.eventually(lambda: len(live.broker.fetch_purgatory) == 1)
        live.run(lambda: producer.end(partition, commits=True))
        data = answer(client.receive(FetchRequest.API_KEY, 12)[1])
        assert (end_of(data), data.last_stable_offset, data.high_watermark) == (3, 3, 3)


def listed(stage: Any, timestamp: int, isolation_level: int) -> int:
    asked = ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=isolation_level, topics=[ListOffsetsTopic("t", [asked])]
    )
    return int(stage.ask(request, 7).topics[0].partitions[0].offset)


def test_offsets_are_listed_up_to_the_last_stable_offset(stage: Any) -> None:
    stage.topic("t")
    stage.append("t", b"a", b"b", timestamp=NOW_MS)
    stage.append("t", b"c", timestamp=NOW_MS + 100)
    hold(stage.partition("t"), 2)
    asked = (LATEST, EARLIEST, NOW_MS + 1, NOW_MS + 100, MAX_TIMESTAMP)
    assert [listed(stage, time, UNCOMMITTED) for time in asked] == [3, 0, 1, 2, 2]
    assert [listed(stage, time, COMMITTED) for time in asked] == [2, 0, 1, -1, -1]


def test_a_last_stable_offset_above_the_high_watermark_is_no_order(stage: Any) -> None:
    stage.topic("t")
    stage.append("t", b"a", b"b")
    partition = hold(stage.partition("t"), 2)
    check_mark_order(partition)
    HeldPartition.held_at = 3
    with pytest.raises(InvariantViolation, match="last_stable_offset 3 > high_watermark 2"):
        check_mark_order(partition)
