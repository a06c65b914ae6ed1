"""Produce: per-partition answers, acks, and a hand-laid reply that equals the generated one."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from live_broker import FrameClient, LiveBroker, batch, topic_id_of

from fairlead_broker.handlers.records.produce_reply import encode_single_reply
from fairlead_broker.limits import (
    NAMED_RECORDS_MAX,
    NEW_LEADER_MS,
    PACKING_MS_MAX,
    REFUSED_BEFORE_GAP_MS,
)
from fairlead_broker.log.batches.recompression import as_stored
from fairlead_broker.log.log import AppendResult
from fairlead_model.configs.log_config import LogConfig
from fairlead_model.partition import PartitionRegistration
from fairlead_wire.compression import Codec, decompress
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from fairlead_wire.record_batch import NO_TIMESTAMP
from fairlead_wire.records import Record, encode_batch

Connect = Callable[..., FrameClient]


def request(
    *partitions: tuple[str, int, bytes | None], acks: int = 1, timeout_ms: int = 5000
) -> Any:
    return ProduceRequest(
        None,
        acks,
        timeout_ms,
        [
            TopicProduceData(
                topic, topic_id_of(topic), partition_data=[PartitionProduceData(index, records)]
            )
            for topic, index, records in partitions
        ],
    )


def slots(response: ProduceResponse) -> list[tuple[int, int]]:
    """(error code, base offset) of every partition."""
    return [
        (slot.error_code, slot.base_offset)
        for topic in response.responses
        for slot in topic.partition_responses
    ]


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("topic", ["t", "x" * 126, "y" * 127, "z" * 249])
def test_the_reply_laid_out_by_hand_equals_the_generated_one(version: int, topic: str) -> None:
    result = AppendResult(2**40 + 5, 2**40 + 9, 1_700_000_000_000, 17, False)
    slot = PartitionProduceResponse(12, 0, 2**40 + 5, 1_700_000_000_000, 17)
    topic_id = topic[:1].encode() * 16
    generated = ProduceResponse([TopicProduceResponse(topic, topic_id, [slot])])
    encoded = b"".join(bytes(segment) for segment in generated.encode(version))  # type: ignore[arg-type]
    assert encode_single_reply(version, TopicProduceData(topic, topic_id), 12, result) == encoded


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("acks", [1, -1])
def test_every_version_appends(live: LiveBroker, connect: Connect, version: int, acks: int) -> None:
    live.add_partition("t")
    client = connect()
    response = client.call(request(("t", 0, batch(b"a", b"b")), acks=acks), version)
    assert slots(response) == [(0, 0)]
    assert slots(client.call(request(("t", 0, batch(b"c")), acks=acks), version)) == [(0, 2)]


def test_each_partition_has_its_own_answer(live: LiveBroker, connect: Connect) -> None:
    live.add_partition("t")
    live.add_partition("t", 1)
    bad = bytearray(batch(b"a"))
    bad[-1] ^= 1
    response = connect().call(
        request(
            ("t", 0, batch(b"a")),
            ("t", 1, bytes(bad)),
            ("t", 2, batch(b"a")),
            ("u", 0, batch(b"a")),
            ("t", 1, None),
            ("t", 1, b""),
            ("t", 1, batch(b"a") + batch(b"b")),
            ("t", 0, batch(b"b")),
        ),
        9,
    )
    assert slots(response) == [
        (ErrorCode.NONE, 0),
        (ErrorCode.CORRUPT_MESSAGE, -1),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        (ErrorCode.INVALID_RECORD, -1),
        (ErrorCode.INVALID_RECORD, -1),
        (ErrorCode.INVALID_RECORD, -1),
        (ErrorCode.NONE, 1),
    ]
    messages = [slot.error_message for t in response.responses for slot in t.partition_responses]
    assert messages[0] is None
    assert all(messages[1:7])


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_other_acks_are_refused(live: LiveBroker, connect: Connect, acks: int) -> None:
    partition = live.add_partition("t")
    response = connect().call(request(("t", 0, batch(b"a")), acks=acks), 9)
    assert slots(response) == [(ErrorCode.INVALID_REQUIRED_ACKS, -1)]
    assert partition.log_end_offset == 0


def test_zstd_needs_version_7(live: LiveBroker, connect: Connect) -> None:
    live.add_partition("t")
    client = connect()
    compressed = batch(b"a" * 100, codec=Codec.ZSTD)
    refused = client.call(request(("t", 0, compressed)), 6)
    assert slots(refused) == [(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, -1)]
    assert slots(client.call(request(("t", 0, compressed)), 7)) == [(0, 0)]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_records_without_a_key_are_named_where_a_compacted_topic_refuses_them(
    live: LiveBroker, connect: Connect, codec: Codec
) -> None:
    partition = live.add_partition("t", config=LogConfig(cleanup_policy=frozenset({"compact"})))
    records = [Record(i, 0, None if i in (1, 4) else b"k", b"v") for i in range(6)]
    sent = request(("t", 0, encode_batch(records, codec=codec)))
    client = connect()
    for version in 7, 8, 13:
        ((slot,),) = (each.partition_responses for each in client.call(sent, version).responses)
        assert (slot.error_code, slot.base_offset) == (ErrorCode.INVALID_RECORD, -1)
        named = [each.batch_index for each in slot.record_errors]
        assert named == ([] if version == 7 else [1, 4])
        assert all("key" in (each.batch_index_error_message or "") for each in slot.record_errors)
    assert partition.log_end_offset == 0


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_records_are_named_whose_timestamps_are_refused(
    live: LiveBroker, connect: Connect, codec: Codec
) -> None:
    limits = LogConfig(
        message_timestamp_before_max_ms=30_000, message_timestamp_after_max_ms=30_000
    )
    live.add_partition("t", config=limits)
    now_ms = live.broker.clock.now_ms()
    times = [now_ms, now_ms - 60_000, NO_TIMESTAMP, now_ms + 60_000, now_ms]
    records = [Record(at, time_ms, None, b"v") for at, time_ms in enumerate(times)]
    response = connect().call(request(("t", 0, encode_batch(records, codec=codec))), 13)
    (slot,) = response.responses[0].partition_responses
    assert slot.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [each.batch_index for each in slot.record_errors] == [1, 3]


def test_a_batch_of_very_many_refused_timestamps_names_none(
    live: LiveBroker, connect: Connect
) -> None:
    live.add_partition("t", config=LogConfig(message_timestamp_before_max_ms=1_000))
    records = [Record(at, 0, None, b"") for at in range(NAMED_RECORDS_MAX + 1)]
    response = connect().call(request(("t", 0, encode_batch(records))), 13)
    assert slots(response) == [(ErrorCode.INVALID_TIMESTAMP, -1)]
    assert response.responses[0].partition_responses[0].record_errors == []


def test_very_many_records_without_a_key_are_not_named(live: LiveBroker, connect: Connect) -> None:
    live.add_partition("t", config=LogConfig(cleanup_policy=frozenset({"compact"})))
    records = [Record(i, 0, None, b"") for i in range(NAMED_RECORDS_MAX + 1)]
    response = connect().call(request(("t", 0, encode_batch(records))), 13)
    assert slots(response) == [(ErrorCode.INVALID_RECORD, -1)]
    assert response.responses[0].partition_responses[0].record_errors == []


@pytest.fixture
def slow_packing(monkeypatch: pytest.MonkeyPatch) -> float:
    """Have each batch that is packed anew take so many seconds."""
    took_s = 0.05

    def pack(given: memoryview, config: LogConfig) -> memoryview:
        time.sleep(took_s)
        return as_stored(given, config)

    monkeypatch.setattr("fairlead_broker.log.log.as_stored", pack)
    return took_s


PACKED = LogConfig(compression_type="lz4")


def test_one_request_has_not_all_the_time_for_packing(
    live: LiveBroker, connect: Connect, slow_packing: float
) -> None:
    count = 2 * round(PACKING_MS_MAX / 1000 / slow_packing)
    for index in range(count):
        live.add_partition("t", index, config=PACKED)
    live.add_partition("plain")
    client = connect()
    sent = [("t", index, batch(b"a")) for index in range(count)]
    codes = [code for code, _ in slots(client.call(request(*sent, ("plain", 0, batch(b"a"))), 9))]
    assert codes.pop() == ErrorCode.NONE, "what needs no packing is taken"
    packed = codes.count(ErrorCode.NONE)
    assert 0 < packed <= count // 2
    assert codes == [ErrorCode.NONE] * packed + [ErrorCode.REQUEST_TIMED_OUT] * (count - packed)
    # Later it has time again.
    assert slots(client.call(request(sent[-1]), 9)) == [(0, 0)]


@pytest.mark.parametrize(
    "config",
    [
        LogConfig(cleanup_policy=frozenset({"compact"})),
        LogConfig(message_timestamp_before_max_ms=1 << 50),
    ],
    ids=["keys", "timestamps"],
)
def test_nor_for_unpacking(
    live: LiveBroker, connect: Connect, monkeypatch: pytest.MonkeyPatch, config: LogConfig
) -> None:
    def slow(*given: Any, **options: Any) -> bytes:
        time.sleep(PACKING_MS_MAX / 1000 / 2)
        return decompress(*given, **options)

    for module in ("record_walk", "produced_records"):
        monkeypatch.setattr(f"fairlead_broker.log.batches.{module}.decompress", slow)
    live.add_partition("t", config=config)
    live.add_partition("t", 1, config=config)
    record = Record(0, live.broker.clock.now_ms(), b"k", b"v")
    packed = encode_batch([record], codec=Codec.ZSTD)
    sent = [("t", 0, packed)] * 4 + [("t", 1, encode_batch([record]))]
    codes = [code for code, _ in slots(connect().call(request(*sent), 9))]
    late = ErrorCode.REQUEST_TIMED_OUT
    taken = codes[:4].count(ErrorCode.NONE)
    assert 0 < taken <= 2
    assert codes == [ErrorCode.NONE] * taken + [late] * (4 - taken) + [ErrorCode.NONE]


def test_who_has_much_packed_waits_as_long_as_others_did(
    live: LiveBroker, connect: Connect, slow_packing: float
) -> None:
    live.add_partition("t", config=PACKED)
    client = connect()
    begun_s = time.monotonic()
    for _ in range(4):
        assert slots(client.call(request(("t", 0, batch(b"a"))), 9))[0][0] == ErrorCode.NONE
    # Its own packing four times, and as much after each of the first three.
    assert time.monotonic() - begun_s >= 7 * slow_packing - 0.01


def test_nobody_waits_for_what_comes_packed_already(
    live: LiveBroker, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(given: memoryview, config: LogConfig) -> memoryview:
        time.sleep(PACKING_MS_MAX / 1000)
        return as_stored(given, config)

    monkeypatch.setattr("fairlead_broker.log.log.as_stored", slow)
    for index in range(2):
        live.add_partition("t", index, config=PACKED)
    packed = batch(b"a", codec=Codec.LZ4)
    client = connect()
    answer = client.call(request(("t", 0, packed), ("t", 1, packed)), 9)
    assert slots(answer) == [(ErrorCode.NONE, 0)] * 2
    assert (
        slots(client.call(request(("t", 0, batch(b"a")), ("t", 1, packed)), 9))
        == [(ErrorCode.NONE, 1)] * 2
    )


def test_log_append_time_is_told(live: LiveBroker, connect: Connect) -> None:
    live.add_partition("t", config=LogConfig(message_timestamp_type="LogAppendTime"))
    response = connect().call(request(("t", 0, batch(b"a"))), 9)
    assert response.responses[0].partition_responses[0].log_append_time_ms > 1_600_000_000_000


def test_a_request_without_topics_is_answered(live: LiveBroker, connect: Connect) -> None:
    for acks in (1, -1):
        assert connect().call(request(acks=acks), 9).responses == []


def test_acks_all_times_out_while_the_isr_lags(live: LiveBroker, connect: Connect) -> None:
    partition = live.add_partition("t", isr=(0, 1))
    response = connect().call(request(("t", 0, batch(b"a")), acks=-1, timeout_ms=50), 9)
    assert slots(response) == [(ErrorCode.REQUEST_TIMED_OUT, -1)]
    assert (partition.log_end_offset, partition.high_watermark) == (1, 0)


def test_acks_all_is_answered_when_the_isr_has_it(live: LiveBroker, connect: Connect) -> None:
    """I9."""
    partition = live.add_partition("t", isr=(0, 1))
    client = connect()
    client.send(request(("t", 0, batch(b"a")), acks=-1), 9)
    live.eventually(lambda: len(live.broker.produce_purgatory) == 1)
    alone = PartitionRegistration(
        replicas=(0, 1), isr=(0,), leader=0, leader_epoch=3, partition_epoch=1
    )
    live.run(lambda: partition.lead(alone))
    assert slots(client.receive(0, 9)[1]) == [(0, 0)]


def test_acks_all_is_never_confirmed_by_a_leader_that_lost_the_partition(
    live: LiveBroker, connect: Connect
) -> None:
    partition = live.add_partition("t", isr=(0, 1))
    client = connect()
    client.send(request(("t", 0, batch(b"a")), acks=-1), 9)
    live.eventually(lambda: len(live.broker.produce_purgatory) == 1)
    elsewhere = PartitionRegistration(
        replicas=(0, 1), isr=(0, 1), leader=1, leader_epoch=4, partition_epoch=1
    )
    live.run(lambda: partition.follow(elsewhere))
    assert slots(client.receive(0, 9)[1]) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]


def test_a_gap_before_a_new_leader_comes_again_and_before_another_one_is_told(
    live: LiveBroker, connect: Connect
) -> None:
    """The request in between was refused before this broker had heard that it leads."""
    partition = live.add_partition("t")
    client = connect()

    def answer(sequence: int) -> list[tuple[int, int]]:
        records = batch(b"a", producer_id=7, producer_epoch=0, base_sequence=sequence)
        return slots(client.call(request(("t", 0, records)), 9))

    def begin_reign(ago_ms: int) -> None:
        assert partition.leader is not None
        partition.leader.began_ms = live.broker.clock.monotonic_ms() - ago_ms

    assert answer(0) == [(ErrorCode.NONE, 0)]
    live.run(lambda: begin_reign(-60_000))
    assert answer(2) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]
    assert (answer(1), answer(2)) == ([(ErrorCode.NONE, 1)], [(ErrorCode.NONE, 2)])
    live.run(lambda: begin_reign(NEW_LEADER_MS))
    assert answer(4) == [(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)]


@pytest.mark.parametrize("may_be_replaced", ["stood still", "hears no controller"])
def test_a_leader_that_may_be_replaced_takes_no_gap_for_lost_records(
    live: LiveBroker, connect: Connect, may_be_replaced: str
) -> None:
    """What it lacks, its successor may have (simulation seeds 1795600024, 1795716521)."""
    live.add_partition("t")
    client = connect()

    def answer(sequence: int) -> list[tuple[int, int]]:
        records = batch(b"a", producer_id=7, producer_epoch=0, base_sequence=sequence)
        return slots(client.call(request(("t", 0, records), acks=-1), 9))

    leader = live.broker.partitions["t", 0].leader
    assert leader is not None
    live.run(lambda: setattr(leader, "began_ms", leader.began_ms - NEW_LEADER_MS))
    assert answer(0) == [(ErrorCode.NONE, 0)]
    assert answer(2) == [(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)]
    if may_be_replaced == "stood still":
        live.broker.wake_check.must_hold = lambda: True
    else:
        live.broker.controller.has_session = False
    assert answer(2) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]
    assert answer(1) == [(ErrorCode.NONE, 1)]


def test_a_gap_where_the_batch_before_was_refused_comes_again(
    live: LiveBroker, connect: Connect
) -> None:
    """Two requests are under way while the in-sync set grows. With another answer librdkafka wrote
    records of other partitions twice (found by `make reshape`, seed 111)."""
    partition = live.add_partition("t")
    client = connect()

    def answer(sequence: int) -> list[tuple[int, int]]:
        records = batch(b"a", producer_id=7, producer_epoch=0, base_sequence=sequence)
        return slots(client.call(request(("t", 0, records), acks=-1), 9))

    leader = partition.leader
    assert leader is not None
    live.run(lambda: setattr(leader, "began_ms", leader.began_ms - NEW_LEADER_MS))
    assert answer(0) == [(ErrorCode.NONE, 0)]
    live.run(lambda: setattr(leader, "_is_below_minimum", True))
    assert answer(1) == [(ErrorCode.NOT_ENOUGH_REPLICAS, -1)]
    live.run(lambda: setattr(leader, "_is_below_minimum", False))
    assert answer(2) == [(ErrorCode.NOT_ENOUGH_REPLICAS, -1)]
    assert (answer(1), answer(2)) == ([(ErrorCode.NONE, 1)], [(ErrorCode.NONE, 2)])
    refusal = partition.passing_refusal
    assert refusal is not None
    long_ago = refusal._replace(at_ms=refusal.at_ms - REFUSED_BEFORE_GAP_MS)
    live.run(lambda: setattr(partition, "passing_refusal", long_ago))
    assert answer(4) == [(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)]


def test_acks_1_waits_for_the_flush_where_the_topic_asks_for_one(
    live: LiveBroker, connect: Connect
) -> None:
    partition = live.add_partition("t", config=LogConfig(flush_messages=1))
    client = connect()
    client.send(request(("t", 0, batch(b"a"))), 9)
    live.eventually(lambda: len(live.broker.produce_purgatory) == 1)

    def flush() -> None:
        job = partition.log.begin_flush()
        assert job is not None
        job.run()
        partition.log.complete_flush(job, live.broker.clock.now_ms())
        partition.flushed()

    live.run(flush)
    assert slots(client.receive(0, 9)[1]) == [(0, 0)]
