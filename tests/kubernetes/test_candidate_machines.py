"""Pods that go and nodes that are cordoned: leaders move before anything dies, and come back."""

from __future__ import annotations

import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from live_candidates import CLUSTER, CandidateCluster, create_topic, wait_for

from fairlead_kube.errors import ApiError
from fairlead_kube.kinds import NODE, POD

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.kubernetes

PROMPT = {
    "leader.imbalance.check.interval.seconds": 1,
    "leader.imbalance.per.broker.percentage": 0,
}


def build_pod(name: str) -> dict[str, Any]:
    """A pod that is never started and stays while it is being deleted."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {"fairlead.io/cluster": CLUSTER},
            "finalizers": ["fairlead.io/test"],
        },
        "spec": {
            "nodeSelector": {"fairlead.io/test": "nowhere"},
            "containers": [{"name": "none", "image": "none.invalid/none"}],
        },
    }


@pytest.fixture
def node(kube: Any, run: Any) -> Iterator[str]:
    """A node that is only an object: nothing runs there, so nobody is disturbed."""
    name = f"fairlead-test-{secrets.token_hex(4)}"
    labels = {"topology.kubernetes.io/zone": "test-zone"}
    run(
        kube.create(
            NODE,
            None,
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}},
        )
    )
    yield name
    with suppress(ApiError):
        run(kube.delete(NODE, None, name))


def leaders(cluster: CandidateCluster) -> set[int]:
    return {part["leader"] for part in cluster.partitions(cluster.active(), "t")}


def test_a_pod_that_is_being_deleted_leads_nothing(
    tmp_path: Path, namespace: str, kube: Any, run: Any
) -> None:
    pod = run(kube.create(POD, namespace, build_pod("c-pool-1")))
    try:
        with CandidateCluster(tmp_path, namespace) as cluster:
            run(cluster.declare(kube, config=PROMPT))
            cluster.start_candidate(0)
            for number in range(3):
                uid = pod["metadata"]["uid"] if number == 1 else f"uid-{number}"
                cluster.start_broker(number, pod_uid=uid).wait_ready()
            create_topic(cluster.bootstrap, "t")
            wait_for(lambda: leaders(cluster) == {0, 1, 2})
            run(kube.delete(POD, namespace, "c-pool-1"))
            wait_for(lambda: leaders(cluster) == {0, 2})
            isrs = [part["isr"] for part in cluster.partitions(cluster.active(), "t")]
            assert all(sorted(isr) == [0, 1, 2] for isr in isrs), "it is as well as before"
            _, journal = cluster.active().ask("GET", f"{cluster.path}/moves?since_ms=0")
            said = [each["what"] for each in journal["decisions"]]
            assert any("pod c-pool-1 is being deleted" in each for each in said)
            # The next start of the broker is in another pod.
            cluster.brokers[1].end()
            cluster.start_broker(1, pod_uid="another").wait_ready()
            wait_for(lambda: leaders(cluster) == {0, 1, 2})
    finally:
        finalizers = {"metadata": {"finalizers": None}}
        run(kube.patch(POD, namespace, "c-pool-1", finalizers))


def test_a_cordoned_node_leads_nothing_until_it_is_uncordoned(
    tmp_path: Path, namespace: str, node: str, kube: Any, run: Any
) -> None:
    with CandidateCluster(tmp_path, namespace) as cluster:
        run(cluster.declare(kube, config=PROMPT))
        for number in range(2):
            cluster.start_candidate(number)
        for number in range(3):
            settings = {"fairlead_host_name": node} if number == 2 else {}
            cluster.start_broker(number, **settings).wait_ready()
        create_topic(cluster.bootstrap, "t")
        _, status = cluster.active().ask("GET", f"{cluster.path}/status")
        racks = {broker["id"]: broker["rack"] for broker in status["brokers"]}
        assert racks == {0: None, 1: None, 2: "test-zone"}
        run(kube.patch(NODE, None, node, {"spec": {"unschedulable": True}}))
        wait_for(lambda: leaders(cluster) == {0, 1})
        # The next controller knows it as well.
        first = cluster.active()
        first.end()
        wait_for(lambda: cluster.active().metric("fairlead_controller_sessions") == 3)
        _, status = wait_for(
            lambda: (
                answer
                if (answer := cluster.active().ask("GET", f"{cluster.path}/status"))[1]["draining"]
                else None
            )
        )
        assert status["draining"] == [2]
        assert leaders(cluster) == {0, 1}
        run(kube.patch(NODE, None, node, {"spec": {"unschedulable": None}}))
        wait_for(lambda: leaders(cluster) == {0, 1, 2})
