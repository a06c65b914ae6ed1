"""Kafka's own tools for consumer groups, and that ours say the same of the same group."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
from client_adapters import Confluent, Rec
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from fairlead_bench.peers.java_tools import TOOL_TIMEOUT_S, JavaTools

pytestmark = pytest.mark.java

RECORDS = 12
LIST = ("group", "list", "-o", "json")


def consumer_groups(tools: JavaTools, *arguments: str) -> str:
    """What `kafka-consumer-groups` prints, on both streams."""
    process = tools.run_unchecked("kafka-consumer-groups", *arguments)
    return (process.stdout + process.stderr).decode()


def fairlead(bootstrap: str, *arguments: str) -> Any:
    """The JSON answer of our own command."""
    process = subprocess.run(
        [sys.executable, "-m", "fairlead_cli.main", *arguments, "--bootstrap", bootstrap],
        capture_output=True,
        text=True,
        timeout=TOOL_TIMEOUT_S,
        check=True,
    )
    return json.loads(process.stdout) if "json" in arguments else process.stdout


def rows(output: str, group: str) -> list[dict[str, str]]:
    """The lines of a group under the last header; Java separates columns by blanks."""
    lines = [line.split() for line in output.splitlines() if line.strip()]
    found: list[dict[str, str]] = []
    header: list[str] = []
    for line in lines:
        if line[0] == "GROUP":
            header = line
        elif line[0] == group and header:
            found.append(dict(zip(header, line, strict=False)))
    return found


@pytest.fixture
def topic(bootstrap: str, make_topic: Callable[..., str]) -> str:
    """Two partitions: one with all records, one empty."""
    name = make_topic("group-tools", partitions=2)
    client = Confluent(bootstrap)
    client.produce(name, [Rec(b"%d" % number) for number in range(RECORDS)])
    return name


@pytest.fixture
def group(bootstrap: str, topic: str) -> str:
    """A group without members that has read 5 records of each partition, if there were so many."""
    name = f"group-{time.monotonic_ns()}"
    offsets = [TopicPartition(topic, 0, 5, metadata="half"), TopicPartition(topic, 1, 0)]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    request = [ConsumerGroupTopicPartitions(name, offsets)]
    deadline = time.monotonic() + 60
    # The first group of a cluster waits until the offsets topic is there.
    while True:
        answer = admin.alter_consumer_group_offsets(request)[name].result(60)
        if not [at for at in answer.topic_partitions if at.error is not None]:
            return name
        assert time.monotonic() < deadline, answer.topic_partitions
        time.sleep(0.2)


def ends(tools: JavaTools, topic: str, moment: str) -> dict[int, int]:
    """By partition, from kafka-get-offsets."""
    output = tools.run("kafka-get-offsets", "--topic", topic, "--time", moment)
    return {int(p): int(o) for p, o in re.findall(rf"{re.escape(topic)}:(\d+):(\d+)", output)}


def committed(bootstrap: str, group: str) -> dict[int, int]:
    (document,) = fairlead(bootstrap, "group", "describe", group, "-o", "json")
    return {each["partition"]: each["committed"] for each in document["offsets"]}


def test_both_tools_describe_the_same_offsets(
    tools: JavaTools, bootstrap: str, topic: str, group: str
) -> None:
    theirs = rows(consumer_groups(tools, "--describe", "--group", group), group)
    (ours,) = fairlead(bootstrap, "group", "describe", group, "-o", "json")
    shown = {
        int(row["PARTITION"]): (row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"])
        for row in theirs
    }
    assert shown == {
        each["partition"]: (str(each["committed"]), str(each["logEnd"]), str(each["lag"]))
        for each in ours["offsets"]
    }
    assert {each["partition"]: each["logEnd"] for each in ours["offsets"]} == ends(
        tools, topic, "latest"
    )
    assert {each["partition"]: each["logStart"] for each in ours["offsets"]} == ends(
        tools, topic, "earliest"
    )
    assert group in consumer_groups(tools, "--list").split()
    states = {each["group"]: each["state"] for each in fairlead(bootstrap, *LIST)}
    assert states[group] == "Empty"


def test_both_tools_see_the_same_members(
    tools: JavaTools, bootstrap: str, topic: str, group: str
) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.instance.id": "billing-1",
            "client.id": "billing",
            "partition.assignment.strategy": "range",
            "session.timeout.ms": 45_000,
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.subscribe([topic])
        deadline = time.monotonic() + 60
        while len(consumer.assignment()) < 2 and time.monotonic() < deadline:
            consumer.poll(0.2)
        (ours,) = fairlead(bootstrap, "group", "describe", group, "-o", "json")
        state = consumer_groups(tools, "--describe", "--state", "--group", group)
        members = consumer_groups(tools, "--describe", "--members", "--verbose", "--group", group)
        assert ours["state"] == "Stable"
        (member,) = ours["members"]
        assert re.search(r"\brange\b.*\bStable\b.*\b1$", state, re.MULTILINE)
        assert f"{ours['coordinator']['port']}" in state
        (line,) = [line for line in members.splitlines() if member["memberId"] in line]
        assert {"billing-1", "billing", "/127.0.0.1"} <= set(line.split())
        assert re.search(rf"{re.escape(topic)}(\(0,\s*1\)|:0,1)", line), line
        refused = consumer_groups(tools, "--delete", "--group", group)
        assert "GroupNotEmptyException" in refused
        refused = consumer_groups(tools, "--delete-offsets", "--group", group, "--topic", topic)
        assert "GroupSubscribedToTopicException" in refused
        refused = consumer_groups(
            tools,
            *("--reset-offsets", "--group", group, "--topic", topic, "--to-earliest"),
            "--execute",
        )
        assert "inactive" in refused
        assert committed(bootstrap, group)[0] == 5
    finally:
        consumer.close()


@pytest.mark.parametrize(
    ("target", "new"),
    [
        (("--to-earliest",), 0),
        (("--to-latest",), RECORDS),
        (("--to-current",), 5),
        (("--to-offset", "7"), 7),
        (("--to-offset", "700"), RECORDS),
        (("--shift-by", "-2"), 3),
        (("--shift-by", "-200"), 0),
        (("--by-duration", "PT1H"), 0),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_both_tools_reset_to_the_same_offset(
    tools: JavaTools, bootstrap: str, topic: str, group: str, target: tuple[str, ...], new: int
) -> None:
    document = fairlead(
        bootstrap, "group", "reset", group, "--topic", f"{topic}:0", *target, "-o", "json"
    )
    assert [each["new"] for each in document["partitions"]] == [new]
    where = ("--reset-offsets", "--group", group, "--topic", f"{topic}:0")
    planned = rows(consumer_groups(tools, *where, *target, "--dry-run"), group)
    assert [(row["PARTITION"], row["NEW-OFFSET"]) for row in planned] == [("0", str(new))]
    assert committed(bootstrap, group)[0] == 5
    consumer_groups(tools, *where, *target, "--execute")
    assert committed(bootstrap, group) == {0: new, 1: 0}


def test_kafka_consumer_groups_deletes_offsets_and_groups(
    tools: JavaTools, bootstrap: str, topic: str, group: str
) -> None:
    deleted = consumer_groups(tools, "--delete-offsets", "--group", group, "--topic", f"{topic}:1")
    assert "Successful" in deleted
    assert committed(bootstrap, group) == {0: 5}
    output = consumer_groups(tools, "--delete", "--group", group)
    assert "was successful" in output
    assert group not in {each["group"] for each in fairlead(bootstrap, *LIST)}
    gone = consumer_groups(tools, "--delete", "--group", group)
    assert "GroupIdNotFoundException" in gone


def test_ours_deletes_what_theirs_then_misses(
    tools: JavaTools, bootstrap: str, topic: str, group: str
) -> None:
    fairlead(bootstrap, "group", "delete", group, "--topic", f"{topic}:1")
    theirs = rows(consumer_groups(tools, "--describe", "--group", group), group)
    assert [row["PARTITION"] for row in theirs] == ["0"]
    fairlead(bootstrap, "group", "delete", group)
    assert group not in consumer_groups(tools, "--list").split()
    missing = consumer_groups(tools, "--describe", "--group", group)
    assert re.search(r"does not exist|GroupIdNotFoundException", missing), missing
