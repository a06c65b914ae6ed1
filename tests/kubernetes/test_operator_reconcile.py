"""The kopf process against a real API server; the controller is a fake on a unix socket."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from fake_admin import broker
from operator_bench import QUIET_S, cluster_manifest, pool_manifest

from fairlead_controller.kube.errors import ApiError
from fairlead_controller.kube.kinds import (
    BROKER_POOL,
    CONFIG_MAP,
    LOG_CLUSTER,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    SECRET,
    SERVICE,
    STATEFUL_SET,
)

if TYPE_CHECKING:
    from operator_bench import Bench, Operator

pytestmark = pytest.mark.kubernetes


def test_objects_appear_and_then_nothing_is_written(
    bench: Bench, run: Any, operator: Operator
) -> None:
    async def scenario() -> None:
        listener = {"name": "outside", "type": "NodePort", "port": 9095}
        await bench.create(cluster_manifest(listeners=[listener]), pool_manifest(2))
        await bench.start(2)
        secret = await bench.get(SECRET, "demo-session")
        before = operator.writes()
        await asyncio.sleep(QUIET_S)
        assert operator.writes() == before, "converged, and still writing"
        config = (await bench.get(CONFIG_MAP, "demo-main"))["data"]
        service = await bench.get(SERVICE, "demo-outside-1")
        port = service["spec"]["ports"][0]["nodePort"]
        assert f"OUTSIDE://${{HOST_IP}}:{port}" in config["broker-1.properties"]
        await bench.kube.delete(SERVICE, bench.namespace, "demo-bootstrap")
        await bench.until(lambda: bench.get(SERVICE, "demo-bootstrap"), "the Service comes back")
        again = await bench.get(SECRET, "demo-session")
        assert again["metadata"]["resourceVersion"] == secret["metadata"]["resourceVersion"]

    run(scenario())


def test_a_changed_setting_restarts_brokers_one_by_one(
    bench: Bench, run: Any, operator: Operator
) -> None:
    async def scenario() -> None:
        await bench.create(cluster_manifest(), pool_manifest(2))
        await bench.start(2)
        uids = {name: pod["metadata"]["uid"] for name, pod in (await bench.pods()).items()}
        operator.admin.requests.clear()
        patch = {"spec": {"config": {"log.retention.hours": 5}}}
        await bench.kube.patch(LOG_CLUSTER, bench.namespace, "demo", patch)
        for number in (0, 1):
            name, other = f"demo-main-{number}", f"demo-main-{1 - number}"

            async def is_drained(number: int = number) -> bool:
                place = f"/brokers/{number}/drain"
                return any(
                    path.endswith(place) and body == {"on": True}
                    for _, path, body in operator.admin.requests
                )

            async def is_new(name: str = name) -> bool:
                pod = (await bench.pods()).get(name)
                return pod is not None and pod["metadata"]["uid"] != uids[name]

            await bench.until(is_drained, f"broker {number} is drained")
            assert (await bench.pods())[name]["metadata"]["uid"] == uids[name]
            operator.admin.brokers[number]["leaders"] = 0
            operator.admin.brokers[1 - number]["leaders"] = 8
            await bench.until(is_new, f"pod {number} is made anew")
            if number == 0:
                await asyncio.sleep(2)
                pods = await bench.pods()
                assert pods[other]["metadata"]["uid"] == uids[other], "two at once"
            await bench.make_ready(name)
        await bench.until(
            lambda: bench.condition(BROKER_POOL, "main", "Progressing", "False"), "settled"
        )
        intents = [body for _, path, body in operator.admin.requests if path.endswith("/intents")]
        assert [intent["object"] for intent in intents] == ["demo-main-0", "demo-main-1"]

    run(scenario())


def test_brokers_with_replicas_are_not_scaled_away(
    bench: Bench, run: Any, operator: Operator
) -> None:
    async def scenario() -> None:
        await bench.create(cluster_manifest(), pool_manifest(2))
        await bench.start(2)
        await bench.scale(3)

        async def has(count: int) -> bool:
            return await bench.replicas() == count

        await bench.until(lambda: has(3), "scaled up")
        operator.admin.brokers.append(broker(2, replicas=5))
        await bench.make_ready_when_there("demo-main-2")
        await bench.scale(2)
        blocked = await bench.until(
            lambda: bench.condition(BROKER_POOL, "main", "Blocked", "True"), "refused"
        )
        assert blocked["reason"] == "ReplicasRemain"
        assert "2 (5)" in blocked["message"]
        assert await bench.replicas() == 3
        operator.admin.brokers[2]["replicas"] = 0
        await bench.until(lambda: has(2), "scaled down once empty")

    run(scenario())


def test_a_deleted_cluster_stops_its_brokers_and_keeps_its_volumes(bench: Bench, run: Any) -> None:
    async def scenario() -> None:
        await bench.create(cluster_manifest(), pool_manifest(1))
        await bench.start(1)
        held = {"metadata": {"finalizers": ["fairlead.io/held-by-a-test"]}}
        await bench.kube.patch(POD, bench.namespace, "demo-main-0", held)
        await bench.kube.delete(LOG_CLUSTER, bench.namespace, "demo")

        async def is_said() -> Any:
            claim = await bench.condition(LOG_CLUSTER, "demo", "Ready", "False")
            return claim if claim and claim["reason"] == "Deleting" else None

        said = await bench.until(is_said, "it is said what is waited for")
        assert "demo-main-0" in said["message"]
        assert "--force" in said["message"]
        free = {"metadata": {"finalizers": None}}
        await bench.kube.patch(POD, bench.namespace, "demo-main-0", free)

        async def is_gone() -> bool:
            try:
                await bench.get(LOG_CLUSTER, "demo")
            except ApiError as error:
                return error.is_not_found
            return False

        await bench.until(is_gone, "the finalizer falls")
        assert not await bench.pods()
        claims = (await bench.kube.list(PERSISTENT_VOLUME_CLAIM, bench.namespace)).items
        assert [claim["metadata"]["name"] for claim in claims] == ["data-demo-main-0"]
        await bench.until(
            lambda: bench.condition(BROKER_POOL, "main", "Blocked", "True"), "the pool is told"
        )
        await bench.kube.delete(BROKER_POOL, bench.namespace, "main")

    run(scenario())


def test_volumes_that_cannot_grow_are_reported(bench: Bench, run: Any) -> None:
    async def scenario() -> None:
        await bench.create(cluster_manifest(), pool_manifest(1))
        await bench.start(1)
        patch = {"spec": {"storage": {"size": "2Gi"}}}
        await bench.kube.patch(BROKER_POOL, bench.namespace, "main", patch)
        blocked = await bench.until(
            lambda: bench.condition(BROKER_POOL, "main", "Blocked", "True"), "refused"
        )
        assert blocked["reason"] == "StorageNotExpandable"
        pods = await bench.pods()
        assert list(pods) == ["demo-main-0"]
        patch = {"spec": {"storage": {"size": "512Mi"}}}
        with pytest.raises(ApiError, match="volumes can only grow"):
            await bench.kube.patch(BROKER_POOL, bench.namespace, "main", patch)
        patch = {"spec": {"storage": {"size": "1Gi"}}}
        await bench.kube.patch(BROKER_POOL, bench.namespace, "main", patch)
        await bench.until(
            lambda: bench.condition(BROKER_POOL, "main", "Ready", "True"), "it may be taken back"
        )

    run(scenario())


def test_a_cluster_that_is_left_alone_stays_untouched(bench: Bench, run: Any) -> None:
    async def scenario() -> None:
        cluster = cluster_manifest()
        cluster["metadata"]["annotations"] = {"fairlead.io/managed": "false"}
        await bench.create(cluster, pool_manifest(1))
        await asyncio.sleep(QUIET_S / 2)
        assert not (await bench.kube.list(STATEFUL_SET, bench.namespace)).items
        assert not operator_writes(bench)

    run(scenario())


def operator_writes(bench: Bench) -> dict[str, float]:
    return {name: count for name, count in bench.operator.writes().items() if count}
