import random
from collections import Counter
from dataclasses import replace

import pytest

from fairlead_controller.decisions.broker_loads import BrokerLoad
from fairlead_controller.decisions.placement import check_assignments, place_partitions
from fairlead_model.broker import BrokerRegistration
from fairlead_model.session.refusals import RefusalCode, RefusedError


def brokers(hosts: str, racks: str = "") -> list[BrokerRegistration]:
    return [
        BrokerRegistration(
            number, host_name=host, rack=racks[number] if racks else None, fenced=False
        )
        for number, host in enumerate(hosts)
    ]


def test_replicas_of_a_partition_are_on_different_hosts() -> None:
    placed = place_partitions(
        brokers("aabbcc"),
        {},
        partition_count=50,
        replication_factor=3,
        random=random.Random(1),
    )
    for replicas in placed:
        assert {broker // 2 for broker in replicas} == {0, 1, 2}


def test_racks_are_spread_before_loads_are_evened() -> None:
    placed = place_partitions(
        brokers("abcd", "xxxy"),
        {3: BrokerLoad(100, 0)},
        partition_count=4,
        replication_factor=2,
        random=random.Random(1),
    )
    assert all(3 in replicas for replicas in placed)


def test_a_topic_is_spread_although_one_broker_is_empty() -> None:
    placed = place_partitions(
        brokers("abc"),
        {0: BrokerLoad(50, 50), 1: BrokerLoad(50, 50)},
        partition_count=6,
        replication_factor=1,
        random=random.Random(1),
    )
    counts = [placed.count((broker,)) for broker in range(3)]
    assert counts == [2, 2, 2]


@pytest.mark.parametrize("racks", ["", "xyyxzz"])
@pytest.mark.parametrize("seed", range(10))
def test_as_many_replicas_of_a_topic_are_on_each_broker(racks: str, seed: int) -> None:
    """Kafka's TopicCommandTest counts them, and those that are led."""
    placed = place_partitions(
        brokers("abcdef", racks),
        {},
        partition_count=18,
        replication_factor=3,
        random=random.Random(seed),
    )
    assert Counter(broker for replicas in placed for broker in replicas) == dict.fromkeys(
        range(6), 9
    )
    assert Counter(replicas[0] for replicas in placed) == dict.fromkeys(range(6), 3)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("count", [3, 5, 6])
def test_no_broker_alone_follows_what_another_leads(count: int, seed: int) -> None:
    """When a broker dies, its partitions are led by the second replicas of their lists."""
    placed = place_partitions(
        brokers("abcdef"[:count]),
        {},
        partition_count=10 * count,
        replication_factor=3,
        random=random.Random(seed),
    )
    for leader in range(count):
        seconds = Counter(replicas[1] for replicas in placed if replicas[0] == leader)
        assert sum(seconds.values()) == 10
        assert max(seconds.values()) == 5


def test_more_partitions_of_a_topic_go_on_with_the_spread_of_the_first() -> None:
    existing = [(0, 1, 2), (0, 1, 2), (1, 0, 2), (2, 0, 1)]
    placed = place_partitions(
        brokers("abc"),
        {},
        partition_count=2,
        replication_factor=3,
        existing=existing,
        random=random.Random(1),
    )
    seconds = {replicas[0]: replicas[1] for replicas in placed}
    assert seconds == {1: 2, 2: 1}


def test_the_rest_of_a_topic_goes_to_the_least_loaded() -> None:
    placed = place_partitions(
        brokers("abc"),
        {0: BrokerLoad(9, 9), 1: BrokerLoad(5, 5), 2: BrokerLoad(9, 9)},
        partition_count=1,
        replication_factor=1,
        random=random.Random(1),
    )
    assert placed == [(1,)]


def test_growth_goes_where_the_topic_has_least() -> None:
    placed = place_partitions(
        brokers("abc"),
        {},
        partition_count=1,
        replication_factor=1,
        existing=[(0,), (2,)],
        random=random.Random(1),
    )
    assert placed == [(1,)]


def test_who_is_away_is_given_replicas_only_where_others_are_too_few() -> None:
    known = brokers("abcde")
    known[1:3] = [replace(each, fenced=True) for each in known[1:3]]

    def place(replication_factor: int) -> list[tuple[int, ...]]:
        return place_partitions(
            known,
            {0: BrokerLoad(90, 90)},
            partition_count=20,
            replication_factor=replication_factor,
            random=random.Random(1),
        )

    assert all(set(replicas) <= {0, 3, 4} for replicas in place(3))
    assert all(set(replicas) > {0, 3, 4} for replicas in place(4))
    assert {replicas[0] for replicas in place(4)} == {0, 1, 2, 3, 4}


def test_more_replicas_than_brokers_are_refused() -> None:
    with pytest.raises(RefusedError, match="above the 2 brokers") as refused:
        place_partitions(
            brokers("ab"), {}, partition_count=1, replication_factor=3, random=random.Random(1)
        )
    assert refused.value.code is RefusalCode.INVALID_REPLICATION_FACTOR


KNOWN = {broker.broker_id: broker for broker in brokers("abc")}


def test_manual_assignments_are_taken_in_order_of_partition() -> None:
    assert check_assignments({1: [2, 0], 0: [1, 2]}, KNOWN) == [(1, 2), (2, 0)]


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        ({1: [0]}, "partitions 0 to 0"),
        ({0: [0], 2: [1]}, "partitions 0 to 1"),
        ({0: []}, "no broker"),
        ({0: [0, 0]}, "twice"),
        ({0: [0, 1], 1: [0]}, "has 1 replicas"),
        ({0: [7]}, "unknown broker 7"),
    ],
)
def test_wrong_assignments_are_explained(assignments: dict[int, list[int]], message: str) -> None:
    with pytest.raises(RefusedError, match=message) as refused:
        check_assignments(assignments, KNOWN)
    assert refused.value.code is RefusalCode.INVALID_REPLICA_ASSIGNMENT
