"""Who reads a cluster, by what the API server knows."""

import asyncio
from typing import Any

import pytest
from what_if_states import make_state

from fairlead_broker.coordinator.coordinator_partition import coordinator_partition
from fairlead_cli.kubectl.readers import (
    Reader,
    build_rows,
    read_consumer_groups,
    read_readers,
    read_scaled_objects,
    read_stream_jobs,
)
from fairlead_cli.whatif.report import build_document, print_document
from fairlead_controller.decisions.what_if import forecast_loss
from fairlead_kube.errors import ApiError
from fairlead_kube.kinds import ResourceKind


def manifest(name: str, status: Any = None, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": spec, "status": status}


def scaled(name: str, kind: str = "kafka", **fields: str) -> dict[str, Any]:
    return manifest(name, triggers=[{"type": kind, "metadata": fields}, {"type": "cpu"}])


GROUPS = [
    manifest("billing", {"topics": [{"name": "t"}]}, clusterName="demo", groupId="Billing"),
    manifest("new", clusterName="demo"),
    manifest("elsewhere", {"topics": [{"name": "t"}]}, clusterName="other"),
]
JOBS = [
    manifest("late", clusterName="demo", sources=[{"topics": ["t", "u"]}]),
    manifest("afar", clusterName="demo", clusterNamespace="b", sources=[{"topics": ["t"]}]),
]


def test_groups_and_jobs_of_the_cluster_are_readers() -> None:
    assert read_consumer_groups(GROUPS, "demo") == [
        Reader("ConsumerGroup", "billing", "Billing", frozenset({"t"})),
        Reader("ConsumerGroup", "new", "new", frozenset()),
    ]
    assert read_stream_jobs(JOBS, "shop", "demo") == [
        Reader("StreamJob", "late", "late", frozenset({"t", "u"}))
    ]


@pytest.mark.parametrize(
    ("manifest", "topics"),
    [
        (scaled("s", bootstrapServers="demo-bootstrap:9092", consumerGroup="g", topic="t"), "t"),
        (scaled("s", bootstrapServers="demo-bootstrap:9092", topic="t"), None),
        (
            scaled(
                "s",
                "apache-kafka",
                bootstrapServers="x:1, demo-bootstrap.shop.svc:9092",
                consumerGroup="late",
            ),
            "tu",
        ),
        (scaled("s", bootstrapServersFromEnv="KAFKA", consumerGroup="late", topic="u"), "u"),
        (scaled("s", bootstrapServersFromEnv="KAFKA", consumerGroup="unknown", topic="u"), None),
        (scaled("s", bootstrapServers="other-bootstrap:9092", consumerGroup="late"), None),
        (scaled("s", bootstrapServers="demo-bootstrap.b:9092", consumerGroup="late"), None),
        (scaled("s", "rabbitmq", bootstrapServers="demo-bootstrap:9092", consumerGroup="g"), None),
    ],
)
def test_scaled_objects_are_of_the_cluster_whose_address_they_have(
    manifest: dict[str, Any], topics: str | None
) -> None:
    known = read_stream_jobs(JOBS, "shop", "demo")
    found = [each.topics for each in read_scaled_objects([manifest], "shop", "demo", known)]
    assert found == ([] if topics is None else [frozenset(topics)])


class PartlyForbidden:
    """An API server that has StreamJobs, no KEDA, and hides ConsumerGroups from this user."""

    async def list(self, kind: ResourceKind, namespace: str) -> Any:
        if kind.plural == "consumergroups":
            raise ApiError(403, "Forbidden", "you may not")
        if kind.plural == "scaledobjects":
            raise ApiError(404, "NotFound", "the server could not find the requested resource")

        class Listing:
            items = JOBS

        return Listing()


def test_what_may_not_be_listed_is_told_and_what_is_not_installed_is_not() -> None:
    client: Any = PartlyForbidden()
    readers, untold = asyncio.run(read_readers(client, "shop", "demo"))
    assert [each.name for each in readers] == ["late"]
    assert untold == ["consumergroups.fairlead.io"]


def test_a_server_that_fails_is_not_taken_for_an_empty_one() -> None:
    class Failing:
        async def list(self, kind: ResourceKind, namespace: str) -> Any:
            raise ApiError(500, "InternalError", "etcd")

    client: Any = Failing()
    with pytest.raises(ApiError):
        asyncio.run(read_readers(client, "shop", "demo"))


def test_rows_say_what_readers_feel(capsys: pytest.CaptureFixture[str]) -> None:
    state = make_state((0, 1), (0,), (1, 0))
    assert coordinator_partition("g", 1) == 0
    forecast = forecast_loss(state, [0])
    readers = [Reader("StreamJob", "late", "g", frozenset({"t", "u"}))]
    rows = build_rows(readers, forecast, state.image)
    assert rows == [
        {
            "kind": "StreamJob",
            "name": "late",
            "group": "g",
            "partitions": 2,
            "withoutLeader": 1,
            "coordinator": {"from": 0, "to": 1},
        }
    ]
    print_document(build_document(forecast) | {"readers": rows})
    out = capsys.readouterr().out
    assert "StreamJob  late" in out
    assert "moves to broker 1" in out
    assert build_rows(readers, forecast_loss(state, []), state.image) == []
