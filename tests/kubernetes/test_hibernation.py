"""A cluster sleeps and wakes on a real API server; the controller is a fake on a unix socket."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from operator_bench import QUIET_S, cluster_manifest, pool_manifest

from fairlead_kube.kinds import (
    BROKER_POOL,
    CONFIG_MAP,
    LOG_CLUSTER,
    PERSISTENT_VOLUME_CLAIM,
    SERVICE,
    STATEFUL_SET,
)

if TYPE_CHECKING:
    from operator_bench import Bench, Operator

pytestmark = pytest.mark.kubernetes


async def set_hibernated(bench: Bench, value: bool) -> None:
    patch = {"spec": {"hibernated": value}}
    await bench.kube.patch(LOG_CLUSTER, bench.namespace, "demo", patch)


async def until_says(bench: Bench, kind: Any, type: str, status: str, reason: str) -> None:
    name = "demo" if kind is LOG_CLUSTER else "main"

    async def says() -> bool:
        condition = await bench.condition(kind, name, type, status)
        return condition is not None and condition["reason"] == reason

    await bench.until(says, f"{kind.kind} says {type} {status} {reason}")


async def kept(bench: Bench) -> dict[str, set[str]]:
    """Uids of what stays while the brokers do not run."""
    return {
        kind.kind: {
            each["metadata"]["uid"] for each in (await bench.kube.list(kind, bench.namespace)).items
        }
        for kind in (SERVICE, CONFIG_MAP, PERSISTENT_VOLUME_CLAIM, STATEFUL_SET)
    }


async def is_quiet(operator: Operator) -> bool:
    before = operator.writes()
    await asyncio.sleep(QUIET_S)
    return bool(operator.writes() == before)


async def fall_asleep(bench: Bench, operator: Operator) -> None:
    await set_hibernated(bench, True)

    async def are_gone() -> bool:
        return not await bench.pods()

    await bench.until(are_gone, "the pods go")
    for each in operator.admin.brokers:
        each |= {"state": "fenced", "leaders": 0}
    operator.admin.offline = operator.admin.under_replicated = 12
    await until_says(bench, LOG_CLUSTER, "Hibernated", "True", "Asleep")


async def wake(bench: Bench, operator: Operator, count: int) -> None:
    await set_hibernated(bench, False)
    for ordinal in range(count):
        await bench.make_ready_when_there(f"demo-main-{ordinal}")
    await until_says(bench, LOG_CLUSTER, "Hibernated", "False", "Waking")
    for each in operator.admin.brokers:
        each |= {"state": "live", "leaders": 4}
    operator.admin.offline = operator.admin.under_replicated = 0
    await until_says(bench, LOG_CLUSTER, "Ready", "True", "Ready")
    cluster = await bench.get(LOG_CLUSTER, "demo")
    assert "Hibernated" not in {each["type"] for each in cluster["status"]["conditions"]}


def test_only_the_pods_go_and_they_come_back(bench: Bench, run: Any, operator: Operator) -> None:
    async def scenario() -> None:
        await bench.create(cluster_manifest(), pool_manifest(2))
        await bench.start(2)
        before = await kept(bench)
        assert len(before["PersistentVolumeClaim"]) == 2
        await fall_asleep(bench, operator)
        await until_says(bench, LOG_CLUSTER, "Ready", "False", "Hibernated")
        await until_says(bench, BROKER_POOL, "Ready", "False", "Hibernated")
        # What the controller has counted since the stop is still written once.
        await bench.until(lambda: is_quiet(operator), "nothing is written while it sleeps")
        assert await kept(bench) == before
        assert await bench.pods() == {}
        await wake(bench, operator, 2)
        assert await kept(bench) == before

    run(scenario())


def test_sleep_waits_for_a_broker_that_is_not_well(
    bench: Bench, run: Any, operator: Operator
) -> None:
    async def scenario() -> None:
        await bench.create(cluster_manifest(), pool_manifest(2))
        await bench.start(2)
        operator.admin.under_replicated = 3
        await set_hibernated(bench, True)
        await until_says(bench, LOG_CLUSTER, "Hibernated", "False", "PartitionsNotInSync")
        assert await bench.replicas() == 2
        await until_says(bench, LOG_CLUSTER, "Ready", "True", "Ready")
        operator.admin.under_replicated = 0
        await fall_asleep(bench, operator)

    run(scenario())


def test_pools_that_change_meanwhile_do_so_when_they_wake(
    bench: Bench, run: Any, operator: Operator
) -> None:
    async def scenario() -> None:
        await bench.create(cluster_manifest(), pool_manifest(2))
        await bench.start(2)
        await fall_asleep(bench, operator)
        await bench.scale(1)
        await until_says(bench, BROKER_POOL, "Blocked", "True", "Hibernated")
        await bench.scale(3)

        async def is_free() -> bool:
            return await bench.condition(BROKER_POOL, "main", "Blocked", "True") is None

        await bench.until(is_free, "three may come")
        assert await bench.replicas() == 0
        assert [path for _, path, _ in operator.admin.requests if "scale-down" in path] == []
        operator.admin.brokers.append(dict(operator.admin.brokers[0], id=2))
        await wake(bench, operator, 3)

    run(scenario())


def test_a_cluster_is_deleted_in_its_sleep(bench: Bench, run: Any, operator: Operator) -> None:
    async def scenario() -> None:
        await bench.create(cluster_manifest(), pool_manifest(2))
        await bench.start(2)
        await fall_asleep(bench, operator)
        await bench.kube.delete(BROKER_POOL, bench.namespace, "main")
        await bench.kube.delete(LOG_CLUSTER, bench.namespace, "demo")
        await bench.until_gone(LOG_CLUSTER, "demo", "the LogCluster goes")
        await bench.until_gone(BROKER_POOL, "main", "the pool goes")
        claims = await bench.kube.list(PERSISTENT_VOLUME_CLAIM, bench.namespace)
        assert len(claims.items) == 2, "reclaimPolicy is Retain"

    run(scenario())
