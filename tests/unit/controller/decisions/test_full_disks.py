"""A replica without room takes no records: another one leads, and it comes back by itself."""

from typing import Any

import pytest
from decision_world import World

from fairlead_controller.decisions.events import (
    BalanceLeaders,
    ReportOffline,
)
from fairlead_controller.sessions.call_parsing import parse_call
from fairlead_model.session.refusals import RefusalCode

CREATE = {"assignments": {0: [0, 1, 2]}, "partitions": -1, "replication_factor": -1}


def report(world: Any, broker: int, *topics: str) -> None:
    located: Any = [{"topic_id": world.topic(name).topic_id, "index": 0} for name in topics]
    call: Any = {
        "broker_epoch": world.epoch(broker),
        "partitions": located,
        "is_unclean": False,
        "lacks_room": True,
    }
    world.do(ReportOffline(broker, call))


@pytest.fixture
def replicated(world: World) -> World:
    """Three replicas, two of them needed; broker 0 leads."""
    world.create("t", **CREATE, configs={"min.insync.replicas": "2"})
    return world


def test_a_full_leader_hands_over_and_leads_again_once_it_has_room(replicated: World) -> None:
    report(replicated, 0, "t")
    assert replicated.sets() == (1, "12", "", "")
    assert replicated.propose(0, 1, 2)["error_code"] == RefusalCode.INELIGIBLE_REPLICA
    report(replicated, 0)
    assert replicated.propose(0, 1, 2)["error_code"] == RefusalCode.NONE
    replicated.do(BalanceLeaders(imbalance_percentage_max=0))
    assert replicated.sets() == (0, "012", "", "")


def test_a_full_follower_leaves_the_isr_and_a_full_last_one_leads_on(replicated: World) -> None:
    report(replicated, 1, "t")
    assert replicated.sets() == (0, "02", "", "")
    report(replicated, 2, "t")
    assert replicated.sets() == (0, "0", "2", "")
    report(replicated, 0, "t")
    assert replicated.sets() == (0, "0", "2", ""), "whoever wants to read is served"
    report(replicated, 1)
    assert replicated.propose(0, 1)["error_code"] == RefusalCode.NONE
    assert replicated.sets() == (1, "1", "02", ""), "it has room, and all that is acknowledged"


def test_where_all_are_full_the_first_to_have_room_leads(replicated: World) -> None:
    for broker in (1, 2, 0):
        report(replicated, broker, "t")
    report(replicated, 0)
    assert replicated.sets()[0] == 0
    report(replicated, 2)
    assert replicated.propose(0, 2)["error_code"] == RefusalCode.NONE
    assert replicated.sets() == (0, "02", "", "")


def test_the_preferred_leader_is_not_called_back_while_it_is_full(world: World) -> None:
    world.create("t", **CREATE)
    world.fence(0)
    world.restart(0, "again")
    assert world.propose(0, 1, 2)["error_code"] == RefusalCode.NONE
    report(world, 0, "t")
    assert world.sets() == (1, "12", "", "")
    world.do(BalanceLeaders(imbalance_percentage_max=0))
    assert world.sets()[0] == 1


def test_a_full_replica_leads_rather_than_nobody(replicated: World) -> None:
    report(replicated, 1, "t")
    report(replicated, 2, "t")
    replicated.fence(0)
    assert replicated.sets() == (2, "2", "0", "")


def test_only_the_topics_named_are_touched_and_a_new_start_is_believed(world: World) -> None:
    world.create("t", **CREATE)
    world.create("u", **CREATE)
    report(world, 0, "u")
    assert (world.sets("t")[0], world.sets("u")[0]) == (0, 1)
    world.restart(0, "again")
    assert not world.state.observations.full


def test_what_a_broker_tells_in_several_calls_counts_together(world: World) -> None:
    """Each call leaves what the others are about as it is, also where the report is repeated."""
    count = 6
    world.create(
        "t",
        partitions=-1,
        replication_factor=-1,
        assignments={index: [0, 1, 2] for index in range(count)},
    )
    places: Any = [{"topic_id": world.topic("t").topic_id, "index": each} for each in range(count)]

    def tell(full: list[int], **between: int) -> None:
        body: Any = {
            "broker_epoch": world.epoch(0),
            "partitions": [places[index] for index in full],
            "is_unclean": False,
            "lacks_room": True,
            **{key: places[index] for key, index in between.items()},
        }
        world.do(parse_call("report_offline", body, broker_id=0, broker_epoch=world.epoch(0)))

    def known() -> list[int]:
        full = world.state.observations.full_replicas
        return [index for index in range(count) if full(places[index]["topic_id"], index)]

    for _ in range(2):
        tell([0, 1], until=1)
        tell([2, 3], after=1, until=3)
        tell([5], after=3)
        assert known() == [0, 1, 2, 3, 5]
        assert world.leaders("t") == [1, 1, 1, 1, 0, 1]
    tell([3], after=1, until=3)
    assert known() == [0, 1, 3, 5]
    tell([0, 4])
    assert known() == [0, 4], "one call is about all"
