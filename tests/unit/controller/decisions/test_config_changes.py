import time
from typing import Any

import pytest
from config_alterations import (
    APPEND,
    BROKER,
    DELETE,
    GROUP,
    SET,
    SUBTRACT,
    TOPIC,
    alter,
    resource,
)
from decision_world import World, reply_of

from fairlead_controller.decisions import minimum_in_sync
from fairlead_controller.decisions.events import ElectLeaders, SpreadMinimum
from fairlead_controller.decisions.state import initial_state
from fairlead_model.session.refusals import RefusalCode

SESSION = "consumer.session.timeout.ms"


@pytest.fixture
def configured(world: World) -> World:
    world.create("t", partitions=2, configs={"retention.ms": "5", "segment.bytes": "2048"})
    return world


def configs(world: Any) -> dict[str, str]:
    return dict(world.topic("t").configs)


def is_spread(world: World) -> bool:
    return world.state.is_minimum_spread


def test_incremental_alterations_leave_the_rest(configured: World) -> None:
    configured.do(alter(resource(TOPIC, "t", ("retention.ms", SET, "6"))))
    assert configs(configured) == {"retention.ms": "6", "segment.bytes": "2048"}
    configured.do(alter(resource(TOPIC, "t", ("retention.ms", DELETE, None))))
    assert configs(configured) == {"segment.bytes": "2048"}
    configured.do(alter(resource(TOPIC, "t", ("retention.ms", DELETE, None))))
    assert configs(configured) == {"segment.bytes": "2048"}


def test_a_full_alteration_resets_what_it_does_not_name(configured: World) -> None:
    event = alter(resource(TOPIC, "t", ("preallocate", SET, "true")), incremental=False)
    configured.do(event)
    assert configs(configured) == {"preallocate": "true"}
    assert configured.decide(event).changes == ()


def test_lists_can_be_appended_to_and_subtracted_from(configured: World) -> None:
    name = "leader.replication.throttled.replicas"
    configured.do(alter(resource(TOPIC, "t", (name, APPEND, "0:1"))))
    configured.do(alter(resource(TOPIC, "t", (name, APPEND, "0:1,1:2"))))
    assert configs(configured)[name] == "0:1,1:2"
    configured.do(alter(resource(TOPIC, "t", (name, SUBTRACT, "0:1"))))
    assert configs(configured)[name] == "1:2"
    # An unset list starts from its default.
    configured.do(alter(resource(TOPIC, "t", ("cleanup.policy", APPEND, "delete"))))
    assert configs(configured)["cleanup.policy"] == "delete"
    configured.do(alter(resource(TOPIC, "t", ("cleanup.policy", APPEND, "compact"))))
    assert configs(configured)["cleanup.policy"] == "delete,compact"
    # Without any policy nothing is deleted and nothing compacted.
    configured.do(alter(resource(TOPIC, "t", ("cleanup.policy", SUBTRACT, "compact,delete"))))
    assert configs(configured)["cleanup.policy"] == ""
    configured.do(alter(resource(TOPIC, "t", ("cleanup.policy", APPEND, "compact"))))
    assert configs(configured)["cleanup.policy"] == "compact"


REFUSED = [
    (resource(TOPIC, "u"), RefusalCode.UNKNOWN_TOPIC_OR_PARTITION, "no topic"),
    (resource(8, "t"), RefusalCode.INVALID_REQUEST, "resource type 8"),
    (resource(TOPIC, "t", ("retention.m", SET, "1")), RefusalCode.INVALID_CONFIG, "retention.ms"),
    (resource(TOPIC, "t", ("retention.ms", SET, "x")), RefusalCode.INVALID_CONFIG, "whole number"),
    (resource(TOPIC, "t", ("retention.ms", SET, None)), RefusalCode.INVALID_REQUEST, "Null value"),
    (resource(TOPIC, ""), RefusalCode.INVALID_REQUEST, "name a topic"),
    (resource(TOPIC, "a b"), RefusalCode.INVALID_TOPIC_EXCEPTION, "may only hold"),
    (resource(TOPIC, "t", ("retention.ms", APPEND, "1")), RefusalCode.INVALID_CONFIG, "not a list"),
    (resource(TOPIC, "t", ("retention.ms", 9, "1")), RefusalCode.INVALID_REQUEST, "operation 9"),
    (
        resource(TOPIC, "t", ("retention.ms", SET, "1"), ("retention.ms", DELETE, None)),
        RefusalCode.INVALID_REQUEST,
        "twice",
    ),
    (
        resource(TOPIC, "t", ("cleanup.policy", APPEND, "shred")),
        RefusalCode.INVALID_CONFIG,
        "shred",
    ),
    (resource(BROKER, "9"), RefusalCode.INVALID_REQUEST, "no broker '9'"),
    (resource(BROKER, "x"), RefusalCode.INVALID_REQUEST, "no broker 'x'"),
    (resource(BROKER, "0", ("node.id", SET, "1")), RefusalCode.INVALID_REQUEST, "starts"),
    (
        resource(BROKER, "0", ("min.insync.replicas", SET, "2")),
        RefusalCode.INVALID_REQUEST,
        "min.insync.replicas holds for all brokers at once",
    ),
    (
        resource(BROKER, "", ("max.connections", SET, "0")),
        RefusalCode.INVALID_CONFIG,
        "below the minimum",
    ),
    (
        resource(BROKER, "0", ("retention.ms", SET, "1")),
        RefusalCode.INVALID_CONFIG,
        "log.retention",
    ),
    (resource(GROUP, "", (SESSION, SET, "50000")), RefusalCode.INVALID_REQUEST, "name a group"),
    (resource(GROUP, "g", (SESSION, SET, "1")), RefusalCode.INVALID_CONFIG, "min.session"),
    (resource(GROUP, "g", (SESSION, APPEND, "1")), RefusalCode.INVALID_CONFIG, "not a list"),
    (resource(GROUP, "g", ("retention.ms", SET, "1")), RefusalCode.INVALID_CONFIG, "unknown"),
]


@pytest.mark.parametrize(("wanted", "code", "message"), REFUSED)
def test_refused_alterations_change_nothing(
    configured: World, wanted: Any, code: RefusalCode, message: str
) -> None:
    before = configured.state
    (outcome,) = configured.do(alter(wanted))["resources"]
    assert outcome["error_code"] == code
    assert message in outcome["error_message"]
    assert list(configured.state.image.changes_since(before.image)) == []


@pytest.mark.parametrize("name", ["nobody.knows.this", "node.id"])
def test_what_is_not_there_may_be_taken_back(configured: World, name: str) -> None:
    for wanted in (
        resource(TOPIC, "t", (name, DELETE, None)),
        resource(BROKER, "0", (name, DELETE, None)),
    ):
        (outcome,) = configured.do(alter(wanted))["resources"]
        assert outcome["error_code"] == 0


def test_long_lists_are_altered_in_no_time(configured: World) -> None:
    """Eight topics with full lists kept the controller from its brokers for seconds."""
    name = "leader.replication.throttled.replicas"
    full = ",".join(f"{each}:1" for each in range(4_500))
    other = ",".join(f"{each}:2" for each in range(4_500))
    configured.do(alter(resource(TOPIC, "t", (name, SET, full))))
    began_s = time.process_time()
    configured.do(alter(resource(TOPIC, "t", (name, SUBTRACT, other))))
    configured.do(alter(resource(TOPIC, "t", (name, APPEND, "1:1,1:1"))))
    assert time.process_time() - began_s < 0.3
    assert configs(configured)[name] == full


def test_a_list_gets_no_member_twice(configured: World) -> None:
    name = "leader.replication.throttled.replicas"
    configured.do(alter(resource(TOPIC, "t", (name, APPEND, "0:1,0:1,1:2"))))
    assert configs(configured)[name] == "0:1,1:2"


def test_a_resource_may_be_named_once(configured: World) -> None:
    twice = resource(TOPIC, "t", ("retention.ms", SET, "7"))
    reply = configured.do(alter(twice, twice))
    assert {outcome["error_code"] for outcome in reply["resources"]} == {
        RefusalCode.INVALID_REQUEST
    }
    assert configs(configured)["retention.ms"] == "5"


def test_validation_only_changes_nothing(configured: World) -> None:
    event = alter(resource(TOPIC, "t", ("retention.ms", SET, "7")), validate_only=True)
    decision = configured.decide(event)
    assert decision.changes == ()
    assert reply_of(decision)["resources"][0]["error_code"] == 0


def test_broker_configs_hold_for_one_or_for_all(configured: World) -> None:
    configured.do(
        alter(
            resource(BROKER, "1", ("log.retention.ms", SET, "1")),
            resource(BROKER, "", ("log.retention.ms", SET, "2")),
        )
    )
    assert configured.state.image.broker_configs == {
        "1": {"log.retention.ms": "1"},
        "": {"log.retention.ms": "2"},
    }
    configured.do(alter(resource(BROKER, "1", ("log.retention.ms", DELETE, None))))
    assert configured.state.image.configs_of_broker(1) == {}


@pytest.mark.parametrize("name", ["01", "+1", "7", "one", "9" * 5000])
def test_a_broker_has_one_name(configured: World, name: str) -> None:
    """Configs under another spelling of its id would reach no broker, and outlive it."""
    configured.start_broker(1)
    event = alter(resource(BROKER, name, ("fairlead.broker.drain", SET, "true")))
    (answer,) = configured.do(event)["resources"]
    assert answer["error_code"] == RefusalCode.INVALID_REQUEST
    assert not configured.state.image.broker_configs
    assert not configured.state.cordoned


def test_a_group_has_configs_before_it_exists(configured: World) -> None:
    configured.do(alter(resource(GROUP, "g", (SESSION, SET, "50000"))))
    name = "consumer.heartbeat.interval.ms"
    configured.do(alter(resource(GROUP, "g", (name, SET, "6000"))))
    assert configured.state.image.group_configs == {"g": {SESSION: "50000", name: "6000"}}
    again = alter(resource(GROUP, "g", (name, SET, "6000")))
    assert configured.decide(again).changes == ()
    configured.do(alter(resource(GROUP, "g", (name, SET, "7000")), incremental=False))
    assert configured.state.image.group_configs == {"g": {name: "7000"}}
    configured.do(alter(resource(GROUP, "g", (name, DELETE, None))))
    assert configured.state.image.group_configs == {}


def test_configs_of_groups_keep_to_the_limits_of_the_broker_that_asks(configured: World) -> None:
    event = alter(resource(GROUP, "g", (SESSION, SET, "6000")))
    event.call["group_limits"] = {"group.consumer.min.session.timeout.ms": "5000"}
    assert configured.do(event)["resources"][0]["error_code"] == 0
    assert configured.state.image.group_configs == {"g": {SESSION: "6000"}}


def test_the_effective_minimum_of_in_sync_replicas_is_in_the_partitions(configured: World) -> None:
    def minima() -> list[tuple[int, int]]:
        return [
            (partition.min_insync_replicas, partition.partition_epoch)
            for partition in configured.partitions("t")
        ]

    assert minima() == [(1, 0), (1, 0)]
    configured.do(alter(resource(BROKER, "", ("min.insync.replicas", SET, "2"))))
    assert minima() == [(2, 1), (2, 1)]
    configured.do(alter(resource(TOPIC, "t", ("min.insync.replicas", SET, "3"))))
    assert minima() == [(3, 2), (3, 2)]
    configured.do(alter(resource(BROKER, "", ("min.insync.replicas", SET, "4"))))
    assert minima() == [(3, 2), (3, 2)], "the topic's own value is stronger"


def test_very_many_partitions_get_another_minimum_one_after_another(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All at once would keep the controller from its brokers, and from its Lease."""
    monkeypatch.setattr(minimum_in_sync, "SPREAD_PER_DECISION_MAX", 3)
    for name in "abc":
        world.create(name, partitions=2)
    world.create("own", configs={"min.insync.replicas": "1"})
    world.do(alter(resource(BROKER, "", ("min.insync.replicas", SET, "2"))))
    lengths = [len(world.decide(SpreadMinimum()).changes)]
    assert not is_spread(world)
    world.create("late")
    while not is_spread(world):
        lengths.append(len(world.decide(SpreadMinimum()).changes))
        world.do(SpreadMinimum())
    assert max(lengths) <= 5, "partitions of two topics, and the note"
    minima = {
        topic.name: {each.min_insync_replicas for each in topic.partitions}
        for topic in world.state.image.topics()
    }
    assert minima == {"a": {2}, "b": {2}, "c": {2}, "late": {2}, "own": {1}}
    assert world.decide(SpreadMinimum()).changes == ()


def test_the_next_controller_goes_on_with_a_minimum(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(minimum_in_sync, "SPREAD_PER_DECISION_MAX", 1)
    for name in "abc":
        world.create(name)
    world.do(alter(resource(BROKER, "", ("min.insync.replicas", SET, "2"))))
    state = world.state
    world.state = initial_state(state.image, controller_epoch=2, counters=state.counters)
    world.do(ElectLeaders())
    assert not is_spread(world)
    world.do(SpreadMinimum())
    assert is_spread(world)
    partitions = [each for topic in world.state.image.topics() for each in topic.partitions]
    assert [each.min_insync_replicas for each in partitions] == [2, 2, 2]
