"""Where `fairlead topic reassign` and `alter --replication-factor` put replicas."""

from collections import Counter

import pytest

from fairlead_cli.topic.assignment import Assigner, Place, TooFewBrokersError


def assigner(*hosts: str, racks: str = "", **held: int) -> Assigner:
    """Brokers 0, 1, … on these machines, with so many replicas: b2=5."""
    places = {
        each: Place(each, host, racks[each] if racks else None) for each, host in enumerate(hosts)
    }
    return Assigner(places, Counter({int(name[1:]): count for name, count in held.items()}))


def test_what_stays_keeps_its_place_and_new_replicas_are_spread() -> None:
    plan = assigner("a", "b", "c", "d", "e")
    plan.places = {each: plan.places[each] for each in (1, 3, 4)}
    assert plan.moved([0, 1]) == [3, 1]
    assert plan.moved([0, 1]) == [4, 1]
    assert plan.moved([0, 2]) == [1, 3]
    assert plan.moved([3, 4]) == [3, 4]


def test_a_broker_that_holds_a_partition_does_not_get_it_twice() -> None:
    plan = assigner("a", "b", "c")
    plan.places = {each: plan.places[each] for each in (1, 2)}
    assert plan.moved([0, 1]) == [2, 1]
    with pytest.raises(TooFewBrokersError):
        plan.moved([0, 1, 2])


def test_other_machines_come_first_then_racks_then_those_with_few_replicas() -> None:
    assert assigner("a", "a", "b", b2=9).resized([0], 2, [0]) == [0, 2]
    assert assigner("a", "b", "c", racks="xxy", b2=9).resized([0], 2, [0]) == [0, 2]
    assert assigner("a", "b", "c", b1=9).resized([0], 2, [0]) == [0, 2]
    assert assigner("a", "a").resized([0], 2, [0]) == [0, 1]


def test_partitions_of_one_request_count_for_each_other() -> None:
    plan = assigner("a", "b", "c", "d")
    grown = [plan.resized([0], 2, [0]) for _ in range(6)]
    assert Counter(after[1] for after in grown) == {1: 2, 2: 2, 3: 2}


def test_those_that_miss_records_go_first_and_the_first_one_never() -> None:
    plan = assigner("a", "b", "c", b1=1, b2=9)
    assert plan.resized([0, 1, 2], 2, [0, 2]) == [0, 2]
    assert plan.resized([0, 1, 2], 2, [0, 1, 2]) == [0, 1]
    assert plan.resized([0, 1, 2], 1, [1, 2]) == [0]


def test_too_few_brokers_are_said() -> None:
    with pytest.raises(TooFewBrokersError):
        assigner("a", "b").resized([0], 3, [0])
