"""Log directories of a real broker are cordoned (KIP-1066), as Kafka's own tools ask and tell."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from live_broker import FrameClient
from needed_tools import missing
from waiting import wait_until

from fairlead_bench.peers.java_tools import JavaTools, ToolFailedError
from fairlead_bench.peers.kafka_distribution import KafkaUnavailableError, ensure_kafka
from fairlead_wire.messages.describe_log_dirs import DescribeLogDirsRequest

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.java
PROGRAM = Path(__file__).parents[1] / "support/kafka/KafkaCordonedDirectories.java"
CORDONED = "cordoned.log.dirs"
OF_BROKER = ("--entity-type", "brokers", "--entity-name", "0")
CREATE_SECOND = ("--create", "--topic", "second", "--partitions", "2", "--if-not-exists")


def described(tools: JavaTools) -> dict[str, Any]:
    output = tools.run("kafka-log-dirs", "--describe", "--broker-list", "0")
    (broker,) = json.loads(output.splitlines()[-1])["brokers"]
    return {each["logDir"]: each for each in broker["logDirs"]}


def cordoned(cluster: Any) -> set[str]:
    """What the broker tells since version 5; kafka-log-dirs of Kafka 4.3.1 does not print it."""
    with FrameClient(int(cluster.brokers[0].address.rpartition(":")[2])) as client:
        reply = client.call(DescribeLogDirsRequest(topics=None), 5)
    return {each.log_dir for each in reply.results if each.is_cordoned}


def told_to_java(tools: JavaTools) -> list[str]:
    """What Kafka's client reads: path, isCordoned, and whether there is no error."""
    command = tools.distribution.java_command(str(PROGRAM), heap_mb=128, options=())
    done = subprocess.run(
        [*command, tools.bootstrap, "0"], capture_output=True, text=True, timeout=60, check=True
    )
    return done.stdout.splitlines()


def cordon(tools: JavaTools, value: str) -> None:
    tools.run("kafka-configs", "--alter", *OF_BROKER, "--add-config", f"{CORDONED}={value}")


def create(tools: JavaTools, topic: str) -> None:
    tools.run("kafka-topics", "--create", "--topic", topic, "--partitions", "2")


def test_kafka_tools_cordon_and_tell(make_cluster: Callable[..., Any], tmp_path: Path) -> None:
    one, two = (str(tmp_path / name) for name in ("one", "two"))
    cluster = make_cluster(settings={"log.dirs": f"{one},{two}"})
    try:
        tools = JavaTools(ensure_kafka(), cluster.bootstrap)
    except KafkaUnavailableError as error:
        missing(str(error))
    cordon(tools, one)
    assert told_to_java(tools) == [f"{one} true true", f"{two} false true"]
    output = tools.run("kafka-configs", "--describe", *OF_BROKER)
    assert f"{CORDONED}={one} sensitive=false synonyms={{DYNAMIC_BROKER_CONFIG:{CORDONED}" in output
    create(tools, "first")
    found = described(tools)
    assert all(each["error"] is None for each in found.values())
    placed = {path: [part["partition"] for part in found[path]["partitions"]] for path in found}
    assert (placed[one], sorted(placed[two])) == ([], ["first-0", "first-1"])
    plan = tmp_path / "plan.json"
    wanted = {"topic": "first", "partition": 0, "replicas": [0], "log_dirs": [one]}
    plan.write_text(json.dumps({"version": 1, "partitions": [wanted]}))
    move = ("--reassignment-json-file", str(plan), "--execute")
    process = tools.run_unchecked("kafka-reassign-partitions", *move)
    told = (process.stdout + process.stderr).decode()
    assert "InvalidReplicaAssignmentException" in told, told

    with pytest.raises(ToolFailedError, match=r"InvalidRequestException.*entries : /no/where"):
        cordon(tools, "/no/where")
    with pytest.raises(ToolFailedError, match="InvalidRequestException"):
        tools.run(
            *("kafka-configs", "--alter", "--entity-type", "brokers", "--entity-default"),
            *("--add-config", f"{CORDONED}=*"),
        )
    cordon(tools, f"[{one},{two}]")
    assert cordoned(cluster) == {one, two}
    with pytest.raises(ToolFailedError, match="InvalidReplicationFactorException"):
        create(tools, "second")
    with pytest.raises(ToolFailedError, match="InvalidReplicationFactorException"):
        tools.run("kafka-topics", "--alter", "--topic", "first", "--partitions", "3")
    cordon(tools, "*")
    assert cordoned(cluster) == {one, two}
    cluster.brokers[0].stop()
    cluster.brokers[0].start()
    assert cordoned(cluster) == {one, two}, "it outlives a restart"
    tools.run("kafka-configs", "--alter", *OF_BROKER, "--delete-config", CORDONED)
    assert cordoned(cluster) == set()
    wait_until(lambda: tools.run_unchecked("kafka-topics", *CREATE_SECOND).returncode == 0)
    assert described(tools)[one]["partitions"] != []
    tools.run("kafka-reassign-partitions", *move)
