"""DiskFull drills: on volumes that are file systems of their own, and on those that are not."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from kubernetes_commands import Kubectl, wait_until
from kubernetes_installation import CLUSTER, Installation, Summary
from node_disks import disks_of_nodes
from resource_manifests import resource

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(600)]

STORAGE_CLASS = "fairlead-small-disks"
NAME = "small"
BROKERS = 3
FULL_S = 8
BALLAST = "fairlead-drill-ballast"


def says(kubectl: Kubectl, *words: str) -> bool:
    return bool(kubectl(*words))


@pytest.fixture(scope="module")
def small(installation: Installation) -> Iterator[Kubectl]:
    """A cluster on small disks, beside whatever is there, with a topic."""
    installation.ensure_installed()
    kubectl = installation.kubectl
    pool = {
        "clusterName": NAME,
        "replicas": BROKERS,
        "storage": {"size": "300Mi", "storageClassName": STORAGE_CLASS},
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
    }
    topic = {
        "clusterName": NAME,
        "partitions": 3,
        "replicationFactor": BROKERS,
        "config": {"min.insync.replicas": 2},
    }
    with disks_of_nodes(kubectl, STORAGE_CLASS):
        kubectl.apply(
            resource("LogCluster", NAME, {"reclaimPolicy": "Delete"}),
            resource("BrokerPool", NAME, pool),
            resource("Topic", "on-small-disks", topic),
        )
        try:
            for what in (f"logcluster/{NAME}", "topic.fairlead.io/on-small-disks"):
                ready = ("wait", "--for=condition=Ready", what, "--timeout=180s")
                wait_until(partial(says, kubectl, *ready), what, 200)
            yield kubectl
        finally:
            for each in ("topic.fairlead.io/on-small-disks", f"logcluster/{NAME}"):
                kubectl("delete", each, "--timeout=120s")
            kubectl("delete", f"brokerpool/{NAME}", "--timeout=120s")
            claims = ("pvc", "-l", f"fairlead.io/cluster={NAME}")
            kubectl("delete", *claims, "--ignore-not-found", "--timeout=120s")


def drill(kubectl: Kubectl, cluster: str, topic: str) -> dict[str, Any]:
    """Fill the disk of the broker that leads, and return the drill's status in the end."""
    name = f"full-disk-of-{cluster}"
    spec = {
        "clusterName": cluster,
        "target": {"type": "Leader", "topic": topic, "partition": 0},
        "fault": {"type": "DiskFull", "durationSeconds": FULL_S},
        "runs": 1,
    }
    kubectl.apply(resource("FailoverDrill", name, spec))
    kubectl("wait", "--for=condition=Complete", f"failoverdrill/{name}", "--timeout=240s")
    return dict(kubectl.get("failoverdrill", name))


def condition_of(done: dict[str, Any], kind: str) -> dict[str, Any]:
    return next(each for each in done["status"]["conditions"] if each["type"] == kind)


def test_a_leaders_disk_is_full_and_nothing_is_lost(small: Kubectl, summary: Summary) -> None:
    done = drill(small, NAME, "on-small-disks")
    status = done["status"]
    assert condition_of(done, "Passed")["status"] == "True", (status["runs"], status["timeline"])
    assert status["acknowledged"] > 0
    assert (status["lost"], status["duplicates"], status["reordered"]) == (0, 0, 0)
    assert status["runs"][0]["movedLeaders"] > 0, "leaders that have no room give way"
    summary.add("a leader's disk is full", f"recovery max {status['recoveryMaxMs']} ms", "lost 0")
    for broker in range(BROKERS):
        find = f"find /var/lib/fairlead -name '{BALLAST}*'; df -m /var/lib/fairlead | tail -1"
        said = small.exec(f"{NAME}-{NAME}-{broker}", "sh", "-c", find)
        assert BALLAST not in said, said
        assert int(said.split()[3]) > 200, "the room is back"


def test_a_folder_of_the_nodes_disk_is_not_filled(installation: Installation) -> None:
    """kind's own volumes are such; others write there, too."""
    installation.ensure_installed()
    done = drill(installation.kubectl, CLUSTER, "orders")
    passed = condition_of(done, "Passed")
    assert passed["status"] == "False", passed
    assert "the fault was refused" in passed["message"]
    assert "no mount of its own" in passed["message"] or "folder" in passed["message"], passed
