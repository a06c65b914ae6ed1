"""The admin socket of a candidate, and reigns that come and go with their LogClusters."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from confluent_kafka.admin import AdminClient, ConfigResource, ConfigSource, ResourceType
from live_candidates import CLUSTER, CandidateCluster, create_topic, wait_for

from fairlead_cli.client.wire_call import call_broker
from fairlead_controller.stores.kubernetes_tables import DELETE_WITH_LABEL
from fairlead_kube import kinds
from fairlead_kube.errors import ApiError
from fairlead_kube.kinds import CLUSTER_STATE, LOG_CLUSTER
from fairlead_operator.resources.stream_job import STREAM_JOB
from fairlead_wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

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


def start_brokers(cluster: CandidateCluster, count: int, **settings: str) -> None:
    for node_id in range(count):
        cluster.start_broker(node_id, **settings)
    for broker in cluster.brokers:
        broker.wait_ready()


def manifest(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "fairlead.io/v1alpha1",
        "kind": "Topic",
        "metadata": {"name": name},
        "spec": {"clusterName": CLUSTER, **spec},
    }


def test_topics_are_applied_and_followed(cluster: CandidateCluster) -> None:
    start_brokers(cluster, 3)
    active, path = cluster.active(), f"{cluster.path}/topics"
    status, full = active.ask("GET", path)
    assert (status, full["isFull"], full["topics"]) == (200, True, [])
    request = {"apply": [manifest("orders", partitions=6)], "forget": [], "isComplete": True}
    status, reply = active.ask("POST", path, request)
    assert status == 200
    assert reply["results"]["orders"]["state"] == "ok"
    status, news = active.ask("GET", f"{path}?since={full['position']}&wait_ms=5000")
    assert (status, news["isFull"]) == (200, False)
    (topic,) = news["topics"]
    assert (topic["name"], topic["partitions"], topic["origin"]) == ("orders", 6, "resource")
    assert topic["leaders"] == "0:2 1:2 2:2"
    assert topic["topicId"] == reply["results"]["orders"]["topicId"]
    started = time.monotonic()
    _, silence = active.ask("GET", f"{path}?since={news['position']}&wait_ms=300")
    assert (silence["topics"], silence["removed"]) == ([], [])
    assert time.monotonic() - started >= 0.3
    forget = {"apply": [], "forget": [{"resource": "orders", "deleteTopic": True}]}
    assert active.ask("POST", path, forget)[0] == 200
    _, gone = active.ask("GET", f"{path}?since={news['position']}&wait_ms=5000")
    assert (gone["topics"], gone["removed"]) == ([], ["orders"])
    _, anew = active.ask("GET", f"{path}?since=99.1")
    assert anew["isFull"], "a position of another reign"


def test_drain_explain_and_moves(cluster: CandidateCluster) -> None:
    start_brokers(cluster, 3)
    create_topic(cluster.bootstrap, "t")
    active = cluster.active()
    status, reply = active.ask("POST", f"{cluster.path}/brokers/1/drain", {"on": True})
    assert (status, reply) == (200, {"remainingLeaders": 0})
    assert {part["leader"] for part in cluster.partitions(active, "t")} == {0, 2}
    _, journal = active.ask("GET", f"{cluster.path}/moves?since_ms=0")
    moves = [move for move in journal["moves"] if move["from"] == 1]
    assert len(moves) == 2
    assert moves[0]["cause"] == "broker 1 is being drained"
    index = moves[0]["partition"]
    _, why = active.ask("GET", f"{cluster.path}/explain/t/{index}")
    assert why["leader"] == moves[0]["to"]
    status, reply = active.ask("POST", f"{cluster.path}/brokers/1/drain", {"on": False})
    assert (status, reply) == (200, {"remainingLeaders": 0})


def test_a_broker_is_fenced_unless_partitions_need_it(cluster: CandidateCluster) -> None:
    start_brokers(cluster, 3)
    create_topic(cluster.bootstrap, "t")
    active = cluster.active()
    path = f"{cluster.path}/brokers/1/fence"
    assert active.ask("POST", path, {"reason": "a test"}) == (200, {})
    assert all(1 not in (part["leader"], *part["isr"]) for part in cluster.partitions(active, "t"))
    _, page = active.ask("GET", f"{cluster.path}/status")
    assert [each["fencedBy"] for each in page["brokers"]] == [None, "a test", None]
    create_topic(cluster.bootstrap, "alone", 2, 1)
    status, reply = active.ask("POST", f"{cluster.path}/brokers/2/fence", {"reason": "a test"})
    assert status == 409
    assert "alone-" in reply["message"]
    assert active.ask("POST", path, {"reason": ""})[0] == 400
    assert active.ask("POST", path, {"reason": None}) == (200, {})
    wait_for(lambda: all(1 in part["isr"] for part in cluster.partitions(active, "t")))


def is_declared(cluster: CandidateCluster, broker: int) -> bool:
    return describe_retention(cluster, broker) == ("7", "DYNAMIC_DEFAULT_BROKER_CONFIG")


def describe_retention(cluster: CandidateCluster, broker: int) -> tuple[str, str]:
    """What a broker says of log.retention.bytes: its value, and where that comes from."""
    asked = ConfigResource(ResourceType.BROKER, str(broker))
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    (future,) = admin.describe_configs([asked]).values()
    entry = future.result(60)["log.retention.bytes"]
    return entry.value, ConfigSource(entry.source).name


def alter_retention(cluster: CandidateCluster, value: str) -> str | None:
    """Alter log.retention.bytes of all brokers, as kafka-configs --entity-default does.

    Return why it is refused. librdkafka has no words for all brokers.
    """
    entry = AlterableConfig(name="log.retention.bytes", config_operation=0, value=value)
    asked = AlterConfigsResource(resource_type=4, resource_name="", configs=[entry])
    host, _, port = cluster.bootstrap.partition(",")[0].rpartition(":")
    request = IncrementalAlterConfigsRequest(resources=[asked])
    (answer,) = call_broker(host, int(port), request, 1).responses
    return answer.error_message if answer.error_code else None


def test_declared_configs_reach_brokers_and_are_altered_by_nobody_else(
    cluster: CandidateCluster,
) -> None:
    start_brokers(cluster, 2, **{"log.retention.bytes": "5"})
    path = f"{cluster.path}/configs"
    assert describe_retention(cluster, 0) == ("5", "STATIC_BROKER_CONFIG")
    told = {"configs": {"log.retention.bytes": "7"}}
    assert cluster.active().ask("POST", path, told)[0] == 200
    for each in (0, 1):
        wait_for(partial(is_declared, cluster, each))
    assert "declared by LogCluster 'c'" in (alter_retention(cluster, "8") or "")
    cluster.active().send(signal.SIGTERM)
    cluster.candidates[0].process.wait(60)
    cluster.start_candidate(1)
    wait_for(lambda: cluster.active().epoch == 2)
    _, status = cluster.active().ask("GET", f"{cluster.path}/status")
    assert status["declaredConfigs"] == told["configs"], "the next controller knows whose they are"
    for wrong in ({"node.id": "1"}, {"log.retention.bytes": "x"}):
        code, reply = cluster.active().ask("POST", path, {"configs": wrong})
        assert (code, reply["reason"]) == (409, "INVALID_CONFIG")
    assert cluster.active().ask("POST", path, {"configs": {}})[0] == 200
    wait_for(lambda: describe_retention(cluster, 1) == ("5", "STATIC_BROKER_CONFIG"))
    assert alter_retention(cluster, "8") is None
    wait_for(lambda: describe_retention(cluster, 0)[0] == "8")


def test_who_reads_is_told_before_a_broker_goes(
    cluster: CandidateCluster, kube: Any, run: Any
) -> None:
    """`kubectl fairlead whatif`, by what the controller and others have written."""
    start_brokers(cluster, 3)
    create_topic(cluster.bootstrap, "flights")
    (job,) = yaml.safe_load_all(STREAM_JOB.example)
    job["spec"]["clusterName"] = CLUSTER
    group = manifest("billing") | {"kind": "ConsumerGroup"}
    status = {"topics": [{"name": "flights", "partitions": 6}]}

    async def declare() -> None:
        await kube.create(kinds.STREAM_JOB, cluster.namespace, job)
        await kube.create(kinds.CONSUMER_GROUP, cluster.namespace, group)
        await kube.patch(
            kinds.CONSUMER_GROUP,
            cluster.namespace,
            "billing",
            {"status": status},
            subresource="status",
        )

    run(declare())
    command = [sys.executable, "-m", "fairlead_cli.kubectl.main", "whatif", "broker/0"]
    told = subprocess.run(
        [*command, "-n", cluster.namespace, "-o", "json"], capture_output=True, check=False
    )
    document = json.loads(told.stdout)
    moving = len(document["leadersMove"]) + len(document["withoutLeader"])
    assert moving
    assert document["notListed"] == []
    assert [(each["kind"], each["name"], each["partitions"]) for each in document["readers"]] == [
        ("ConsumerGroup", "billing", moving),
        ("StreamJob", job["metadata"]["name"], moving),
    ]


def test_intents_outlive_the_controller(cluster: CandidateCluster) -> None:
    intent = {"action": "delete-pod", "object": "c-pool-0"}
    path = f"{cluster.path}/intents"
    status, kept = cluster.active().ask("POST", path, intent)
    assert status == 200
    assert cluster.active().ask("POST", path, intent)[1] == kept
    cluster.active().send(signal.SIGTERM)
    cluster.candidates[0].process.wait(60)
    cluster.start_candidate(1)
    wait_for(lambda: cluster.active().epoch == 2)
    _, listed = cluster.active().ask("GET", path)
    assert [(each["id"], each["object"]) for each in listed["intents"]] == [
        (kept["id"], "c-pool-0")
    ]
    assert cluster.active().ask("DELETE", f"{path}/{kept['id']}")[0] == 200
    assert cluster.active().ask("DELETE", f"{path}/{kept['id']}")[0] == 404


def test_faults_go_to_the_broker_which_may_refuse(cluster: CandidateCluster) -> None:
    start_brokers(cluster, 1)
    path = f"{cluster.path}/brokers/0/fault"
    for fault in ({"fault": "kill"}, {"fault": "fill", "durationMs": 1_000}):
        status, reply = cluster.active().ask("POST", path, fault)
        assert status == 409
        assert "drills are not enabled" in reply["message"]
    assert cluster.brokers[0].process.poll() is None


def test_nonsense_is_refused_with_words(cluster: CandidateCluster) -> None:
    active = cluster.active()
    for method, path, body, expected in (
        ("GET", f"/v1/clusters/{cluster.namespace}/none/status", None, 404),
        ("POST", f"{cluster.path}/brokers/7/drain", {"on": True}, 404),
        ("POST", f"{cluster.path}/intents", {"action": ""}, 400),
        ("POST", f"{cluster.path}/topics", {"apply": 5}, 400),
        ("POST", f"{cluster.path}/configs", {"configs": {"max.connections": 5}}, 400),
        ("GET", f"{cluster.path}/topics?wait_ms=soon", None, 400),
        ("GET", f"{cluster.path}/explain/none/0", None, 404),
        ("GET", "/v1/nothing", None, 404),
    ):
        status, reply = active.ask(method, path, body)
        assert (status, bool(reply["message"])) == (expected, True), path


def log_cluster(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": LOG_CLUSTER.api_version,
        "kind": LOG_CLUSTER.kind,
        "metadata": {"name": name},
        "spec": spec,
    }


async def has_tables(kube: Any, namespace: str, name: str) -> bool:
    try:
        await kube.get(CLUSTER_STATE, namespace, name)
    except ApiError as error:
        assert error.is_not_found
        return False
    return True


def reigned(cluster: CandidateCluster, name: str) -> int:
    _, state = cluster.active().ask("GET", "/v1/state")
    reign = state["clusters"].get(f"{cluster.namespace}/{name}")
    return int(reign["controllerEpoch"]) if reign else -1


@pytest.mark.parametrize(("policy", "is_kept"), [("Retain", True), ("Delete", False)])
def test_tables_go_with_the_log_cluster_only_if_it_said_so(
    cluster: CandidateCluster, kube: Any, run: Any, policy: str, is_kept: bool
) -> None:
    namespace = cluster.namespace
    secret = {
        "metadata": {"name": "d-session", "labels": {"fairlead.io/cluster": "d"}},
        "stringData": {"secret": "another secret of tests only"},
    }
    from fairlead_kube.kinds import SECRET

    run(kube.create(SECRET, namespace, secret))
    run(kube.create(LOG_CLUSTER, namespace, log_cluster("d", reclaimPolicy=policy)))
    wait_for(lambda: reigned(cluster, "d") == 1)
    run(kube.delete(LOG_CLUSTER, namespace, "d"))
    wait_for(lambda: reigned(cluster, "d") == -1)
    if not is_kept:
        wait_for(lambda: not run(has_tables(kube, namespace, "d")))
    run(kube.create(LOG_CLUSTER, namespace, log_cluster("d")))
    wait_for(lambda: reigned(cluster, "d") == (2 if is_kept else 1))
    assert cluster.active().epoch >= 1, "the other cluster did not notice"
    assert reigned(cluster, CLUSTER) == 1


def test_marked_tables_go_although_nobody_saw_their_log_cluster_go(
    cluster: CandidateCluster, kube: Any, run: Any
) -> None:
    """The controller dies between a LogCluster's end and that of its tables."""
    namespace = cluster.namespace
    uid = run(kube.get(LOG_CLUSTER, namespace, CLUSTER))["metadata"]["uid"]
    mark = {"metadata": {"labels": {DELETE_WITH_LABEL: uid}}}
    run(kube.patch(CLUSTER_STATE, namespace, CLUSTER, mark))
    cluster.active().send(signal.SIGKILL)
    cluster.candidates[0].process.wait(60)
    cluster.start_candidate(1)
    wait_for(lambda: cluster.active().epoch == 2)
    kept = run(kube.get(CLUSTER_STATE, namespace, CLUSTER))["metadata"]["labels"]
    assert kept[DELETE_WITH_LABEL] == uid, "their LogCluster is still there"
    cluster.active().send(signal.SIGKILL)
    cluster.candidates[1].process.wait(60)
    run(kube.delete(LOG_CLUSTER, namespace, CLUSTER))
    run(kube.create(LOG_CLUSTER, namespace, log_cluster(CLUSTER)))
    cluster.start_candidate(0)
    wait_for(lambda: cluster.active().epoch == 1)
    labels = run(kube.get(CLUSTER_STATE, namespace, CLUSTER))["metadata"]["labels"]
    assert DELETE_WITH_LABEL not in labels


def test_a_broken_cluster_says_so_and_harms_no_other(
    cluster: CandidateCluster, kube: Any, run: Any
) -> None:
    namespace = cluster.namespace
    broken = run(kube.get(CLUSTER_STATE, namespace, CLUSTER))
    lines = broken["spec"]["lines"].replace('"cluster_id"', '"cluster_name"')
    body = {
        "apiVersion": CLUSTER_STATE.api_version,
        "kind": CLUSTER_STATE.kind,
        "metadata": {"name": "e", "labels": {"fairlead.io/cluster": "e"}},
        "spec": {**broken["spec"], "clusterName": "e", "lines": lines},
    }
    run(kube.create(CLUSTER_STATE, namespace, body))
    run(kube.create(LOG_CLUSTER, namespace, log_cluster("e")))

    def problem() -> str:
        _, state = cluster.active().ask("GET", "/v1/state")
        reign = state["clusters"].get(f"{namespace}/e") or {}
        text = reign.get("problem") or ""
        return text if "cannot be read" in text else ""

    print(wait_for(problem))
    status, reply = cluster.active().ask("GET", f"/v1/clusters/{namespace}/e/status")
    assert status == 503
    assert "cannot be read" in reply["message"]
    assert reigned(cluster, CLUSTER) == 1
    assert cluster.active().get("/healthz")[0] == 200
