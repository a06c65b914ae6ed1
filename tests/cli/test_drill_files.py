"""FailoverDrill manifests on a local cluster, and the agent that a cluster's pod runs."""

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from local_cluster import Cli, take_cluster_ports
from small_disks import SmallDisk, small_device
from waiting import wait_until

from fairlead_broker.ballast import BALLAST

pytestmark = [pytest.mark.slow, pytest.mark.crash]

TOKEN = "a-token"
DRILL = """\
apiVersion: fairlead.io/v1alpha1
kind: FailoverDrill
metadata: {name: kill-a-leader}
spec:
  clusterName: ignored-here
  target: {type: %(target)s}
  fault: {type: %(fault)s, durationSeconds: 2}
  workload: {partitions: 3, recordsPerSecond: 200, steadySeconds: 1}
  limits: {recoveryMs: %(limit)d}
"""
FULL = {"fault": "DiskFull", "limit": 60_000}


def write_drill(path: Path, target: str, fault: str, limit: int = 60_000) -> Path:
    path.write_text(DRILL % {"target": target, "fault": fault, "limit": limit})
    return path


@pytest.fixture(scope="module")
def quiet_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    cli = Cli(tmp_path_factory.mktemp("drills") / "data", *take_cluster_ports())
    try:
        assert cli.up().code == 0
        yield cli
    finally:
        cli.close()


@pytest.mark.parametrize(
    ("target", "fault"),
    [
        ("Leader", "Kill"),
        ("Follower", "Delete"),
        ("Controller", "Kill"),
        ("Cluster", "RollingRestart"),
    ],
)
def test_the_file_of_a_cluster_runs_locally(
    quiet_cluster: Cli, tmp_path: Path, target: str, fault: str
) -> None:
    path = write_drill(tmp_path / "drill.yaml", target, fault)
    outcome = quiet_cluster("drill", "-f", str(path), "-o", "json")
    assert outcome.code == 0, outcome
    document = outcome.json
    assert document["passed"]
    assert document["workload"]["partitions"] == 3
    assert document["check"]["lost"] == 0
    assert len(document["runs"]) == 1


def test_a_slow_follower_that_stays_in_sync_slows_every_commit(
    quiet_cluster: Cli, tmp_path: Path
) -> None:
    """It fetches all that there is whenever it runs, so that it never lags for long enough."""
    path = write_drill(tmp_path / "drill.yaml", "Follower", "Slow")

    def run_once() -> dict[str, Any] | None:
        document = quiet_cluster("drill", "-f", str(path), "-o", "json").json
        assert document["check"]["lost"] == 0
        run: dict[str, Any]
        (run,) = document["runs"]
        assert run["problem"] is None
        # A commit that comes right after a stall has begun waits for its end, 200 ms later.
        assert run["commit_p99_ms"] >= 150
        assert run["left_isr_ms"] is None
        # On a busy machine commits may be as slow before, so that no stall stands out.
        return run if run["commit_before_p99_ms"] < 75 else None

    run = wait_until(run_once, "commits are slow without a fault", deadline_s=180)
    assert run["commit_p99_ms"] > run["commit_before_p99_ms"]
    assert run["fast_again_ms"] > 0


def test_a_disk_that_others_use_is_not_filled(quiet_cluster: Cli) -> None:
    outcome = quiet_cluster("drill", "--target", "broker:1", "--fault", "disk-full")
    assert outcome.code == 1
    assert "this disk cannot be filled" in outcome.err
    assert not list(quiet_cluster.data.glob(f"broker-*/{BALLAST}"))


@pytest.fixture
def cluster_with_a_disk(tmp_path: Path) -> Iterator[tuple[Cli, SmallDisk]]:
    """Broker 1 has a file system of its own."""
    with small_device(tmp_path / "data" / "broker-1", 160) as disk:
        cli = Cli(tmp_path / "data", *take_cluster_ports())
        try:
            assert cli.up("--brokers", "3").code == 0
            yield cli, disk
        finally:
            cli.close()


def test_a_full_disk_costs_no_record_and_ends_with_the_drill(
    cluster_with_a_disk: tuple[Cli, SmallDisk], tmp_path: Path
) -> None:
    cli, disk = cluster_with_a_disk
    path = tmp_path / "drill.yaml"
    path.write_text(DRILL.replace("%(target)s", "Broker, brokerId: 1") % FULL)
    outcome = cli("drill", "-f", str(path), "-o", "json")
    assert outcome.code == 0, outcome
    document = outcome.json
    assert document["check"]["lost"] == 0
    (run,) = document["runs"]
    assert run["problem"] is None
    assert not (disk.path / BALLAST).exists()
    assert "has no room" in (cli.data / "logs" / "broker-1.log").read_text()
    path.write_text(path.read_text().replace("durationSeconds: 2", "durationSeconds: 600"))
    drill = cli.spawn("drill", "-f", str(path))
    wait_until((disk.path / BALLAST).exists, deadline_s=60)
    drill.kill()
    drill.wait()
    wait_until(lambda: not (disk.path / BALLAST).exists())


def test_several_brokers_whose_loss_would_cost_partitions_are_not_broken_unasked(
    quiet_cluster: Cli,
) -> None:
    outcome = quiet_cluster("drill", "--target", "broker:0,1,2", "--fault", "kill")
    assert outcome.code == 1
    assert "may not be broken at once" in outcome.err
    assert "--allow-unsafe" in outcome.err


def test_a_limit_of_the_file_decides_the_exit_code(quiet_cluster: Cli, tmp_path: Path) -> None:
    path, report = write_drill(tmp_path / "drill.yaml", "Leader", "Kill", 1), tmp_path / "day.md"
    outcome = quiet_cluster("drill", "-f", str(path), "--report", str(report))
    assert outcome.code == 1
    assert "1 ms are allowed" in outcome.out
    told = report.read_text()
    assert "**Failed.**" in told
    assert "1 ms are allowed" in told
    assert f"drill -f {path}" in told


def test_a_wrong_file_is_refused_with_all_that_is_wrong(quiet_cluster: Cli, tmp_path: Path) -> None:
    path = write_drill(tmp_path / "drill.yaml", "Ledaer", "Kil")
    outcome = quiet_cluster("drill", "-f", str(path))
    assert outcome.code == 2
    assert "spec.target.type" in outcome.err
    assert "spec.fault.type" in outcome.err
    both = quiet_cluster("drill", "-f", str(path), "--runs", "2")
    assert both.code == 2
    assert "--runs" in both.err
    assert quiet_cluster("drill").code == 2


class Agent:
    """The process of a drill's pod, asked as the operator asks it."""

    def __init__(self, cli: Cli, topic: str) -> None:
        self.url = f"http://127.0.0.1:{cli.http_port + 95}"
        options = {
            "bootstrap": f"127.0.0.1:{cli.port}",
            "topic": topic,
            "partitions": 3,
            "replication-factor": 3,
            "rate": 200,
            "record-size": 64,
            "http-host": "127.0.0.1",
            "http-port": cli.http_port + 95,
        }
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "fairlead_pod.drill_agent"),
                *(f"--{name}={value}" for name, value in options.items()),
            ],
            env=os.environ | {"FAIRLEAD_DRILL_TOKEN": TOKEN},
        )

    def ask(self, path: str, body: object = None, *, token: str = TOKEN) -> Any:
        data = None if path == "/state" else json.dumps(body or {}).encode()
        request = urllib.request.Request(
            self.url + path, data=data, headers={"Authorization": f"Bearer {token}"}
        )
        with urllib.request.urlopen(request, timeout=60) as reply:
            return json.loads(reply.read())

    def waits_for(self, condition: Callable[[Any], bool]) -> Any:
        found: list[Any] = []

        def is_there() -> bool:
            try:
                found.append(self.ask("/state"))
            except (urllib.error.URLError, ConnectionError):
                return False
            assert found[-1]["phase"] != "failed", found[-1]
            return condition(found[-1])

        wait_until(is_there)
        return found[-1]


def is_phase(name: str) -> Callable[[Any], bool]:
    return lambda state: bool(state["phase"] == name)


def topics_of(cli: Cli) -> list[str]:
    return [topic["name"] for topic in cli.ok("topic", "list", "-o", "json").json]


def test_the_agent_measures_faults_that_others_cause(quiet_cluster: Cli) -> None:
    agent = Agent(quiet_cluster, "fairlead-drill-agent")
    try:
        state = agent.waits_for(is_phase("steady"))
        with pytest.raises(urllib.error.HTTPError, match="401"):
            agent.ask("/state", token="another")
        leader = state["partitions"]["0"]["leader"]
        agent.ask("/runs/1", {"brokerIds": [leader], "memo": {"controllerEpoch": 4}})
        quiet_cluster.ok("broker", "kill", str(leader))
        run = agent.ask("/runs/1/injected")["run"]
        assert (run["number"], run["memo"], run["isInjected"]) == (1, {"controllerEpoch": 4}, True)
        state = agent.waits_for(lambda s: s["run"]["isRecovered"] and s["run"]["wholeMs"])
        run = state["run"]
        assert set(run["firstAcknowledgedMs"]) == {"0", "1", "2"}
        assert 0 < max(run["firstAcknowledgedMs"].values()) <= run["wholeMs"]
        assert run["electionMs"] is not None
        agent.ask("/runs/1/end")
        agent.waits_for(is_phase("steady"))
        with pytest.raises(urllib.error.HTTPError, match="409"):
            agent.ask("/runs/7/end")
        agent.ask("/verify")
        state = agent.waits_for(is_phase("verified"))
        assert state["isTopicGone"]
        verdict = state["verdict"]
        assert verdict["acknowledged"] > 0
        assert (verdict["lost"], verdict["duplicated"], verdict["reordered"]) == (0, 0, 0)
        assert verdict["clientErrors"] == {}
    finally:
        agent.process.send_signal(signal.SIGTERM)
        assert agent.process.wait(60) == 0
    assert "fairlead-drill-agent" not in topics_of(quiet_cluster)


def test_an_agent_that_must_go_takes_its_topic_along(quiet_cluster: Cli) -> None:
    agent = Agent(quiet_cluster, "fairlead-drill-early")
    try:
        agent.waits_for(is_phase("steady"))
        assert "fairlead-drill-early" in topics_of(quiet_cluster)
    finally:
        agent.process.send_signal(signal.SIGTERM)
        assert agent.process.wait(60) == 0
    assert "fairlead-drill-early" not in topics_of(quiet_cluster)
