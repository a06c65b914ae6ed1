"""A LogCluster whose spec is not taken: its brokers run, and what they need goes on."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from operator_views import SETTINGS

from fairlead_kube.kinds import BROKER_POOL, LOG_CLUSTER, POD, POD_DISRUPTION_BUDGET
from fairlead_operator.clusters.disruptions import CALM_S
from fairlead_operator.clusters.reconciler import SETTLED_LOOK_S, ClusterReconciler
from fairlead_operator.controller_client import CandidateState, ReignState
from fairlead_operator.live_objects import LiveObjects

KEY = ("shop", "demo")
PLAIN: dict[str, Any] = {"listeners": [{"name": "old", "type": "Internal", "port": 9092}]}
NOWHERE = {"start": "02:00", "durationMinutes": 60, "timeZone": "Nowhere/X"}
INVALID: dict[str, Any] = {"maintenanceWindows": [NOWHERE]}


class World:
    """Stands for whatever the reconciler calls; notes what it does."""

    def __init__(self, spec: dict[str, Any], *, allowed: int | None = 1) -> None:
        nobody: Any = None
        self.problems: list[str] = []
        self.renewed: list[Any] = []
        self.under_replicated = 0
        self.live = LiveObjects(nobody, (), lambda _: None)
        self.add(LOG_CLUSTER, "demo", spec=spec)
        if allowed is not None:
            self.add(POD_DISRUPTION_BUDGET, "demo", spec={"maxUnavailable": allowed})
        self.reconciler = ClusterReconciler(
            self.live,
            self,  # type: ignore[arg-type]
            controller=self,  # type: ignore[arg-type]
            roller=nobody,
            hibernations=nobody,
            events=nobody,
            settings=replace(SETTINGS, refuses_plaintext=True),
        )
        self.reconciler._statuses = self  # type: ignore[assignment]
        certificates: Any = SimpleNamespace(renew=self._renew, forget=lambda _: None)
        self.reconciler._certificates = certificates

    def add(self, kind: Any, name: str, **fields: Any) -> None:
        labels = {"fairlead.io/cluster": "demo"}
        stamps = {"namespace": "shop", "uid": "u", "resourceVersion": "1", "generation": 1}
        self.live.informers[kind]._objects["shop", name] = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {"name": name, "labels": labels} | stamps,
            **fields,
        }

    def look(self) -> float | None:
        return asyncio.run(self.reconciler.reconcile(KEY))

    @property
    def allowed(self) -> int:
        budget = self.live.informers[POD_DISRUPTION_BUDGET].objects[KEY]
        return int(budget["spec"]["maxUnavailable"])

    async def state(self) -> CandidateState:
        return CandidateState("active", "me", {"shop/demo": ReignState(1, True)})

    async def cluster_status(self, *_: str) -> dict[str, Any]:
        return {"partitions": {"underReplicated": self.under_replicated, "offline": 0}}

    async def patch(self, kind: Any, namespace: str, name: str, patch: dict[str, Any]) -> None:
        self.add(kind, name, **patch)

    async def write_cluster(self, _manifest: Any, facts: Any) -> bool:
        self.problems.append(facts.problem[0])
        return True

    async def write_pool_problem(self, pool: Any, reason: str, _message: str) -> bool:
        self.problems.append(f"{pool['metadata']['name']}: {reason}")
        return True

    async def _renew(self, sight: Any, _refusals: Any) -> None:
        self.renewed.append(sight.cluster)


@pytest.mark.parametrize(
    ("spec", "problem"), [(PLAIN, "PlaintextRefused"), (INVALID, "InvalidSpec")]
)
def test_the_budget_follows_and_certificates_are_renewed(
    spec: dict[str, Any], problem: str
) -> None:
    world = World(spec)
    world.under_replicated = 3
    assert world.look() == SETTLED_LOOK_S
    assert world.problems == [problem]
    assert world.allowed == 0
    world.under_replicated = 0
    world.look()
    assert world.allowed == 0
    world.reconciler._whole_since[KEY] -= CALM_S
    world.look()
    assert world.allowed == 1
    world.add(POD, "demo-main-0", status={})
    world.look()
    assert world.allowed == 0
    assert [each is None for each in world.renewed] == [spec is INVALID] * 4


def test_a_paused_cluster_stays_as_it_is() -> None:
    world = World(INVALID | {"paused": True})
    world.under_replicated = 3
    world.look()
    assert world.problems == ["InvalidSpec"]
    assert (world.allowed, world.renewed) == (1, [])


def test_a_cluster_that_has_never_begun_is_looked_at_when_it_changes() -> None:
    world = World(INVALID, allowed=None)
    assert world.look() is None
    assert world.problems == ["InvalidSpec"]


def test_a_pool_that_is_left_alone_is_told_nothing_either_when_its_cluster_is_gone() -> None:
    world = World({}, allowed=None)
    world.reconciler._roller = SimpleNamespace(forget=lambda _: None)  # type: ignore[assignment]
    del world.live.informers[LOG_CLUSTER]._objects[KEY]
    for name in ("main", "alone"):
        world.add(BROKER_POOL, name, spec={"clusterName": "demo"})
        pool = world.live.informers[BROKER_POOL]._objects["shop", name]
        pool["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    pool["metadata"]["annotations"] = {"fairlead.io/managed": "false"}
    world.look()
    assert world.problems == ["main: ClusterNotFound"]
