"""CreateTopics, DeleteTopics, CreatePartitions: what is refused here, what is forwarded and how."""

from collections import Counter
from typing import Any

import pytest
from denying import Denying

from fairlead_broker.authorization import Operation
from fairlead_wire.errors import ErrorCode, KafkaError
from fairlead_wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from fairlead_wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from fairlead_wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

TOPIC_ID = bytes(range(16))
NO_ID = bytes(16)


def created(body: dict[str, Any]) -> dict[str, Any]:
    return {
        "topics": [
            {
                "name": topic["name"],
                "topic_id": TOPIC_ID,
                "error_code": 0,
                "error_message": None,
                "partitions": 3,
                "replication_factor": 1,
                "configs": {"retention.ms": "1000"},
            }
            for topic in body["topics"]
        ]
    }


def wanted(name: str, **fields: Any) -> CreatableTopic:
    return CreatableTopic(**{"name": name, "num_partitions": 3, "replication_factor": 1, **fields})


def create(stage: Any, *topics: CreatableTopic, version: int = 7, validate: bool = False) -> Any:
    request = CreateTopicsRequest(topics=list(topics), timeout_ms=5000, validate_only=validate)
    return {result.name: result for result in stage.ask(request, version).topics}


def test_the_topic_of_kafkas_controllers_is_nobodys(stage: Any) -> None:
    stage.controller.script["create_topics"] = created
    results = create(stage, wanted("t"), wanted("__cluster_metadata"))
    assert results["t"].error_code == ErrorCode.NONE
    refused = results["__cluster_metadata"]
    assert refused.error_code == ErrorCode.INVALID_REQUEST


def test_who_may_not_describe_configs_is_not_told_of_what_was_made(stage: Any) -> None:
    stage.controller.script["create_topics"] = created
    denying = stage.authorizer = Denying()
    denying.is_allowed = lambda _principal, _host, operation, *_: (  # type: ignore[method-assign]
        operation is not Operation.DESCRIBE_CONFIGS
    )
    result = create(stage, wanted("t"))["t"]
    assert (result.error_code, result.topic_id) == (ErrorCode.NONE, TOPIC_ID)
    assert result.topic_config_error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert (result.num_partitions, result.replication_factor, result.configs) == (-1, -1, [])


@pytest.mark.parametrize("version", range(2, 8))
def test_a_topic_is_created_by_the_controller(stage: Any, version: int) -> None:
    stage.controller.script["create_topics"] = created
    config = CreatableTopicConfig(name="retention.ms", value="1000")
    result = create(stage, wanted("t", configs=[config]), version=version)["t"]
    assert (result.error_code, result.error_message) == (ErrorCode.NONE, None)
    ((method, body),) = stage.controller.calls
    assert method == "create_topics"
    assert body["topics"] == [
        {
            "name": "t",
            "partitions": 3,
            "replication_factor": 1,
            "assignments": {},
            "configs": {"retention.ms": "1000"},
        }
    ]
    assert (body["default_partitions"], body["default_replication_factor"]) == (1, 1)
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (3, 1)
        values = {config.name: config for config in result.configs}
        assert len(values) == 33
        assert (values["retention.ms"].value, values["retention.ms"].config_source) == ("1000", 1)
        assert (values["segment.ms"].value, values["segment.ms"].config_source) == ("604800000", 5)
    if version >= 7:
        assert result.topic_id == TOPIC_ID


def test_thousands_of_topics_go_to_the_controller_in_parts(stage: Any) -> None:
    stage.controller.script["create_topics"] = created
    results = create(stage, *(wanted(f"t{number}") for number in range(1200)))
    assert [len(body["topics"]) for _, body in stage.controller.calls] == [500, 500, 200]
    assert list(results) == [f"t{number}" for number in range(1200)]
    assert not any(result.error_code for result in results.values())


def test_parts_behind_one_without_an_answer_are_not_asked_for(stage: Any) -> None:
    def deleted(body: dict[str, Any]) -> dict[str, Any]:
        if len(stage.controller.calls) == 2:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no controller")
        return {
            "topics": [
                {**topic, "topic_id": TOPIC_ID, "error_code": 0, "error_message": None}
                for topic in body["topics"]
            ]
        }

    stage.controller.script["delete_topics"] = deleted
    names = [DeleteTopicState(name=f"t{number}", topic_id=NO_ID) for number in range(1200)]
    request = DeleteTopicsRequest(topics=names, timeout_ms=5000)
    codes = Counter(each.error_code for each in stage.ask(request, 6).responses)
    assert codes == {ErrorCode.NONE: 500, ErrorCode.REQUEST_TIMED_OUT: 700}
    assert len(stage.controller.calls) == 2


def test_only_validating_is_said_to_the_controller(stage: Any) -> None:
    stage.controller.script["create_topics"] = created
    create(stage, wanted("t"), validate=True)
    assert stage.controller.calls[0][1]["validate_only"] is True


def test_an_assignment_is_passed_on(stage: Any) -> None:
    stage.controller.script["create_topics"] = created
    assignment = [CreatableReplicaAssignment(partition_index=0, broker_ids=[1])]
    create(stage, wanted("t", num_partitions=-1, replication_factor=-1, assignments=assignment))
    assert stage.controller.calls[0][1]["topics"][0]["assignments"] == {0: [1]}


def test_what_is_wrong_with_a_name_comes_before_the_counts(stage: Any) -> None:
    """With both an assignment and counts, too: the controller checks these last, as Kafka does."""
    stage.controller.script["create_topics"] = created
    assignment = [CreatableReplicaAssignment(partition_index=0, broker_ids=[1])]
    create(stage, wanted("both", num_partitions=2, assignments=assignment))
    (topic,) = stage.controller.calls[0][1]["topics"]
    assert (topic["partitions"], topic["assignments"]) == (2, {0: [1]})


def test_each_topic_fails_on_its_own(stage: Any) -> None:
    stage.controller.script["create_topics"] = created
    assignment = [CreatableReplicaAssignment(partition_index=0, broker_ids=[1])]
    results = create(
        stage,
        wanted("good"),
        wanted("twice"),
        wanted("twice"),
        wanted("again", num_partitions=-1, replication_factor=-1, assignments=assignment * 2),
    )
    assert {name: ErrorCode(result.error_code).name for name, result in results.items()} == {
        "good": "NONE",
        "twice": "INVALID_REQUEST",
        "again": "INVALID_REPLICA_ASSIGNMENT",
    }
    assert all(result.error_message for name, result in results.items() if name != "good")
    assert [topic["name"] for topic in stage.controller.calls[0][1]["topics"]] == ["good"]


@pytest.mark.parametrize("version", range(2, 8))
def test_defaults_may_be_asked_for(stage: Any, version: int) -> None:
    stage.controller.script["create_topics"] = created
    assert create(stage, wanted("t", num_partitions=-1), version=version)["t"].error_code == 0
    assert stage.controller.calls[0][1]["topics"][0]["partitions"] == -1


def test_without_a_controller_every_topic_times_out(stage: Any) -> None:
    results = create(stage, wanted("a"), wanted("b"))
    for result in results.values():
        assert result.error_code == ErrorCode.REQUEST_TIMED_OUT
        assert "no controller" in result.error_message


def test_the_controllers_refusal_reaches_the_client_with_its_words(stage: Any) -> None:
    def refuse(body: dict[str, Any]) -> dict[str, Any]:
        return {"topics": [{"name": "t", "error_code": 36, "error_message": "it is there"}]}

    stage.controller.script["create_topics"] = refuse
    result = create(stage, wanted("t"))["t"]
    assert (result.error_code, result.error_message) == (
        ErrorCode.TOPIC_ALREADY_EXISTS,
        "it is there",
    )
    assert (result.num_partitions, result.configs) == (-1, [])


def deleted(body: dict[str, Any]) -> dict[str, Any]:
    return {
        "topics": [
            {
                "name": topic["name"],
                "topic_id": topic["topic_id"],
                "error_code": 0 if topic["name"] != "missing" else 3,
                "error_message": None,
            }
            for topic in body["topics"]
        ]
    }


@pytest.mark.parametrize("version", range(1, 6))
def test_topics_are_deleted_by_name(stage: Any, version: int) -> None:
    stage.controller.script["delete_topics"] = deleted
    request = DeleteTopicsRequest(topic_names=["a", "missing"], timeout_ms=1000)
    responses = stage.ask(request, version).responses
    assert [(r.name, r.error_code) for r in responses] == [("a", 0), ("missing", 3)]


def test_a_topic_is_deleted_by_id(stage: Any) -> None:
    stage.controller.script["delete_topics"] = deleted
    request = DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=TOPIC_ID)], timeout_ms=1000)
    (response,) = stage.ask(request, 6).responses
    assert (response.name, response.topic_id, response.error_code) == (None, TOPIC_ID, 0)


def delete(stage: Any, *topics: DeleteTopicState) -> list[tuple[str | None, bytes, int]]:
    request = DeleteTopicsRequest(topics=list(topics), timeout_ms=1000)
    responses = stage.ask(request, 6).responses
    assert all(response.error_message for response in responses if response.error_code)
    return [(each.name, each.topic_id, each.error_code) for each in responses]


def test_a_deletion_that_names_a_topic_twice_or_in_two_ways_is_refused(stage: Any) -> None:
    topic_id = stage.topic("c")
    refused = [
        (("a", NO_ID), ("a", NO_ID)),
        (("b", TOPIC_ID),),
        ((None, NO_ID),),
        ((None, TOPIC_ID), (None, TOPIC_ID)),
        (("c", NO_ID), (None, topic_id)),
    ]
    for topics in refused:
        answers = delete(stage, *(DeleteTopicState(name, topic_id=each) for name, each in topics))
        assert answers == [(*topic, ErrorCode.INVALID_REQUEST) for topic in dict.fromkeys(topics)]
    assert stage.controller.calls == []


def test_the_others_of_a_request_are_deleted(stage: Any) -> None:
    stage.controller.script["delete_topics"] = deleted
    topics = [DeleteTopicState("a"), DeleteTopicState("a"), DeleteTopicState("b")]
    assert delete(stage, *topics) == [
        ("a", NO_ID, ErrorCode.INVALID_REQUEST),
        ("b", NO_ID, ErrorCode.NONE),
    ]


def test_the_offsets_of_all_groups_are_not_deleted(stage: Any) -> None:
    topic_id = stage.topic("__consumer_offsets")
    refused = ErrorCode.INVALID_TOPIC_EXCEPTION
    assert delete(stage, DeleteTopicState("__consumer_offsets")) == [
        ("__consumer_offsets", NO_ID, refused)
    ]
    assert delete(stage, DeleteTopicState(topic_id=topic_id)) == [(None, topic_id, refused)]
    assert stage.controller.calls == []


def test_what_transactions_have_decided_is_not_deleted(stage: Any) -> None:
    stage.topic("__transaction_state")
    assert delete(stage, DeleteTopicState("__transaction_state")) == [
        ("__transaction_state", NO_ID, ErrorCode.INVALID_TOPIC_EXCEPTION)
    ]
    assert stage.controller.calls == []


@pytest.mark.parametrize("stage", [{"delete.topic.enable": "false"}], indirect=True)
def test_deleting_can_be_switched_off(stage: Any) -> None:
    request = DeleteTopicsRequest(topic_names=["a"], timeout_ms=1000)
    (response,) = stage.ask(request, 5).responses
    assert response.error_code == ErrorCode.TOPIC_DELETION_DISABLED


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_added_by_the_controller(stage: Any, version: int) -> None:
    def grow(body: dict[str, Any]) -> dict[str, Any]:
        return {
            "topics": [
                {"name": topic["name"], "error_code": 37, "error_message": "it has 4 already"}
                for topic in body["topics"]
            ]
        }

    stage.controller.script["create_partitions"] = grow
    assignments = [CreatePartitionsAssignment(broker_ids=[1])]
    request = CreatePartitionsRequest(
        topics=[
            CreatePartitionsTopic(name="a", count=4, assignments=assignments),
            CreatePartitionsTopic(name="b", count=2, assignments=None),
            CreatePartitionsTopic(name="c", count=2, assignments=None),
            CreatePartitionsTopic(name="c", count=3, assignments=None),
        ],
        timeout_ms=1000,
    )
    results = {result.name: result for result in stage.ask(request, version).results}
    assert results["a"].error_code == ErrorCode.INVALID_PARTITIONS
    assert results["a"].error_message == "it has 4 already"
    assert results["c"].error_code == ErrorCode.INVALID_REQUEST
    assert stage.controller.calls[0][1]["topics"] == [
        {"name": "a", "count": 4, "assignments": [[1]]},
        {"name": "b", "count": 2, "assignments": None},
    ]
