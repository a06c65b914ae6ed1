"""What goes wrong around the kopf process, and what it then says."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import pytest
from operator_bench import QUIET_S, cluster_manifest, pool_manifest

from fairlead_kube.kinds import BROKER_POOL, LOG_CLUSTER, SERVICE, STATEFUL_SET
from fairlead_model.release import RELEASE

if TYPE_CHECKING:
    from operator_bench import Bench, Operator

pytestmark = pytest.mark.kubernetes


def test_a_node_port_that_another_cluster_has_is_named(bench: Bench, run: Any) -> None:
    async def scenario() -> None:
        # Of the first ports, which Kubernetes gives to nobody who asks for any.
        base = 30000 + int.from_bytes(os.urandom(1)) % 80
        listener = {"name": "outside", "type": "NodePort", "port": 9095, "nodePortBase": base}
        other = cluster_manifest(listeners=[listener])
        other["metadata"]["name"] = "other"
        await bench.kube.create(LOG_CLUSTER, bench.namespace, other)
        await bench.until(lambda: bench.get(SERVICE, "other-outside-bootstrap"), "the first one")
        bench.operator.admin.clusters.append(f"{bench.namespace}/other")
        await bench.create(cluster_manifest(listeners=[listener]), pool_manifest(1))
        refused = await bench.until(lambda: is_refused(bench), "the clash is named")
        assert f"{base}: provided port is already allocated" in refused["message"]
        assert "nodePortBase" in refused["message"]
        await bench.until(lambda: bench.get(STATEFUL_SET, "demo-main"), "the brokers come up")
        patch = {"spec": {"listeners": None}}
        await bench.kube.patch(LOG_CLUSTER, bench.namespace, "demo", patch)
        await bench.start(1)

    run(scenario())


async def is_refused(bench: Bench) -> Any:
    claim = await bench.condition(LOG_CLUSTER, "demo", "Ready", "False")
    return claim if claim and claim["reason"] == "Refused" else None


def test_an_operator_that_is_ahead_of_its_brokers_rolls_them_only_when_it_may(
    bench: Bench, run: Any, operator: Operator
) -> None:
    async def scenario() -> None:
        await bench.create(cluster_manifest(image="localhost/earlier:1"), pool_manifest(2))
        await bench.start(2)
        settled = await bench.until(
            lambda: bench.condition(BROKER_POOL, "main", "Progressing", "False"), "settled"
        )
        assert settled["reason"] == "Settled", "a LogCluster that names its image keeps it"
        uids = {name: pod["metadata"]["uid"] for name, pod in (await bench.pods()).items()}
        operator.admin.under_replicated = 1
        patch = {"spec": {"image": None, "version": RELEASE}}
        await bench.kube.patch(LOG_CLUSTER, bench.namespace, "demo", patch)
        rolling = await bench.until(
            lambda: bench.condition(BROKER_POOL, "main", "Progressing", "True"), "shown"
        )
        assert "another image than localhost/fairlead-not-there:test" in rolling["message"]
        await bench.until(
            lambda: bench.condition(LOG_CLUSTER, "demo", "Progressing", "True"), "shown"
        )
        assert await bench.condition(LOG_CLUSTER, "demo", "Ready", "True")
        await asyncio.sleep(QUIET_S / 3)
        assert uids == {name: pod["metadata"]["uid"] for name, pod in (await bench.pods()).items()}

    run(scenario())
