"""A replica moves between two disks of a real broker, as Kafka's own tools ask and tell."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from needed_tools import missing
from replicated_topic import TOPIC, Story

from fairlead_bench.peers.java_tools import JavaTools
from fairlead_bench.peers.kafka_distribution import KafkaUnavailableError, ensure_kafka

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.java
RECORDS = 3_000
RATE = "replica.alter.log.dirs.io.max.bytes.per.second"


def replicas_on(tools: JavaTools, disks: list[Path]) -> list[list[dict[str, Any]]]:
    """What kafka-log-dirs tells of broker 1, by directory."""
    output = tools.run("kafka-log-dirs", "--describe", "--broker-list", "1", "--topic-list", TOPIC)
    (broker,) = json.loads(output.splitlines()[-1])["brokers"]
    found = {each["logDir"]: each for each in broker["logDirs"]}
    assert all(each["error"] is None for each in found.values())
    return [found[str(disk)]["partitions"] for disk in disks]


def test_a_replica_moves_to_another_disk(make_cluster: Callable[..., Any], tmp_path: Path) -> None:
    """Slowly first; the broker is killed on the way, and records come in all the time."""
    cluster = make_cluster(brokers=1)
    disks = [cluster.directory / "disk-a", cluster.directory / "disk-b"]
    cluster.brokers.append(cluster.make_broker(1, **{"log.dirs": ",".join(map(str, disks))}))
    cluster.brokers[1].start()
    try:
        tools = JavaTools(ensure_kafka(), cluster.bootstrap)
    except KafkaUnavailableError as error:
        missing(str(error))
    story = Story(cluster)
    story.create_with({"min.insync.replicas": "1"}, replication_factor=2)
    story.produce(RECORDS, size=1_000)
    story.flush()
    here, there = sorted(disks, key=lambda disk: not (disk / f"{TOPIC}-0").is_dir())
    (old,), none = replicas_on(tools, [here, there])
    assert not none
    assert (old["isFuture"], old["offsetLag"], old["size"] > RECORDS * 1_000) == (False, 0, True)

    plan = tmp_path / "plan.json"
    wanted = {"topic": TOPIC, "partition": 0, "replicas": [0, 1], "log_dirs": ["any", str(there)]}
    plan.write_text(json.dumps({"version": 1, "partitions": [wanted]}))
    asked = ("--reassignment-json-file", str(plan))
    throttle = ("--replica-alter-log-dirs-throttle", "30000")
    output = tools.run("kafka-reassign-partitions", *asked, "--execute", *throttle)
    assert re.search(rf"[Ss]uccessfully .*{there} for replica {TOPIC}-0 with broker 1", output)
    (old,), (future,) = replicas_on(tools, [here, there])
    assert (old["isFuture"], future["isFuture"]) == (False, True)
    assert 0 < future["offsetLag"] <= RECORDS
    verified = tools.run("kafka-reassign-partitions", *asked, "--verify")
    assert f"Reassignment of replica {TOPIC}-0-1 is still in progress." in verified

    cluster.brokers[1].kill()
    story.produce(100)
    story.flush()
    cluster.brokers[1].start()
    story.until(lambda: story.isr() == {0, 1})
    lift = ("--alter", "--entity-type", "brokers", "--entity-name", "1", "--delete-config", RATE)
    tools.run("kafka-configs", *lift)
    story.produce(100)
    story.until((there / f"{TOPIC}-0").is_dir)
    story.produce(100)
    story.flush()
    story.until(lambda: not (here / f"{TOPIC}-0").exists())
    verified = tools.run("kafka-reassign-partitions", *asked, "--verify")
    assert re.search(rf"Reassignment of replica {TOPIC}-0-1 completed", verified), verified
    none, (new,) = replicas_on(tools, [here, there])
    assert not none
    assert (new["isFuture"], new["offsetLag"]) == (False, 0)
    cluster.brokers[0].kill()
    story.until(lambda: story.leader() == 1)
    assert story.consume(len(story.sent)) == story.sent
