"""`fairlead rebalance` on a real cluster: shown first, carried out as shown, or not at all."""

import json
import os
import signal
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from local_cluster import PATIENT, Cli
from waiting import wait_until

from fairlead_cli.local.cluster_file import read_cluster_file
from fairlead_cli.local.layout import Layout
from fairlead_cli.rebalance.progress import read_progress

RATE = "fairlead.reassignment.throttled.rate"
TOPIC = ("topic", "create", "t", "--partitions", "12", "--replication-factor", "2")


@pytest.fixture(autouse=True)
def own_shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans of one test are not another one's."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def replicas(cli: Cli) -> list[list[int]]:
    (described,) = cli.ok("topic", "describe", "t", "-o", "json").json
    return [row["replicas"] for row in described["partitions"]]


def fill(cli: Cli) -> None:
    cli.ok(*TOPIC)
    lines = "".join(f"{number}:value {number:0500}\n" for number in range(12_000))
    cli.ok("produce", "t", "--key-separator", ":", stdin=lines)


def with_an_empty_broker(cli: Cli, *arguments: str) -> None:
    """Start four brokers, with 12 partitions on three of them."""
    assert cli.up("--brokers", "4", *PATIENT, *arguments).code == 0
    cli.ok("broker", "drain", "3", "--wait")
    fill(cli)
    cli.ok("broker", "undrain", "3")


def copy_at(cli: Cli, rate: int) -> None:
    """Have all brokers copy so many bytes a second, from now on."""
    admin = AdminClient({"bootstrap.servers": cli.status()["bootstrap"]})
    entry = ConfigEntry(RATE, str(rate), incremental_operation=AlterConfigOpType.SET)
    cluster = read_cluster_file(Layout(cli.data).cluster_file)
    assert cluster is not None
    for broker in cluster.brokers:
        # librdkafka takes one a call.
        resource = ConfigResource(
            ConfigResource.Type.BROKER, str(broker.id), incremental_configs=[entry]
        )
        (answer,) = admin.incremental_alter_configs([resource]).values()
        answer.result(60)


def held(plan: Any, when: int) -> dict[int, int]:
    return {share["broker"]: share["replicas"][when] for share in plan["shares"]}


def assert_brokers_tell_what_they_hold(cli: Cli, assigned: list[list[int]]) -> None:
    """Ask each for `/load`, as the operator does for a Rebalance."""
    cluster = read_cluster_file(Layout(cli.data).cluster_file)
    assert cluster is not None
    for broker in cluster.brokers:
        with urlopen(f"http://{broker.host}:{broker.http_port}/load", timeout=60) as page:
            told = json.load(page)
        assert told["brokerId"] == broker.id
        rows = {row[0]: row for row in told["topics"].get("t", ())}
        assert rows.keys() == {at for at, held in enumerate(assigned) if broker.id in held}
        assert all(row[1] > 0 for row in rows.values())
        assert 0 < told["freeBytes"] < told["totalBytes"]


def test_a_cluster_that_a_file_names_is_not_measured_by_another_one(
    cli: Cli, tmp_path: Path
) -> None:
    """That of the data directory beside it, whose brokers have the same ids."""
    assert cli.up("--brokers", "1").code == 0
    file = tmp_path / "theirs.librdkafka"
    file.write_text(f"bootstrap.servers=127.0.0.1:{cli.port}\n")
    plan = cli.ok("rebalance", "--client-config", str(file), "-o", "json").json
    assert any("Bytes in and out are not known here" in each for each in plan["notes"])


def test_a_new_broker_is_filled_as_shown_and_not_twice(cli: Cli, tmp_path: Path) -> None:
    assert cli.up(*PATIENT).code == 0
    fill(cli)
    cli.ok("down")
    assert cli.up("--brokers", "4", *PATIENT).code == 0
    before = replicas(cli)
    assert_brokers_tell_what_they_hold(cli, before)
    shown = cli.ok("rebalance").out
    plan = cli.ok("rebalance", "-o", "json").json
    assert f"fairlead rebalance --execute {plan['id']}" in shown, "the same facts, the same plan"
    assert replicas(cli) == before, "a dry run by default"
    assert (held(plan, 0)[3], held(plan, 1)[3] >= 5) == (0, True)
    assert 0 < plan["bytes"] <= 1.3 * plan["bytesNeeded"]
    disks = next(goal for goal in plan["goals"] if goal["goal"] == "disks")
    assert disks["after"] < disks["before"]

    # A file with the plan is as good as its id, unless somebody has changed it.
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan))
    done = cli.ok("rebalance", "--execute", str(file), "--wait", "-o", "json").json
    assert (done["done"], done["moving"], done["refused"]) == (len(plan["moves"]), 0, [])
    planned = {move["partition"]: move["after"] for move in plan["moves"] if move["topic"] == "t"}
    after = [planned.get(index, old) for index, old in enumerate(before)]
    # Whichever broker is asked hears of it in its own time.
    wait_until(lambda: replicas(cli) == after)
    assert cli.ok("rebalance", "--status", plan["id"], "-o", "json").json["done"] == done["done"]

    stale = cli("rebalance", "--execute", plan["id"])
    assert (stale.code, stale.out) == (1, "")
    move = plan["moves"][0]
    where = f"{move['topic']}-{move['partition']} has replicas "
    was = ", ".join(map(str, move["before"]))
    assert f"plan {plan['id']} is stale, and nothing was moved" in stale.err
    assert where + ", ".join(map(str, move["after"])) + f" instead of {was}" in stale.err

    plan["moves"][0]["after"] = plan["moves"][0]["before"]
    file.write_text(json.dumps(plan))
    changed = cli("rebalance", "--execute", str(file))
    assert (changed.code, "was changed after plan" in changed.err) == (2, True)


def test_the_next_controller_goes_on_and_who_looks_on_asks_another_broker(cli: Cli) -> None:
    with_an_empty_broker(cli, "--set", f"{RATE}=20000")
    before = replicas(cli)
    plan = cli.ok("rebalance", "-o", "json").json
    begun = cli.ok("rebalance", "--execute", plan["id"], "-o", "json").json
    assert begun["moving"] > 0
    os.kill(cli.status()["controller"]["pid"], signal.SIGKILL)
    # The first of these has died since it was found, say.
    addresses = f"127.0.0.1:1,{cli.status()['bootstrap']}"
    assert read_progress(plan, addresses)["moving"] > 0
    copy_at(cli, 200_000)
    looking_on = cli.spawn("rebalance", "--status", plan["id"], "--wait", "--timeout-s", "90")
    cli.ok("broker", "kill", "0", "--no-wait")
    done, _ = looking_on.communicate(timeout=120)
    count = len(plan["moves"])
    assert f"Plan {plan['id']}: {count} of {count} partitions done" in done
    assert looking_on.returncode == 0
    planned = {move["partition"]: move["after"] for move in plan["moves"] if move["topic"] == "t"}
    after = [planned.get(index, old) for index, old in enumerate(before)]
    # Whichever broker is asked hears of it in its own time.
    wait_until(lambda: replicas(cli) == after)


def test_what_goes_slowly_is_called_back(cli: Cli) -> None:
    with_an_empty_broker(cli, "--set", f"{RATE}=1")
    before = replicas(cli)
    plan = cli.ok("rebalance", "-o", "json").json
    assert plan["durationS"] > 1000
    late = cli("rebalance", "--execute", plan["id"], "--wait", "--timeout-s", "1", "-o", "json")
    assert (late.code, late.json["moving"] > 0) == (1, True)
    called_back = cli.ok(
        "rebalance", "--cancel", plan["id"], "--wait", "--timeout-s", "30", "-o", "json"
    ).json
    # What came through before stays; everything else is where it was, and nothing in between.
    assert (called_back["moving"], called_back["changedSince"]) == (0, 0)
    back = [row["partition"] for row in called_back["rows"] if row["state"] == "not moved"]
    assert len(back) == called_back["notMoved"] > 0
    kept = [set(before[index]) for index in back]

    def are_where_they_were() -> bool:
        after = replicas(cli)
        return [set(after[index]) for index in back] == kept

    wait_until(are_where_they_were)


def test_wrong_use_is_said(cli: Cli) -> None:
    assert cli.up("--brokers", "1").code == 0
    refusals = {
        ("--execute", "nope"): "there is no plan 'nope' here",
        ("--execute", "a", "--cancel", "b"): "one of --execute, --status and --cancel",
        ("--wait",): "--wait is for --execute, --status or --cancel",
    }
    for arguments, message in refusals.items():
        refused = cli("rebalance", *arguments)
        assert (refused.code, refused.out) == (2, ""), refused
        assert message in refused.err
    assert "Nothing to move" in cli.ok("rebalance").out
