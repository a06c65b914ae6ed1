"""A cluster's life on Kubernetes: installed, used, broken, upgraded, taken down, and back."""

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kubernetes_commands import run, wait_until
from kubernetes_installation import (
    BOOTSTRAP,
    CLUSTER,
    NAMESPACE,
    NODE_PORT_BASE,
    POOL,
    Installation,
    Summary,
)
from kubernetes_load import under_load as begin_load

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(600)]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
LOAD_PARTITIONS, LOAD_RATE = 6, 500
STOP_FILE = "/tmp/stop"


def make_load_topic(installation: Installation, name: str) -> None:
    spec = {
        "clusterName": CLUSTER,
        "partitions": LOAD_PARTITIONS,
        "replicationFactor": 3,
        "config": {"min.insync.replicas": 2},
        "reclaimPolicy": "Delete",
    }
    installation.kubectl.apply(
        {
            "apiVersion": "fairlead.io/v1alpha1",
            "kind": "Topic",
            "metadata": {"name": name},
            "spec": spec,
        }
    )
    installation.kubectl("wait", "--for=condition=Ready", f"topic/{name}")


@contextmanager
def under_load(installation: Installation, topic: str) -> Iterator[dict[str, Any]]:
    """An idempotent producer in the client pod for as long as the block lasts; then its verdict.
    Each has a topic of its own, which ends with it."""
    make_load_topic(installation, topic)
    with begin_load(
        installation.kubectl,
        BOOTSTRAP,
        topic,
        partitions=LOAD_PARTITIONS,
        rate=LOAD_RATE,
        stop_file=STOP_FILE,
    ) as verdict:
        yield verdict
    installation.kubectl("delete", "topic.fairlead.io", topic)


def assert_clean(verdict: dict[str, Any]) -> None:
    assert verdict["acknowledged"] > LOAD_RATE, verdict
    wrong = [verdict[name] for name in ("lost", "duplicated", "reordered", "unanswered")]
    assert wrong == [0, 0, 0, 0], verdict


def test_from_install_to_the_first_record(installation: Installation, summary: Summary) -> None:
    installation.uninstall()
    started = time.monotonic()
    installation.install_operator()
    installation.install_cluster()
    installation.apply_client()
    installation.kubectl("wait", "--for=condition=Ready", "topic/orders")
    installation.kubectl("wait", "--for=condition=Ready", "pod/client")
    installation.fairlead("produce", "orders", stdin="first\n")
    read = installation.fairlead("consume", "orders", "--from", "beginning", "--count", "1")
    assert "first" in read
    summary.time("helm install to the first record consumed", time.monotonic() - started, 60)
    installation.wait_cluster_ready()


def test_manifests_of_the_laptop_work_here(installation: Installation, summary: Summary) -> None:
    started = time.monotonic()
    installation.kubectl("apply", "--server-side", "-f", str(EXAMPLES / "topics.yaml"))
    installation.kubectl("wait", "--for=condition=Ready", "topic", "--all")
    summary.add("topics of examples/topics.yaml Ready", f"{time.monotonic() - started:.1f} s")
    table = installation.kubectl("get", "topics.fairlead.io")
    assert "flights" in table
    orders = installation.kubectl.get("topic.fairlead.io", "orders")["status"]
    assert (orders["partitions"], orders["replicationFactor"], orders["offline"]) == (6, 3, 0)


def test_clients_outside_the_cluster(installation: Installation, summary: Summary) -> None:
    nodes = installation.kubectl.items("nodes")
    addresses = [entry["address"] for entry in nodes[0]["status"]["addresses"]]
    bootstrap = f"{addresses[0]}:{NODE_PORT_BASE}"
    lines = "".join(f"outside-{number}\n" for number in range(100))
    kcat = ["kcat", "-b", bootstrap, "-t", "weather"]
    subprocess.run([*kcat, "-P", "-X", "acks=all"], input=lines, text=True, check=True, timeout=60)
    read = subprocess.run(
        [*kcat, "-C", "-o", "beginning", "-e", "-q"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert sorted(read.stdout.split()) == sorted(lines.split())

    from confluent_kafka import Consumer, Producer, TopicPartition

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    failures: list[Any] = []
    for number in range(100):
        producer.produce(
            "airports",
            f"confluent-{number}",
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert (producer.flush(60), failures) == (0, [])
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "outside"})
    consumer.assign([TopicPartition("airports", 0, 0)])
    found: list[Any] = []
    deadline = time.monotonic() + 60
    while len(found) < 100 and time.monotonic() < deadline:
        found += consumer.consume(100, 0.5)
    consumer.close()
    assert len(found) == 100
    summary.add("kcat and confluent-kafka from outside", "produced and consumed")


def test_a_rolling_restart_under_load(installation: Installation, summary: Summary) -> None:
    installation.wait_cluster_ready()
    before = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in installation.pods()}
    with under_load(installation, "rolled") as verdict:
        installation.kubectl(
            "annotate", "brokerpool", POOL, "fairlead.io/restart=now", "--overwrite"
        )

        def is_rolled() -> bool:
            now = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in installation.pods()}
            return now.keys() == before.keys() and not set(now.values()) & set(before.values())

        took_s = wait_until(is_rolled, "not every broker was restarted", 180)
        installation.wait_cluster_ready()
    assert_clean(verdict)
    assert verdict["errors"] == {}, verdict
    silence = verdict["longestSilenceMs"]
    summary.add("rolling restart of three brokers", f"{took_s:.0f} s, longest silence {silence} ms")


def test_a_node_is_drained_under_load(installation: Installation, summary: Summary) -> None:
    installation.wait_cluster_ready()
    client_node = installation.kubectl.get("pod", "client")["spec"]["nodeName"]
    nodes = {pod["spec"]["nodeName"] for pod in installation.pods()} - {client_node}
    node = sorted(nodes)[-1]
    with under_load(installation, "drained") as verdict:
        try:
            selector = f"fairlead.io/cluster={CLUSTER}"
            flags = ("--pod-selector", selector, "--delete-emptydir-data", "--timeout=240s")
            installation.kubectl("drain", node, "--ignore-daemonsets", *flags)
        finally:
            installation.kubectl("uncordon", node)
        installation.wait_cluster_ready()
    assert_clean(verdict)
    assert verdict["errors"] == {}, verdict
    summary.add("a node drained", f"longest silence {verdict['longestSilenceMs']} ms", "no error")


def test_a_pool_and_a_topic_change_their_size_under_load(
    installation: Installation, summary: Summary
) -> None:
    installation.wait_cluster_ready()
    scale = ("scale", "brokerpool", POOL)
    installation.kubectl(*scale, "--replicas=4")
    wait_until(lambda: ready_brokers(installation) == 4, "broker 3 does not come", 120)
    with under_load(installation, "shaped") as verdict:
        took_s = change_copies(installation, "shaped", 2) + change_copies(installation, "shaped", 3)
        assert held_by_broker_3(installation), "the test needs something to move"
        installation.kubectl(*scale, "--replicas=3")
        shrunk_s = wait_until(lambda: has_left(installation), "broker 3 does not leave", 180)
        installation.wait_cluster_ready()
    assert_clean(verdict)
    assert verdict["errors"] == {}, verdict
    pods = {pod["metadata"]["name"] for pod in installation.pods()}
    assert pods == {f"{CLUSTER}-{POOL}-{ordinal}" for ordinal in range(3)}
    silence = verdict["longestSilenceMs"]
    summary.add("a topic of 3 → 2 → 3 copies", f"{took_s:.0f} s")
    summary.add("a pool of 4 → 3 brokers", f"{shrunk_s:.0f} s, longest silence {silence} ms")


def change_copies(installation: Installation, topic: str, factor: int) -> float:
    """Have so many copies of a topic; the seconds until there are."""
    patch = json.dumps({"spec": {"replicationFactor": factor}})
    installation.kubectl("patch", "topic.fairlead.io", topic, "--type=merge", "-p", patch)

    def is_done() -> bool:
        status = installation.kubectl.get("topic.fairlead.io", topic)["status"]
        return (status["replicationFactor"], status["reassigning"]) == (factor, 0)

    return wait_until(is_done, f"{topic} does not get {factor} copies", 120)


def ready_brokers(installation: Installation) -> int:
    return int(installation.kubectl.get("logcluster", CLUSTER)["status"].get("brokersReady", 0))


def brokers_of_controller(installation: Installation) -> dict[int, dict[str, Any]]:
    """What the controller that acts knows of each broker."""
    command = ("python", "-m", "fairlead_controller.kubernetes.ask")
    holder, _ = installation.lease()
    answer = installation.operator(
        "exec", holder.pod, "-c", "controller", "--", *command, "status", f"{NAMESPACE}/{CLUSTER}"
    )
    return {int(each["id"]): each for each in json.loads(answer)["brokers"]}


def held_by_broker_3(installation: Installation) -> int:
    return int(brokers_of_controller(installation)[3]["replicas"])


def has_left(installation: Installation) -> bool:
    """Whether the last broker's pod is gone, and nobody waits for it any more."""
    return len(installation.pods()) == 3 and 3 not in brokers_of_controller(installation)


def test_without_any_operator_records_go_on(installation: Installation, summary: Summary) -> None:
    """A broker that dies meanwhile takes its leaders along until an operator is back."""
    installation.wait_cluster_ready()
    with under_load(installation, "unattended") as verdict:
        installation.operator("scale", "statefulset", "fairlead-operator", "--replicas=0")
        installation.operator(
            "wait", "--for=delete", "pod", "-l", "app.kubernetes.io/component=operator"
        )
        assert "unattended" in installation.fairlead("topic", "list")
        time.sleep(3)
        installation.kubectl("delete", "pod", f"{CLUSTER}-{POOL}-0", "--grace-period=0", "--force")
        time.sleep(2)
        installation.operator("scale", "statefulset", "fairlead-operator", "--replicas=2")
        installation.wait_cluster_ready()
    assert_clean(verdict)
    silence = verdict["longestSilenceMs"]
    summary.add("no operator, then a broker dies, then both are back", f"silence {silence} ms")


def ready_operators(installation: Installation) -> int:
    """How many pods of the operator are ready, of those that are there to stay."""
    status = installation.operator.get("statefulset", "fairlead-operator")["status"]
    return int(status.get("readyReplicas", 0))


def test_the_standby_takes_over(installation: Installation, summary: Summary) -> None:
    """Counted from the last sign of life: a pod deleted by force lives on for a moment."""
    installation.wait_cluster_ready()
    wait_until(lambda: ready_operators(installation) == 2, "there is no standby", 120)
    with under_load(installation, "taken-over") as verdict:
        holder, renewed = installation.lease()
        force = ("--grace-period=0", "--force", "--wait=false")
        installation.operator("delete", "pod", holder.pod, *force)
        last_sign = time.monotonic()

        def is_taken_over() -> bool:
            nonlocal renewed, last_sign
            now_holder, now_renewed = installation.lease()
            if now_holder == holder and now_renewed != renewed:
                renewed, last_sign = now_renewed, time.monotonic()
            return bool(now_holder.identity) and now_holder != holder

        wait_until(is_taken_over, "nobody took over", 60)
        took_s = time.monotonic() - last_sign
        installation.wait_cluster_ready()
    assert_clean(verdict)
    assert verdict["errors"] == {}, verdict
    summary.time("standby takes over a killed operator", took_s, 4)


def test_the_charts_are_upgraded(installation: Installation, summary: Summary) -> None:
    installation.wait_cluster_ready()
    with under_load(installation, "upgraded") as verdict:
        installation.install_operator("--set", "logLevel=DEBUG")
        installation.install_cluster("--set", "cluster.config.log\\.retention\\.hours=48")
        wait_until(
            lambda: (
                "log.retention.hours=48"
                in installation.kubectl("get", "configmap", f"{CLUSTER}-{POOL}", "-o", "yaml")
            ),
            "the new setting has not come",
            120,
        )
        installation.wait_cluster_ready(240)
    assert_clean(verdict)
    summary.add("charts upgraded", f"longest silence {verdict['longestSilenceMs']} ms", "lost 0")


def count_records(installation: Installation, topic: str) -> int:
    out = installation.fairlead("consume", topic, "--from", "beginning", "--until-end")
    return len(out.splitlines())


def hibernate(installation: Installation, value: bool) -> None:
    patch = json.dumps({"spec": {"hibernated": value}})
    installation.kubectl("patch", "logcluster", CLUSTER, "--type=merge", "-p", patch)


def test_a_cluster_sleeps_and_wakes(installation: Installation, summary: Summary) -> None:
    """The application goes on where it was; no broker has to recover, and nothing is lost."""
    installation.wait_cluster_ready()
    before = count_records(installation, "weather")
    assert before >= 100
    address = installation.kubectl.get("service", f"{CLUSTER}-bootstrap")["spec"]["clusterIP"]
    with under_load(installation, "slept") as verdict:
        hibernate(installation, True)
        slept_s = wait_until(lambda: not installation.pods(), "brokers do not stop", 120)
        installation.kubectl("wait", "--for=condition=Hibernated", f"logcluster/{CLUSTER}")
        ready = installation.kubectl.condition("logcluster", CLUSTER, "Ready")
        assert (ready["status"], ready["reason"]) == ("False", "Hibernated")
        hibernate(installation, False)
        woken_s = installation.wait_cluster_ready()
    assert_clean(verdict)
    assert count_records(installation, "weather") == before
    again = installation.kubectl.get("service", f"{CLUSTER}-bootstrap")["spec"]["clusterIP"]
    assert again == address
    for pod in installation.pods():
        said = installation.kubectl("logs", pod["metadata"]["name"])
        assert "logs are open, 0 of them recovered" in said
    summary.add("asleep, then awake", f"{slept_s:.0f} s and {woken_s:.0f} s", "lost 0")


def test_uninstalled_and_installed_again(installation: Installation, summary: Summary) -> None:
    installation.wait_cluster_ready()
    before = count_records(installation, "weather")
    assert before >= 100
    topic_id = installation.kubectl.get("topic.fairlead.io", "weather")["status"]["topicId"]
    run("helm", "uninstall", CLUSTER, "-n", NAMESPACE, "--wait")
    run("helm", "uninstall", "fairlead", "-n", "fairlead-system", "--wait")
    assert count_records(installation, "weather") == before, "brokers serve on without charts"
    installation.install_operator()
    installation.install_cluster()
    installation.wait_cluster_ready()
    assert count_records(installation, "weather") == before
    again = installation.kubectl.get("topic.fairlead.io", "weather")["status"]["topicId"]
    assert again == topic_id
    summary.add("uninstalled and installed again", f"{before} records kept, topic ids kept")
