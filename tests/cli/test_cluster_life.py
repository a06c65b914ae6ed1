"""`up`, `down`, `status` with real processes: what is refused, what is restarted, what stays."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from local_cluster import PATIENT, TOPICS, Cli
from waiting import wait_until


def broker_pid(cli: Cli, broker_id: int) -> int:
    pid: int = cli.status()["brokers"][broker_id]["pid"]
    return pid


def test_up_is_ready_with_the_declared_topics_and_status_tells(cli: Cli, tmp_path: Path) -> None:
    started = cli.up(*PATIENT, "-f", str(TOPICS))
    assert started.code == 0, started
    assert "Fairlead is up: 3 brokers and a controller" in started.out
    assert f"127.0.0.1:{cli.port + 2}" in started.out
    status = cli.ok("status", "-o", "json").json
    assert status["state"] == "running"
    assert [(b["id"], b["host"], b["port"], b["state"]) for b in status["brokers"]] == [
        (number, "127.0.0.1", cli.port + number, "running") for number in range(3)
    ]
    pids = [status["controller"]["pid"], *(broker["pid"] for broker in status["brokers"])]
    assert len(set(pids)) == 4
    for pid in pids:
        os.kill(pid, 0)
    orders = next(topic for topic in status["topics"] if topic["name"] == "orders")
    assert orders == {
        "name": "orders",
        "partitions": 6,
        "replicationFactor": 3,
        "underReplicated": 0,
        "offline": 0,
    }
    table = cli.ok("status").out
    assert "broker 2" in table
    assert "orders" in table
    remote = cli.ok("status", "-o", "json", "--bootstrap", f"127.0.0.1:{cli.port}").json
    assert remote.keys() == status.keys()
    assert remote["controller"].keys() == status["controller"].keys()
    assert remote["brokers"][0].keys() == status["brokers"][0].keys()
    assert remote["brokers"][0]["drained"] is False
    settings = tmp_path / "settings"
    settings.write_text(f"bootstrap.servers=127.0.0.1:{cli.port}\n")
    named = cli.ok("status", "-o", "json", "--client-config", str(settings)).json
    assert named["bootstrap"] == f"127.0.0.1:{cli.port}"


def test_a_second_up_says_who_holds_the_directory_and_the_port(cli: Cli, tmp_path: Path) -> None:
    assert cli.up("--brokers", "1").code == 0
    pids = cli.status()
    again = cli.up("--brokers", "1")
    assert again.code == 1
    assert f"held by pid {pids['supervisor']['pid']}" in again.err
    assert f"fairlead down --data {cli.data}" in again.err
    other = Cli(tmp_path / "other", cli.port, cli.http_port)
    refused = other.up("--brokers", "1")
    assert refused.code == 1
    assert f"port {cli.port} (Kafka, broker 0) is taken by pid {broker_pid(cli, 0)}" in refused.err
    assert f"fairlead down --data {cli.data}" in refused.err
    assert cli.status()["state"] == "running"


def test_data_and_topics_outlive_down_and_up(cli: Cli) -> None:
    assert cli.up("--brokers", "2").code == 0
    cli.ok("topic", "create", "kept", "--partitions", "4", "--config", "retention.ms=86400000")
    lines = "".join(f"k{number}:v{number}\n" for number in range(200))
    cli.ok("produce", "kept", "--key-separator", ":", stdin=lines)
    before = sorted(cli.ok("consume", "kept", "--keys", "--until-end").out.splitlines())
    assert len(before) == 200
    assert "Stopped. The data stays" in cli.ok("down").out
    stopped = cli("status", "-o", "json")
    assert (stopped.code, stopped.json["state"]) == (1, "stopped")
    assert cli("consume", "kept").err.startswith("error: the local cluster in")
    assert "is not running" in cli.ok("down").out
    assert cli("up", "--detach").code == 0
    # At the ports of the last start.
    brokers = cli.status()["brokers"]
    assert [each["port"] for each in brokers] == [cli.port, cli.port + 1]
    assert brokers[0]["httpPort"] == cli.http_port
    after = sorted(cli.ok("consume", "kept", "--keys", "--until-end").out.splitlines())
    assert after == before
    (topic,) = cli.ok("topic", "describe", "kept", "-o", "json").json
    assert topic["configs"] == {"retention.ms": "86400000"}


def test_a_killed_broker_comes_back_with_its_records(cli: Cli) -> None:
    assert cli.up("--brokers", "2").code == 0
    cli.ok("topic", "create", "t", "--partitions", "2")
    cli.ok("produce", "t", stdin="".join(f"{number}\n" for number in range(500)))
    victim = broker_pid(cli, 1)
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: cli.status()["brokers"][1]["restarts"] == 1)
    wait_until(lambda: cli.status()["brokers"][1]["state"] == "running")
    assert broker_pid(cli, 1) != victim
    wait_until(lambda: all(topic["offline"] == 0 for topic in cli.status()["topics"]))
    read = cli.ok("consume", "t", "--count", "500", "--timeout-ms", "30000").out.split()
    assert sorted(map(int, read)) == list(range(500))
    assert (
        "broker-1 killed by SIGKILL; restarting"
        in (cli.data / "logs" / "supervisor.log").read_text()
    )


def test_ctrl_c_stops_a_foreground_cluster_in_order(cli: Cli) -> None:
    ports = ("--port", str(cli.port), "--http-port", str(cli.http_port))
    process = cli.spawn("up", "--brokers", "1", *ports)
    assert process.stdout is not None
    shown = ""
    while "Live log" not in shown:
        line = process.stdout.readline()
        assert line, shown
        shown += line
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=60)
    assert process.returncode == 0, shown + rest
    assert rest.index("stopped cleanly") < rest.index("Stopped. The data is in")
    assert cli.status()["state"] == "stopped"


def test_down_stops_a_cluster_whose_supervisor_is_paused_in_order(cli: Cli) -> None:
    """As Ctrl-Z leaves one that runs in the foreground."""
    assert cli.up("--brokers", "1").code == 0
    os.kill(cli.status()["supervisor"]["pid"], signal.SIGSTOP)
    outcome = cli.ok("down", "--timeout-s", "20")
    assert outcome.err == ""
    assert "stopped cleanly" in (cli.data / "logs" / "broker-0.log").read_text()


@pytest.mark.usefixtures("counted_hangups")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_detached_start_that_is_ended_leaves_nothing_behind(
    cli: Cli, number: signal.Signals
) -> None:
    """By `timeout`, say: what did not return must not serve later, all the same."""
    ports = ("--port", str(cli.port), "--http-port", str(cli.http_port))
    process = cli.spawn("up", "--detach", "--brokers", "1", *ports)
    assert process.stdout is not None
    assert "controller ready" in process.stdout.readline()
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    assert json.loads((cli.data / "cluster.json").read_text())["state"] == "stopped"


def test_down_cleans_up_after_a_killed_supervisor(cli: Cli) -> None:
    assert cli.up("--brokers", "1").code == 0
    status = cli.status()
    os.kill(status["supervisor"]["pid"], signal.SIGKILL)
    wait_until(lambda: cli.status()["supervisor"]["pid"] is None)
    # The cluster serves on without it, and is not started twice.
    cli.ok("topic", "create", "t")
    refused = cli.up("--brokers", "1")
    assert refused.code == 1
    assert "left over by a supervisor that was killed" in refused.err
    assert "The supervisor is gone" in cli.ok("down").err
    assert cli.status()["state"] == "stopped"
    assert cli.up("--brokers", "1").code == 0


def test_a_setting_reaches_the_brokers(cli: Cli) -> None:
    settings = ("--set", "auto.create.topics.enable=true", "--set", "num.partitions=3")
    assert cli.up("--brokers", "1", *settings).code == 0
    cli.ok("topic", "create", "t")
    (topic,) = cli.ok("topic", "describe", "t", "-o", "json").json
    assert len(topic["partitions"]) == 3


def test_a_broker_that_cannot_start_shows_its_words(cli: Cli) -> None:
    (cli.data / "broker-0").mkdir(parents=True)
    (cli.data / "broker-0" / "meta.properties").write_text("version=1\nnode.id=7\n")
    failed = cli.up("--brokers", "1")
    assert failed.code == 1
    assert "broker-0 stopped before it was ready" in failed.err
    assert "Traceback" not in failed.err
    assert cli.status()["state"] == "stopped"


def test_a_wrong_manifest_starts_nothing(cli: Cli, tmp_path: Path) -> None:
    manifest = tmp_path / "topics.yaml"
    manifest.write_text(TOPICS.read_text().replace("partitions: 6", "partitions: six"))
    refused = cli.up("-f", str(manifest))
    assert refused.code == 2
    assert f"{manifest}:" in refused.err
    assert "Topic orders: spec.partitions" in refused.err
    assert not cli.data.exists()


def test_a_pipe_that_closes_ends_consume_quietly(cli: Cli) -> None:
    assert cli.up("--brokers", "1").code == 0
    cli.ok("topic", "create", "t")
    cli.ok("produce", "t", stdin="x\n" * 5000)
    command = " ".join(cli.command("consume", "t"))
    result = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"{command} | head -1"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "x\n", "")
