"""The definitions in crds/ against a real API server, through kubectl as people use it."""

from __future__ import annotations

import json
import secrets
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from resource_cases import CASES, Case
from resource_manifests import cluster, drill, group, pool, topic, user
from resource_updates import RENAMES, TOPIC_UPDATES, UPDATES, USER_UPDATES, Update

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairlead_kube.credentials import Credentials

pytestmark = pytest.mark.kubernetes

ROOT = Path(__file__).resolve().parents[2]
Manifest = dict[str, Any]


def kubectl(*arguments: str, manifest: Manifest | None = None) -> subprocess.CompletedProcess[str]:
    given = None if manifest is None else json.dumps(manifest)
    return subprocess.run(
        ["kubectl", *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def must(*arguments: str, manifest: Manifest | None = None) -> str:
    done = kubectl(*arguments, manifest=manifest)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Space:
    """A namespace, with the kubectl commands that the tests need."""

    def __init__(self, name: str) -> None:
        self.name = name

    def create(self, manifest: Manifest) -> Manifest:
        output = must("create", "-n", self.name, "-o", "json", "-f", "-", manifest=manifest)
        return dict(json.loads(output))

    def get(self, kind: str, name: str) -> Manifest:
        return dict(json.loads(must("get", "-n", self.name, kind, name, "-o", "json")))

    def delete(self, manifest: Manifest) -> None:
        must("delete", "-n", self.name, "--wait=true", "-f", "-", manifest=manifest)

    def set_status(self, manifest: Manifest, status: Manifest) -> Manifest:
        kind, name = manifest["kind"].lower(), manifest["metadata"]["name"]
        patch = json.dumps({"status": status})
        arguments = ["patch", "-n", self.name, kind, name, "--subresource=status", "--type=merge"]
        return dict(json.loads(must(*arguments, "-p", patch, "-o", "json")))


@pytest.fixture(scope="module")
def space(kube_credentials: Credentials) -> Iterator[Space]:
    """A namespace for the module, in a cluster that has the definitions as they are now."""
    del kube_credentials  # Asked for so that it is skipped where there is no cluster.
    must("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "crds"))
    name = f"fairlead-crds-{secrets.token_hex(4)}"
    must("create", "namespace", name)
    yield Space(name)
    must("delete", "namespace", name, "--wait=false")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_api_server_says_what_is_wrong(space: Space, case: Case) -> None:
    arguments = ("create", "-n", space.name, "--dry-run=server", "-f", "-")
    done = kubectl(*arguments, manifest=case.manifest)
    if case.api_says:
        assert done.returncode != 0
        assert case.api_says in done.stderr
    else:
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("update", [*UPDATES, *RENAMES, *TOPIC_UPDATES, *USER_UPDATES], ids=str)
def test_the_api_server_says_what_cannot_change(space: Space, update: Update) -> None:
    space.create(update.before)
    try:
        arguments = ("replace", "-n", space.name, "--dry-run=server", "-f", "-")
        done = kubectl(*arguments, manifest=update.after)
    finally:
        space.delete(update.before)
    if update.says:
        assert done.returncode != 0
        assert update.says in done.stderr
    else:
        assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("drained_on", "goes"), [((), False), ((0, 1), False), ((0, 1, 2), True)])
def test_a_volume_may_go_once_each_broker_that_has_it_has_emptied_it(
    space: Space, drained_on: tuple[int, ...], goes: bool
) -> None:
    both = pool(storage={"volumes": [{"id": number, "size": "1Gi"} for number in range(2)]})
    space.create(both)
    try:
        volume: Manifest = {"id": 1, "size": "1Gi", "claims": 3, "bound": 3}
        space.set_status(both, {"volumes": [volume | {"drainedOn": list(drained_on)}]})
        arguments = ("replace", "-n", space.name, "--dry-run=server", "-f", "-")
        one = pool(storage={"volumes": [{"id": 0, "size": "1Gi"}]})
        done = kubectl(*arguments, manifest=one)
    finally:
        space.delete(both)
    assert (done.returncode == 0) is goes, done.stderr
    if not goes:
        assert "fairlead broker disks ID --drain FOLDER --wait" in done.stderr


def test_defaults_are_filled_in(space: Space) -> None:
    arguments = ("create", "-n", space.name, "--dry-run=server", "-o", "json", "-f", "-")

    def filled(manifest: Manifest) -> Manifest:
        return dict(json.loads(must(*arguments, manifest=manifest))["spec"])

    assert filled(cluster()) == {
        "defaults": {"partitions": 1, "replicationFactor": 3},
        "deletionProtection": False,
        "drills": {"enabled": True},
        "hibernated": False,
        "interBroker": {"tls": False},
        "networkPolicy": {"enabled": True},
        "pauseReconciliation": False,
        "paused": False,
        "reclaimPolicy": "Retain",
        "rest": {"enabled": False},
        "spark": {"driverAccount": True},
        "userPolicy": {
            "clusterOperations": ["Create", "Describe", "DescribeConfigs", "IdempotentWrite"],
            "quotas": "UpToDefaults",
        },
    }
    assert filled(pool()) == {**pool()["spec"], "idBase": 0, "paused": False}
    assert filled(topic()) == {
        "clusterName": "demo",
        "deletionProtection": False,
        "paused": False,
        "reclaimPolicy": "Retain",
    }
    assert filled(group()) == {"clusterName": "demo", "paused": False, "refreshSeconds": 30}
    assert filled(drill()) == {
        "clusterName": "demo",
        "target": {"type": "Leader"},
        "fault": {"type": "Kill", "durationSeconds": 10, "runMs": 50, "stallMs": 200},
        "workload": {
            "partitions": 6,
            "replicationFactor": 3,
            "recordsPerSecond": 1000,
            "recordSize": 256,
            "steadySeconds": 3,
        },
        "limits": {"lost": 0, "duplicates": 0, "reordered": 0},
        "runs": 1,
        "suspend": False,
        "allowUnsafe": False,
        "historyLimit": 10,
    }


def test_settings_keep_their_types_and_null_survives_server_side_apply(space: Space) -> None:
    config = {"a": 1, "b": 0.5, "c": "text", "d": True, "e": None}
    manifest = topic("typed", config=config)
    apply = ("apply", "--server-side", "-n", space.name, "-f", "-")
    must(*apply, manifest=manifest)
    assert space.get("topic", "typed")["spec"]["config"] == config
    must(*apply, manifest=topic("typed", config=config | {"a": None}))
    assert space.get("topic", "typed")["spec"]["config"] == config | {"a": None}
    must(*apply, manifest=topic("typed", config={"e": None}))
    assert space.get("topic", "typed")["spec"]["config"] == {"e": None}


def test_plain_apply_drops_nulls_before_they_reach_the_server(space: Space) -> None:
    apply = ("apply", "-n", space.name, "-f", "-")
    must(*apply, manifest=topic("plain", config={"a": 1, "e": None}))
    assert space.get("topic", "plain")["spec"]["config"] == {"a": 1}
    must(*apply, manifest=topic("plain", config={"a": None, "e": None}))
    assert space.get("topic", "plain")["spec"]["config"] == {}


def test_a_pool_is_scaled_by_kubectl_and_tells_its_pods_to_autoscalers(space: Space) -> None:
    manifest = pool("scaled")
    space.create(manifest)
    space.set_status(manifest, {"replicas": 3, "selector": "fairlead.io/pool=scaled"})
    must("scale", "-n", space.name, "brokerpool", "scaled", "--replicas=5")
    assert space.get("brokerpool", "scaled")["spec"]["replicas"] == 5
    path = f"/apis/fairlead.io/v1alpha1/namespaces/{space.name}/brokerpools/scaled/scale"
    scale = json.loads(must("get", "--raw", path))
    assert scale["spec"]["replicas"] == 5
    assert scale["status"] == {"replicas": 3, "selector": "fairlead.io/pool=scaled"}
    refused = kubectl("scale", "-n", space.name, "brokerpool", "scaled", "--replicas=1001")
    assert refused.returncode != 0
    assert "less than or equal to 1000" in refused.stderr


def condition(type_: str, status: str) -> Manifest:
    return {
        "type": type_,
        "status": status,
        "reason": "Because",
        "message": "",
        "lastTransitionTime": "2026-11-21T09:00:00Z",
        "observedGeneration": 1,
    }


def test_status_is_shown_in_columns_and_can_be_waited_for(space: Space) -> None:
    manifest = topic("shown", topicName="Shown")
    space.create(manifest)
    space.set_status(
        manifest,
        {
            "conditions": [condition("Ready", "True")],
            "partitions": 6,
            "replicationFactor": 3,
            "underReplicated": 1,
            "offline": 0,
            "leaders": "0:2 1:2 2:2",
            "topicId": "AAAAAAAAAAAAAAAAAAAAAA",
            "topicName": "Shown",
        },
    )
    narrow = must("get", "-n", space.name, "ft", "shown").splitlines()
    names = ["NAME", "PARTITIONS", "RF", "UNDER-REPLICATED", "OFFLINE", "READY", "AGE"]
    assert narrow[0].split() == names
    assert narrow[1].split()[:6] == ["shown", "6", "3", "1", "0", "True"]
    wide = must("get", "-n", space.name, "topic", "shown", "-o", "wide")
    assert "0:2 1:2 2:2" in wide
    assert "AAAAAAAAAAAAAAAAAAAAAA" in wide
    must("wait", "-n", space.name, "--for=condition=Ready", "--timeout=5s", "topic/shown")


@pytest.mark.parametrize(
    ("kind", "columns"),
    [
        (
            "lc",
            "NAME BROKERS READY-BROKERS TOPICS UNDER-REPLICATED OFFLINE CONTROLLER READY "
            "HIBERNATED AGE",
        ),
        ("bp", "NAME CLUSTER BROKERS READY-BROKERS UPDATED READY AGE"),
        ("fd", "NAME TARGET FAULT PHASE DETECT ELECT RECOVER LOST DUP PASSED AGE"),
        ("cgroup", "NAME GROUP STATE MEMBERS LAG RESET AGE"),
        ("fu", "NAME AUTHENTICATION RULES READY AGE"),
        ("partitiontable", "NAME CLUSTER TABLE EPOCH WRITE AGE"),
    ],
)
def test_columns(space: Space, kind: str, columns: str) -> None:
    name = "columns"
    table = {"clusterName": "demo", "table": "t", "controllerEpoch": 1, "writeNumber": 1}
    internal = cluster(name) | {"kind": "PartitionTable", "spec": table | {"lines": ""}}
    manifests = {
        "lc": cluster(name),
        "bp": pool(name),
        "cgroup": group(name),
        "fd": drill(name),
        "fu": user(name),
    }
    manifest = manifests.get(kind, internal)
    space.create(manifest)
    header = must("get", "-n", space.name, kind, name).splitlines()[0]
    assert header.replace("READY BROKERS", "READY-BROKERS").split() == columns.split()


def test_writing_the_spec_leaves_the_status_alone_and_the_other_way_round(space: Space) -> None:
    manifest = drill("apart")
    space.create(manifest)
    after = space.set_status(manifest, {"phase": "Running", "runs": [{"target": "broker 1"}]})
    assert after["metadata"]["generation"] == 1
    must("replace", "-n", space.name, "-f", "-", manifest=manifest | {"status": {"phase": "X"}})
    assert space.get("failoverdrill", "apart")["status"]["phase"] == "Running"


def test_all_kinds_for_people_are_in_the_category(space: Space) -> None:
    space.create(cluster("category"))
    space.create(topic("category"))
    listed = must("get", "-n", space.name, "fairlead", "-o", "name")
    assert "logcluster.fairlead.io/category" in listed
    assert "topic.fairlead.io/category" in listed
    assert "partitiontable" not in listed


@pytest.mark.parametrize(
    "kind",
    ["logcluster", "brokerpool", "topic", "user", "consumergroup", "failoverdrill", "rebalance"],
)
def test_explain_describes_every_field(space: Space, kind: str) -> None:
    del space  # Its definitions are in the cluster now.
    text = must("explain", f"{kind}.spec")
    assert "<no description>" not in text
    assert "DESCRIPTION:" in text


def test_a_table_of_500_partitions_fits_and_an_older_controller_cannot_write_it(
    space: Space,
) -> None:
    record = "p.orders.{} " + "x" * 240 + "\n"
    spec = {
        "clusterName": "demo",
        "table": "partitions-00000",
        "controllerEpoch": 7,
        "writeNumber": 1,
        "lines": "".join(record.format(number) for number in range(500)),
    }
    manifest = cluster("demo-partitions-00000") | {"kind": "PartitionTable", "spec": spec}
    made = space.create(manifest)
    assert made["spec"] == spec
    newer = {**made, "spec": spec | {"controllerEpoch": 8, "writeNumber": 2}}
    must("replace", "-n", space.name, "-f", "-", manifest=newer)
    refused = kubectl("replace", "-n", space.name, "-f", "-", manifest=manifest)
    assert refused.returncode != 0
    assert "an older controller must not write what a newer one has sealed" in refused.stderr


@pytest.mark.parametrize(
    "name",
    [
        "cluster.yaml",
        "plain-cluster.yaml",
        "topics.yaml",
        "user.yaml",
        "client.yaml",
        "stream-job.yaml",
        "drill.yaml",
        "scheduled-drill.yaml",
    ],
)
def test_examples_are_taken_as_they_are(space: Space, name: str) -> None:
    path = ROOT / "examples" / "kubernetes" / name
    must("apply", "-n", space.name, "--dry-run=server", "-f", str(path))
    kinds = [document["kind"] for document in yaml.safe_load_all(path.read_text())]
    assert kinds
