"""A broker whose log directories are all cordoned gets nothing new, and keeps what it has."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from fairlead_controller.decisions.balance.cluster_facts import build_brokers
from fairlead_controller.decisions.events import CordonBroker, CreatePartitions, RegisterBroker
from fairlead_controller.decisions.state import initial_state
from fairlead_controller.decisions.tables import lines
from fairlead_controller.views.assignment import build_assignment, read_assignment
from fairlead_controller.views.status import build_broker_status
from fairlead_model.codec import decode_registration, encode_registration
from fairlead_model.session.refusals import RefusalCode, RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable

INVALID = RefusalCode.INVALID_REPLICA_ASSIGNMENT
ALTERED = "cordoned.log.dirs"


@pytest.fixture
def four(make_mover: Callable[[int], Any]) -> Any:
    """Four brokers with 24 partitions of three replicas; broker 2 is cordoned."""
    mover = make_mover(4)
    mover.world.create("t", partitions=24, replication_factor=3)
    cordon(mover, 2)
    return mover


def cordon(mover: Any, broker_id: int, *, is_cordoned: bool = True) -> Any:
    world = mover.world
    return world.do(CordonBroker(broker_id, world.epoch(broker_id), is_cordoned))


def replicas(mover: Any, broker_id: int) -> int:
    load = mover.world.state.loads.get(broker_id)
    return 0 if load is None else int(load.replicas)


def test_nothing_new_is_placed_on_it_and_nothing_leaves(four: Any) -> None:
    before = four.world.partitions("t")
    held = replicas(four, 2)
    assert held == 18
    four.world.create("u", partitions=12, replication_factor=3)
    topics: Any = [{"name": "t", "count": 30, "assignments": None}]
    four.world.do(CreatePartitions({"topics": topics, "validate_only": False}))
    four.settle()
    assert four.world.partitions("t")[:24] == before, "it leads and follows on"
    assert replicas(four, 2) == held
    cordon(four, 2, is_cordoned=False)
    four.world.create("v", partitions=12, replication_factor=3)
    assert replicas(four, 2) > held


def test_what_needs_it_is_refused_as_in_kafka(four: Any) -> None:
    answer = four.world.create("v", partitions=1, replication_factor=4)
    assert answer["error_code"] == RefusalCode.INVALID_REPLICATION_FACTOR
    assert "3 brokers that are not being drained, fenced or cordoned (1" in answer["error_message"]
    fields = {"partitions": -1, "replication_factor": -1, "assignments": {0: [2]}}
    assert four.world.create("w", **fields)["error_code"] == INVALID
    topics: Any = [{"name": "t", "count": 25, "assignments": [[0, 1, 2]]}]
    reply = four.world.do(CreatePartitions({"topics": topics, "validate_only": False}))
    assert reply["topics"][0]["error_code"] == INVALID
    for each in (0, 1, 3):
        cordon(four, each)
    answer = four.world.create("x", partitions=1, replication_factor=1)
    assert answer["error_code"] == RefusalCode.INVALID_REPLICATION_FACTOR
    assert "no broker is alive that is not" in answer["error_message"]


def test_no_reassignment_goes_there_and_what_waits_is_given_up(four: Any) -> None:
    cordon(four, 2, is_cordoned=False)
    for topic, count in (("one", 1), ("far", 40)):
        fields = {"partitions": -1, "replication_factor": -1}
        four.world.create(topic, **fields, assignments={each: [0] for each in range(count)})
    asked = [four.move(2, topic="far", index=each) for each in range(40)]
    assert set(asked) == {RefusalCode.NONE}
    waiting = len(four.world.state.moves.queued)
    assert waiting, "brokers take in few at a time"
    cordon(four, 2)
    assert four.move(2, topic="one") is INVALID
    four.tick()
    assert not four.world.state.moves.queued
    four.settle()
    moved = [each for each in four.world.partitions("far") if 2 in each.replicas]
    assert len(moved) == 40 - waiting, "what was under way goes on"


def test_a_drained_broker_gives_it_nothing(four: Any) -> None:
    held = replicas(four, 2)
    code, why = four.drain(3)
    assert (code, "could have them" in why) == (RefusalCode.POLICY_VIOLATION, True)
    four.world.start_broker(4)
    assert four.drain(3)[0] is RefusalCode.NONE
    four.settle()
    assert (replicas(four, 3), replicas(four, 2)) == (0, held)


def test_a_rebalance_gives_it_nothing(four: Any) -> None:
    facts = build_brokers(four.world.state, {})
    assert [each.broker_id for each in facts if each.is_cordoned] == [2]
    told = read_assignment(build_assignment(four.world.state, None))
    assert told.closed == {2}, "kubectl plans by what the controller tells"


def test_the_cordon_outlives_the_controller_and_the_next_start_of_the_broker(four: Any) -> None:
    world = four.world
    image = world.state.image
    line = lines.broker_line(image.brokers[2])
    stored = lines.build_broker(lines.read_line(line))
    assert stored == image.brokers[2]
    again = initial_state(image, controller_epoch=2, counters=world.state.counters)
    assert again.closed == {2}
    known = image.brokers[2]
    # Its settings alone say nothing of it: it does not know the dynamic ones yet.
    asking = replace(known, start_id="the next start", is_cordoned=False)
    world.do(RegisterBroker(asking, ""))
    assert world.state.image.brokers[2].broker_epoch > known.broker_epoch
    assert world.state.closed == {2}
    assert not build_broker_status(world.state.image.brokers[0], world.state)["isCordoned"]
    assert build_broker_status(world.state.image.brokers[2], world.state)["isCordoned"]


def test_an_epoch_that_is_over_says_nothing(four: Any) -> None:
    world = four.world
    with pytest.raises(RefusedError) as refused:
        world.do(CordonBroker(0, world.epoch(0) - 1, is_cordoned=True))
    assert refused.value.code is RefusalCode.STALE_BROKER_EPOCH
    assert world.state.closed == {2}


def test_a_line_of_an_earlier_start_is_not_believed(four: Any) -> None:
    """A release that does not know of cordons keeps the field when a broker starts anew."""
    record = lines.read_line(lines.broker_line(four.world.state.image.brokers[2]))
    record["epoch"] += 1
    assert not lines.build_broker(record).is_cordoned
    plain = lines.broker_line(replace(four.world.state.image.brokers[2], is_cordoned=False))
    assert "cordoned" not in lines.read_line(plain)


def test_it_travels_and_an_older_peer_says_nothing_of_it(four: Any) -> None:
    cordoned = four.world.state.image.brokers[2]
    fields = encode_registration(cordoned)
    assert decode_registration(fields).is_cordoned
    assert not decode_registration(fields[:17]).is_cordoned


def test_it_is_set_for_one_broker_only(mover: Any) -> None:
    world = mover.world
    assert mover.set_configs(1, {ALTERED: "/any/where"})[0] is RefusalCode.NONE
    code, why = mover.set_configs(1, {ALTERED: "*,/any/where"})
    assert (code, "must not contain other values" in why) == (RefusalCode.INVALID_CONFIG, True)
    code, why = mover.set_configs("", {ALTERED: "*"})
    assert (code, "broker id must be specified" in why) == (RefusalCode.INVALID_REQUEST, True)
    assert world.state.image.broker_configs.keys() == {"1"}
