"""Which changes of a LogCluster have its groups looked at before their time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from fake_groups import FakeGroups, FakeStore
from waiting import until

from fairlead_kube.object_changes import ObjectChange
from fairlead_operator.consumer_groups import cluster_groups
from fairlead_operator.consumer_groups.sync import GroupSync

if TYPE_CHECKING:
    import pytest

CLUSTER, GROUP = ("ns", "demo"), ("ns", "billing")


def log_cluster(*, paused: bool) -> dict[str, Any]:
    metadata = {"namespace": "ns", "name": "demo", "resourceVersion": "1"}
    return {"kind": "LogCluster", "metadata": metadata, "spec": {"paused": paused}}


def consumer_group() -> dict[str, Any]:
    return {
        "apiVersion": "fairlead.io/v1alpha1",
        "kind": "ConsumerGroup",
        "metadata": {"namespace": "ns", "name": "billing", "uid": "u", "generation": 1},
        "spec": {
            "clusterName": "demo",
            "refreshSeconds": 3600,
            "offsetReset": {"id": "one", "to": "Latest"},
        },
    }


def test_a_reset_begins_when_its_cluster_is_paused_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_groups, "GATHER_S", 0.0)

    async def story() -> None:
        store, groups = FakeStore(), FakeGroups({("a", 0): 0}, {("a", 0): 10})
        groups.group("billing").committed[("a", 0)] = 3
        store.put(consumer_group())
        sync = GroupSync(store, store, connect=lambda _: groups, now=lambda: 0.0)  # type: ignore[arg-type]
        async with asyncio.TaskGroup() as tasks:
            sync._group = tasks
            paused, awake = log_cluster(paused=True), log_cluster(paused=False)
            sync._on_cluster(ObjectChange(CLUSTER, None, paused))
            sync._on_resource(ObjectChange(GROUP, None, await store.get(None, *GROUP)))
            await until(lambda: store.objects[GROUP].get("status"))
            assert not groups.commits
            sync._on_cluster(ObjectChange(CLUSTER, paused, awake))
            await until(lambda: groups.commits)
            sync._end(CLUSTER)

    asyncio.run(story())
