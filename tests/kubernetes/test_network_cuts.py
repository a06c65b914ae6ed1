"""Pods that a drill has cut off are joined again, also where one of them is gone by then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from operator_bench import cluster_manifest

from fairlead_kube.kinds import FAILOVER_DRILL, LOG_CLUSTER, NETWORK_POLICY, POD
from fairlead_model.resources.failover_drill import FailoverDrillSpec
from fairlead_operator.drills.cuts import CUT_FINALIZER, NetworkCuts
from fairlead_operator.drills.faults import ChosenTarget
from fairlead_operator.drills.status import DrillStatus
from fairlead_operator.specs.names import CLUSTER_LABEL, CUT_LABEL

if TYPE_CHECKING:
    from fairlead_kube.client import KubeClient

pytestmark = pytest.mark.kubernetes

PODS = ("demo-main-0", "demo-main-1", "demo-main-2")


def pod(name: str) -> dict[str, Any]:
    """One that no node takes: nothing of it has to run."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {CLUSTER_LABEL: "demo"}},
        "spec": {
            "nodeSelector": {"fairlead.io/no": "node"},
            "containers": [{"name": "broker", "image": "localhost/fairlead-not-there:test"}],
        },
    }


def drill_manifest() -> dict[str, Any]:
    return {
        "apiVersion": FAILOVER_DRILL.api_version,
        "kind": "FailoverDrill",
        "metadata": {"name": "cut"},
        "spec": {
            "clusterName": "demo",
            "target": {"type": "Zone", "zone": "a"},
            "fault": {"type": "Isolate", "durationSeconds": 10},
            "allowUnsafe": True,
        },
    }


def test_all_are_joined_again_also_where_one_was_made_anew_meanwhile(
    kube: KubeClient, namespace: str, run: Any
) -> None:
    """What is refused for one pod must not leave the others cut off, nor the drill for ever."""

    async def labels() -> list[str | None]:
        found = [await kube.get(POD, namespace, name) for name in PODS]
        return [each["metadata"]["labels"].get(CUT_LABEL) for each in found]

    async def story() -> None:
        for name in PODS:
            await kube.create(POD, namespace, pod(name))
        drill = await kube.create(FAILOVER_DRILL, namespace, drill_manifest())
        spec, status = FailoverDrillSpec.from_manifest(drill), DrillStatus(drill)
        cuts = NetworkCuts(kube, namespace)
        targets = [ChosenTarget(name, number, name) for number, name in enumerate(PODS)]
        assert await cuts.ensure_planned(drill, spec, status, 1, targets)
        cluster = await kube.create(LOG_CLUSTER, namespace, cluster_manifest())
        await cuts.prepare(drill, spec, cluster)
        await cuts.cut(drill, status.values["cut"])
        assert await labels() == [drill["metadata"]["uid"]] * 3
        await kube.delete(POD, namespace, PODS[0], grace_period_s=0)
        await kube.create(POD, namespace, pod(PODS[0]))
        drill["status"] = status.values
        await cuts.release(drill)
        assert await labels() == [None] * 3
        assert not (await kube.list(NETWORK_POLICY, namespace)).items
        held = await kube.get(FAILOVER_DRILL, namespace, "cut")
        assert CUT_FINALIZER not in (held["metadata"].get("finalizers") or ())

    run(story())
