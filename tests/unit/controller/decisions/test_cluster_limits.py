"""A cluster has no more topics and partitions than its settings say."""

from typing import Any

import pytest

from fairlead_controller.decisions.cluster_limits import ClusterLimits
from fairlead_controller.decisions.events import CreatePartitions, DeleteTopics, LimitCluster
from fairlead_controller.kubernetes.cluster_spec import read_cluster_spec
from fairlead_model.session.refusals import RefusalCode


@pytest.fixture
def limited(world: Any, make_create: Any, make_topic: Any) -> Any:
    """Three topics and seven partitions at most; two and five are there."""
    world.do(LimitCluster(ClusterLimits(topics=3, partitions=7)))
    world.do(make_create(make_topic("a", partitions=3), make_topic("b", partitions=2)))
    return world


def grow(name: str, count: int) -> CreatePartitions:
    topic: Any = {"name": name, "count": count, "assignments": None}
    return CreatePartitions({"topics": [topic], "validate_only": False})


def outcome(reply: Any) -> tuple[int, str | None]:
    (topic,) = reply["topics"]
    return topic["error_code"], topic["error_message"]


def test_a_loop_of_create_topics_ends_at_the_limit(limited: Any) -> None:
    assert limited.create("c")["error_code"] == 0
    for _ in range(2):
        refused = limited.create("d")
        assert refused["error_code"] == RefusalCode.POLICY_VIOLATION
        assert "3 topics, 1 more would be above fairlead.max.topics=3" in refused["error_message"]


def test_partitions_are_bounded_however_they_come(limited: Any) -> None:
    refused = limited.create("c", partitions=3)
    assert refused["error_code"] == RefusalCode.POLICY_VIOLATION
    assert "5 partitions, 3 more" in refused["error_message"]
    assert outcome(limited.do(grow("a", 6)))[0] == RefusalCode.POLICY_VIOLATION
    assert outcome(limited.do(grow("a", 5))) == (0, None)
    code, message = outcome(limited.do(grow("b", 3)))
    assert code == RefusalCode.POLICY_VIOLATION
    assert "fairlead.max.partitions=7" in (message or "")


def test_topics_of_one_request_count_one_after_the_other(
    limited: Any, make_create: Any, make_topic: Any
) -> None:
    reply = limited.do(make_create(make_topic("c"), make_topic("d")))
    codes = [topic["error_code"] for topic in reply["topics"]]
    assert codes == [0, RefusalCode.POLICY_VIOLATION]


def test_a_deleted_topic_counts_until_it_is_gone(limited: Any) -> None:
    from fairlead_controller.decisions.events import ConfirmDeletions

    topic_id = limited.topic("a").topic_id
    holders = {each for one in limited.partitions("a") for each in one.replicas}
    deleted: Any = {"name": "a", "topic_id": None}
    limited.do(DeleteTopics({"topics": [deleted]}))
    assert limited.create("c", partitions=3)["error_code"] == RefusalCode.POLICY_VIOLATION
    for broker in holders:
        limited.do(ConfirmDeletions(broker, [topic_id]))
    assert limited.state.partition_count == 2
    assert limited.create("c", partitions=3)["error_code"] == 0


def test_limits_come_from_the_settings_of_the_logcluster() -> None:
    manifest = {"metadata": {"uid": "u"}, "spec": {"config": {"fairlead.max.topics": 7}}}
    assert read_cluster_spec(manifest).limits == ClusterLimits(topics=7, partitions=200_000)
