"""One frame of a transaction arrives late or twice, when the next one has begun.

Networks and retries do that to every client. A frame of the old transaction must not open one that
nobody ends, nor slip records into the next one, nor end it. Clients of transaction version 1 are
protected by the leader that asks the coordinator (KIP-890, part 1), those of version 2 by an epoch
for each transaction (part 2).
"""

import time
from collections.abc import Callable
from typing import Any

import pytest
from transaction_frames import AGAIN, Error, Frame, FrameProducer
from transactional_clients import READ_COMMITTED, READ_UNCOMMITTED, read_confluent
from waiting import wait_until

MakeTopic = Callable[..., str]
COMMIT, ABORT = True, False


@pytest.fixture
def topic(make_topic: MakeTopic) -> str:
    return make_topic("delayed", partitions=2)


@pytest.fixture
def start(peer: Any, topic: str) -> Callable[..., FrameProducer]:
    def make(name: str, *, timeout_ms: int = 60_000) -> FrameProducer:
        producer = FrameProducer(peer.port, f"{name}-{time.monotonic_ns()}", topic, timeout_ms)
        producer.start()
        return producer

    return make


@pytest.fixture
def read(bootstrap: str, topic: str) -> Callable[..., list[bytes]]:
    def everything(isolation_level: str = READ_COMMITTED) -> list[bytes]:
        return sorted(read_confluent(bootstrap, topic, isolation_level))

    return everything


def run_transaction(
    producer: FrameProducer, value: bytes, sequence: int, *, is_committed: bool, partition: int = 0
) -> None:
    producer.until_answered(lambda: producer.add_partition(partition))
    producer.until_answered(lambda: producer.produce(value, sequence, partition))
    producer.until_answered(lambda: producer.end(is_committed=is_committed))


def refuse(producer: FrameProducer, held: Frame) -> None:
    """The leader has to ask the coordinator first, and may say meanwhile that it cannot yet."""
    answers = [producer.send(held)]
    while answers[-1] in AGAIN:
        answers.append(producer.send(held))
    assert answers[-1] is Error.INVALID_TXN_STATE, answers


def test_records_that_come_after_their_abort_open_nothing(
    start: Callable[..., FrameProducer], read: Callable[..., list[bytes]]
) -> None:
    producer = start("late")
    producer.until_answered(producer.add_partition)
    held = producer.produce(b"late", 0)
    producer.until_answered(lambda: producer.end(is_committed=ABORT))
    refuse(producer, held)
    # Nothing was opened that would hold back whoever comes after it.
    other = start("other")
    run_transaction(other, b"other", 0, is_committed=COMMIT)
    wait_until(lambda: read() == [b"other"])
    assert read(READ_UNCOMMITTED) == [b"other"]


def test_records_do_not_join_a_transaction_without_their_partition(
    start: Callable[..., FrameProducer], read: Callable[..., list[bytes]]
) -> None:
    producer = start("late")
    producer.until_answered(producer.add_partition)
    held = producer.produce(b"late", 0)
    producer.until_answered(lambda: producer.end(is_committed=ABORT))
    producer.until_answered(lambda: producer.add_partition(1))
    producer.until_answered(lambda: producer.produce(b"next", 0, partition=1))
    refuse(producer, held)
    producer.until_answered(lambda: producer.end(is_committed=COMMIT))
    wait_until(lambda: read() == [b"next"])
    assert read(READ_UNCOMMITTED) == [b"next"]


@pytest.mark.parametrize("is_committed", [COMMIT, ABORT])
def test_records_that_come_twice_are_written_once(
    is_committed: bool, start: Callable[..., FrameProducer], read: Callable[..., list[bytes]]
) -> None:
    producer = start("twice")
    producer.until_answered(producer.add_partition)
    first = producer.produce(b"first", 0)
    producer.until_answered(lambda: first)
    producer.until_answered(lambda: producer.end(is_committed=is_committed))
    producer.until_answered(producer.add_partition)
    producer.until_answered(lambda: producer.produce(b"second", 1))
    # Known by its sequence: it is acknowledged, and not written again.
    assert producer.send(first) is Error.NONE
    producer.until_answered(lambda: producer.end(is_committed=COMMIT))
    expected = [b"first", b"second"] if is_committed else [b"second"]
    wait_until(lambda: read() == expected, lambda: f"{read()}")
    assert read(READ_UNCOMMITTED) == [b"first", b"second"]


def test_partitions_that_are_added_after_the_end_are_let_go(
    start: Callable[..., FrameProducer], read: Callable[..., list[bytes]]
) -> None:
    """It opens a transaction, which nobody ends but its time-out; no reader waits for it."""
    # Long enough for the first one, which has to end before, also on a busy machine.
    producer = start("late", timeout_ms=10_000)
    held = producer.add_partition()
    run_transaction(producer, b"first", 0, is_committed=COMMIT)
    producer.until_answered(lambda: held)
    other = start("other")
    run_transaction(other, b"other", 0, is_committed=COMMIT)
    wait_until(lambda: read() == [b"first", b"other"])

    def is_fenced() -> bool:
        return producer.send(held) in (Error.INVALID_PRODUCER_EPOCH, Error.PRODUCER_FENCED)

    wait_until(is_fenced)


def test_an_end_that_comes_twice_is_one(
    start: Callable[..., FrameProducer], read: Callable[..., list[bytes]]
) -> None:
    producer = start("twice")
    run_transaction(producer, b"first", 0, is_committed=COMMIT)
    # While markers are written the answer is that a transaction is at work.
    producer.until_answered(lambda: producer.end(is_committed=COMMIT))
    assert producer.send(producer.end(is_committed=ABORT)) is Error.INVALID_TXN_STATE
    run_transaction(producer, b"second", 1, is_committed=COMMIT)
    wait_until(lambda: read() == [b"first", b"second"])


class Version2:
    """A transaction of a client whose epoch rises with each."""

    def __init__(self, producer: FrameProducer) -> None:
        self._producer = producer

    def write(self, value: bytes, sequence: int) -> None:
        producer = self._producer
        producer.until_answered(lambda: producer.produce_and_add(value, sequence))

    def end(self, *, is_committed: bool) -> None:
        producer = self._producer
        held = producer.end_and_bump(is_committed=is_committed)
        epoch = producer.epoch
        producer.take_pair(producer.until_answered(lambda: held))
        assert producer.epoch == epoch + 1


def test_version_2_an_end_does_not_end_the_next_transaction(
    start: Callable[..., FrameProducer], read: Callable[..., list[bytes]]
) -> None:
    producer = start("version-2")
    transaction = Version2(producer)
    transaction.write(b"first", 0)
    held, opposite = (producer.end_and_bump(is_committed=it) for it in (COMMIT, ABORT))
    transaction.end(is_committed=COMMIT)
    # A retry before anything else: the same answer.
    again = producer.until_answered(lambda: held)
    pair = (producer.producer_id, producer.epoch)
    producer.take_pair(again)
    assert (producer.producer_id, producer.epoch) == pair
    transaction.write(b"second", 0)
    for late in (held, opposite):
        assert producer.send(late) is Error.PRODUCER_FENCED
    assert b"second" not in read()
    transaction.end(is_committed=ABORT)
    transaction.write(b"third", 0)
    transaction.end(is_committed=COMMIT)
    wait_until(lambda: read() == [b"first", b"third"], lambda: f"{read()}")


def test_version_2_records_do_not_join_the_next_transaction(
    start: Callable[..., FrameProducer], read: Callable[..., list[bytes]]
) -> None:
    producer = start("version-2")
    transaction = Version2(producer)
    transaction.write(b"first", 0)
    held = producer.produce_and_add(b"late", 1)
    transaction.end(is_committed=COMMIT)
    # The marker carries the next epoch: from then on the old one is known to be old.
    wait_until(lambda: read() == [b"first"])
    assert producer.send(held) is Error.INVALID_PRODUCER_EPOCH
    transaction.write(b"second", 0)
    assert producer.send(held) is Error.INVALID_PRODUCER_EPOCH
    transaction.end(is_committed=COMMIT)
    wait_until(lambda: read() == [b"first", b"second"])
    assert read(READ_UNCOMMITTED) == [b"first", b"second"]


def test_version_2_an_abort_of_nothing_succeeds(
    start: Callable[..., FrameProducer], read: Callable[..., list[bytes]]
) -> None:
    """A client that does not know whether its first records arrived has to be able to."""
    producer = start("version-2")
    transaction = Version2(producer)
    transaction.end(is_committed=ABORT)
    transaction.end(is_committed=ABORT)
    commit = producer.end_and_bump(is_committed=COMMIT)
    # While the abort is at work that is the answer.
    wait_until(lambda: producer.send(commit) is Error.INVALID_TXN_STATE)
    transaction.write(b"something", 0)
    transaction.end(is_committed=COMMIT)
    wait_until(lambda: read() == [b"something"])
