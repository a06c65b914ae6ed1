"""`kubectl fairlead topic describe`: the right topic out of the lines of the tables."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from fairlead_cli.errors import CliError
from fairlead_cli.kubectl.snapshot import of_cluster
from fairlead_cli.kubectl.topic import find_records, read_topic
from fairlead_controller.decisions.tables import lines
from fairlead_kube.errors import ApiError
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


class Served:
    """An API server with objects by kind and namespace."""

    def __init__(self, **objects: dict[str, list[dict[str, Any]]]) -> None:
        self._objects = objects

    async def list(self, kind: Any, namespace: str, **_: Any) -> Any:
        if namespace == "closed":
            raise ApiError(403, "Forbidden", "you may not")
        return SimpleNamespace(items=self._objects.get(kind.plural, {}).get(namespace, []))


def resource(name: str, namespace: str, **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace}
    conditions = [{"type": "Ready", "status": "False", "reason": "Offline", "message": ""}]
    return {"metadata": metadata, "spec": spec, "status": {"conditions": conditions}}


ELSEWHERE = {"clusterName": "demo", "clusterNamespace": "data"}


def test_a_topic_of_a_cluster_elsewhere_is_described_by_the_tables_there() -> None:
    """There may be a cluster of the same name here, with a topic of the same name."""
    client: Any = Served(
        topics={"shop": [resource("orders", "shop", **ELSEWHERE)]},
        partitiontables={
            "shop": [table("demo", TopicHeader("orders", OLD, 1))],
            "data": [table("demo", TopicHeader("orders", NEW, 1))],
        },
    )
    document = asyncio.run(read_topic(client, "shop", "orders", None))
    assert document["topicId"] == topic_id_text(NEW)
    assert [each["leader"] for each in document["partitions"]] == [0]


def test_what_is_known_of_a_topic_is_shown_where_the_cluster_may_not_be_looked_at(
    capsys: pytest.CaptureFixture[str],
) -> None:
    closed = ELSEWHERE | {"clusterNamespace": "closed"}
    client: Any = Served(topics={"shop": [resource("orders", "shop", **closed)]})
    document = asyncio.run(read_topic(client, "shop", "orders", None))
    assert (document["resource"], document["partitions"]) == ("orders", [])
    assert "you may not list partitiontables in closed" in capsys.readouterr().err
    with pytest.raises(ApiError):
        asyncio.run(read_topic(client, "closed", "orders", None))


def test_a_cluster_is_not_blamed_for_topics_of_another_ones_of_its_name() -> None:
    cluster = {"metadata": {"name": "demo", "namespace": "shop"}}
    here = resource("here", "shop", clusterName="demo")
    there = resource("there", "shop", **ELSEWHERE)
    assert of_cluster([here, there], cluster) == [here]
