"""Transactions as three libraries use them: what is read, what is not, and who is put out."""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
from transactional_clients import (
    PRODUCERS,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    READERS,
    RefusedError,
    TransactionalProducer,
)
from waiting import wait_until

pytestmark = [
    # aiokafka's and kafka-python's producers are left in the middle of things here.
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore:Unclosed:ResourceWarning"),
]

MakeProducer = Callable[..., TransactionalProducer]
Read = Callable[..., list[bytes]]
MakeTopic = Callable[..., str]


def has_read(read: Read, topic: str, values: list[bytes]) -> bool:
    return read(topic) == values


def has_committed(bootstrap: str, group: str, topic: str, offset: int | None) -> bool:
    return bool(committed_offset(bootstrap, group, topic) == offset)


@pytest.fixture(params=PRODUCERS)
def library(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def make_producer(bootstrap: str, library: str) -> Iterator[MakeProducer]:
    """Producers of a library; one name is one transactional id of this test."""
    made: list[TransactionalProducer] = []
    unique = time.monotonic_ns()

    def make(name: str = "only", *, timeout_ms: int = 60_000) -> TransactionalProducer:
        made.append(PRODUCERS[library](bootstrap, f"{name}-{unique}", timeout_ms))
        return made[-1]

    yield make
    for producer in made:
        producer.close()


@pytest.fixture
def read(bootstrap: str, library: str) -> Read:
    """Everything up to the end that there is for this isolation level, sorted by partition."""

    def everything(topic: str, isolation_level: str = READ_COMMITTED) -> list[bytes]:
        return READERS[library](bootstrap, topic, isolation_level)

    return everything


def write_transaction(
    producer: TransactionalProducer, topic: str, *values: bytes, is_committed: bool = True
) -> None:
    producer.begin()
    for value in values:
        producer.send(topic, value)
    producer.flush()
    producer.commit() if is_committed else producer.abort()


def test_committed_is_read_and_aborted_is_not(
    make_producer: MakeProducer, read: Read, make_topic: MakeTopic
) -> None:
    topic, producer = make_topic("isolation"), make_producer()
    write_transaction(producer, topic, b"a1", b"a2")
    write_transaction(producer, topic, b"no1", b"no2", is_committed=False)
    write_transaction(producer, topic, b"b1")
    wait_until(lambda: read(topic) == [b"a1", b"a2", b"b1"], lambda: f"{read(topic)}")
    assert read(topic, READ_UNCOMMITTED) == [b"a1", b"a2", b"no1", b"no2", b"b1"]


def test_what_is_open_is_hidden_and_so_is_what_follows(
    make_producer: MakeProducer, read: Read, make_topic: MakeTopic
) -> None:
    topic = make_topic("open")
    slow, quick = make_producer("slow"), make_producer("quick")
    write_transaction(quick, topic, b"before")
    wait_until(lambda: read(topic) == [b"before"])
    slow.begin()
    slow.send(topic, b"open")
    slow.flush()
    write_transaction(quick, topic, b"after")
    # Committed, but behind a transaction that may still go either way.
    assert read(topic) == [b"before"]
    assert read(topic, READ_UNCOMMITTED) == [b"before", b"open", b"after"]
    slow.commit()
    wait_until(lambda: read(topic) == [b"before", b"open", b"after"])


def test_a_transaction_of_several_topics_is_one(
    make_producer: MakeProducer, read: Read, make_topic: MakeTopic
) -> None:
    topics = [make_topic("one", partitions=3), make_topic("two", partitions=2)]
    places = [(topics[0], index) for index in range(3)] + [(topics[1], index) for index in range(2)]
    producer = make_producer()
    for value, is_committed in ((b"kept", True), (b"dropped", False), (b"kept", True)):
        producer.begin()
        for topic, partition in places:
            producer.send(topic, value, partition)
        producer.flush()
        producer.commit() if is_committed else producer.abort()
    for topic, count in zip(topics, (3, 2), strict=True):
        wait_until(partial(has_read, read, topic, [b"kept"] * 2 * count))
        assert read(topic, READ_UNCOMMITTED).count(b"dropped") == count


def test_an_empty_transaction_is_one(
    make_producer: MakeProducer, read: Read, make_topic: MakeTopic
) -> None:
    topic, producer = make_topic("empty"), make_producer()
    write_transaction(producer, topic)
    write_transaction(producer, topic, is_committed=False)
    write_transaction(producer, topic, b"something")
    write_transaction(producer, topic)
    wait_until(lambda: read(topic) == [b"something"])


def test_a_transaction_larger_than_any_fetch(
    make_producer: MakeProducer, read: Read, make_topic: MakeTopic
) -> None:
    """Two of them at once, in turns: each fetch is in the middle of both."""
    topic = make_topic("large")
    kept, dropped = make_producer("kept"), make_producer("dropped")
    kept.begin()
    dropped.begin()
    padding = b"." * 60_000
    for number in range(60):
        for producer, name in ((kept, b"kept"), (dropped, b"dropped")):
            producer.send(topic, b"%s %d %s" % (name, number, padding))
            producer.flush()
    dropped.abort()
    kept.commit()
    expected = [b"kept %d" % number for number in range(60)]

    def heads() -> list[bytes]:
        return [value.rpartition(b" ")[0] for value in read(topic)]

    wait_until(lambda: heads() == expected, lambda: f"{heads()[:5]}")


def test_a_zombie_is_fenced(make_producer: MakeProducer, read: Read, make_topic: MakeTopic) -> None:
    topic = make_topic("zombie")
    older = make_producer()
    older.begin()
    older.send(topic, b"of the zombie")
    older.flush()
    newer = make_producer()
    # What the older one had open was aborted; the newer one need not wait for it.
    write_transaction(newer, topic, b"of the newer")
    wait_until(lambda: read(topic) == [b"of the newer"])

    def write_on() -> None:
        older.send(topic, b"late")
        older.flush()
        older.commit()

    with pytest.raises(RefusedError) as refused:
        write_on()
    assert refused.value.is_fenced, refused.value
    write_transaction(newer, topic, b"again")
    wait_until(lambda: read(topic) == [b"of the newer", b"again"])
    assert b"of the zombie" in read(topic, READ_UNCOMMITTED)


def leave_open(make_producer: MakeProducer, topic: str) -> TransactionalProducer:
    """Return a producer whose record lies on its broker, in a transaction that it does not end."""
    # On a busy machine the time may be out before the record is there.
    for timeout_ms in (4_000, 20_000):
        late = make_producer("late", timeout_ms=timeout_ms)
        with suppress(RefusedError):
            late.begin()
            late.send(topic, b"late")
            late.flush()
            return late
    raise AssertionError("the time was out before the record was there")


def test_a_transaction_whose_time_is_out_is_aborted(
    make_producer: MakeProducer, read: Read, make_topic: MakeTopic
) -> None:
    topic = make_topic("time-out")
    other = make_producer("other")
    late = leave_open(make_producer, topic)
    write_transaction(other, topic, b"other")
    wait_until(lambda: read(topic) == [b"other"])
    with pytest.raises(RefusedError):
        late.commit()
    anew = make_producer("late")
    write_transaction(anew, topic, b"anew")
    wait_until(lambda: read(topic) == [b"other", b"anew"])


def committed_offset(bootstrap: str, group: str, topic: str, timeout_s: float = 60) -> Any:
    """As a consumer is told that reads committed data: it waits while an offset is pending."""
    from confluent_kafka import Consumer, TopicPartition

    consumer: Any = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "isolation.level": READ_COMMITTED,
            "log_level": 0,
        }
    )
    try:
        return consumer.committed([TopicPartition(topic, 0)], timeout=timeout_s)[0].offset
    finally:
        consumer.close()


def test_offsets_are_committed_with_the_records(
    make_producer: MakeProducer, read: Read, make_topic: MakeTopic, bootstrap: str, group: str
) -> None:
    source, target = make_topic("source"), make_topic("target")
    producer = make_producer()
    for offset, is_committed in ((3, True), (7, False), (9, True), (11, False)):
        producer.begin()
        producer.send(target, b"%d" % offset)
        producer.flush()
        producer.send_offsets({(source, 0): offset}, group)
        producer.commit() if is_committed else producer.abort()
        expected = offset if is_committed else {7: 3, 11: 9}[offset]
        wait_until(partial(has_committed, bootstrap, group, source, expected))
    wait_until(lambda: read(target) == [b"3", b"9"])


def test_who_reads_committed_waits_for_pending_offsets(
    make_producer: MakeProducer, make_topic: MakeTopic, bootstrap: str, group: str
) -> None:
    from confluent_kafka import KafkaError, KafkaException

    source = make_topic("source")
    producer = make_producer()
    producer.begin()
    producer.send_offsets({(source, 0): 5}, group)
    with pytest.raises(KafkaException) as unstable:
        committed_offset(bootstrap, group, source, timeout_s=1)
    assert unstable.value.args[0].code() in (
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
    )
    producer.commit()
    assert committed_offset(bootstrap, group, source) == 5


def test_a_member_that_has_left_commits_nothing(
    make_topic: MakeTopic, bootstrap: str, group: str
) -> None:
    """Fenced by the group: its transactional id is nobody else's (KIP-447)."""
    from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

    source, target = make_topic("source"), make_topic("target")
    settings = {"bootstrap.servers": bootstrap, "log_level": 0}
    consumer: Any = Consumer({**settings, "group.id": group})
    consumer.subscribe([source])
    wait_until(lambda: consumer.poll(0.1) is None and consumer.assignment())
    left = consumer.consumer_group_metadata()
    consumer.close()
    producer = Producer({**settings, "transactional.id": f"left-{group}"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(target, b"late", partition=0)
    with pytest.raises(KafkaException) as refused:
        producer.send_offsets_to_transaction([TopicPartition(source, 0, 5)], left, 60)
    assert refused.value.args[0].txn_requires_abort(), refused.value
    producer.abort_transaction(60)
    assert committed_offset(bootstrap, group, source) < 0


def test_a_timeout_above_the_allowed_is_refused(make_producer: MakeProducer) -> None:
    with pytest.raises(RefusedError, match=r"(?i)timeout"):
        make_producer(timeout_ms=10_000_000)
