from collections.abc import Callable
from typing import Any

import pytest
from decision_world import World

from fairlead_controller.decisions.events import (
    AlterConfigs,
    CreatePartitions,
    DeclareTopics,
    DeleteTopics,
)
from fairlead_controller.decisions.topics.declared_topics import declaration_problems
from fairlead_model.resources.topic_manifest import TopicSpec
from fairlead_model.session.refusals import RefusalCode

ORDERS = TopicSpec("orders", "orders", 3, configs={"retention.ms": "5"}, deletion_protection=True)


def test_declared_topics_are_made_once(world: World) -> None:
    event = DeclareTopics((ORDERS, TopicSpec("other", "shop.other")), default_partitions=4)
    assert world.do(event) == {"waiting": [], "problems": []}
    topic = world.topic("orders")
    assert len(topic.partitions) == 3
    assert topic.header.resource == "orders"
    assert topic.header.deletion_protection
    assert len(world.partitions("shop.other")) == 4
    assert world.decide(event).changes == ()


def test_new_topics_wait_until_they_may_be_placed(make_world: Callable[..., World]) -> None:
    world = make_world()
    early = DeclareTopics((ORDERS,), may_create=False)
    assert world.do(early)["waiting"] == ["orders"]
    reply = world.do(DeclareTopics((ORDERS,)))
    assert reply["waiting"] == ["orders"]
    assert "no broker is alive" in reply["problems"][0]
    world.start_broker(0)
    assert world.do(DeclareTopics((ORDERS,))) == {"waiting": [], "problems": []}


def test_an_existing_topic_is_adopted_with_its_id_grown_and_configured(world: World) -> None:
    topic_id = world.create("orders", configs={"segment.bytes": "2048"})["topic_id"]
    world.do(DeclareTopics((ORDERS,)))
    topic = world.topic("orders")
    assert topic.topic_id == topic_id
    assert topic.configs == {"retention.ms": "5"}
    assert len(topic.partitions) == 3
    assert topic.header.resource == "orders"


def test_a_topic_whose_resource_is_gone_is_released(world: World) -> None:
    world.do(DeclareTopics((ORDERS,)))
    world.do(DeclareTopics(()))
    header = world.topic("orders").header
    assert (header.resource, header.deletion_protection) == ("", False)
    assert header.configs == {"retention.ms": "5"}


def test_problems_that_no_broker_can_solve_are_found_before_anything_is_done(world: World) -> None:
    world.create("six", partitions=6)
    world.create("a.b")
    specs = (
        TopicSpec("six", "six", 2),
        TopicSpec("b", "six-b", 1),
        TopicSpec("collides", "a_b"),
    )
    problems = declaration_problems(world.state, DeclareTopics(specs))
    assert len(problems) == 2
    assert problems[0].startswith("Topic six: spec.partitions: 2 is less than the 6 partitions")
    assert "collides" in problems[1]


def test_another_replication_factor_moves_replicas_or_waits_for_brokers(world: World) -> None:
    world.create("t")
    spec = TopicSpec("t", "t", 1, 2)
    assert declaration_problems(world.state, DeclareTopics((spec,))) == []
    assert world.do(DeclareTopics((spec,), may_create=False))["waiting"] == ["t"]
    assert world.do(DeclareTopics((spec,))) == {"waiting": [], "problems": []}
    assert len(world.partition().adding_replicas) == 1
    reply = world.do(DeclareTopics((TopicSpec("t", "t", 1, 4),)))
    assert reply["waiting"] == ["t"]
    assert "4 replicas need as many brokers" in reply["problems"][0]


def test_configs_that_do_not_go_with_those_that_are_left_alone_are_a_problem(world: World) -> None:
    world.create("orders", configs={"min.compaction.lag.ms": "5000"})
    orders = TopicSpec(
        "orders",
        "orders",
        1,
        configs={"max.compaction.lag.ms": "1000"},
        left_alone=frozenset({"min.compaction.lag.ms"}),
    )
    reply = world.do(DeclareTopics((orders, TopicSpec("other", "other", 1))))
    assert reply == {
        "waiting": [],
        "problems": [
            "Topic orders: spec.config: min.compaction.lag.ms=5000 is above "
            "max.compaction.lag.ms=1000"
        ],
    }
    assert world.topic("orders").configs == {"min.compaction.lag.ms": "5000"}
    assert len(world.partitions("other")) == 1


def test_one_problem_does_not_hold_up_the_other_topics(world: World) -> None:
    world.create("six", partitions=6)
    reply = world.do(DeclareTopics((TopicSpec("six", "six", 2), ORDERS)))
    assert len(reply["problems"]) == 1
    assert world.state.image.topic("orders") is not None
    assert len(world.partitions("six")) == 6


@pytest.mark.parametrize("kind", ["delete", "grow", "alter"])
def test_clients_cannot_touch_declared_topics(world: World, kind: str) -> None:
    world.do(DeclareTopics((ORDERS,)))
    events: dict[str, Any] = {
        "delete": DeleteTopics({"topics": [{"name": "orders", "topic_id": bytes(16)}]}),
        "grow": CreatePartitions(
            {
                "topics": [{"name": "orders", "count": 9, "assignments": None}],
                "validate_only": False,
            }
        ),
        "alter": AlterConfigs(
            {
                "resources": [{"resource_type": 2, "name": "orders", "alterations": []}],
                "validate_only": False,
                "incremental": True,
            }
        ),
    }
    ((outcome,),) = world.do(events[kind]).values()
    assert outcome["error_code"] == RefusalCode.POLICY_VIOLATION
    assert "Topic resource 'orders'" in outcome["error_message"]
    created = world.create("orders")
    assert created["error_code"] == RefusalCode.TOPIC_ALREADY_EXISTS
