"""`fairlead broker …` on a real cluster: ends, freezes and revives the one that is named."""

import os
import signal

import pytest
from local_cluster import Cli, wait_until


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
    before = {row["id"]: row for row in cli.ok("broker", "list", "-o", "json").json}
    assert [row["state"] for row in before.values()] == ["running"] * 3
    assert sum(row["leaders"] for row in before.values()) == 3
    assert sum(row["replicas"] for row in before.values()) == 3
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


def test_a_paused_broker_does_not_hold_up_down(three_brokers: Cli) -> None:
    three_brokers.ok("broker", "pause", "2")
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
