"""What is told and given to whom once a rule is gone: nothing that the rule allowed."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead_broker.authorization import AUTHORIZED_OPERATIONS
from fairlead_model.cluster import AclChanged
from fairlead_model.security.acl import (
    CLUSTER_NAME,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages import describe_cluster, describe_topic_partitions, fetch, metadata

AUTHORIZING = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
pytestmark = pytest.mark.parametrize("stage", [AUTHORIZING], indirect=True)
NOT_ASKED = -2147483648


def rule(operation: Operation, name: str = "t", kind: ResourceType = ResourceType.TOPIC) -> Any:
    return AclBinding(
        kind,
        PatternType.LITERAL,
        name,
        "User:ANONYMOUS",
        "127.0.0.1",
        operation,
        Permission.ALLOW,
    )


READ = rule(Operation.READ)


@pytest.fixture
def stage(stage: Any) -> Any:
    for name in ("t", "u"):
        stage.topic(name)
    stage.authorizer = stage.broker.authorizer
    stage.publish(AclChanged(READ))
    return stage


def fetched(session_id: int = 0, session_epoch: int = -1, *, topics: bool = True) -> Any:
    topic = fetch.FetchTopic("t", partitions=[fetch.FetchPartition(0, partition_max_bytes=1000)])
    return fetch.FetchRequest(
        max_wait_ms=30_000,
        min_bytes=1,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[topic] if topics else [],
    )


def codes(reply: Any) -> list[int]:
    return [slot.error_code for topic in reply.responses for slot in topic.partitions]


def test_a_fetch_that_waits_is_refused_when_its_rule_goes(stage: Any) -> None:
    answer = stage.park(fetched(), 12)
    stage.publish(AclChanged(rule(Operation.READ, "u")))
    assert not answer.done()
    stage.publish(AclChanged(READ, is_removed=True))
    assert codes(answer.result()) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert len(stage.broker.fetch_purgatory) == 0


def test_a_session_is_judged_in_each_fetch(stage: Any) -> None:
    stage.append("t", b"a")
    begun = stage.ask(fetched(session_epoch=0), 12)
    assert codes(begun) == [0]
    assert begun.session_id
    stage.publish(AclChanged(READ, is_removed=True))
    again = stage.ask(fetched(begun.session_id, 1, topics=False), 12)
    assert codes(again) == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]


def names(reply: Any) -> list[tuple[str, int]]:
    return [(topic.name, topic.error_code) for topic in reply.topics]


def test_metadata_shows_what_the_rules_of_this_moment_show(stage: Any) -> None:
    everything = metadata.MetadataRequest(None)
    assert names(stage.ask(everything, 12)) == [("t", 0)]
    stage.publish(AclChanged(rule(Operation.DESCRIBE, "u")))
    assert names(stage.ask(everything, 12)) == [("t", 0), ("u", 0)]
    stage.publish(AclChanged(READ, is_removed=True))
    assert names(stage.ask(everything, 12)) == [("u", 0)]


def bits(*operations: Operation) -> int:
    return sum(1 << operation for operation in operations)


def test_operations_are_told_where_they_are_asked_for_and_never_those_of_others(
    stage: Any,
) -> None:
    # All topics are seen, so that nothing but who asks tells the questions apart.
    stage.publish(AclChanged(rule(Operation.DESCRIBE, "u")))
    plain = stage.ask(metadata.MetadataRequest(None), 10)
    assert plain.cluster_authorized_operations == NOT_ASKED
    assert plain.topics[0].topic_authorized_operations == NOT_ASKED
    asked = metadata.MetadataRequest(None, True, True, True)
    reply = stage.ask(asked, 10)
    assert reply.cluster_authorized_operations == 0
    told = {topic.name: topic.topic_authorized_operations for topic in reply.topics}
    assert told == {
        "t": bits(Operation.READ, Operation.DESCRIBE),
        "u": bits(Operation.DESCRIBE),
    }
    # The same question from who may do everything: what was kept encoded is not for him.
    authorizer, stage.authorizer = stage.authorizer, None
    reply = stage.ask(asked, 10)
    assert reply.cluster_authorized_operations == 8096
    assert {topic.topic_authorized_operations for topic in reply.topics} == {3576}
    stage.authorizer = authorizer
    assert stage.ask(asked, 10).cluster_authorized_operations == 0
    stage.publish(
        AclChanged(rule(Operation.ALL)),
        AclChanged(rule(Operation.ALL, CLUSTER_NAME, ResourceType.CLUSTER)),
    )
    topics = stage.ask(describe_topic_partitions.DescribeTopicPartitionsRequest([]), 0).topics
    assert [topic.topic_authorized_operations for topic in topics] == [3576, told["u"]]
    cluster = describe_cluster.DescribeClusterRequest(True)
    assert stage.ask(cluster, 1).cluster_authorized_operations == 8096


def test_the_bit_fields_are_those_of_kafka(stage: Any) -> None:
    fields = {kind.name: bits(*each) for kind, each in AUTHORIZED_OPERATIONS.items()}
    assert fields == {"TOPIC": 3576, "GROUP": 3400, "CLUSTER": 8096}
