"""Brokers with several volumes: each is a log directory, and one comes and one goes under load."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes_commands import CommandError, wait_until
from kubernetes_installation import Installation, Summary
from kubernetes_load import under_load
from resource_manifests import resource

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(600)]

CLUSTER = "disks"
BROKERS = 3
PARTITIONS, RATE = 6, 500
STOP_FILE = "/tmp/stop-disks"  # in the client pod
POOL = f"{CLUSTER}-data"
LOG_FOLDER = "/var/lib/fairlead"


def volumes(*ids: int) -> dict[str, Any]:
    return {"volumes": [{"id": each, "size": "1Gi"} for each in ids]}


@pytest.fixture(scope="module")
def disks(installation: Installation) -> Iterator[Installation]:
    """A cluster whose brokers have two volumes each, beside whatever is there."""
    installation.install_operator()
    installation.ensure_client()
    resources = {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "1Gi"}}
    pool = {"clusterName": CLUSTER, "replicas": BROKERS, "storage": volumes(0, 1)}
    installation.kubectl.apply(resource("LogCluster", CLUSTER, {"reclaimPolicy": "Delete"}))
    installation.kubectl.apply(resource("BrokerPool", "data", pool | {"resources": resources}))
    ready = ("wait", "--for=condition=Ready", f"logcluster/{CLUSTER}", "--timeout=180s")
    wait_until(lambda: bool(installation.kubectl(*ready)), "no cluster", 200)
    yield installation
    for each in (f"logcluster/{CLUSTER}", "brokerpool/data"):
        installation.kubectl("delete", each, "--timeout=120s")


def make_topic(installation: Installation, name: str, partitions: int) -> None:
    spec = {
        "clusterName": CLUSTER,
        "partitions": partitions,
        "replicationFactor": BROKERS,
        "config": {"min.insync.replicas": 2},
    }
    installation.kubectl.apply(resource("Topic", name, spec))
    installation.kubectl("wait", "--for=condition=Ready", f"topic.fairlead.io/{name}")


def replicas_on(installation: Installation, broker: int, topic: str) -> list[int]:
    """How many replicas of a topic each volume of a broker has."""
    script = (
        "for f in /var/lib/fairlead /var/lib/fairlead-1 /var/lib/fairlead-2; do "
        f"ls -d $f/log/{topic}-* 2>/dev/null | wc -l; done"
    )
    found = installation.kubectl.exec(f"{POOL}-{broker}", "sh", "-c", script)
    return [int(line) for line in found.split()]


def mounted(installation: Installation, broker: int) -> list[str]:
    pod = installation.kubectl.get("pod", f"{POOL}-{broker}")
    names = [each["name"] for each in pod["spec"]["volumes"]]
    return sorted(name for name in names if name.partition("-")[0] == "data")


def has_volumes(installation: Installation, *ids: int) -> bool:
    """Whether every broker has these, runs with them, and all is in sync."""
    pool = installation.kubectl.get("brokerpool", "data")
    status = pool["status"]
    bound = {each["id"]: each["bound"] for each in status.get("volumes", ())}
    cluster = installation.kubectl.get("logcluster", CLUSTER)["status"]
    wanted = ["data" if each == 0 else f"data-{each}" for each in ids]
    return (
        status["observedGeneration"] == pool["metadata"]["generation"]
        and all(bound.get(each) == BROKERS for each in ids)
        and all(mounted(installation, each) == wanted for each in range(BROKERS))
        and status["updatedReplicas"] == status["readyReplicas"] == BROKERS
        and cluster["brokersReady"] == BROKERS
        and not cluster.get("underReplicated")
        and not cluster.get("offline")
    )


def patch_volumes(installation: Installation, *ids: int) -> None:
    patch = json.dumps({"spec": {"storage": volumes(*ids)}})
    installation.kubectl("patch", "brokerpool", "data", "--type=merge", "-p", patch)


def test_a_third_volume_is_added_under_load(disks: Installation, summary: Summary) -> None:
    wait_until(lambda: has_volumes(disks, 0, 1), "two volumes a broker", 120)
    make_topic(disks, "spread", PARTITIONS)
    for broker in range(BROKERS):
        found = replicas_on(disks, broker, "spread")
        assert (sum(found), min(found[:2]) > 0) == (PARTITIONS, True), found
    load = under_load(
        disks.kubectl,
        f"{CLUSTER}-bootstrap:9092",
        "spread",
        partitions=PARTITIONS,
        rate=RATE,
        stop_file=STOP_FILE,
    )
    with load as verdict:
        patch_volumes(disks, 0, 1, 2)
        took_s = wait_until(lambda: has_volumes(disks, 0, 1, 2), "a third volume a broker", 240)
        make_topic(disks, "later", 2)
    wrong = [verdict[name] for name in ("lost", "duplicated", "reordered", "unanswered")]
    assert wrong == [0, 0, 0, 0], verdict
    assert verdict["acknowledged"] > RATE
    for broker in range(BROKERS):
        assert replicas_on(disks, broker, "spread")[2] == 0, "what there was stays where it was"
        assert replicas_on(disks, broker, "later") == [0, 0, 2], "what is new goes to the emptiest"
    silence = verdict["longestSilenceMs"]
    summary.add(
        "a third volume a broker", f"{took_s:.0f} s, longest silence {silence} ms", "0 lost"
    )


def restart(installation: Installation, pod: str) -> None:
    old = installation.kubectl.get("pod", pod)["metadata"]["uid"]
    installation.kubectl("delete", "pod", pod)

    def is_back() -> bool:
        metadata = installation.kubectl.get("pod", pod)["metadata"]
        return bool(metadata["uid"] != old)

    wait_until(is_back, f"{pod} does not come back", 120)
    installation.kubectl("wait", "--for=condition=Ready", f"pod/{pod}")


def test_a_volume_that_cannot_be_read_is_named_and_the_others_serve(disks: Installation) -> None:
    pod, folder = f"{POOL}-2", "/var/lib/fairlead-1/log"
    disks.kubectl.exec(pod, "chmod", "000", folder)
    restart(disks, pod)
    said = ("wait", "--for=condition=VolumesFailed", "brokerpool/data")
    disks.kubectl(*said)
    told = disks.kubectl.condition("brokerpool", "data", "VolumesFailed")
    assert "volume 1 has failed broker 2" in told["message"]
    status = disks.kubectl.get("brokerpool", "data")["status"]
    assert [each.get("failedOn") for each in status["volumes"]] == [None, [2], None]
    # It serves on from the other volumes; its pod is Ready a moment before the LogCluster says so.
    serving = f"--for=jsonpath={{.status.brokersReady}}={BROKERS}"
    disks.kubectl("wait", serving, f"logcluster/{CLUSTER}")
    disks.kubectl.exec(pod, "chmod", "755", folder)
    restart(disks, pod)
    wait_until(lambda: has_volumes(disks, 0, 1, 2), "its replicas come back", 120)
    wait_until(
        lambda: not disks.kubectl.condition("brokerpool", "data", "VolumesFailed"), "all well", 120
    )


FIRST = f"{LOG_FOLDER}-1/log"


def order_disk(installation: Installation, broker: int, *order: str) -> None:
    bootstrap = ("--bootstrap", f"{CLUSTER}-bootstrap:9092")
    installation.kubectl.exec(
        "client", "fairlead", "broker", "disks", str(broker), *order, *bootstrap
    )


def drained_on(installation: Installation) -> list[int]:
    told = installation.kubectl.get("brokerpool", "data")["status"]["volumes"]
    found: list[int] = next(each.get("drainedOn", []) for each in told if each["id"] == 1)
    return found


def take_away_while_it_is_used_again(installation: Installation) -> None:
    """The API server goes by what it was told some seconds ago; now and then that is just now."""
    everywhere = list(range(BROKERS))
    for _ in range(5):
        wait_until(lambda: drained_on(installation) == everywhere, "all have emptied it", 60)
        order_disk(installation, 2, "--undrain", FIRST)
        try:
            patch_volumes(installation, 0, 2)
        except CommandError:
            order_disk(installation, 2, "--drain", FIRST, "--wait")
        else:
            return
    raise AssertionError("the API server has always known already")


def test_a_volume_that_brokers_have_is_taken_away_once_all_have_emptied_it(
    disks: Installation, summary: Summary
) -> None:
    with pytest.raises(CommandError, match="a volume cannot be removed while it may hold replicas"):
        patch_volumes(disks, 0, 2)
    make_topic(disks, "everywhere", PARTITIONS)
    load = under_load(
        disks.kubectl,
        f"{CLUSTER}-bootstrap:9092",
        "everywhere",
        partitions=PARTITIONS,
        rate=RATE,
        stop_file=STOP_FILE,
    )
    everywhere = list(range(BROKERS))
    assert all(replicas_on(disks, each, "everywhere")[1] for each in everywhere)
    with load as verdict:
        for broker in everywhere:
            order_disk(disks, broker, "--drain", FIRST, "--wait")
        take_away_while_it_is_used_again(disks)
        blocked = "--for=jsonpath={.status.conditions[?(@.type=='Blocked')].reason}=VolumeInUse"
        disks.kubectl("wait", blocked, "brokerpool/data")
        said = disks.kubectl.condition("brokerpool", "data", "Blocked")["message"]
        assert f"data-1-{POOL}-2" in said
        assert f"data-1-{POOL}-1" not in said
        assert [mounted(disks, each) for each in everywhere] == [["data", "data-1", "data-2"]] * 3
        order_disk(disks, 2, "--drain", FIRST, "--wait")
        took_s = wait_until(lambda: has_volumes(disks, 0, 2), "without the volume", 240)
    wrong = [verdict[name] for name in ("lost", "duplicated", "reordered", "unanswered")]
    assert wrong == [0, 0, 0, 0], verdict
    for broker in everywhere:
        assert sum(replicas_on(disks, broker, "everywhere")) == PARTITIONS
        order_disk(disks, broker, "--undrain", FIRST)
    claims = [f"persistentvolumeclaim/data-1-{POOL}-{each}" for each in everywhere]
    disks.kubectl("delete", *claims, "--timeout=60s")  # they stay until somebody says so
    summary.add(
        "a volume of each broker taken away",
        f"{took_s:.0f} s, longest silence {verdict['longestSilenceMs']} ms",
        "0 lost",
    )
