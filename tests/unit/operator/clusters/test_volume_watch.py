"""Volumes that have failed brokers which go on without them."""

from datetime import UTC, datetime
from typing import Any

import pytest
from operator_views import cluster_view, pool_view

from fairlead_operator.clusters.plan import PoolPlan
from fairlead_operator.clusters.pool_volumes import HeldVolume, VolumeDecision
from fairlead_operator.clusters.status import (
    ClusterFacts,
    PoolFacts,
    build_cluster_status,
    build_pool_status,
)
from fairlead_operator.clusters.volume_watch import read_failures
from fairlead_operator.conditions import find_condition

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LOST = {1: "[Errno 5] Input/output error"}
POOL = pool_view(storage={"volumes": [{"id": 0, "size": "1Gi"}, {"id": 1, "size": "2Gi"}]})
HELD = (
    HeldVolume(volume=0, size="1Gi", claims=3, bound=3),
    HeldVolume(volume=1, size="2Gi", claims=3, bound=2),
)


def pool_status(previous: dict[str, Any], **facts: Any) -> dict[str, Any]:
    plan = PoolPlan(pool=POOL, volumes=VolumeDecision(held=HELD))
    return build_pool_status(PoolFacts(generation=1, plan=plan, **facts), previous, NOW)


def test_a_broker_names_its_volumes_by_their_folders() -> None:
    told = {"/var/lib/fairlead-1/log": LOST[1], "/elsewhere": "x"}
    assert read_failures({"state": "serving", "failedLogDirectories": told}, [0, 1]) == LOST


@pytest.mark.parametrize("answer", [None, [], {}, {"failedLogDirectories": ["a"]}])
def test_an_answer_without_failures_or_sense_says_nothing(answer: object) -> None:
    assert read_failures(answer, [0, 1]) == {}


def test_a_pool_says_what_it_has_of_each_volume_and_whom_it_has_failed() -> None:
    status = pool_status({}, failed_volumes={2: LOST})
    assert status["storageSize"] == "1Gi"
    assert status["volumes"] == [
        {"id": 0, "size": "1Gi", "claims": 3, "bound": 3},
        {"id": 1, "size": "2Gi", "claims": 3, "bound": 2, "failedOn": [2]},
    ]
    said = find_condition(status["conditions"], "VolumesFailed")
    assert said is not None
    assert (said["status"], said["reason"]) == ("True", "LogDirectoryOffline")
    assert said["message"] == f"volume 1 has failed broker 2: {LOST[1]}"
    repaired = pool_status(status)
    assert find_condition(repaired["conditions"], "VolumesFailed") is None
    assert not any("failedOn" in each for each in repaired["volumes"])


def test_the_cluster_is_degraded_while_a_volume_is_lost_though_all_is_in_sync_again() -> None:
    counts = {"partitions": 1, "underReplicated": 0, "offline": 0}
    controller = {
        "partitions": counts,
        "topics": [],
        "clusterId": "c",
        "controller": {"epoch": 1},
    }
    cluster = cluster_view()
    facts = ClusterFacts(
        name=cluster.name,
        namespace=cluster.namespace,
        generation=1,
        controller=controller,
        failed_volumes={2: LOST},
    )
    degraded = find_condition(build_cluster_status(facts, {}, NOW)["conditions"], "Degraded")
    assert degraded is not None
    assert (degraded["status"], degraded["reason"]) == ("True", "VolumesFailed")
    assert "volume 1 has failed broker 2" in degraded["message"]
