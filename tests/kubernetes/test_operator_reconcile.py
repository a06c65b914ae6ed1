"""The kopf process against a real API server; the controller is a fake on a unix socket."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from fake_admin import broker
from operator_bench import QUIET_S, cluster_manifest, pool_manifest

from fairlead_kube.client import JSON_PATCH
from fairlead_kube.errors import ApiError
from fairlead_kube.kinds import (
    BROKER_POOL,
    CONFIG_MAP,
    LOG_CLUSTER,
    NAMESPACE,
    PERSISTENT_VOLUME_CLAIM,
    POD,
    ROLE_BINDING,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    STATEFUL_SET,
    ResourceKind,
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
        await bench.until_may_go(1, "calm")
        secret = await bench.get(SECRET, "demo-session")
        before = await bench.until_quiet()
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
        await bench.kube.delete(SECRET, bench.namespace, "demo-session")
        back = await bench.until(lambda: bench.get(SECRET, "demo-session"), "so does the Secret")
        assert back["data"] == secret["data"], "brokers that run go by what it held"

    run(scenario())


def test_what_somebody_adds_to_a_merged_list_is_not_applied_against(
    bench: Bench, run: Any, operator: Operator
) -> None:
    async def scenario() -> None:
        await bench.create(cluster_manifest(), pool_manifest(1))
        await bench.start(1)
        await bench.until_may_go(1, "calm")
        uid = (await bench.get(BROKER_POOL, "main"))["metadata"]["uid"]
        owner = {"apiVersion": BROKER_POOL.api_version, "kind": "BrokerPool", "name": "main"}
        place = "/metadata/ownerReferences/-"
        patch: Any = [{"op": "add", "path": place, "value": owner | {"uid": uid}}]
        before = await bench.until_quiet()
        names = (SERVICE, bench.namespace, "demo-bootstrap")
        await bench.kube.patch(*names, patch, content_type=JSON_PATCH)
        await asyncio.sleep(QUIET_S)
        assert operator.writes() == before
        assert len((await bench.kube.get(*names))["metadata"]["ownerReferences"]) == 2

    run(scenario())


def test_spark_drivers_have_an_account_as_long_as_the_cluster_wants_it(
    bench: Bench, run: Any
) -> None:
    async def scenario() -> None:
        await bench.create(cluster_manifest(), pool_manifest(0))
        for kind in (SERVICE_ACCOUNT, ROLE_BINDING):
            await bench.until(partial(bench.get, kind, "demo-spark"), f"there is a {kind.kind}")
        cluster = await bench.get(LOG_CLUSTER, "demo")
        binding = await bench.get(ROLE_BINDING, "demo-spark")
        (owner,) = binding["metadata"]["ownerReferences"]
        assert owner["uid"] == cluster["metadata"]["uid"]
        assert binding["roleRef"]["name"] == "drivers-of-spark"
        patch = {"spec": {"spark": {"driverAccount": False}}}
        await bench.kube.patch(LOG_CLUSTER, bench.namespace, "demo", patch)

        for kind in (SERVICE_ACCOUNT, ROLE_BINDING):
            await bench.until_gone(kind, "demo-spark", f"the {kind.kind} goes")

    run(scenario())


def test_a_changed_setting_restarts_brokers_one_by_one_when_that_is_allowed(
    bench: Bench, run: Any, operator: Operator
) -> None:
    async def scenario() -> None:
        later = datetime.now(UTC) + timedelta(hours=3)
        window = {"start": later.strftime("%H:%M"), "durationMinutes": 60}
        await bench.create(cluster_manifest(maintenanceWindows=[window]), pool_manifest(2))
        await bench.start(2)
        uids = {name: pod["metadata"]["uid"] for name, pod in (await bench.pods()).items()}
        operator.admin.requests.clear()
        patch = {"spec": {"config": {"log.retention.hours": 5}}}
        await bench.kube.patch(LOG_CLUSTER, bench.namespace, "demo", patch)

        async def waits() -> bool:
            cluster = await bench.get(LOG_CLUSTER, "demo")
            expected = later.strftime("%Y-%m-%dT%H:%M:00Z")
            return bool(cluster["status"].get("restartsWaitUntil") == expected)

        await bench.until(waits, "it waits for the window")
        progress = await bench.condition(LOG_CLUSTER, "demo", "Progressing", "True")
        assert progress["reason"] == "WaitingForWindow"
        assert not [path for _, path, _ in operator.admin.requests if path.endswith("/drain")]
        allowed = (datetime.now(UTC) + timedelta(minutes=30)).isoformat()
        note = {"metadata": {"annotations": {"fairlead.io/restarts-allowed-until": allowed}}}
        await bench.kube.patch(LOG_CLUSTER, bench.namespace, "demo", note)
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
        operator.admin.problem = "partition t-0 has 3 replicas"
        await bench.scale(2)
        blocked = await bench.until(
            lambda: bench.condition(BROKER_POOL, "main", "Blocked", "True"), "refused"
        )
        assert blocked["reason"] == "ReplicasRemain"
        assert "2 (5)" in blocked["message"]
        assert "t-0 has 3 replicas" in blocked["message"]
        assert await bench.replicas() == 3
        operator.admin.problem = ""
        progress = await bench.until(
            lambda: bench.condition(BROKER_POOL, "main", "Progressing", "True"), "it is emptied"
        )
        assert (progress["reason"], "2 (5)" in progress["message"]) == ("Draining", True)
        assert (await bench.get(BROKER_POOL, "main"))["status"]["draining"] == [2]
        operator.admin.brokers[2] |= {"replicas": 0, "unconfirmedRemovals": 3}
        await bench.until(lambda: says_it_deletes(bench), "it deletes what it held")
        assert await bench.replicas() == 3
        operator.admin.brokers[2]["unconfirmedRemovals"] = 0
        await bench.until(lambda: has(2), "scaled down once empty")
        assert len(operator.admin.brokers) == 3, "it has not stopped yet"
        operator.admin.brokers[2]["state"] = "fenced"

        async def is_forgotten() -> bool:
            return len(operator.admin.brokers) == 2

        await bench.until(is_forgotten, "it is unregistered")

    run(scenario())


async def says_it_deletes(bench: Bench) -> bool:
    progress = await bench.condition(BROKER_POOL, "main", "Progressing", "True")
    return progress is not None and "3 removed replicas" in progress["message"]


def test_a_pool_that_keeps_its_brokers_after_all_has_them_filled_again(
    bench: Bench, run: Any, operator: Operator
) -> None:
    async def scenario() -> None:
        await bench.create(cluster_manifest(), pool_manifest(2))
        await bench.start(2)
        uids = {name: pod["metadata"]["uid"] for name, pod in (await bench.pods()).items()}
        await bench.scale(1)

        async def is_drained(is_it: bool) -> bool:
            return bool(operator.admin.brokers[1].get("isDrained")) is is_it

        await bench.until(lambda: is_drained(True), "it is emptied")
        await bench.scale(2)
        await bench.until(lambda: is_drained(False), "it stays")
        await bench.until(
            lambda: bench.condition(BROKER_POOL, "main", "Progressing", "False"), "settled"
        )
        after = {name: pod["metadata"]["uid"] for name, pod in (await bench.pods()).items()}
        assert after == uids
        assert "draining" not in (await bench.get(BROKER_POOL, "main"))["status"]

    run(scenario())


def test_no_broker_may_be_evicted_while_anything_is_under_replicated(
    bench: Bench, run: Any, operator: Operator
) -> None:
    async def scenario() -> None:
        await bench.create(cluster_manifest(), pool_manifest(2))
        await bench.start(2)
        await bench.until_may_go(1, "all is in sync")
        operator.admin.under_replicated = 3
        await bench.until_may_go(0, "replicas are missing")
        refused = await evict(bench, "demo-main-1")
        assert "disruption budget" in refused
        operator.admin.under_replicated = 0
        await bench.until_may_go(1, "all is in sync again")
        operator.admin.clusters.clear()
        await bench.until_may_go(0, "the controller cannot say how the partitions are")
        operator.admin.clusters.append(f"{bench.namespace}/demo")
        await bench.until_may_go(1, "it says so again")
        await bench.until(lambda: is_evicted(bench, "demo-main-1"), "a broker may go")
        await bench.until_may_go(0, "its pod is away")
        await bench.make_ready_when_there("demo-main-1")
        await bench.until_may_go(1, "it is back")

    run(scenario())


async def evict(bench: Bench, pod: str) -> str:
    """Ask as a drain does; why it is refused, empty if it is not."""
    eviction = ResourceKind("", "v1", "Eviction", f"pods/{pod}/eviction")
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    try:
        await bench.kube.create(eviction, bench.namespace, body)
    except ApiError as error:
        return error.message
    return ""


async def is_evicted(bench: Bench, pod: str) -> bool:
    return not await evict(bench, pod)


def test_a_pool_that_waits_to_shrink_keeps_its_brokers_without_a_stateful_set(
    bench: Bench, run: Any, operator: Operator
) -> None:
    """As while its volumes grow, and after `kubectl delete statefulset --cascade=orphan`."""

    async def scenario() -> None:
        await bench.create(cluster_manifest(), pool_manifest(3))
        await bench.start(3)
        await bench.scale(1)
        await bench.until(
            lambda: bench.condition(BROKER_POOL, "main", "Progressing", "True"), "it waits"
        )
        before = {name: pod["metadata"]["uid"] for name, pod in (await bench.pods()).items()}
        old = await bench.get(STATEFUL_SET, "demo-main")
        await bench.kube.delete(STATEFUL_SET, bench.namespace, "demo-main", keeps_dependents=True)

        async def is_anew() -> bool:
            live = await bench.get(STATEFUL_SET, "demo-main")
            return bool(live["metadata"]["uid"] != old["metadata"]["uid"])

        await bench.until(is_anew, "the StatefulSet is made anew")
        assert await bench.replicas() == 3
        await asyncio.sleep(QUIET_S / 2)
        assert await bench.replicas() == 3
        after = {name: pod["metadata"]["uid"] for name, pod in (await bench.pods()).items()}
        assert after == before, "its pods go on"
        operator.admin.brokers[1]["replicas"] = operator.admin.brokers[2]["replicas"] = 0

        async def has_shrunk() -> bool:
            return await bench.replicas() == 1

        await bench.until(has_shrunk, "it shrinks once they are empty")

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

        await bench.until_gone(LOG_CLUSTER, "demo", "the finalizer falls")
        assert not await bench.pods()
        claims = (await bench.kube.list(PERSISTENT_VOLUME_CLAIM, bench.namespace)).items
        assert [claim["metadata"]["name"] for claim in claims] == ["data-demo-main-0"]
        await bench.until(
            lambda: bench.condition(BROKER_POOL, "main", "Blocked", "True"), "the pool is told"
        )
        await bench.kube.delete(BROKER_POOL, bench.namespace, "main")

    run(scenario())


def test_brokers_of_a_deleted_pool_are_forgotten_once_they_are_gone(
    bench: Bench, run: Any, operator: Operator
) -> None:
    async def scenario() -> None:
        await bench.create(cluster_manifest(), pool_manifest(1))
        await bench.start(1)
        operator.admin.brokers[0]["replicas"] = 0
        await bench.kube.delete(BROKER_POOL, bench.namespace, "main")
        await bench.until_gone(BROKER_POOL, "main", "its brokers hold nothing")
        assert [each["leavesPool"] for each in operator.admin.brokers] == ["main"]
        operator.admin.brokers[0]["state"] = "fenced"

        async def is_forgotten() -> bool:
            return not operator.admin.brokers

        await bench.until(is_forgotten, "it is unregistered")
        assert not await bench.pods()

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


def test_a_pool_gets_a_volume_that_may_be_taken_back_until_a_broker_has_it(
    bench: Bench, run: Any
) -> None:
    """There is nobody who binds claims: the test says which volume a claim has."""
    first, second = {"id": 0, "size": "1Gi"}, {"id": 1, "size": "2Gi", "storageClassName": "slow"}

    async def claims() -> set[str]:
        found = (await bench.kube.list(PERSISTENT_VOLUME_CLAIM, bench.namespace)).items
        return {each["metadata"]["name"] for each in found}

    async def wish(*volumes: dict[str, Any]) -> None:
        storage = {"size": None, "volumes": list(volumes)}
        await bench.kube.patch(BROKER_POOL, bench.namespace, "main", {"spec": {"storage": storage}})

    async def templates() -> list[str]:
        found = (await bench.get(STATEFUL_SET, "demo-main"))["spec"]["volumeClaimTemplates"]
        return [each["metadata"]["name"] for each in found]

    async def has_restarted(uid: str) -> dict[str, Any] | None:
        pod = (await bench.pods()).get("demo-main-0")
        return pod if pod and pod["metadata"]["uid"] != uid else None

    async def scenario() -> None:
        await bench.create(cluster_manifest(), pool_manifest(1))
        await bench.start(1)
        uid = (await bench.pods())["demo-main-0"]["metadata"]["uid"]
        await wish(first)
        await wish(first, second)
        pod = await bench.until(lambda: has_restarted(uid), "its broker restarts")
        known = bench.operator.admin.brokers[0]
        known["state"] = "fenced"
        mounts = pod["spec"]["containers"][0]["volumeMounts"]
        assert {"name": "data-1", "mountPath": "/var/lib/fairlead-1"} in mounts
        assert await claims() == {"data-demo-main-0", "data-1-demo-main-0"}
        assert pod["spec"]["securityContext"]["fsGroup"] == 10001

        async def is_told() -> bool:
            status = (await bench.get(BROKER_POOL, "main"))["status"]
            told = [(each["id"], each["claims"], each["bound"]) for each in status["volumes"]]
            return told == [(0, 1, 0), (1, 1, 0)]

        await bench.until(is_told, "the status has both volumes")
        await wish(first)

        async def is_taken_back() -> bool:
            return await templates() == ["data"] and await claims() == {"data-demo-main-0"}

        await bench.until(is_taken_back, "nobody had it")
        uid = pod["metadata"]["uid"]
        await bench.until(lambda: has_restarted(uid), "the pod that waits for it goes, too")
        known["state"] = "live"
        await bench.make_ready_when_there("demo-main-0")
        await wish(first, second)

        async def is_there() -> bool:
            return "data-1-demo-main-0" in await claims()

        await bench.until(is_there, "and it may come again")
        bind = {"spec": {"volumeName": "some-disk"}}
        await bench.kube.patch(PERSISTENT_VOLUME_CLAIM, bench.namespace, "data-1-demo-main-0", bind)

        async def is_bound() -> bool:
            status = (await bench.get(BROKER_POOL, "main"))["status"]
            return [each["bound"] for each in status.get("volumes", ())] == [0, 1]

        await bench.until(is_bound, "it is told")
        with pytest.raises(ApiError, match="a volume cannot be removed while it may hold replicas"):
            await wish(first)

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


def test_a_paused_pool_keeps_its_brokers_until_it_goes_on(bench: Bench, run: Any) -> None:
    async def scenario() -> None:
        await bench.create(cluster_manifest(), pool_manifest(2))
        await bench.start(2)
        uids = {name: pod["metadata"]["uid"] for name, pod in (await bench.pods()).items()}
        pause = {"spec": {"paused": True, "config": {"log.retention.hours": 5}}}
        await bench.kube.patch(BROKER_POOL, bench.namespace, "main", pause)
        await bench.until(
            lambda: bench.condition(BROKER_POOL, "main", "Paused", "True"), "it says so"
        )
        patch = {"spec": {"config": {"log.segment.bytes": 1_048_576}}}
        await bench.kube.patch(LOG_CLUSTER, bench.namespace, "demo", patch)
        cluster = await bench.get(LOG_CLUSTER, "demo")

        async def is_seen() -> bool:
            status = (await bench.get(LOG_CLUSTER, "demo"))["status"]
            return bool(status["observedGeneration"] == cluster["metadata"]["generation"])

        await bench.until(is_seen, "a pass has seen both changes")
        text = str((await bench.get(CONFIG_MAP, "demo-main"))["data"])
        assert "log.retention.hours=5" not in text
        assert "log.segment.bytes" not in text
        resumed = {"spec": {"paused": False}}
        await bench.kube.patch(BROKER_POOL, bench.namespace, "main", resumed)

        async def has_both() -> bool:
            text = str((await bench.get(CONFIG_MAP, "demo-main"))["data"])
            return "log.retention.hours=5" in text and "log.segment.bytes" in text

        await bench.until(has_both, "it follows what was said meanwhile")
        assert {name: pod["metadata"]["uid"] for name, pod in (await bench.pods()).items()} == uids

    run(scenario())


def test_a_protected_cluster_outlives_its_deletion(bench: Bench, run: Any) -> None:
    async def scenario() -> None:
        await bench.create(cluster_manifest(deletionProtection=True), pool_manifest(1))
        await bench.start(1)
        (pod,) = (await bench.pods()).values()
        await bench.kube.delete(LOG_CLUSTER, bench.namespace, "demo")
        said = await bench.until(
            lambda: bench.condition(LOG_CLUSTER, "demo", "Deleting", "False"), "it says so"
        )
        assert said["reason"] == "DeletionProtected"
        await bench.kube.delete(SERVICE, bench.namespace, "demo-bootstrap")
        await bench.until(lambda: bench.get(SERVICE, "demo-bootstrap"), "it is looked after")
        assert (await bench.pods())["demo-main-0"]["metadata"]["uid"] == pod["metadata"]["uid"]
        patch = {"spec": {"deletionProtection": False}}
        await bench.kube.patch(LOG_CLUSTER, bench.namespace, "demo", patch)

        await bench.until_gone(LOG_CLUSTER, "demo", "it goes once it is let go")

    run(scenario())


def test_a_namespace_takes_a_protected_cluster_along(bench: Bench, run: Any) -> None:
    async def scenario() -> None:
        await bench.create(cluster_manifest(deletionProtection=True), pool_manifest(0))
        await bench.until(partial(bench.get, SERVICE, "demo-bootstrap"), "it is followed")
        await bench.kube.delete(NAMESPACE, None, bench.namespace)

        await bench.until_gone(LOG_CLUSTER, "demo", "the finalizer falls")

    run(scenario())


def test_a_live_setting_restarts_nobody_and_is_given_to_the_controller(
    bench: Bench, run: Any, operator: Operator
) -> None:
    async def scenario() -> None:
        await bench.create(cluster_manifest(config={"max.connections": 50}), pool_manifest(2))
        await bench.start(2)

        async def template() -> dict[str, Any]:
            stateful_set = await bench.get(STATEFUL_SET, "demo-main")
            return dict(stateful_set["spec"]["template"])

        async def is_in_force(**configs: str) -> bool:
            cluster = await bench.get(LOG_CLUSTER, "demo")
            wanted = {name.replace("_", "."): value for name, value in configs.items()}
            generation = cluster["metadata"]["generation"]
            return (
                operator.admin.configs == wanted
                and cluster["status"].get("configGeneration") == generation
            )

        async def change(**config: int | None) -> None:
            named = {name.replace("_", "."): value for name, value in config.items()}
            patch = {"spec": {"config": named}}
            await bench.kube.patch(LOG_CLUSTER, bench.namespace, "demo", patch)

        await bench.until(lambda: is_in_force(max_connections="50"), "told at first")
        uids = {name: pod["metadata"]["uid"] for name, pod in (await bench.pods()).items()}
        before = await template()
        await change(max_connections=60, log_retention_bytes=7)
        both = {"max_connections": "60", "log_retention_bytes": "7"}
        await bench.until(lambda: is_in_force(**both), "told of a change")
        text = (await bench.get(CONFIG_MAP, "demo-main"))["data"]["server.properties"]
        assert "max.connections=60\n" in text
        await change(max_connections=None)
        default = {"max_connections": "10000", "log_retention_bytes": "7"}
        await bench.until(lambda: is_in_force(**default), "taken out, it has its default")
        assert await template() == before
        operator.admin.refusal = (409, "no room")
        await change(log_retention_bytes=8)
        waiting = await bench.until(
            lambda: bench.condition(LOG_CLUSTER, "demo", "Progressing", "True"), "it is said"
        )
        assert waiting["reason"] == "ConfigNotInForce"
        assert "no room" in waiting["message"]
        operator.admin.refusal = None
        default["log_retention_bytes"] = "8"
        await bench.until(lambda: is_in_force(**default), "told once the controller takes it")
        after = {name: pod["metadata"]["uid"] for name, pod in (await bench.pods()).items()}
        assert after == uids
        drains = [path for _, path, body in operator.admin.requests if body == {"on": True}]
        assert not drains
        generation = (await bench.get(LOG_CLUSTER, "demo"))["status"]["configGeneration"]
        await change(log_retention_hours=5)

        async def rolls() -> bool:
            return await template() != before

        await bench.until(rolls, "a static setting rolls")
        cluster = await bench.get(LOG_CLUSTER, "demo")
        assert cluster["status"]["configGeneration"] == generation
        assert operator.admin.configs["max.connections"] == "10000", "brokers have not restarted"

    run(scenario())


def test_a_broker_that_the_log_cluster_fences_is_left_as_it_is_until_it_is_let_back(
    bench: Bench, run: Any, operator: Operator
) -> None:
    async def scenario() -> None:
        await bench.create(cluster_manifest(), pool_manifest(2))
        await bench.start(2)
        uids = {name: pod["metadata"]["uid"] for name, pod in (await bench.pods()).items()}

        async def fence(*brokers: int) -> None:
            patch = {"spec": {"fencedBrokers": list(brokers)}}
            await bench.kube.patch(LOG_CLUSTER, bench.namespace, "demo", patch)

        operator.admin.refusal = (409, "broker 1 cannot be fenced: t-0 needs it")
        await fence(1)
        refused = partial(bench.condition, LOG_CLUSTER, "demo", "BrokersFenced", "False")
        told = await bench.until(refused, "the refusal is told")
        assert told["reason"] == "FenceRefused"
        assert "t-0 needs it" in told["message"]
        operator.admin.refusal = None
        is_so = partial(bench.condition, LOG_CLUSTER, "demo", "BrokersFenced", "True")
        await bench.until(is_so, "broker 1 is fenced once nothing needs it")
        ready = await bench.until(
            partial(bench.condition, LOG_CLUSTER, "demo", "Ready", "False"), "it is missed"
        )
        assert "fenced by order: broker 1" in ready["message"]
        change = {"spec": {"config": {"log.retention.hours": 5}}}
        await bench.kube.patch(LOG_CLUSTER, bench.namespace, "demo", change)

        async def others_wait() -> bool:
            now = await bench.condition(LOG_CLUSTER, "demo", "Progressing", "True")
            return now is not None and "broker 1 is fenced by order" in now["message"]

        await bench.until(others_wait, "others wait to restart")
        await fence()

        async def is_over() -> bool:
            return operator.admin.brokers[1]["fencedBy"] is None

        await bench.until(is_over, "it is let back")
        pods = {name: pod["metadata"]["uid"] for name, pod in (await bench.pods()).items()}
        assert pods["demo-main-1"] == uids["demo-main-1"]

    run(scenario())
