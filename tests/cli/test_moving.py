"""`fairlead topic reassign` and `topic alter --replication-factor` on a real cluster."""

import json
from pathlib import Path
from typing import Any

import pytest
from local_cluster import PATIENT, Cli
from waiting import wait_until

from fairlead_bench.peers.java_tools import JavaTools
from fairlead_bench.peers.kafka_distribution import ensure_kafka


def replicas(cli: Cli, topic: str) -> list[list[int]]:
    (described,) = cli.ok("topic", "describe", topic, "-o", "json").json
    return [row["replicas"] for row in described["partitions"]]


def held(cli: Cli) -> list[int]:
    """How many replicas each broker has, as a cluster's address alone tells it."""
    bootstrap = cli.status()["bootstrap"]
    brokers = cli.ok("status", "--bootstrap", bootstrap, "-o", "json").json["brokers"]
    return [broker["replicas"] for broker in brokers]


@pytest.fixture
def three_brokers(cli: Cli) -> Cli:
    assert cli.up(*PATIENT).code == 0
    return cli


def test_replicas_become_more_move_and_become_fewer(three_brokers: Cli) -> None:
    cli = three_brokers
    cli.ok("topic", "create", "t", "--partitions", "3", "--replication-factor", "1")
    cli.ok("produce", "t", stdin="".join(f"{number}\n" for number in range(300)))
    first = [each[0] for each in replicas(cli, "t")]

    grown = cli.ok("topic", "alter", "t", "--replication-factor", "2").out
    assert grown == "3 partitions of topic t will have 2 replicas.\n"
    rows: list[dict[str, Any]] = cli.ok("topic", "reassign", "t", "--wait", "-o", "json").json
    assert [len(row["replicas"]) for row in rows] == [2, 2, 2]
    assert {(*row["adding"], *row["removing"], row["error"]) for row in rows} == {(None,)}
    assert [each[0] for each in replicas(cli, "t")] == first, "leaders stay"
    # Who gets them goes by what brokers held as the command looked; in all they are six.
    wait_until(lambda: sum(held(cli)) == 6)
    again = cli.ok("topic", "alter", "t", "--replication-factor", "2").out
    assert again == "Topic t has 2 replicas already.\n"

    cli.ok("topic", "reassign", "t", "--to", "0", "--to", "1", "--wait")
    # Whichever broker is asked hears of it in its own time.
    wait_until(lambda: [sorted(each) for each in replicas(cli, "t")] == [[0, 1]] * 3)
    wait_until(lambda: not list(cli.data.glob("broker-2/t-[0-9]")))

    cli.ok("topic", "alter", "t", "--replication-factor", "1")
    wait_until(lambda: sum(held(cli)) == 3)
    assert len(cli.ok("consume", "t", "--until-end").out.splitlines()) == 300


def test_what_cannot_move_is_said(three_brokers: Cli) -> None:
    cli = three_brokers
    cli.ok("topic", "create", "t", "--partitions", "1", "--replication-factor", "2")
    before = replicas(cli, "t")
    refusals = {
        ("reassign", "t", "--to", "1"): (1, "2 replicas need as many brokers; --to names 1"),
        ("reassign", "t", "--to", "1", "--to", "9"): (1, "there is no broker 9 in service"),
        ("reassign", "t", "--partition", "4"): (1, "topic 't' has no partition 4"),
        ("reassign", "t", "--to", "1", "--cancel"): (2, "either --to or --cancel"),
        ("alter", "t", "--replication-factor", "4"): (1, "4 replicas need as many brokers; 3 can"),
    }
    for arguments, (code, message) in refusals.items():
        refused = cli("topic", *arguments)
        assert (refused.code, refused.out) == (code, ""), refused
        assert message in refused.err
    assert replicas(cli, "t") == before
    # Nothing moves: that is what was asked for.
    cancelled = cli.ok("topic", "reassign", "t", "--cancel", "-o", "json").json
    assert [row["error"] for row in cancelled] == ["NO_REASSIGNMENT_IN_PROGRESS"]

    away = next(each for each in range(3) if each not in before[0])
    cli.ok("broker", "drain", str(away))
    to = ("--to", str(away), "--to", str(before[0][0]))
    refused = cli("topic", "reassign", "t", *to, "-o", "json")
    assert refused.code == 1
    assert f"broker {away} is being drained" in refused.json[0]["message"]
    # Whichever broker is asked hears of it in its own time; until then the controller refuses.
    grow = ("topic", "alter", "t", "--replication-factor", "3")
    wait_until(lambda: "3 replicas need as many brokers; 2 can take new ones" in cli(*grow).err)
    assert cli(*grow).code == 1


def cluster_of_slow_copies(cli: Cli) -> tuple[list[int], int]:
    """Start one with a topic t on two brokers; return these, and the one that is free."""
    slow = ("--set", "fairlead.reassignment.throttled.rate=1")
    assert cli.up(*PATIENT, *slow).code == 0
    cli.ok("topic", "create", "t", "--partitions", "1", "--replication-factor", "2")
    cli.ok("produce", "t", stdin="".join(f"{number:0999}\n" for number in range(3000)))
    (before,) = replicas(cli, "t")
    return before, next(each for each in range(3) if each not in before)


def test_a_move_that_goes_slowly_is_called_back(cli: Cli) -> None:
    before, free = cluster_of_slow_copies(cli)
    to = ("--to", str(free), "--to", str(before[0]))
    rows = cli.ok("topic", "reassign", "t", *to, "-o", "json").json
    assert (rows[0]["adding"], rows[0]["removing"]) == ([free], [before[1]])
    late = cli("topic", "reassign", "t", "--wait", "--timeout-s", "1.5", "-o", "json")
    assert (late.code, late.json[0]["adding"]) == (1, [free])
    assert "1 partition not there after 1.5 s" in late.err
    assert f"fairlead topic reassign t --cancel --data {cli.data}" in late.err
    cli.ok("topic", "reassign", "t", "--cancel", "--wait", "--timeout-s", "30")
    wait_until(lambda: replicas(cli, "t") == [before])
    wait_until(lambda: not list(cli.data.glob(f"broker-{free}/t-[0-9]")))


@pytest.mark.java
def test_kafkas_own_tool_shows_and_cancels_a_move(cli: Cli, tmp_path: Path) -> None:
    before, free = cluster_of_slow_copies(cli)
    tools = JavaTools(ensure_kafka(), cli.status()["bootstrap"])
    plan = tmp_path / "plan.json"
    target = {"topic": "t", "partition": 0, "replicas": [before[0], free]}
    plan.write_text(json.dumps({"version": 1, "partitions": [target]}))
    file = ("--reassignment-json-file", str(plan))
    tools.run("kafka-reassign-partitions", "--execute", *file)
    listed = tools.run("kafka-reassign-partitions", "--list")
    assert f"adding: {free}. removing: {before[1]}." in listed
    cancelled = tools.run("kafka-reassign-partitions", "--cancel", *file)
    assert "Successfully cancelled partition reassignment for: t-0" in cancelled
    assert "No partition reassignments found" in tools.run("kafka-reassign-partitions", "--list")
    wait_until(lambda: replicas(cli, "t") == [before])
    wait_until(lambda: not list(cli.data.glob(f"broker-{free}/t-[0-9]")))
