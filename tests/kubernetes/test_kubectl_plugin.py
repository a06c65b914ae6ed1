"""`kubectl fairlead` against a real API server, with objects made by hand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from fairlead_kube.kinds import (
    CONFIG_MAP,
    FAILOVER_DRILL,
    LOG_CLUSTER,
    PARTITION_TABLE,
    SECRET,
    TOPIC,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.kubernetes

HIDDEN = "hunter2hunter2"
NOW = "2026-01-01T00:00:00Z"
TABLE = """\
topic/AAAAAAAAAAAAAAAAAAAAAQ {"name":"orders","partitions":2,"state":"live"}
partition/AAAAAAAAAAAAAAAAAAAAAQ/0 {"replicas":[0,1,2],"isr":[0,1,2],"leader":0,"leader_epoch":3}
partition/AAAAAAAAAAAAAAAAAAAAAQ/1 {"replicas":[1,2,0],"isr":[1],"leader":-1,"leader_epoch":4}
"""


# An operator that may be running there as well shall leave the objects of these tests alone.
PAUSED = {"pauseReconciliation": True}
DRILL = """\
apiVersion: fairlead.io/v1alpha1
kind: FailoverDrill
metadata: {name: from-a-file}
spec: {clusterName: demo, target: {type: Leader}, fault: {type: Kill}, suspend: true}
"""


def plugin(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fairlead_cli.kubectl.main", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"NO_COLOR": "1"},
    )


def claim(kind: str, status: str, reason: str, message: str = "") -> dict[str, Any]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": NOW,
    }


def resource(kind: Any, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name},
        "spec": spec,
    }


@pytest.fixture
def demo(kube: Any, namespace: str, run: Callable[..., Any]) -> str:
    """A cluster that nobody serves: only its resources are there."""

    async def make() -> None:
        await kube.create(LOG_CLUSTER, namespace, resource(LOG_CLUSTER, "demo", PAUSED))
        status = {
            "conditions": [claim("Ready", "False", "Offline", "a partition has no leader")],
            "offline": 1,
            "brokers": 3,
        }
        await kube.patch(LOG_CLUSTER, namespace, "demo", {"status": status}, subresource="status")
        spec = {"clusterName": "demo", "partitions": 2, "config": {"cleanup.policy": "compact"}}
        await kube.create(TOPIC, namespace, resource(TOPIC, "orders", spec))
        table = {
            "clusterName": "demo",
            "table": "partitions-00000",
            "controllerEpoch": 1,
            "writeNumber": 1,
            "lines": TABLE,
        }
        await kube.create(
            PARTITION_TABLE, namespace, resource(PARTITION_TABLE, "demo-partitions-00000", table)
        )
        metadata = {"name": "demo-made-by-hand", "labels": {"app.kubernetes.io/name": "fairlead"}}
        secret = {"metadata": metadata, "stringData": {"secret": HIDDEN}}
        await kube.create(SECRET, namespace, secret)
        settings = {"server.properties": f"num.partitions=3\nssl.key.password={HIDDEN}\n"}
        config = {"metadata": metadata | {"name": "demo-brokers"}, "data": settings}
        await kube.create(CONFIG_MAP, namespace, config)

    run(make())
    return namespace


def test_status_says_what_is_wrong_and_what_to_do(demo: str) -> None:
    outcome = plugin("status", "-n", demo, "-o", "json")
    assert outcome.returncode == 1, outcome
    (document,) = json.loads(outcome.stdout)
    assert document["cluster"] == "demo"
    complaints = [complaint["what"] for complaint in document["complaints"]]
    assert "1 partitions are offline" in complaints
    assert "there is no BrokerPool" in complaints
    text = plugin("status", "demo", "-n", demo)
    assert "next:" in text.stdout
    assert plugin("status", "other", "-n", demo).returncode == 1


def test_a_topic_is_described_from_its_resources(demo: str) -> None:
    outcome = plugin("topic", "describe", "orders", "-n", demo, "-o", "json")
    assert outcome.returncode == 0, outcome
    document = json.loads(outcome.stdout)
    assert document["config"] == {"cleanup.policy": "compact"}
    assert [part["leader"] for part in document["partitions"]] == [0, -1]
    assert document["partitions"][1]["problem"] == "offline, waits for broker 1"
    assert "offline, waits for broker 1" in plugin("topic", "describe", "orders", "-n", demo).stdout
    near = plugin("topic", "describe", "order", "-n", demo)
    assert near.returncode == 1
    assert "orders" in near.stderr


def test_a_report_holds_no_secret(demo: str, tmp_path: Path) -> None:
    path = tmp_path / "bundle.tar.gz"
    outcome = plugin("report", "-n", demo, "--file", str(path))
    assert outcome.returncode == 0, outcome
    assert path.stat().st_mode & 0o077 == 0
    with tarfile.open(path) as archive:
        contents = {
            member.name: archive.extractfile(member).read()  # type: ignore[union-attr]
            for member in archive.getmembers()
        }
    assert HIDDEN.encode() not in b"".join(contents.values())
    assert not [name for name in contents if "/secrets/" in name]
    names = "\n".join(contents)
    assert f"{demo}/topics/orders.json" in names
    assert f"{demo}/partitiontables/demo-partitions-00000.json" in names
    settings = contents[f"fairlead-report/{demo}/configmaps/demo-brokers.json"]
    assert b"num.partitions=3" in settings


@pytest.mark.parametrize(("passed", "code"), [("True", 0), ("False", 1)])
def test_a_drill_is_made_followed_and_judged(
    kube: Any, demo: str, run: Callable[..., Any], tmp_path: Path, passed: str, code: int
) -> None:
    file = tmp_path / "drill.yaml"
    file.write_text(DRILL)
    name = f"drill-{passed.lower()}"
    outcomes: list[subprocess.CompletedProcess[str]] = []
    arguments = ("-f", str(file), "--name", name)
    following = threading.Thread(
        target=lambda: outcomes.append(plugin("drill", *arguments, "-n", demo))
    )
    following.start()

    async def exists() -> bool:
        listed = await kube.list(FAILOVER_DRILL, demo)
        return any(item["metadata"]["name"] == name for item in listed.items)

    deadline = time.monotonic() + 60
    while not run(exists()):
        assert time.monotonic() < deadline
    status = {
        "phase": "Finished",
        "runs": [{"target": "broker 1", "recoveryMaxMs": 180}],
        "timeline": [{"offsetMs": 0, "event": "broker 1 killed"}],
        "lost": 0,
        "duplicates": 0,
        "reordered": 0,
        "clientErrors": 0,
        "acknowledged": 1000,
        "conditions": [
            claim("Complete", "True", "Finished"),
            claim("Passed", passed, "Judged", "as it was judged"),
        ],
    }
    run(kube.patch(FAILOVER_DRILL, demo, name, {"status": status}, subresource="status"))
    following.join(90)
    (outcome,) = outcomes
    assert outcome.returncode == code, outcome
    assert "broker 1 killed" in outcome.stderr
    assert "1,000 records acknowledged" in outcome.stdout
    assert "as it was judged" in outcome.stdout
    report = plugin("drill", "--report", name, "-n", demo)
    assert report.returncode == 0, report
    verdict = "Passed" if passed == "True" else "Failed"
    assert report.stdout.startswith(f"# Game day: {name}\n\n**{verdict}.**")
    assert "broker 1 killed" in report.stdout
    assert plugin("drill", "--report", "no-such-drill", "-n", demo).returncode == 1


def test_a_drill_that_cannot_be_is_refused_before_it_is_made(demo: str) -> None:
    arguments = ("--cluster", "demo", "--target", "Broker", "--fault", "Kill")
    outcome = plugin("drill", *arguments, "-n", demo)
    assert outcome.returncode == 2
    assert "brokerId" in outcome.stderr


def test_a_context_that_is_not_there_is_named() -> None:
    outcome = plugin("status", "--context", "no-such-context")
    assert outcome.returncode == 1
    assert "no-such-context" in outcome.stderr
