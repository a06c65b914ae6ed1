"""Topic resources against a real API server: how they become topics, change, and end."""

from __future__ import annotations

import asyncio
import secrets
import subprocess
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from controller_bench import CLUSTER
from topic_bench import (
    Bench,
    create_over_kafka,
    eventually,
    is_released,
    play,
    start_broker,
    topic,
)
from waiting import until

from fairlead_controller.decisions.events import (
    AlterConfigs,
    AlterReassignments,
    CreatePartitions,
    DeleteTopics,
)
from fairlead_kube.errors import ApiError
from fairlead_kube.kinds import LOG_CLUSTER, NAMESPACE, TOPIC
from fairlead_model.session.calls import (
    AlterReassignmentsCall,
    GrowableTopic,
    ReassignablePartition,
)
from fairlead_model.session.refusals import RefusalCode
from fairlead_operator.topics.topic_resource import FINALIZER, mirror_name

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from pathlib import Path

    from fairlead_kube.client import KubeClient

pytestmark = pytest.mark.kubernetes


def test_a_resource_becomes_a_topic_grows_and_keeps_null_configs(
    run: Callable[[Coroutine[Any, Any, Any]], Any], kube: KubeClient, namespace: str, tmp_path: Path
) -> None:
    async def story(world: Bench) -> None:
        await world.create("orders", topicName="shop.Orders", config={"retention.ms": 5})
        item = await world.until("orders", "Ready", partitions=3, leaders="0:1 1:1 2:1")
        assert item["metadata"].get("finalizers") is None
        assert item["status"]["topicName"] == "shop.Orders"
        await world.patch("orders", partitions=6)
        grown = await world.until("orders", "Ready", partitions=6)
        assert grown["status"]["topicId"] == item["status"]["topicId"]
        manifest = topic(
            "orders",
            clusterName=CLUSTER,
            topicName="shop.Orders",
            partitions=6,
            replicationFactor=3,
            config={"retention.ms": None, "min.insync.replicas": 2},
        )
        await kube.apply(TOPIC, namespace, "orders", manifest, field_manager="someone")
        await world.until("orders", "Ready")
        held = world.topic("shop.Orders")
        assert held.configs == {"retention.ms": "5", "min.insync.replicas": "2"}
        assert {part.min_insync_replicas for part in held.partitions} == {2}

    play(run, kube, namespace, tmp_path, story)


@pytest.mark.parametrize("mode", ["--server-side", "--server-side=false"])
def test_null_means_leave_alone_where_kubectl_passes_it_on(
    run: Callable[[Coroutine[Any, Any, Any]], Any],
    kube: KubeClient,
    namespace: str,
    tmp_path: Path,
    mode: str,
) -> None:
    async def story(world: Bench) -> None:
        await kubectl_apply(world, tmp_path, mode, {"retention.ms": 5})
        await world.until("orders", "Ready")
        await kubectl_apply(world, tmp_path, mode, {"retention.ms": None, "segment.bytes": 2048})
        await world.until("orders", "Ready")
        # Client-side apply takes a null in a manifest for the wish to delete the key.
        kept = {"retention.ms": "5"} if mode == "--server-side" else {}
        assert world.topic("orders").configs == {"segment.bytes": "2048", **kept}

    play(run, kube, namespace, tmp_path / "store", story)


async def kubectl_apply(world: Bench, folder: Path, mode: str, config: dict[str, Any]) -> None:
    spec = {"clusterName": CLUSTER, "partitions": 1, "replicationFactor": 3, "config": config}
    path = folder / "orders.yaml"
    path.write_text(yaml.safe_dump(topic("orders", **spec)))
    command = ["kubectl", "apply", mode, "-n", world.namespace, "-f", str(path)]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.DEVNULL)
    assert await process.wait() == 0


def test_what_cannot_be_says_so(
    run: Callable[[Coroutine[Any, Any, Any]], Any], kube: KubeClient, namespace: str, tmp_path: Path
) -> None:
    async def story(world: Bench) -> None:
        await world.create("six", partitions=6)
        await world.until("six", "Ready")
        await world.patch("six", replicationFactor=4)
        item = await world.until("six", "TooFewBrokers", partitions=6)
        assert "4 replicas need as many brokers" in item["status"]["conditions"][0]["message"]
        await world.create("far", clusterName="nowhere")
        await world.until("far", "ClusterNotFound")
        await world.create("wide", replicationFactor=4)
        await world.until("wide", "TooFewBrokers")
        await start_broker(world.remote.controller, 3)
        await world.until("wide", "Ready", replicationFactor=4)
        await world.until("six", "Ready", replicationFactor=3, reassigning=6)
        await world.patch("six", replicationFactor=3)
        await world.until("six", "Ready", replicationFactor=3, reassigning=0)
        # Made over Kafka with more partitions than its resource wants.
        await world.stop_operator()
        await create_over_kafka(world, "eight", partitions=8)
        await world.create("eight", partitions=2)
        await world.start_operator()
        shrunk = await world.until("eight", "InvalidSpec")
        assert "spec.partitions: 2 is less than the 8" in str(shrunk["status"]["conditions"])

    play(run, kube, namespace, tmp_path, story)


def test_another_replication_factor_holds_whatever_people_do(
    run: Callable[[Coroutine[Any, Any, Any]], Any], kube: KubeClient, namespace: str, tmp_path: Path
) -> None:
    async def story(world: Bench) -> None:
        await world.create("six", partitions=6, replicationFactor=2)
        await world.until("six", "Ready")
        await world.patch("six", replicationFactor=3)
        item = await world.until("six", "Ready", reassigning=6, replicationFactor=2)
        (said,) = [
            each["message"]
            for each in item["status"]["conditions"]
            if each["type"] == "Reassigning"
        ]
        assert said == "6 of 6 partitions are being reassigned: 3 instead of 2 each"
        called_back = ReassignablePartition(topic="six", index=4, replicas=None)
        call = AlterReassignmentsCall(
            partitions=[called_back], allow_replication_factor_change=True
        )
        reply = await world.remote.controller.submit(AlterReassignments(call))
        assert reply["partitions"][0]["error_code"] == 0
        before = world.remote.calls
        await until(lambda: world.remote.calls > before, "the resource asks again")
        await world.until("six", "Ready", reassigning=6)
        await world.patch("six", replicationFactor=2)
        item = await world.until("six", "Ready", reassigning=0, replicationFactor=2)
        assert "Reassigning" not in str(item["status"]["conditions"])
        await world.patch("six", replicationFactor=1)
        await world.until("six", "Ready", reassigning=0, replicationFactor=1)

    play(run, kube, namespace, tmp_path, story)


def test_the_older_resource_wins_and_the_other_takes_over(
    run: Callable[[Coroutine[Any, Any, Any]], Any], kube: KubeClient, namespace: str, tmp_path: Path
) -> None:
    async def story(world: Bench) -> None:
        await world.create("a-first", topicName="shared")
        first = await world.until("a-first", "Ready")
        await world.create("b-second", topicName="shared")
        await world.until("b-second", "Conflict")
        await world.delete("a-first")
        second = await world.until("b-second", "Ready")
        assert second["status"]["topicId"] == first["status"]["topicId"]

    play(run, kube, namespace, tmp_path, story)


def test_retained_topics_are_adopted_again_and_deleted_ones_are_not(
    run: Callable[[Coroutine[Any, Any, Any]], Any], kube: KubeClient, namespace: str, tmp_path: Path
) -> None:
    async def story(world: Bench) -> None:
        await world.create("kept")
        kept = await world.until("kept", "Ready")
        await world.delete("kept")
        await eventually(lambda: is_released(world, "kept"), lambda: "the topic's release")
        await world.create("again", topicName="kept")
        again = await world.until("again", "Ready")
        assert again["status"]["topicId"] == kept["status"]["topicId"]

        await world.create("goes", reclaimPolicy="Delete", deletionProtection=True)
        goes = await world.until("goes", "Ready")
        assert goes["metadata"]["finalizers"] == [FINALIZER]
        await world.delete("goes")
        await eventually(lambda: says_protected(world, "goes"), lambda: "a condition")
        assert world.topic("goes") is not None
        await world.patch("goes", deletionProtection=False)
        await world.until_gone("goes")
        assert world.topic("goes") is None

    play(run, kube, namespace, tmp_path, story)


def test_a_paused_topic_and_a_paused_cluster_wait_with_changes(
    run: Callable[[Coroutine[Any, Any, Any]], Any], kube: KubeClient, namespace: str, tmp_path: Path
) -> None:
    async def story(world: Bench) -> None:
        await world.create("orders", partitions=3)
        await world.until("orders", "Ready", partitions=3)
        await world.patch("orders", paused=True, partitions=6)
        await eventually(lambda: says_paused(world, "orders"), lambda: "a condition")
        assert len(world.topic("orders").partitions) == 3
        await kube.patch(LOG_CLUSTER, namespace, CLUSTER, {"spec": {"paused": True}})
        # The operator has heard of that before it hears of the Topic: these are two watches.
        await world.create("new")
        await world.until("new", "Paused")
        await world.patch("orders", paused=False)
        await world.until("orders", "Ready")
        assert await says_paused(world, "orders")
        assert len(world.topic("orders").partitions) == 3
        await kube.patch(LOG_CLUSTER, namespace, CLUSTER, {"spec": {"paused": False}})
        await world.until("orders", "Ready", partitions=6)
        await world.until("new", "Ready")
        assert not await says_paused(world, "orders")

    play(run, kube, namespace, tmp_path, story)


async def says_paused(world: Bench, name: str) -> bool:
    item = await world.get(name)
    assert item is not None
    return any(each["type"] == "Paused" for each in (item.get("status") or {})["conditions"])


async def says_protected(world: Bench, name: str) -> bool:
    item = await world.get(name)
    assert item is not None
    return "DeletionProtected" in str(item["status"])


def test_finalizers_fall_with_the_cluster(
    run: Callable[[Coroutine[Any, Any, Any]], Any], kube: KubeClient, namespace: str, tmp_path: Path
) -> None:
    async def story(world: Bench) -> None:
        await world.create("held", reclaimPolicy="Delete")
        await world.until("held", "Ready")
        await kube.delete(LOG_CLUSTER, namespace, CLUSTER)
        await world.until("held", "ClusterNotFound")
        await world.delete("held")
        await world.until_gone("held")
        assert world.topic("held") is not None

    play(run, kube, namespace, tmp_path, story)


def test_topics_made_over_kafka_have_resources_that_follow(
    run: Callable[[Coroutine[Any, Any, Any]], Any], kube: KubeClient, namespace: str, tmp_path: Path
) -> None:
    async def story(world: Bench) -> None:
        submit = world.remote.controller.submit
        await create_over_kafka(world, "My_Topic")
        name = mirror_name(CLUSTER, "My_Topic")
        shown = await world.until(name, "Ready", partitions=3)
        assert shown["metadata"]["labels"]["fairlead.io/origin"] == "kafka"
        assert shown["spec"]["config"] == {"retention.ms": "7"}

        grow: GrowableTopic = {"name": "My_Topic", "count": 5, "assignments": None}
        await submit(CreatePartitions({"topics": [grow], "validate_only": False}))
        resource = {"resource_type": 2, "name": "My_Topic", "alterations": []}
        alter = {"resources": [resource], "validate_only": False, "incremental": False}
        await submit(AlterConfigs(alter))  # type: ignore[arg-type]
        await world.until(name, "Ready", partitions=5)

        async def are_followed() -> bool:
            found = await world.get(name)
            assert found is not None
            spec = found["spec"]
            return (spec["partitions"], spec["config"]) == (5, {})

        await eventually(are_followed, lambda: "both changes in the spec")

        await world.create("mine", topicName="My_Topic", partitions=5)
        mine = await world.until("mine", "Ready")
        assert mine["status"]["topicId"] == shown["status"]["topicId"]
        await world.until_gone(name)
        delete = DeleteTopics({"topics": [{"name": "My_Topic", "topic_id": bytes(16)}]})
        refused = (await submit(delete))["topics"][0]
        assert refused["error_code"] == RefusalCode.POLICY_VIOLATION
        assert "'mine'" in refused["error_message"]

        await create_over_kafka(world, "short")
        await world.until(mirror_name(CLUSTER, "short"), "Ready")
        await submit(DeleteTopics({"topics": [{"name": "short", "topic_id": bytes(16)}]}))
        await world.until_gone(mirror_name(CLUSTER, "short"))

        await create_over_kafka(world, "dropped")
        dropped = mirror_name(CLUSTER, "dropped")
        await world.until(dropped, "Ready")
        await world.patch(dropped, reclaimPolicy="Delete")
        await eventually(lambda: has_finalizer(world, dropped), lambda: "a finalizer")
        await world.delete(dropped)
        await world.until_gone(dropped)
        assert world.topic("dropped") is None

    play(run, kube, namespace, tmp_path, story)


async def has_finalizer(world: Bench, name: str) -> bool:
    item = await world.get(name)
    return item is not None and FINALIZER in item["metadata"].get("finalizers", [])


@pytest.fixture
def team(kube: KubeClient, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> Iterator[str]:
    """The namespace of another team."""
    name = f"fairlead-team-{secrets.token_hex(4)}"
    run(kube.create(NAMESPACE, None, {"metadata": {"name": name}}))
    yield name
    with suppress(ApiError):
        run(kube.delete(NAMESPACE, None, name))


def test_topics_of_another_namespace_come_as_the_cluster_lets_them(
    run: Callable[[Coroutine[Any, Any, Any]], Any],
    kube: KubeClient,
    namespace: str,
    team: str,
    tmp_path: Path,
) -> None:
    async def let_in(*rules: dict[str, Any]) -> None:
        patch = {"spec": {"topicNamespaces": list(rules)}}
        await kube.patch(LOG_CLUSTER, namespace, CLUSTER, patch)

    async def declare(name: str, **spec: Any) -> None:
        spec = {"clusterName": CLUSTER, "clusterNamespace": namespace, **spec}
        await kube.create(TOPIC, team, topic(name, **spec))

    async def story(world: Bench) -> None:
        await world.stop_operator()
        world.watched = (namespace, team)
        await world.start_operator()
        away = Bench(kube, team, world.remote)
        await create_over_kafka(world, "theirs")
        await declare("orders", partitions=2, reclaimPolicy="Delete")
        await away.until("orders", "NamespaceNotAllowed")
        await world.create("first", topicName="orders")
        await world.until("first", "Ready")
        assert world.topic("orders").header.resource == "first"
        await world.delete("first")
        await let_in({"name": team, "topicsMax": 2, "partitionsMax": 5})
        # What exists and is declared by nobody is not for it to take.
        item = await away.until("orders", "Conflict")
        assert "no Topic declares it" in str(item["status"]["conditions"])
        await kube.delete(TOPIC, team, "orders")
        await away.until_gone("orders")
        assert world.topic("orders") is not None

        await declare("carts", partitions=3, reclaimPolicy="Delete")
        await away.until("carts", "Ready", partitions=3)
        assert world.topic("carts").header.resource == f"{team}/carts"
        await declare("visits", partitions=3)
        refused = await away.until("visits", "QuotaExceeded")
        assert "6 partitions, and partitionsMax is 5" in str(refused["status"]["conditions"])
        await away.patch("carts", partitions=6)
        await away.until("carts", "QuotaExceeded", partitions=3)
        await kube.delete(TOPIC, team, "carts")
        await away.until_gone("carts")
        assert world.topic("carts") is None
        await away.until("visits", "Ready")

        await let_in({"name": team, "topicPrefix": "team."})
        await away.until("visits", "PrefixRequired")
        await declare("named", topicName="team.named")
        await away.until("named", "Ready")
        await let_in()
        await away.until("named", "NamespaceNotAllowed")
        assert world.topic("team.named").header.resource == ""
        assert world.topic("visits").header.resource == ""

    play(run, kube, namespace, tmp_path, story)


def test_a_namespace_that_is_deleted_takes_its_topics_with_it(
    run: Callable[[Coroutine[Any, Any, Any]], Any],
    kube: KubeClient,
    namespace: str,
    team: str,
    tmp_path: Path,
) -> None:
    async def story(world: Bench) -> None:
        await world.stop_operator()
        world.watched = (namespace, team)
        await world.start_operator()
        rules = {"spec": {"topicNamespaces": [{"name": team}]}}
        await kube.patch(LOG_CLUSTER, namespace, CLUSTER, rules)
        away = Bench(kube, team, world.remote)
        spec = {"clusterName": CLUSTER, "clusterNamespace": namespace, "partitions": 1}
        for name, policy in (("goes", "Delete"), ("stays", "Retain")):
            await kube.create(TOPIC, team, topic(name, **spec, reclaimPolicy=policy))
            await away.until(name, "Ready")
        await kube.delete(NAMESPACE, None, team)

        async def is_over() -> bool:
            stays = world.topic("stays")
            return world.topic("goes") is None and not stays.header.resource

        await eventually(is_over, lambda: "the topics to be let go")

    play(run, kube, namespace, tmp_path, story)
