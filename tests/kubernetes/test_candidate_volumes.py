"""A broker comes with another volume than it had: an empty one, or one of another cluster."""

from __future__ import annotations

import shutil
import signal
from typing import TYPE_CHECKING, Any

import pytest
from live_candidates import CLUSTER, CandidateCluster, create_topic, produce, wait_for

from fairlead_controller.stores.kubernetes import delete_tables

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.kubernetes


@pytest.fixture
def cluster(tmp_path: Path, namespace: str, kube: Any, run: Any) -> Iterator[CandidateCluster]:
    """One candidate, which reigns."""
    with CandidateCluster(tmp_path, namespace) as cluster:
        run(cluster.declare(kube))
        cluster.start_candidate(0)
        wait_for(lambda: cluster.active().epoch == 1)
        yield cluster


def status_of(cluster: CandidateCluster) -> Any:
    code, status = cluster.active().ask("GET", f"{cluster.path}/status")
    return status if code == 200 else {}


def test_an_empty_volume_under_a_known_broker_is_filled_again(cluster: CandidateCluster) -> None:
    for number in range(2):
        cluster.start_broker(number).wait_ready()
    create_topic(cluster.bootstrap, "t", 2, 2)
    produce(cluster.bootstrap, "t", 2)
    lost = cluster.brokers.pop(1)
    lost.process.send_signal(signal.SIGKILL)
    lost.process.wait(60)
    lost.end()
    shutil.rmtree(cluster.directory / "broker-1")
    cluster.start_broker(1).wait_ready()

    def is_full() -> bool:
        return all(
            sorted(part["isr"]) == [0, 1] for part in cluster.partitions(cluster.active(), "t")
        )

    wait_for(is_full)
    produce(cluster.bootstrap, "t", 2)
    assert status_of(cluster)["refusedBrokers"] == {}


def test_a_volume_of_another_cluster_is_refused_with_words(
    cluster: CandidateCluster, kube: Any, run: Any
) -> None:
    broker = cluster.start_broker(0)
    broker.wait_ready()
    first = status_of(cluster)["clusterId"]
    broker.process.send_signal(signal.SIGTERM)
    broker.process.wait(20)
    cluster.active().send(signal.SIGTERM)
    cluster.candidates[0].process.wait(60)
    run(delete_tables(kube, cluster.namespace, CLUSTER))
    cluster.start_candidate(1)
    wait_for(lambda: status_of(cluster).get("clusterId", first) != first)
    stranger = cluster.start_broker(0)
    assert stranger.process.wait(20) == 1
    assert f"belongs to cluster {first}" in stranger.last_words()
    told = status_of(cluster)["refusedBrokers"]["0"]
    assert "the volume claim" in told
    assert status_of(cluster)["brokers"] == []
    for each in cluster.brokers:
        each.end()
    shutil.rmtree(cluster.directory / "broker-0")
    cluster.brokers.clear()
    cluster.start_broker(0).wait_ready()
    assert status_of(cluster)["refusedBrokers"] == {}
