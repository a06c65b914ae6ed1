"""Two controllers on one store in the API server: the older one writes nothing any more (I11)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from fairlead_controller.controller import Controller, open_controller
from fairlead_controller.decisions.events import (
    CreateTopics,
    ElectLeaders,
    RegisterBroker,
    UnfenceBroker,
)
from fairlead_controller.decisions.tables.stored_table import StoreCorruptError, StoreError
from fairlead_controller.stores.kubernetes import (
    KubernetesStore,
    delete_tables,
    open_kubernetes_store,
)
from fairlead_controller.stores.metadata_store import SealedError, TableWrite, WriteOutcome
from fairlead_kube.errors import ApiError
from fairlead_kube.kinds import CLUSTER_STATE, NAMESPACE, PARTITION_TABLE
from fairlead_model.broker import BrokerRegistration, Endpoint
from fairlead_model.session.calls import CreatableTopic, CreateTopicsCall
from fairlead_model.session.refusals import RefusalCode, RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from fairlead_kube.client import KubeClient

    Run = Callable[[Coroutine[Any, Any, Any]], Any]

pytestmark = pytest.mark.kubernetes

PARTITIONS = 1100
TABLES = {"cluster", "partitions-00000", "partitions-00001", "partitions-00002"}


async def make_cluster(store: KubernetesStore) -> tuple[Controller, asyncio.Task[None]]:
    """A controller with a broker and a topic that fills three tables."""
    controller = await open_controller(store, now_ms=lambda: 0)
    running = asyncio.create_task(controller.run())
    await controller.submit(ElectLeaders())
    endpoints = (
        Endpoint("CLIENT", "127.0.0.1", 9092),
        Endpoint("INTERNAL", "127.0.0.1", 9192, is_internal=True),
    )
    registration = BrokerRegistration(
        0, endpoints=endpoints, host_name="host", directory_id="disk", start_id="start"
    )
    reply = await controller.submit(RegisterBroker(registration, ""))
    await controller.submit(UnfenceBroker(0, reply["broker_epoch"]))
    topic = CreatableTopic(
        name="t", partitions=PARTITIONS, replication_factor=1, assignments={}, configs={}
    )
    call = CreateTopicsCall(
        topics=[topic], validate_only=False, default_partitions=1, default_replication_factor=1
    )
    await controller.submit(CreateTopics(call))
    return controller, running


def test_a_deposed_controller_writes_no_table(kube: KubeClient, namespace: str, run: Run) -> None:
    async def story() -> None:
        older_store = await open_kubernetes_store(kube, namespace, "demo")
        newer_store = await open_kubernetes_store(kube, namespace, "demo")
        older, running = await make_cluster(older_store)
        known = await older_store.load()
        assert set(known) == TABLES
        newer = await open_controller(newer_store, now_ms=lambda: 0)
        assert newer.committed.controller_epoch == older.committed.controller_epoch + 1
        assert len(list(newer.committed.image.topics())) == 1
        sealed = await newer_store.load()
        for name, table in known.items():
            (result,) = await older_store.write([TableWrite(name, table.version, 1, {"x": "1"})])
            assert result.outcome is WriteOutcome.CONFLICT, name
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert await newer_store.load() == sealed
        await older_store.close()
        await newer_store.close()

    run(story())


def test_a_deposed_controller_ends(kube: KubeClient, namespace: str, run: Run) -> None:
    async def story() -> None:
        older_store = await open_kubernetes_store(kube, namespace, "demo")
        newer_store = await open_kubernetes_store(kube, namespace, "demo")
        older, running = await make_cluster(older_store)
        await open_controller(newer_store, now_ms=lambda: 0)
        registration = BrokerRegistration(
            1,
            endpoints=(Endpoint("INTERNAL", "127.0.0.1", 9193, is_internal=True),),
            host_name="host-1",
            directory_id="disk-1",
            start_id="start-1",
        )
        with pytest.raises(RefusedError) as refused:
            await older.submit(RegisterBroker(registration, ""))
        assert refused.value.code is RefusalCode.NOT_CONTROLLER
        with pytest.raises(SealedError):
            await running
        await older_store.close()
        await newer_store.close()

    run(story())


def test_a_state_outlives_its_controller(kube: KubeClient, namespace: str, run: Run) -> None:
    async def story() -> None:
        store = await open_kubernetes_store(kube, namespace, "demo")
        first, running = await make_cluster(store)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await store.close()
        store = await open_kubernetes_store(kube, namespace, "demo")
        second = await open_controller(store, now_ms=lambda: 0)
        before, after = first.committed.image, second.committed.image
        assert list(after.changes_since(before)) == []
        assert after.cluster_id == before.cluster_id
        await store.close()

    run(story())


def test_deleting_tables_leaves_other_clusters_alone(
    kube: KubeClient, namespace: str, run: Run
) -> None:
    async def story() -> None:
        for cluster in ("demo", "demo-partitions"):
            store = await open_kubernetes_store(kube, namespace, cluster)
            _, running = await make_cluster(store)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await store.close()
        assert await delete_tables(kube, namespace, "demo") == len(TABLES)
        assert await delete_tables(kube, namespace, "demo") == 0
        store = await open_kubernetes_store(kube, namespace, "demo")
        assert await store.load() == {}
        await store.close()
        other = await open_kubernetes_store(kube, namespace, "demo-partitions")
        assert set(await other.load()) == TABLES
        await other.close()

    run(story())


def test_what_others_wrote_on_an_object_is_kept(kube: KubeClient, namespace: str, run: Run) -> None:
    async def story() -> None:
        store = await open_kubernetes_store(kube, namespace, "demo")
        await store.write([TableWrite("partitions-00000", None, 1, {"a": "1"})])
        name = "demo-partitions-00000"
        patch = {
            "metadata": {"labels": {"backup": "yes"}, "annotations": {"seen-by": "an auditor"}}
        }
        await kube.patch(PARTITION_TABLE, namespace, name, patch)
        table = await store.read("partitions-00000")
        assert table is not None
        await store.write([TableWrite("partitions-00000", table.version, 1, {"a": "2"})])
        written = await kube.get(PARTITION_TABLE, namespace, name)
        assert written["metadata"]["labels"]["backup"] == "yes"
        assert written["metadata"]["labels"]["fairlead.io/cluster"] == "demo"
        assert written["metadata"]["annotations"]["seen-by"] == "an auditor"
        assert "ownerReferences" not in written["metadata"]
        assert written["spec"]["lines"] == "a 2\n"
        await store.close()

    run(story())


def test_a_table_under_a_false_name_is_damage(kube: KubeClient, namespace: str, run: Run) -> None:
    async def story() -> None:
        store = await open_kubernetes_store(kube, namespace, "demo")
        await store.write([TableWrite("cluster", None, 1, {"a": "1"})])
        manifest = await kube.get(CLUSTER_STATE, namespace, "demo")
        manifest |= {"metadata": {"name": "demo-2"}}
        await kube.create(CLUSTER_STATE, namespace, manifest)
        copy = await open_kubernetes_store(kube, namespace, "demo-2")
        with pytest.raises(StoreCorruptError, match="cluster demo"):
            await copy.load()
        await copy.close()
        await store.close()

    run(story())


def test_a_store_without_its_namespace_says_so(kube: KubeClient, namespace: str, run: Run) -> None:
    async def story() -> None:
        absent = f"{namespace}-absent"
        with pytest.raises(ApiError):
            await kube.get(NAMESPACE, None, absent)
        store = await open_kubernetes_store(kube, absent, "demo")
        with pytest.raises(StoreError, match="not found"):
            await open_controller(store, now_ms=lambda: 0)
        await store.close()

    run(story())
