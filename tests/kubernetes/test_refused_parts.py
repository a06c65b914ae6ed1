"""Parts of a cluster that the API server refuses, or that are another's: said, and put right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from operator_bench import cluster_manifest, pool_manifest

from fairlead_kube.kinds import (
    BROKER_POOL,
    LOG_CLUSTER,
    POD_DISRUPTION_BUDGET,
    SECRET,
    STATEFUL_SET,
)

if TYPE_CHECKING:
    from operator_bench import Bench

pytestmark = pytest.mark.kubernetes


async def refusal(bench: Bench, kind: Any, name: str) -> Any:
    """The condition that says that a part is refused, once it is there."""
    claim = await bench.condition(kind, name, "Ready", "False")
    return claim if claim and claim["reason"] == "Refused" else None


def test_a_field_that_pods_do_not_have_is_named_and_what_runs_is_still_looked_after(
    bench: Bench, run: Any
) -> None:
    async def scenario() -> None:
        await bench.create(cluster_manifest(), pool_manifest(1))
        await bench.start(1)
        patch = {"spec": {"template": {"affinity": {"foo": "bar"}}}}
        await bench.kube.patch(BROKER_POOL, bench.namespace, "main", patch)
        for kind, name in ((BROKER_POOL, "main"), (LOG_CLUSTER, "demo")):

            async def is_refused(kind: Any = kind, name: str = name) -> Any:
                return await refusal(bench, kind, name)

            said = await bench.until(is_refused, f"{name} says so")
            assert "affinity.foo: field not declared" in said["message"]
            assert "spec.template of the BrokerPool" in said["message"]
        generation = (await bench.get(BROKER_POOL, "main"))["metadata"]["generation"]
        assert (await refusal(bench, BROKER_POOL, "main"))["observedGeneration"] == generation
        opened = {"spec": {"networkPolicy": {"enabled": False}}}
        await bench.kube.patch(LOG_CLUSTER, bench.namespace, "demo", opened)

        async def has_seen() -> bool:
            status = (await bench.get(LOG_CLUSTER, "demo"))["status"]
            return bool(status["observedGeneration"] == 2)

        await bench.until(has_seen, "one part that is refused holds up no other")
        mended = {"spec": {"template": {"affinity": None}}}
        await bench.kube.patch(BROKER_POOL, bench.namespace, "main", mended)
        await bench.until(lambda: bench.condition(BROKER_POOL, "main", "Ready", "True"), "mended")

    run(scenario())


def test_brokers_wait_until_the_secret_of_an_earlier_cluster_is_gone(
    bench: Bench, run: Any
) -> None:
    async def scenario() -> None:
        owner = {"apiVersion": LOG_CLUSTER.api_version, "kind": "LogCluster", "name": "demo"}
        leftover = {
            "metadata": {
                "name": "demo-session",
                "finalizers": ["fairlead.io/held-by-a-test"],
                "ownerReferences": [owner | {"uid": "00000000-0000-4000-8000-000000000000"}],
            },
            "data": {"secret": "b2xk"},
        }
        await bench.kube.create(SECRET, bench.namespace, leftover)
        await bench.create(cluster_manifest(), pool_manifest(1))
        said = await bench.until(lambda: refusal(bench, LOG_CLUSTER, "demo"), "it is said")
        assert "Secret demo-session is that of an earlier LogCluster" in said["message"]
        assert not (await bench.kube.list(STATEFUL_SET, bench.namespace)).items
        patch = {"metadata": {"finalizers": None}}
        await bench.kube.patch(SECRET, bench.namespace, "demo-session", patch)
        await bench.until(lambda: bench.get(STATEFUL_SET, "demo-main"), "the brokers come")
        uid = (await bench.get(LOG_CLUSTER, "demo"))["metadata"]["uid"]
        metadata = (await bench.get(SECRET, "demo-session"))["metadata"]
        assert [each["uid"] for each in metadata["ownerReferences"]] == [uid]

    run(scenario())


def test_an_object_of_somebody_else_is_left_as_it_is_and_named(bench: Bench, run: Any) -> None:
    async def scenario() -> None:
        theirs = {"minAvailable": 1, "selector": {"matchLabels": {"app": "shop"}}}
        budget = {"metadata": {"name": "demo"}, "spec": theirs}
        await bench.kube.create(POD_DISRUPTION_BUDGET, bench.namespace, budget)
        await bench.create(cluster_manifest(), pool_manifest(1))
        said = await bench.until(lambda: refusal(bench, LOG_CLUSTER, "demo"), "it is said")
        assert "PodDisruptionBudget demo was there before LogCluster demo" in said["message"]
        there = await bench.get(POD_DISRUPTION_BUDGET, "demo")
        assert there["spec"]["selector"] == theirs["selector"]
        assert "ownerReferences" not in there["metadata"]
        await bench.kube.delete(POD_DISRUPTION_BUDGET, bench.namespace, "demo")

        async def has_its_own() -> bool:
            there = await bench.get(POD_DISRUPTION_BUDGET, "demo")
            return bool(there and there["metadata"].get("ownerReferences"))

        await bench.until(has_its_own, "the cluster has a budget of its own")

    run(scenario())
