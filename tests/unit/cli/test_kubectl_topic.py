"""`kubectl fairlead topic describe`: the right topic out of the lines of the tables."""

from dataclasses import replace
from typing import Any

import pytest

from fairlead_cli.errors import CliError
from fairlead_cli.kubectl.topic import find_records
from fairlead_controller.decisions.tables import lines
from fairlead_model.cluster import TopicHeader
from fairlead_model.ids import TopicId, topic_id_text
from fairlead_model.partition import PartitionRegistration
from fairlead_model.topic import TopicState

OLD, NEW = TopicId(b"a" * 16), TopicId(b"b" * 16)


def table(cluster: str, *headers: TopicHeader) -> dict[str, Any]:
    partition = lines.partition_line(PartitionRegistration((0,), (0,), 0))
    known = {lines.topic_key(each.topic_id): lines.header_line(each) for each in headers}
    known |= {
        lines.partition_key(each.topic_id, 0): partition
        for each in headers
        if each.state is TopicState.LIVE
    }
    text = "".join(f"{key} {line}\n" for key, line in known.items())
    return {"spec": {"clusterName": cluster, "lines": text}}


def test_a_topic_that_was_made_again_is_not_taken_for_the_one_that_is_being_deleted() -> None:
    live = TopicHeader("orders", NEW, 1)
    gone = replace(live, topic_id=OLD, state=TopicState.DELETING)
    header, partitions = find_records([table("demo", gone, live)], "orders", None)
    assert header is not None
    assert header["topicId"] == topic_id_text(NEW)
    assert [each["leader"] for each in partitions] == [0]
    assert find_records([table("demo", gone)], "orders", None) == (None, [])


def test_a_topic_of_two_clusters_is_asked_for_by_cluster() -> None:
    tables = [
        table("one", TopicHeader("orders", OLD, 1)),
        table("two", TopicHeader("orders", NEW, 1)),
    ]
    with pytest.raises(CliError, match="2 clusters have a topic 'orders'") as refused:
        find_records(tables, "orders", None)
    assert refused.value.hint == "Add --cluster."
    header, _ = find_records(tables, "orders", "two")
    assert header is not None
    assert header["topicId"] == topic_id_text(NEW)
