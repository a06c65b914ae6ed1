"""Metadata: which topics, which brokers, which addresses, which errors."""

from typing import Any

import pytest

from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.metadata import MetadataRequest, MetadataRequestTopic

NAMED_VERSIONS = range(13)


def by_name(*names: str, create: bool = False) -> MetadataRequest:
    return MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names],
        allow_auto_topic_creation=create,
    )


def by_id(topic_id: bytes) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(topic_id=topic_id, name=None)])


@pytest.mark.parametrize("version", NAMED_VERSIONS)
def test_a_topic_by_name_in_every_version(stage: Any, version: int) -> None:
    topic_id = stage.topic("orders", partitions=2)
    reply = stage.ask(by_name("orders", create=version < 4), version)
    (topic,) = reply.topics
    assert (topic.error_code, topic.name) == (ErrorCode.NONE, "orders")
    assert [p.partition_index for p in topic.partitions] == [0, 1]
    assert [p.leader_id for p in topic.partitions] == [1, 1]
    assert [(b.node_id, b.host, b.port) for b in reply.brokers] == [(1, "broker-1", 9093)]
    if version >= 1:
        assert reply.controller_id == 1
    if version >= 2:
        assert reply.cluster_id == "test-cluster"
    if version >= 10:
        assert topic.topic_id == topic_id
    if version >= 8:
        assert topic.topic_authorized_operations == -(2**31)


def test_null_asks_for_all_and_an_empty_list_for_none(stage: Any) -> None:
    stage.topic("b")
    stage.topic("a")
    assert [t.name for t in stage.ask(MetadataRequest(topics=None), 9).topics] == ["a", "b"]
    assert stage.ask(MetadataRequest(topics=[]), 9).topics == []


def test_before_version_1_an_empty_list_asks_for_all(stage: Any) -> None:
    stage.topic("a")
    request = MetadataRequest(topics=[])
    assert [t.name for t in stage.ask(request, 0).topics] == ["a"]


def test_a_topic_by_id(stage: Any) -> None:
    topic_id = stage.topic("orders")
    (topic,) = stage.ask(by_id(topic_id), 12).topics
    assert (topic.error_code, topic.name) == (ErrorCode.NONE, "orders")
    (unknown,) = stage.ask(by_id(b"?" * 16), 12).topics
    assert (unknown.error_code, unknown.name) == (ErrorCode.UNKNOWN_TOPIC_ID, None)


@pytest.mark.parametrize("version", [10, 11])
def test_ids_are_refused_before_they_mean_something(stage: Any, version: int) -> None:
    """Their field is there two versions earlier (KIP-516)."""
    topic_id = stage.topic("orders")
    (refused,) = stage.ask(by_id(topic_id), version).topics
    assert (refused.error_code, refused.name) == (ErrorCode.INVALID_REQUEST, "")
    both = MetadataRequest([MetadataRequestTopic(topic_id, "orders")], False)
    (refused,) = stage.ask(both, version).topics
    assert (refused.error_code, refused.name) == (ErrorCode.INVALID_REQUEST, "orders")


def test_an_id_counts_where_there_is_a_name_too(stage: Any) -> None:
    topic_id = stage.topic("orders")
    stage.topic("other")

    def names(topic_id: bytes, version: int) -> list[str | None]:
        request = MetadataRequest([MetadataRequestTopic(topic_id, "other")], False)
        return [topic.name for topic in stage.ask(request, version).topics]

    assert names(topic_id, 12) == ["orders"]
    assert names(b"?" * 16, 12) == [None], "a topic that was created anew has another id"


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("no/slash", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("..", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("x" * 250, ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_a_topic_that_is_not_there(stage: Any, name: str, code: ErrorCode) -> None:
    (topic,) = stage.ask(by_name(name), 9).topics
    assert (topic.error_code, topic.name) == (code, name)


def test_the_internal_topic_is_marked(stage: Any) -> None:
    stage.topic("__consumer_offsets")
    (topic,) = stage.ask(by_name("__consumer_offsets"), 9).topics
    assert topic.is_internal


def test_addresses_are_those_of_the_listener_that_was_asked(stage: Any) -> None:
    stage.neighbour(2)
    reply = stage.ask(MetadataRequest(topics=[]), 9, internal=True)
    assert [(b.node_id, b.port) for b in reply.brokers] == [(1, 9193), (2, 9194)]


def test_a_dead_leader_and_offline_replicas(stage: Any) -> None:
    stage.neighbour(2, fenced=True)
    stage.topic("t", replicas=(2, 1), leader=2)
    reply = stage.ask(by_name("t"), 9)
    (partition,) = reply.topics[0].partitions
    assert partition.error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert partition.leader_id == -1
    assert partition.offline_replicas == [2]
    assert [b.node_id for b in reply.brokers] == [1]


def test_racks_are_told(stage: Any) -> None:
    stage.neighbour(2, rack="zone-b")
    reply = stage.ask(MetadataRequest(topics=[]), 9)
    assert [b.rack for b in reply.brokers] == [None, "zone-b"]


def test_a_kept_reply_is_forgotten_when_the_image_changes(stage: Any) -> None:
    request = MetadataRequest(topics=None)
    assert stage.ask(request, 9).topics == []
    assert stage.ask(request, 9).topics == []
    stage.topic("new")
    assert [t.name for t in stage.ask(request, 9).topics] == ["new"]


def creates(stage: Any) -> Any:
    def create(body: dict[str, Any]) -> dict[str, Any]:
        (topic,) = body["topics"]
        stage.image_topics.append(topic["name"])
        return {
            "topics": [
                {
                    "name": topic["name"],
                    "topic_id": bytes(16),
                    "error_code": 0,
                    "error_message": None,
                    "partitions": 1,
                    "replication_factor": 1,
                    "configs": {},
                }
            ]
        }

    stage.image_topics = []
    return create


def test_a_missing_topic_is_not_created_by_default(stage: Any) -> None:
    stage.controller.script["create_topics"] = creates(stage)
    (topic,) = stage.ask(by_name("missing", create=True), 9).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert stage.controller.calls == []


@pytest.mark.parametrize("stage", [{"auto.create.topics.enable": "true"}], indirect=True)
class TestAutoCreation:
    def test_a_missing_topic_is_asked_of_the_controller_once(self, stage: Any) -> None:
        stage.controller.script["create_topics"] = creates(stage)
        (topic,) = stage.ask(by_name("wanted", "wanted", create=True), 9).topics
        assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert stage.image_topics == ["wanted"]

    def test_a_client_that_forbids_it_is_obeyed(self, stage: Any) -> None:
        stage.ask(by_name("wanted"), 9)
        assert stage.controller.calls == []

    def test_one_who_forbids_it_does_not_keep_others_from_it(self, stage: Any) -> None:
        """A consumer that waits for a topic asks as its producer does, but for that."""
        stage.controller.script["create_topics"] = creates(stage)
        for _ in range(2):
            stage.ask(by_name("wanted"), 9)
        stage.ask(by_name("wanted", create=True), 9)
        assert stage.image_topics == ["wanted"]

    def test_an_illegal_name_is_never_asked_for(self, stage: Any) -> None:
        (topic,) = stage.ask(by_name("a b", create=True), 9).topics
        assert topic.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert stage.controller.calls == []

    @pytest.mark.parametrize("name", ["__consumer_offsets", "__transaction_state"])
    def test_a_topic_of_the_cluster_is_made_as_the_cluster_needs_it(
        self, stage: Any, name: str
    ) -> None:
        stage.ask(by_name(name, create=True), 9)
        ((_, body),) = stage.controller.calls
        (topic,) = body["topics"]
        assert (body["internal"], topic["name"], topic["partitions"]) == (True, name, 50)

    def test_without_a_controller_the_client_is_told_to_ask_again(self, stage: Any) -> None:
        (topic,) = stage.ask(by_name("wanted", create=True), 9).topics
        assert topic.error_code == ErrorCode.LEADER_NOT_AVAILABLE

    def test_a_refusal_is_passed_on(self, stage: Any) -> None:
        stage.controller.script["create_topics"] = lambda _: {
            "topics": [{"error_code": 38, "error_message": "too many replicas"}]
        }
        (topic,) = stage.ask(by_name("wanted", create=True), 9).topics
        assert topic.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
