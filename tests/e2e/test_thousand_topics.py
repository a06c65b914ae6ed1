"""A thousand Topic resources in one go, a broker's death with them, and the operator's start."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes_commands import run, wait_until
from kubernetes_installation import CLUSTER, OPERATOR_NAMESPACE, Installation, Summary

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(900)]

COUNT = 1000
PARTITIONS = 3
LABEL = "fairlead-e2e=thousand"
IDLE_S = 20.0


def manifests() -> str:
    key, value = LABEL.split("=")
    topics = [
        {
            "apiVersion": "fairlead.io/v1alpha1",
            "kind": "Topic",
            "metadata": {"name": f"bulk-{number}", "labels": {key: value}},
            "spec": {
                "clusterName": CLUSTER,
                "partitions": PARTITIONS,
                "replicationFactor": 3,
                "reclaimPolicy": "Delete",
            },
        }
        for number in range(COUNT)
    ]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": topics})


def bulk_topics(installation: Installation) -> list[dict[str, Any]]:
    return installation.kubectl.items("topics.fairlead.io", "-l", LABEL)


def is_ready(topic: dict[str, Any]) -> bool:
    conditions = topic.get("status", {}).get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def count_ready(installation: Installation) -> int:
    return sum(map(is_ready, bulk_topics(installation)))


@pytest.fixture(scope="module")
def thousand(installation: Installation, summary: Summary) -> Iterator[Installation]:
    installation.ensure_installed()
    started = time.monotonic()
    installation.kubectl("create", "-f", "-", stdin=manifests())
    created_s = time.monotonic() - started
    wait_until(lambda: count_ready(installation) == COUNT, "not every topic is Ready", 120)
    took_s = time.monotonic() - started
    summary.add("kubectl create of 1,000 topics alone", f"{created_s:.1f} s")
    summary.time("1,000 topics Ready", took_s, 15)
    yield installation
    installation.kubectl("delete", "topics.fairlead.io", "-l", LABEL, "--wait=false")
    wait_until(lambda: not bulk_topics(installation), "topics are still being deleted", 180)


def operator_writes(installation: Installation) -> dict[str, str]:
    """Versions of all that the operator could write to."""
    kinds = "topics.fairlead.io,logclusters,brokerpools,partitiontables,clusterstates,statefulsets"
    kinds += ",configmaps,services,secrets,poddisruptionbudgets,networkpolicies"
    found = installation.kubectl.items(kinds)
    return {
        f"{each['kind']}/{each['metadata']['name']}": each["metadata"]["resourceVersion"]
        for each in found
    }


def is_quiet(installation: Installation) -> bool:
    """Whether what follows from all before is written: a busy machine takes its time."""
    before = operator_writes(installation)
    time.sleep(3)
    return operator_writes(installation) == before


def operator_cpu_s(installation: Installation) -> float:
    """CPU seconds that the processes of all operator pods have used so far."""
    total = 0.0
    script = "cat /proc/[0-9]*/stat"
    for pod in installation.operator.items("pods", "-l", "app.kubernetes.io/component=operator"):
        for line in installation.operator.exec(
            pod["metadata"]["name"], "sh", "-c", script
        ).splitlines():
            name, _, rest = line.partition(") ")
            if "(python" in name or "(fairlead" in name:
                fields = rest.split()
                total += (int(fields[11]) + int(fields[12])) / 100
    return total


def test_an_idle_operator_writes_nothing_and_sleeps(
    thousand: Installation, summary: Summary
) -> None:
    thousand.wait_cluster_ready()
    wait_until(lambda: is_quiet(thousand), "statuses are still being written", 120)
    before, cpu_s, started = operator_writes(thousand), operator_cpu_s(thousand), time.monotonic()
    time.sleep(IDLE_S)
    share = (operator_cpu_s(thousand) - cpu_s) / (time.monotonic() - started)
    assert operator_writes(thousand) == before
    summary.add("two idle operator pods, 1,000 topics", f"{share:.1%} of a core", "≤ 3 % each")
    assert share <= 0.06 * 2.5


def test_a_broker_dies_with_a_thousand_topics(thousand: Installation, summary: Summary) -> None:
    thousand.wait_cluster_ready()
    drill = {
        "apiVersion": "fairlead.io/v1alpha1",
        "kind": "FailoverDrill",
        "metadata": {"name": "thousand"},
        "spec": {
            "clusterName": CLUSTER,
            "target": {"type": "Broker", "brokerId": 1},
            "fault": {"type": "Kill"},
            "limits": {"recoveryMs": 5000},
        },
    }
    thousand.kubectl.apply(drill)
    thousand.kubectl(
        "wait",
        "--for=condition=Complete",
        "failoverdrill/thousand",
        "--timeout=180s",
    )
    status = thousand.kubectl.get("failoverdrill", "thousand")["status"]
    thousand.kubectl("delete", "failoverdrill", "thousand")
    assert status["lost"] == status["duplicates"] == 0, status
    summary.time("all leaders of a dead broker moved, 1,000 topics", status["electionMs"] / 1000, 1)
    thousand.wait_cluster_ready(180)


def test_an_operator_starts_with_a_thousand_topics(
    thousand: Installation, summary: Summary
) -> None:
    """From the holder's last sign of life to a reign that has loaded everything."""
    holder, _ = thousand.lease()
    run("kubectl", "-n", OPERATOR_NAMESPACE, "delete", "pod", holder.pod, "--wait=false")
    started = time.monotonic()
    wait_until(lambda: thousand.lease()[0].pod != holder.pod, "nobody took over", 60)
    wait_until(
        lambda: (
            thousand.kubectl.get("logcluster", CLUSTER)["status"]["controller"]["pod"] != holder.pod
        ),
        "no other controller reigns",
        60,
    )
    summary.time("a clean hand-over with 1,000 topics", time.monotonic() - started, 5)
    thousand.wait_cluster_ready(120)
    # Statuses are written after the fact, some of them of the broker that died before.
    wait_until(lambda: count_ready(thousand) == COUNT, "not every topic is Ready again", 120)
