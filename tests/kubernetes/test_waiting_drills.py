"""Drills that wait, and drills whose pod nobody lets in: neither may keep the API server busy."""

from __future__ import annotations

import asyncio
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
from operator_bench import QUIET_S, cluster_manifest, pool_manifest

from fairlead_kube.kinds import FAILOVER_DRILL, ResourceKind

if TYPE_CHECKING:
    from operator_bench import Bench, Operator

pytestmark = pytest.mark.kubernetes

QUOTA = ResourceKind("", "v1", "ResourceQuota", "resourcequotas")


def drill_manifest(**spec: Any) -> dict[str, Any]:
    body = {
        "clusterName": "demo",
        "target": {"type": "Broker", "brokerId": 0},
        "fault": {"type": "Kill"},
        "workload": {"partitions": 1, "replicationFactor": 1},
    }
    return {
        "apiVersion": FAILOVER_DRILL.api_version,
        "kind": "FailoverDrill",
        "metadata": {"name": "check"},
        "spec": body | spec,
    }


def reads_of(operator: Operator) -> float:
    """How many single objects and lists the operator has asked for."""
    with urllib.request.urlopen(f"http://127.0.0.1:{operator.port}/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return sum(
        float(line.rsplit(" ", 1)[1])
        for line in lines
        if line.startswith("fairlead_api_requests_total")
        and ('verb="get"' in line or 'verb="list"' in line)
    )


def test_one_waits_quietly_and_one_whose_pod_a_quota_refuses_ends(
    bench: Bench, run: Any, operator: Operator
) -> None:
    async def scenario() -> None:
        await bench.create(cluster_manifest(), pool_manifest(1))
        await bench.start(1)
        quota = {"metadata": {"name": "full"}, "spec": {"hard": {"pods": "0"}}}
        await bench.kube.create(QUOTA, bench.namespace, quota)

        async def is_counted() -> bool:
            return bool((await bench.get(QUOTA, "full")).get("status", {}).get("hard"))

        await bench.until(is_counted, "the quota counts")
        await bench.kube.create(FAILOVER_DRILL, bench.namespace, drill_manifest(suspend=True))
        held = await bench.until(
            lambda: bench.condition(FAILOVER_DRILL, "check", "Complete", "False"), "it waits"
        )
        assert held["reason"] == "Suspended"
        before = reads_of(operator)
        await asyncio.sleep(QUIET_S / 2)
        assert reads_of(operator) - before < 5 * QUIET_S / 2
        patch = {"spec": {"suspend": False}}
        await bench.kube.patch(FAILOVER_DRILL, bench.namespace, "check", patch)
        ended = await bench.until(
            lambda: bench.condition(FAILOVER_DRILL, "check", "Complete", "True"), "it ends"
        )
        assert ended["reason"] == "PodRefused"
        assert "drill-check" in ended["message"]
        assert "quota" in ended["message"]

    run(scenario())


def test_a_namespace_may_not_break_the_controller_of_all(bench: Bench, run: Any) -> None:
    async def scenario() -> None:
        await bench.create(cluster_manifest(), pool_manifest(1))
        await bench.start(1)
        drill = drill_manifest(target={"type": "Controller"})
        await bench.kube.create(FAILOVER_DRILL, bench.namespace, drill)
        ended = await bench.until(
            lambda: bench.condition(FAILOVER_DRILL, "check", "Complete", "True"), "it is refused"
        )
        assert ended["reason"] == "ControllerDrillsDisabled"
        assert "drills.controller" in ended["message"]
        assert "fairlead-system" in ended["message"]

    run(scenario())
