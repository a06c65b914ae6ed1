"""`fairlead broker …` on a real cluster: ends, freezes and revives the one that is named."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource
from local_cluster import Cli
from waiting import wait_until


def broker(cli: Cli, broker_id: int) -> dict[str, object]:
    rows = cli.ok("broker", "list", "-o", "json").json
    found: dict[str, object] = next(row for row in rows if row["id"] == broker_id)
    return found


@pytest.fixture
def three_brokers(cli: Cli) -> Cli:
    assert cli.up().code == 0
    return cli


def test_brokers_are_ended_frozen_and_revived(three_brokers: Cli) -> None:
    cli = three_brokers
    cli.ok("topic", "create", "t", "--partitions", "3", "--replication-factor", "1")

    def rows() -> list[dict[str, Any]]:
        return list(cli.ok("broker", "list", "-o", "json").json)

    # Whichever broker is asked hears of the topic in its own time.
    wait_until(lambda: sum(row["leaders"] for row in rows()) == 3)
    wait_until(lambda: sum(row["replicas"] for row in rows()) == 3)
    before = {row["id"]: row for row in rows()}
    assert [row["state"] for row in before.values()] == ["running"] * 3
    assert "127.0.0.1" in cli.ok("broker", "list").out

    assert "Broker 1 serves again after" in cli.ok("broker", "restart", "1").out
    restarted = broker(cli, 1)
    assert restarted["pid"] != before[1]["pid"]
    assert restarted["restarts"] == 1
    log = (cli.data / "logs" / "supervisor.log").read_text()
    assert "broker-1 stopped on request; starting it again" in log

    assert "serves again" in cli.ok("broker", "kill", "2").out
    assert broker(cli, 2)["restarts"] == 1
    assert "Sent SIGKILL" in cli.ok("broker", "kill", "2", "--no-wait").out
    wait_until(lambda: broker(cli, 2)["restarts"] == 2)
    wait_until(lambda: broker(cli, 2)["state"] == "running")

    paused = cli.ok("broker", "pause", "0").out
    assert f"fairlead broker resume 0 --data {cli.data}" in paused
    assert broker(cli, 0)["state"] == "paused"
    assert cli.status()["brokers"][0]["state"] == "paused"
    assert "goes on" in cli.ok("broker", "resume", "0").out
    assert broker(cli, 0)["state"] == "running"
    assert broker(cli, 0)["pid"] == before[0]["pid"]


def test_a_drained_broker_is_empty_and_stays_so(three_brokers: Cli) -> None:
    cli = three_brokers
    cli.ok("topic", "create", "t", "--partitions", "6", "--replication-factor", "2")
    cli.ok("produce", "t", stdin="".join(f"{number}\n" for number in range(1000)))
    drained = cli.ok("broker", "drain", "2", "--wait", "-o", "json").json
    assert drained == {"id": 2, "drained": True, "replicas": 0}
    assert [row["drained"] for row in cli.status()["brokers"]] == [False, False, True]
    assert "broker 2: drained, it gets nothing new" in cli.ok("status").out
    wait_until(
        lambda: not list(cli.data.glob("broker-2/t-[0-9]")), "what was moved away is on its disk"
    )
    assert not list(cli.data.glob("broker-*/*-stray"))
    assert len(cli.ok("consume", "t", "--until-end").out.splitlines()) == 1000

    refused = cli("broker", "drain", "1")
    assert refused.code == 1
    assert "broker 1 cannot be drained: partition t-0 has 2 replicas" in refused.err
    cli.ok("broker", "restart", "2")
    cli.ok("topic", "create", "u", "--partitions", "6", "--replication-factor", "1")
    assert broker(cli, 2)["replicas"] == 0
    assert "may hold partitions again" in cli.ok("broker", "undrain", "2").out
    cli.ok("topic", "create", "v", "--partitions", "6", "--replication-factor", "1")
    wait_until(lambda: broker(cli, 2)["replicas"] == 2)


def test_a_broker_that_is_gone_is_forgotten_and_joins_anew(three_brokers: Cli) -> None:
    cli = three_brokers
    cli.ok("topic", "create", "t", "--partitions", "6", "--replication-factor", "2")
    serving = cli("broker", "unregister", "2")
    assert serving.code == 1
    assert "broker 2 cannot be unregistered: it is in service" in serving.err
    cli.ok("broker", "pause", "2")
    wait_until(lambda: "it is a replica of t-" in cli("broker", "unregister", "2").err)
    drained = cli.ok("broker", "drain", "2", "--wait")
    assert "broker 2 is not in service: what is left on its disks is not known" in drained.err
    done = cli.ok("broker", "unregister", "2", "-o", "json").json
    assert done == {"id": 2, "wasRegistered": True}

    def told() -> list[str]:
        return sorted(cli.ok("features", "describe", "-o", "json").json["brokers"])

    wait_until(lambda: told() == ["0", "1"])
    assert "is not registered" in cli.ok("broker", "unregister", "2").out
    cli.ok("broker", "resume", "2")
    # What it held is none of its business any more: a new broker, which may be given partitions.
    wait_until(lambda: (broker(cli, 2)["state"], broker(cli, 2)["replicas"]) == ("running", 0))
    wait_until(lambda: len(told()) == 3)
    fields = ("--partitions", "6", "--replication-factor", "3")
    wait_until(lambda: cli("topic", "create", "u", *fields).code == 0)
    wait_until(lambda: broker(cli, 2)["replicas"] == 6)


def test_a_paused_broker_does_not_hold_up_down(three_brokers: Cli) -> None:
    cli = three_brokers
    for number in "012":
        cli.ok("broker", "pause", number)
    silent = cli("status")
    assert silent.code == 1
    # There may be any number of topics.
    assert "No topics yet" not in silent.out
    assert "No broker answers" in silent.err
    for number in "01":
        cli.ok("broker", "resume", number)
    stopped = three_brokers("down", "--timeout-s", "30")
    assert (stopped.code, stopped.err) == (0, "")


def test_wrong_brokers_are_named(three_brokers: Cli) -> None:
    cli = three_brokers
    unknown = cli("broker", "restart", "9")
    assert (unknown.code, unknown.out) == (2, "")
    assert "there is no broker 9" in unknown.err
    assert "There are 0, 1, 2." in unknown.err
    assert cli("broker", "restart", "x").code == 2
    os.kill(cli.status()["supervisor"]["pid"], signal.SIGKILL)
    wait_until(lambda: cli.status()["supervisor"]["pid"] is None)
    refused = cli("broker", "kill", "1")
    assert refused.code == 1
    assert "nobody would start the broker again" in refused.err
    cli.ok("down")
    gone = cli("broker", "list")
    assert gone.code == 1
    assert "is not running" in gone.err


def test_preferred_replicas_lead_again_when_asked(three_brokers: Cli) -> None:
    cli = three_brokers
    cli.ok("topic", "create", "t", "--partitions", "3", "--replication-factor", "3")

    def partitions() -> list[dict[str, object]]:
        (topic,) = cli.ok("topic", "describe", "t", "-o", "json").json
        found: list[dict[str, object]] = topic["partitions"]
        return found

    before = [row["leader"] for row in partitions()]
    cli.ok("broker", "restart", "1")
    wait_until(lambda: all(row["health"] == "ok" for row in partitions()))
    elected = cli.ok("topic", "elect", "t", "-o", "json").json
    assert [row["leader"] for row in elected] == before
    assert {row["error"] for row in elected} <= {None, "ELECTION_NOT_NEEDED"}
    assert "as it should be" in cli.ok("topic", "elect", "t", "--partition", "0").out

    def counts(field: str) -> list[int]:
        return [broker[field] for broker in cli.status()["brokers"]]

    # Whichever broker is asked hears of it in its own time.
    wait_until(lambda: counts("leaders") == [1, 1, 1])
    wait_until(lambda: counts("inSync") == [3, 3, 3])
    missing = cli("topic", "elect", "t", "--partition", "7")
    assert missing.code == 1
    assert "has no partition 7" in missing.err


def test_the_controller_goes_by_its_settings(cli: Cli) -> None:
    wanted = {
        "leader.imbalance.check.interval.seconds": "1",
        "leader.imbalance.per.broker.percentage": "0",
        "broker.session.timeout.ms": "600000",
    }
    refused = cli.up("--set", "broker.session.timeout.ms=10")
    assert refused.code == 2
    assert "broker.session.timeout.ms: 10 is below the minimum 500" in refused.err
    settings = [word for name, value in wanted.items() for word in ("--set", f"{name}={value}")]
    assert cli.up(*settings).code == 0
    cli.ok("topic", "create", "t", "--partitions", "3", "--replication-factor", "3")

    def leaders() -> list[int]:
        (topic,) = cli.ok("topic", "describe", "t", "-o", "json").json
        return [row["leader"] for row in topic["partitions"]]

    before = leaders()
    cli.ok("broker", "restart", "1")
    wait_until(lambda: leaders() == before)
    admin = AdminClient({"bootstrap.servers": cli.status()["bootstrap"]})
    asked = ConfigResource(ConfigResource.Type.BROKER, "1")
    described = admin.describe_configs([asked])[asked].result(30)
    assert {name: described[name].value for name in wanted} == wanted
    assert described["auto.leader.rebalance.enable"].value == "true"
    assert described["auto.leader.rebalance.enable"].is_read_only
    # Frozen for longer than the usual timeout, and nobody minds.
    paused_s = time.monotonic()
    cli.ok("broker", "pause", "2")
    wait_until(lambda: time.monotonic() - paused_s > 3)
    with urlopen(f"http://127.0.0.1:{cli.status()['controller']['httpPort']}/status") as reply:
        assert [each["state"] for each in json.load(reply)["brokers"]] == ["live"] * 3
    cli.ok("broker", "resume", "2")


def test_replicas_move_between_folders(cli: Cli, tmp_path: Path) -> None:
    folders = [str(tmp_path / name) for name in ("disk1", "disk2")]
    assert cli.up("--brokers", "1", "--set", f"log.dirs={','.join(folders)}").code == 0
    cli.ok("topic", "create", "t", "--partitions", "2", "--replication-factor", "1")
    cli.ok("produce", "t", stdin="one\ntwo\nthree\n")
    rows = cli.ok("broker", "disks", "0", "-o", "json").json
    assert sum(row["replicas"] for row in rows) >= 2
    target = rows[1]["path"]
    moved = cli.ok(
        *("broker", "disks", "0", "--move", "t:0", "--move", "t:1", "--to", target),
        *("--wait", "-o", "json"),
    ).json
    assert all(row["moving"] == [] for row in moved)
    assert {path.name for path in Path(target).iterdir()} >= {"t-0", "t-1"}
    refused = cli("broker", "disks", "0", "--move", "t:0", "--to", "/nowhere")
    assert refused.code == 1
    assert "t:0: the broker has no such folder (LOG_DIR_NOT_FOUND)" in refused.err
    assert "disk2" in cli.ok("broker", "disks", "0").out


def test_a_folder_is_drained_and_left_out(cli: Cli, tmp_path: Path) -> None:
    folders = [str(tmp_path / name) for name in ("disk1", "disk2")]
    both = ("--brokers", "1", "--set", f"log.dirs={','.join(folders)}")
    assert cli.up(*both).code == 0
    cli.ok("topic", "create", "t", "--partitions", "4", "--replication-factor", "1")
    cli.ok("produce", "t", stdin="".join(f"{number}\n" for number in range(1000)))
    unknown = cli("broker", "disks", "0", "--drain", "/nowhere")
    assert (unknown.code, "It has " in unknown.err) == (2, True)
    assert cli("broker", "disks", "0", "--drain", "a", "--undrain", "a").code == 2
    kept, leaving = (row["path"] for row in cli.ok("broker", "disks", "0", "-o", "json").json)
    left_out = ("--brokers", "1", "--set", f"log.dirs={folders[0]}")
    cli.ok("down")
    refused = cli.up(*left_out)
    assert (refused.code, f"--drain {leaving} --wait" in refused.err) == (2, True)
    assert cli.up(*both).code == 0
    drained = cli.ok("broker", "disks", "0", "--drain", leaving, "--wait")
    assert f"broker 0: {leaving} is cordoned, it gets nothing new" in cli.ok("status").out
    assert f"{leaving} holds no replica any more" in drained.out
    assert "take it out of log.dirs of broker 0" in drained.out
    shown = next(line for line in drained.out.splitlines() if line.strip().startswith(leaving))
    assert "cordoned" in shown
    refused = cli("broker", "disks", "0", "--drain", kept)
    assert (refused.code, "no other folder that takes replicas" in refused.err) == (1, True)
    refused = cli("broker", "disks", "0", "--move", "t:0", "--to", leaving)
    assert (refused.code, "t:0: INVALID_REPLICA_ASSIGNMENT" in refused.err) == (1, True)
    cli.ok("down")
    assert cli.up(*left_out).code == 0
    assert (
        "not among the cordoned folders" in cli.ok("broker", "disks", "0", "--undrain", leaving).out
    )
    (row,) = cli.ok("broker", "disks", "0", "-o", "json").json
    assert (row["path"], row["cordoned"], row["replicas"] >= 4) == (kept, False, True)
    assert len(cli.ok("consume", "t", "--until-end").out.splitlines()) == 1000
