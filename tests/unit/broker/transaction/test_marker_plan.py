"""Markers: each partition of a decided transaction gets one, whatever brokers and topics do."""

import random
import time
import zlib
from collections.abc import Iterable
from dataclasses import replace

import pytest

from fairlead_broker.log.producers.end_marker import EndMarker
from fairlead_broker.transaction.ending import EndingTransaction, TopicPartition
from fairlead_broker.transaction.marker_plan import (
    RETRY_DELAY_MAX_MS,
    RETRY_DELAY_MIN_MS,
    MarkerBatch,
    MarkerPlan,
)
from fairlead_model.broker import BrokerRegistration
from fairlead_model.cluster import ClusterImage, empty_image
from fairlead_model.delta import BrokerChanged, Change, PartitionChanged, TopicChanged
from fairlead_model.ids import NO_LEADER, TopicId
from fairlead_model.partition import PartitionRegistration
from fairlead_model.topic import TopicHeader, TopicState
from fairlead_wire.errors import ErrorCode

BROKERS = (0, 1, 2)
FAR_MS = 1 << 40


class Cluster:
    """An image that a test changes, and the plan that hears of it."""

    def __init__(self, *, markers_per_batch: int = 100) -> None:
        self.image: ClusterImage = empty_image("c")
        self.now_ms = 1_000
        self._next_id = 0
        self.plan = MarkerPlan(self.image, markers_per_batch=markers_per_batch)
        self.publish([BrokerChanged(BrokerRegistration(each, fenced=False)) for each in BROKERS])

    def publish(self, changes: Iterable[Change]) -> None:
        changes = list(changes)
        self.image = self.image.apply(changes)
        self.plan.publish(self.image, changes, self.now_ms)

    def make_topic(self, name: str, *leaders: int) -> None:
        self._next_id += 1
        topic_id = TopicId(self._next_id.to_bytes(16, "big"))
        self.publish(
            [
                TopicChanged(TopicHeader(name, topic_id, len(leaders))),
                *(
                    PartitionChanged(topic_id, index, _registration(leader))
                    for index, leader in enumerate(leaders)
                ),
            ]
        )

    def delete_topic(self, name: str) -> None:
        topic = self.image.topic(name)
        assert topic is not None
        self.publish([TopicChanged(replace(topic.header, state=TopicState.DELETING))])

    def elect(self, name: str, index: int, leader: int) -> None:
        topic = self.image.topic(name)
        assert topic is not None
        partition = topic.partitions[index].changed(leader=leader)
        self.publish([PartitionChanged(topic.topic_id, index, partition)])

    def leader(self, key: TopicPartition) -> int | None:
        partition = self.image.partition(*key)
        return None if partition is None else partition.leader

    def begin(self, producer_id: int, *keys: TopicPartition, shard: int = 0) -> EndingTransaction:
        transaction = EndingTransaction(
            f"id-{producer_id}", shard, EndMarker(producer_id, 0, 1, True, 2), frozenset(keys)
        )
        self.plan.begin(transaction, self.now_ms)
        return transaction

    def take(self) -> dict[int, MarkerBatch]:
        """By broker what is sent now."""
        return {batch.broker_id: batch for batch in self.plan.take(self.now_ms)}

    def answer(self, batch: MarkerBatch, code: ErrorCode = ErrorCode.NONE) -> None:
        self.plan.answered(
            batch,
            {marker.producer_id: dict.fromkeys(keys, code) for marker, keys in batch.markers()},
            self.now_ms,
        )

    def ended(self) -> dict[int, set[TopicPartition]]:
        """By producer the partitions that were reported since the last time."""
        ended: dict[int, set[TopicPartition]] = {}
        for transaction, partitions, is_fenced in self.plan.take_outcomes():
            assert not is_fenced
            ended.setdefault(transaction.marker.producer_id, set()).update(partitions)
        return ended


def _registration(leader: int) -> PartitionRegistration:
    isr = (leader,) if leader != NO_LEADER else (0,)
    return PartitionRegistration(
        replicas=BROKERS, isr=BROKERS if leader >= 0 else isr, leader=leader, leader_epoch=1
    )


def sent(batches: dict[int, MarkerBatch]) -> dict[int, dict[int, set[TopicPartition]]]:
    """By broker and producer id the partitions that are named."""
    return {
        broker: {marker.producer_id: set(keys) for marker, keys in batch.markers()}
        for broker, batch in batches.items()
    }


def test_each_leader_gets_one_request_with_all_that_it_leads() -> None:
    cluster = Cluster()
    cluster.make_topic("t", 0, 1, 0)
    cluster.begin(7, ("t", 0), ("t", 1), ("t", 2))
    cluster.begin(8, ("t", 0))
    batches = cluster.take()
    assert sent(batches) == {0: {7: {("t", 0), ("t", 2)}, 8: {("t", 0)}}, 1: {7: {("t", 1)}}}
    cluster.begin(9, ("t", 0))
    assert cluster.take() == {}, "one request a broker is under way"
    cluster.answer(batches[0])
    assert cluster.ended() == {7: {("t", 0), ("t", 2)}, 8: {("t", 0)}}
    assert sent(cluster.take()) == {0: {9: {("t", 0)}}}
    cluster.answer(batches[1])
    assert cluster.ended() == {7: {("t", 1)}}
    assert len(cluster.plan) == 1


def test_a_leader_is_told_for_which_of_its_reigns_a_marker_is() -> None:
    """It may get it when others have led, and ended the transaction, meanwhile (T8)."""
    cluster = Cluster()
    cluster.make_topic("t", 0, 1)
    cluster.begin(7, ("t", 0), ("t", 1))
    batches = cluster.take()
    assert [dict(keys) for _, keys in batches[0].markers()] == [{("t", 0): 1}]
    cluster.elect("t", 1, 0)
    cluster.plan.failed(batches[0], cluster.now_ms)
    cluster.plan.failed(batches[1], cluster.now_ms)
    cluster.now_ms += 1000
    assert [dict(keys) for _, keys in cluster.take()[0].markers()] == [{("t", 0): 1, ("t", 1): 2}]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ],
)
def test_a_partition_that_cannot_be_written_is_asked_again_and_holds_nobody_up(
    code: ErrorCode,
) -> None:
    cluster = Cluster()
    cluster.make_topic("t", 0, 0)
    cluster.begin(7, ("t", 0))
    delay_ms = RETRY_DELAY_MIN_MS
    for _ in range(12):
        cluster.answer(cluster.take()[0], code)
        assert cluster.take() == {}
        assert cluster.plan.next_due_ms() == cluster.now_ms + delay_ms
        cluster.begin(8, ("t", 1))
        batch = cluster.take()[0]
        assert sent({0: batch}) == {0: {8: {("t", 1)}}}
        cluster.answer(batch)
        assert cluster.ended() == {8: {("t", 1)}}
        cluster.now_ms += delay_ms
        delay_ms = min(2 * delay_ms, RETRY_DELAY_MAX_MS)
    cluster.answer(cluster.take()[0])
    assert cluster.ended() == {7: {("t", 0)}}
    assert cluster.plan.next_due_ms() is None


@pytest.mark.parametrize(
    "code", [ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION]
)
def test_what_can_hold_no_marker_is_done(code: ErrorCode) -> None:
    cluster = Cluster()
    cluster.make_topic("t", 0)
    cluster.begin(7, ("t", 0))
    cluster.answer(cluster.take()[0], code)
    assert cluster.ended() == {7: {("t", 0)}}


def test_a_partition_where_the_producer_has_a_newer_epoch_holds_nothing_up() -> None:
    """A coordinator that has lost decisions may end an epoch that is over: no id may hang."""
    cluster = Cluster()
    cluster.make_topic("t", 0, 1)
    cluster.begin(7, ("t", 0), ("t", 1))
    batches = cluster.take()
    cluster.answer(batches[0], ErrorCode.INVALID_PRODUCER_EPOCH)
    cluster.answer(batches[1])
    assert cluster.ended() == {7: {("t", 0), ("t", 1)}}


def test_a_transaction_that_a_newer_coordinator_owns_is_given_up() -> None:
    cluster = Cluster()
    cluster.make_topic("t", 0, 1)
    fenced = cluster.begin(7, ("t", 0), ("t", 1))
    batches = cluster.take()
    cluster.answer(batches[0], ErrorCode.TRANSACTION_COORDINATOR_FENCED)
    assert cluster.plan.take_outcomes() == [(fenced, (), True)]
    cluster.answer(batches[1])
    assert cluster.plan.take_outcomes() == []
    assert (len(cluster.plan), cluster.take(), cluster.plan.next_due_ms()) == (0, {}, None)


def test_an_answer_that_leaves_a_partition_out_ends_nothing() -> None:
    cluster = Cluster()
    cluster.make_topic("t", 0)
    cluster.begin(7, ("t", 0))
    cluster.plan.answered(cluster.take()[0], {}, cluster.now_ms)
    assert cluster.ended() == {}
    cluster.now_ms += RETRY_DELAY_MIN_MS
    assert sent(cluster.take()) == {0: {7: {("t", 0)}}}


def test_a_broker_that_does_not_answer_is_asked_again_after_a_while() -> None:
    cluster = Cluster()
    cluster.make_topic("t", 0, 1)
    cluster.begin(7, ("t", 0), ("t", 1))
    batches = cluster.take()
    cluster.plan.failed(batches[0], cluster.now_ms)
    cluster.answer(batches[1])
    assert cluster.take() == {}
    assert cluster.plan.next_due_ms() == cluster.now_ms + RETRY_DELAY_MIN_MS
    cluster.begin(8, ("t", 0), ("t", 1))
    assert sent(cluster.take()) == {1: {8: {("t", 1)}}}
    cluster.now_ms += RETRY_DELAY_MIN_MS
    assert sent(cluster.take()) == {0: {7: {("t", 0)}, 8: {("t", 0)}}}


def test_a_broker_that_registers_anew_is_asked_at_once() -> None:
    cluster = Cluster()
    cluster.make_topic("t", 0)
    cluster.begin(7, ("t", 0))
    for _ in range(5):
        cluster.plan.failed(cluster.take()[0], cluster.now_ms)
        cluster.now_ms = cluster.plan.next_due_ms() or 0
    cluster.plan.failed(cluster.take()[0], cluster.now_ms)
    cluster.publish([BrokerChanged(BrokerRegistration(0, broker_epoch=9, fenced=False))])
    assert sent(cluster.take()) == {0: {7: {("t", 0)}}}


def test_markers_go_to_the_new_leader_at_once() -> None:
    cluster = Cluster()
    cluster.make_topic("t", 0, 0)
    cluster.begin(7, ("t", 0), ("t", 1))
    cluster.plan.failed(cluster.take()[0], cluster.now_ms)
    cluster.elect("t", 0, 2)
    assert sent(cluster.take()) == {2: {7: {("t", 0)}}}


def test_a_broker_that_says_late_that_it_leads_no_more_costs_no_delay() -> None:
    cluster = Cluster()
    cluster.make_topic("t", 0)
    cluster.begin(7, ("t", 0))
    batch = cluster.take()[0]
    cluster.elect("t", 0, 1)
    assert cluster.take() == {}
    cluster.answer(batch, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert sent(cluster.take()) == {1: {7: {("t", 0)}}}


def test_without_a_leader_the_next_image_is_waited_for() -> None:
    cluster = Cluster()
    cluster.make_topic("t", NO_LEADER, 1)
    cluster.begin(7, ("t", 0), ("t", 1))
    assert sent(cluster.take()) == {1: {7: {("t", 1)}}}
    assert (cluster.plan.leaderless_count, cluster.plan.next_due_ms()) == (1, None)
    cluster.now_ms += FAR_MS
    assert cluster.take() == {}
    cluster.elect("t", 0, 2)
    assert sent(cluster.take()) == {2: {7: {("t", 0)}}}
    assert cluster.plan.leaderless_count == 0


def test_more_replicas_in_sync_are_a_reason_to_ask_again() -> None:
    cluster = Cluster()
    cluster.make_topic("t", 0)
    cluster.begin(7, ("t", 0))
    for _ in range(8):
        cluster.answer(cluster.take()[0], ErrorCode.NOT_ENOUGH_REPLICAS)
        cluster.now_ms = cluster.plan.next_due_ms() or 0
    cluster.answer(cluster.take()[0], ErrorCode.NOT_ENOUGH_REPLICAS)
    assert cluster.take() == {}
    cluster.elect("t", 0, 0)
    assert sent(cluster.take()) == {0: {7: {("t", 0)}}}


@pytest.mark.parametrize("is_made_anew", [False, True])
@pytest.mark.parametrize("when", ["before", "waiting", "leaderless", "sent", "failed"])
def test_a_topic_that_is_deleted_needs_no_marker(when: str, is_made_anew: bool) -> None:
    cluster = Cluster()
    cluster.make_topic("t", NO_LEADER if when == "leaderless" else 0)
    batch = None
    if when != "before":
        cluster.begin(7, ("t", 0))
    if when in ("sent", "failed"):
        batch = cluster.take()[0]
    cluster.delete_topic("t")
    if is_made_anew and when != "before":
        cluster.make_topic("t", 0)
    if when == "before":
        cluster.begin(7, ("t", 0))
    elif when == "failed":
        assert batch is not None
        cluster.plan.failed(batch, cluster.now_ms)
    elif batch is not None:
        cluster.answer(batch, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert cluster.ended() == {7: {("t", 0)}}
    assert (len(cluster.plan), cluster.take(), cluster.plan.leaderless_count) == (0, {}, 0)


def test_a_transaction_in_nothing_is_ended_at_once() -> None:
    cluster = Cluster()
    transaction = cluster.begin(7)
    assert cluster.plan.take_outcomes() == [(transaction, (), False)]
    assert len(cluster.plan) == 0


def test_what_a_lost_shard_decided_is_sent_no_more() -> None:
    cluster = Cluster()
    cluster.make_topic("t", 0, 0, NO_LEADER)
    cluster.begin(7, ("t", 0), shard=3)
    under_way = cluster.take()[0]
    cluster.begin(8, ("t", 0), ("t", 1), ("t", 2), shard=3)
    cluster.begin(9, ("t", 1), shard=4)
    cluster.plan.forget_shard(3)
    cluster.plan.forget_shard(5)
    cluster.answer(under_way)
    assert sent(cluster.take()) == {0: {9: {("t", 1)}}}
    assert cluster.ended() == {}
    assert cluster.plan.leaderless_count == 0


def test_a_shard_that_is_read_anew_begins_again() -> None:
    cluster = Cluster()
    cluster.make_topic("t", 0, 1)
    cluster.begin(7, ("t", 0), ("t", 1))
    before = cluster.take()
    cluster.begin(7, ("t", 0), ("t", 1))
    for batch in before.values():
        cluster.answer(batch)
    assert cluster.ended() == {}, "what the shard before it had sent says nothing to this one"
    assert sent(cluster.take()) == {0: {7: {("t", 0)}}, 1: {7: {("t", 1)}}}


def test_a_batch_is_bounded_and_every_partition_gets_its_turn() -> None:
    cluster = Cluster(markers_per_batch=100)
    cluster.make_topic("t", 0, 0)
    for producer_id in range(1_000):
        cluster.begin(producer_id, ("t", 0))
    cluster.begin(5_000, ("t", 1))
    batches = []
    while batch := cluster.take().get(0):
        batches.append({key for _, keys in batch.markers() for key in keys})
        assert sum(len(keys) for _, keys in batch.markers()) <= 100
        cluster.answer(batch)
    assert len(batches) == 11
    assert ("t", 1) in batches[1]
    assert len(cluster.plan) == 0


class Oracle:
    """What brokers have written, and what the coordinator must hear of: the slow, obvious way."""

    def __init__(self) -> None:
        self.written: set[tuple[int, TopicPartition]] = set()
        self.gone: set[tuple[int, TopicPartition]] = set()
        self.open: dict[str, tuple[EndingTransaction, set[TopicPartition]]] = {}
        self.dropped: set[EndingTransaction] = set()

    def lose_topic(self, name: str) -> None:
        for transaction, rest in self.open.values():
            self.gone |= {(transaction.marker.producer_id, key) for key in rest if key[0] == name}

    def hear(self, cluster: Cluster) -> None:
        for transaction, partitions, is_fenced in cluster.plan.take_outcomes():
            assert transaction not in self.dropped, "nobody waits for this one"
            current, rest = self.open[transaction.transactional_id]
            assert current is transaction
            if is_fenced:
                del self.open[transaction.transactional_id]
                continue
            assert rest.issuperset(partitions), "reported once only"
            producer_id = transaction.marker.producer_id
            for key in partitions:
                assert (producer_id, key) in self.written | self.gone
            rest.difference_update(partitions)
            if not rest:
                del self.open[transaction.transactional_id]


@pytest.mark.parametrize("seed", range(150))
def test_random_faults_then_peace(seed: int) -> None:
    """Whatever happened before, all that is still wanted is written once faults end."""
    chance = random.Random(seed)
    cluster = Cluster(markers_per_batch=chance.choice((1, 3, 50)))
    plan = cluster.plan
    names = ("t", "u")
    for name in names:
        cluster.make_topic(name, *(chance.choice(BROKERS) for _ in range(3)))
    oracle = Oracle()
    under_way: list[MarkerBatch] = []
    next_producer = 0

    def begin() -> None:
        nonlocal next_producer
        keys = {(chance.choice(names), chance.randrange(3)) for _ in range(chance.randint(0, 4))}
        transactional_id = f"id-{chance.randrange(12)}"
        before = oracle.open.pop(transactional_id, None)
        if before is not None:
            oracle.dropped.add(before[0])
        next_producer += 1
        transaction = EndingTransaction(
            transactional_id,
            zlib.crc32(transactional_id.encode()) % 3,
            EndMarker(next_producer, 0, 1, True, 2),
            frozenset(keys),
        )
        oracle.open[transactional_id] = (transaction, set(keys))
        plan.begin(transaction, cluster.now_ms)

    def take() -> None:
        for batch in plan.take(cluster.now_ms):
            assert batch.broker_id not in {each.broker_id for each in under_way}
            named = {ending.transaction for ending in batch.sent}
            assert named.isdisjoint(oracle.dropped), "nobody waits for these any more"
            under_way.append(batch)

    def settle(*, healthy: bool) -> None:
        if not under_way:
            return
        batch = under_way.pop(chance.randrange(len(under_way)))
        if not healthy and chance.random() < 0.3:
            plan.failed(batch, cluster.now_ms)
            return
        answers: dict[int, dict[TopicPartition, ErrorCode]] = {}
        for marker, keys in batch.markers():
            for key in keys:
                code = ErrorCode.NONE
                if cluster.leader(key) != batch.broker_id:
                    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                elif not healthy and chance.random() < 0.4:
                    code = chance.choice(
                        (
                            ErrorCode.NOT_ENOUGH_REPLICAS,
                            ErrorCode.REQUEST_TIMED_OUT,
                            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                        )
                    )
                if code is ErrorCode.NONE:
                    oracle.written.add((marker.producer_id, key))
                if healthy or chance.random() < 0.9:
                    answers.setdefault(marker.producer_id, {})[key] = code
        plan.answered(batch, answers, cluster.now_ms)

    def change() -> None:
        name = chance.choice(names)
        kind = chance.random()
        if kind < 0.15:
            oracle.lose_topic(name)
            cluster.delete_topic(name)
            cluster.make_topic(name, *(chance.choice(BROKERS) for _ in range(3)))
        else:
            leader = chance.choice((*BROKERS, NO_LEADER))
            cluster.elect(name, chance.randrange(3), leader)

    def forget() -> None:
        shard = chance.randrange(3)
        plan.forget_shard(shard)
        for transactional_id, (transaction, _) in list(oracle.open.items()):
            if transaction.shard_index == shard:
                oracle.dropped.add(transaction)
                del oracle.open[transactional_id]

    for _ in range(300):
        chance.choices(
            (begin, take, lambda: settle(healthy=False), change, forget), (4, 6, 5, 1.5, 0.3)
        )[0]()
        cluster.now_ms += chance.choice((0, 1, 5, 40))
        oracle.hear(cluster)
        assert len(plan) == len(oracle.open)
    # Peace: every partition is led, and every broker answers.
    for name in names:
        for index in range(3):
            cluster.elect(name, index, chance.choice(BROKERS))
    for _ in range(5_000):
        take()
        settle(healthy=True)
        oracle.hear(cluster)
        if not oracle.open:
            break
        if not under_way:
            due_ms = plan.next_due_ms()
            assert due_ms is not None, "something waits, and nothing would wake it"
            cluster.now_ms = max(cluster.now_ms, due_ms)
    assert not oracle.open
    while under_way:
        settle(healthy=True)
    assert (len(plan), plan.take_outcomes(), plan.leaderless_count) == (0, [], 0)


def _time_to_send(count: int) -> float:
    """Return the processor time in which very many markers are sent, a batch after the other."""
    cluster = Cluster(markers_per_batch=500)
    cluster.make_topic("t", 0)
    for number in range(count):
        cluster.begin(number, ("t", 0))
    began = time.process_time()
    sent_count = 0
    while batches := cluster.take():
        cluster.answer(batches[0])
        sent_count += len(cluster.ended())
    assert sent_count == count
    return time.process_time() - began


def test_a_marker_costs_the_same_however_many_wait() -> None:
    """A coordinator that takes over from one that died may have tens of thousands of them."""
    few = min(_time_to_send(5_000) for _ in range(3))
    assert _time_to_send(80_000) < 60 * few, "16 times as many, and none of them much dearer"
