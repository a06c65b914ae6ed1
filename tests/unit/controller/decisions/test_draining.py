"""Leaders leave a broker that is being drained while it is still well, and only then."""

import random
from typing import Any

import pytest

from fairlead_controller.decisions import draining
from fairlead_controller.decisions.events import (
    BalanceLeaders,
    DrainBrokers,
    ReportOffline,
    ShutDownBroker,
    UnfenceBroker,
)
from fairlead_controller.decisions.leadership import elect_in, is_irreplaceable
from fairlead_controller.decisions.reassignment import evacuation


def drain(world: Any, *broker_ids: int) -> dict[int, int]:
    """Drain these and no others; the leaders that remain on each."""
    event = DrainBrokers(dict.fromkeys(broker_ids, "a test"))
    return dict(world.do(event)["remaining_leaders"])


def test_leaders_move_and_the_isr_stays(world: Any) -> None:
    world.create("t", partitions=6, replication_factor=3)
    before = [partition.isr for partition in world.partitions("t")]
    assert drain(world, 1) == {1: 0}
    assert 1 not in world.leaders("t")
    assert [partition.isr for partition in world.partitions("t")] == before
    assert world.state.image.is_live(1)


def test_converged_input_changes_nothing(world: Any) -> None:
    world.create("t", partitions=6, replication_factor=3)
    drain(world, 1)
    decision = world.decide(DrainBrokers({1: "again"}))
    assert (decision.changes, decision.explanations) == ((), ())


def test_brokers_that_go_together_pass_nothing_to_each_other(world: Any) -> None:
    world.create("t", partitions=6, replication_factor=3)
    decision = world.decide(DrainBrokers({0: "a test", 1: "a test"}))
    assert {move.after.leader for move in decision.moves} == {2}
    assert drain(world, 0, 1) == {0: 0, 1: 0}
    assert set(drain(world, 0, 1, 2).values()) == {0, 6}, "somebody has to lead"


def test_very_many_leaders_move_in_parts(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two decisions the controller hears its brokers."""
    monkeypatch.setattr(draining, "ELECTED_PER_DECISION_MAX", 3)
    world.create("alone", partitions=3)
    world.create("t", partitions=12, replication_factor=3)
    led = [world.leaders("t").count(broker) for broker in (0, 1)]
    assert led == [4, 4]
    event = DrainBrokers({0: "a test", 1: "a test"})
    decision = world.decide(event)
    assert decision.explanations == (
        "broker 0 is being drained: a test; 3 partitions change leader, 1 have nobody else in "
        "sync, 1 come later",
        "broker 1 is being drained: a test; 0 partitions change leader, 0 have nobody else in "
        "sync, 5 come later",
    )
    remaining: list[dict[int, int]] = []
    while not remaining or remaining[-1] != {0: 1, 1: 1}:
        assert len(world.decide(event).moves) <= 3
        remaining.append(drain(world, 0, 1))
    assert remaining == [{0: 2, 1: 5}, {0: 1, 1: 3}, {0: 1, 1: 1}]
    assert set(world.leaders("t")) == {2}, "nothing went from one to the other"


def test_a_draining_broker_leads_what_nobody_else_can(world: Any) -> None:
    world.create("t", partitions=3, replication_factor=1)
    assert drain(world, 1) == {1: 1}
    assert sorted(world.leaders("t")) == [0, 1, 2]


def test_a_draining_broker_takes_over_rather_than_nobody(make_world: Any) -> None:
    world = make_world(2)
    world.create("t", partitions=2, replication_factor=2)
    drain(world, 1)
    world.fence(0)
    assert world.leaders("t") == [1, 1]


def test_it_is_passed_over_in_other_elections(world: Any) -> None:
    world.create("t", partitions=9, replication_factor=3)
    drain(world, 1)
    world.do(ShutDownBroker(0, world.epoch(0)))
    assert set(world.leaders("t")) == {2}


def test_balancing_gives_nothing_back_until_the_drain_is_over(world: Any) -> None:
    world.create("t", partitions=6, replication_factor=3)
    drain(world, 1)
    assert world.do(BalanceLeaders(0))["moved"] == 0
    drain(world)
    assert world.do(BalanceLeaders(0))["moved"] == 2
    assert 1 in world.leaders("t")


def test_new_partitions_are_led_by_others(world: Any) -> None:
    drain(world, 1)
    world.create("t", partitions=6, replication_factor=2)
    assert 1 not in world.leaders("t")
    world.create("u", partitions=3, replication_factor=1)
    assert 1 in world.leaders("u"), "where it is the only replica, it leads"


def test_the_mark_outlives_a_new_registration(world: Any) -> None:
    world.create("t", partitions=6, replication_factor=3)
    drain(world, 1)
    world.restart(1, "again")
    assert world.state.draining == {1}
    assert world.do(BalanceLeaders(0))["moved"] == 0


def test_leaders_that_nobody_can_replace_cost_no_election(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All elections of a broker with 25,000 such partitions took 0.6 s, every five seconds."""

    def elect(*_: Any) -> Any:
        raise AssertionError("an election")

    world.create("t", partitions=6, replication_factor=2, configs={"min.insync.replicas": "1"})
    world.fence(0, 2)
    led = world.leaders("t").count(1)
    assert led > 0
    for module in (draining, evacuation):
        monkeypatch.setattr(module, "elect_in", elect)
    assert drain(world, 1) == {1: led}


@pytest.mark.parametrize("seed", range(40))
def test_who_cannot_be_replaced_stays_in_an_election(make_world: Any, seed: int) -> None:
    chance, world = random.Random(seed), make_world(4)
    world.create("t", partitions=8, replication_factor=3)
    count = 0
    for _ in range(12):
        broker = chance.randrange(4)
        match chance.randrange(5):
            case 0:
                world.fence(broker)
            case 1:
                world.do(UnfenceBroker(broker, world.epoch(broker)))
            case 2:
                drain(world, *chance.sample(range(4), chance.randrange(3)))
            case kind:
                places: Any = [
                    {"topic_id": world.topic("t").topic_id, "index": index}
                    for index in chance.sample(range(8), 3)
                ]
                call: Any = {
                    "broker_epoch": world.epoch(broker),
                    "partitions": places,
                    "is_unclean": False,
                    "lacks_room": kind == 3,
                }
                world.do(ReportOffline(broker, call))
        topic = world.topic("t")
        for index, partition in enumerate(topic.partitions):
            outcome = elect_in(world.state, topic, index)
            stays = outcome.partition is partition and partition.has_leader
            if is_irreplaceable(world.state, topic, index):
                assert stays
                count += 1
            elif partition.leader in world.state.draining:
                assert not stays
    assert count > 0
