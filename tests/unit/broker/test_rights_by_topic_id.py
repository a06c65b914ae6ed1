"""What is told to who names by its id a topic that it may not use."""

from typing import Any

import pytest
from denying import EVERYTHING, Denying, as_bytes, error_codes
from live_broker import batch

from fairlead_broker.authorization import Operation, ResourceType
from fairlead_broker.handlers import topic_rights
from fairlead_model.cluster import TopicRemoved
from fairlead_model.ids import TopicId
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages import delete_topics, fetch, metadata, produce

TOPIC = ResourceType.TOPIC

BY_ID: dict[ApiKey, tuple[Any, int]] = {
    ApiKey.METADATA: (
        lambda topic_id: metadata.MetadataRequest(
            [metadata.MetadataRequestTopic(topic_id=topic_id, name=None)]
        ),
        12,
    ),
    ApiKey.DELETE_TOPICS: (
        lambda topic_id: delete_topics.DeleteTopicsRequest(
            [delete_topics.DeleteTopicState(None, topic_id)]
        ),
        6,
    ),
    ApiKey.FETCH: (
        lambda topic_id: fetch.FetchRequest(
            max_wait_ms=0,
            topics=[
                fetch.FetchTopic(
                    topic_id=topic_id, partitions=[fetch.FetchPartition(0, partition_max_bytes=9)]
                )
            ],
        ),
        13,
    ),
    ApiKey.PRODUCE: (
        lambda topic_id: produce.ProduceRequest(
            acks=1,
            topic_data=[
                produce.TopicProduceData(
                    "", topic_id, [produce.PartitionProduceData(0, bytearray(batch(b"v")))]
                )
            ],
        ),
        13,
    ),
}
"""Requests that name a topic by its id."""


@pytest.mark.parametrize("api_key", BY_ID)
def test_an_id_tells_nothing_to_who_may_not_describe_its_topic(stage: Any, api_key: ApiKey) -> None:
    make, version = BY_ID[api_key]
    topic_id = stage.topic("t")
    stage.delete("t")
    stage.authorizer = Denying(*EVERYTHING)
    missing = as_bytes(stage.ask(make(topic_id), version), version)
    assert b"\x00\x64" in missing  # 100, UNKNOWN_TOPIC_ID
    stage.publish(TopicRemoved(TopicId(topic_id)))
    stage.topic("t")
    assert as_bytes(stage.ask(make(topic_id), version), version) == missing
    assert "delete_topics" not in dict(stage.controller.calls)


@pytest.mark.parametrize("api_key", [ApiKey.FETCH, ApiKey.PRODUCE])
def test_who_has_used_an_id_on_its_connection_is_told_that_its_right_has_ended(
    stage: Any, api_key: ApiKey
) -> None:
    """A producer tries an unknown id again until its time is out, and fails with that."""
    make, version = BY_ID[api_key]
    topic_id = stage.topic("t")
    stage.authorizer = Denying()
    assert not {29, 100} & set(error_codes(stage.ask(make(topic_id), version)))
    stage.authorizer = Denying(*EVERYTHING)
    assert list(error_codes(stage.ask(make(topic_id), version)))[-1] == 29
    stage.used_topic_ids.clear()
    assert list(error_codes(stage.ask(make(topic_id), version)))[-1] == 100


def test_a_connection_remembers_no_more_ids_than_one_request_may_name(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_rights, "USED_IDS_MAX", 3)
    make, version = BY_ID[ApiKey.FETCH]
    ids = [bytes(stage.topic(f"t{index}")) for index in range(5)]
    stage.authorizer = Denying()
    for topic_id in ids:
        stage.ask(make(topic_id), version)
    assert stage.used_topic_ids == set(ids[3:])


@pytest.mark.parametrize("api_key", [ApiKey.DELETE_TOPICS, ApiKey.FETCH, ApiKey.PRODUCE])
def test_who_may_describe_a_topic_is_told_by_its_id_that_more_is_denied(
    stage: Any, api_key: ApiKey
) -> None:
    make, version = BY_ID[api_key]
    topic_id = stage.topic("t")
    denying = stage.authorizer = Denying(*EVERYTHING)
    deny = denying.is_allowed

    def describe_only(principal: Any, host: str, operation: Operation, *resource: Any) -> bool:
        return operation is Operation.DESCRIBE or deny(principal, host, operation, *resource)

    denying.is_allowed = describe_only  # type: ignore[method-assign, assignment]
    assert list(error_codes(stage.ask(make(topic_id), version)))[-1] == 29


def test_metadata_by_id_does_not_tell_a_name_that_is_denied(stage: Any) -> None:
    topic_id = stage.topic("secret")
    stage.authorizer = Denying((TOPIC, "secret"))
    asked = metadata.MetadataRequestTopic(topic_id=topic_id, name=None)
    (topic,) = stage.ask(metadata.MetadataRequest([asked]), 12).topics
    # As an id that nobody knows is answered.
    assert (topic.error_code, topic.name, topic.topic_id, topic.partitions) == (
        ErrorCode.UNKNOWN_TOPIC_ID,
        None,
        topic_id,
        [],
    )
