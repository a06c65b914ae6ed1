"""Brokers and the controller are killed, stopped and frozen at load: nothing acknowledged is lost.

Every drill writes with acks=all, min.insync.replicas=2 and idempotence, reads everything back, and
holds the limits of docs/failover.md.
"""

import json
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
from drill_settings import HOLD_S
from local_cluster import Cli, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.crash]

Drill = Callable[..., Any]


@pytest.mark.parametrize("target", ["leader", "follower", "controller", "leader+controller"])
@pytest.mark.parametrize("fault", ["kill", "stop"])
def test_a_process_ends_at_load(cluster: Cli, drill: Drill, fault: str, target: str) -> None:
    outcome = drill(cluster, fault, target)
    for run in outcome.runs:
        if target == "controller":
            assert (run.partitions_hit, run.recovery_ms) == (0, None)
        else:
            assert run.partitions_hit == outcome.partitions
            assert run.recovery_ms is not None


@pytest.mark.parametrize("target", ["leader", "follower", "controller"])
def test_a_process_freezes_at_load_and_wakes(cluster: Cli, drill: Drill, target: str) -> None:
    drill(cluster, "pause", target)


def test_leader_and_controller_freeze_together(cluster: Cli, drill: Drill) -> None:
    """One controller on one machine: nobody can decide before it wakes, and then it does."""
    drill(cluster, "pause", "leader+controller", limit_ms=int(HOLD_S * 1000) + 4500)


def test_the_command_prints_its_verdict_and_always_heals(cluster: Cli) -> None:
    arguments = ("--target", "leader:target/0", "--fault", "kill", "--runs", "1")
    outcome = cluster("drill", *arguments, "--limit-ms", "60000", "-o", "json")
    assert outcome.code == 0, outcome
    document = json.loads(outcome.out)
    assert document["passed"]
    assert document["check"]["lost"] == 0
    assert document["summary"]["recovery_ms"]["count"] == 1
    slow = cluster("drill", *arguments, "--limit-ms", "1")
    assert slow.code == 1
    assert "FAILED: recovery" in slow.out

    def states() -> list[str]:
        return [row["state"] for row in cluster.ok("broker", "list", "-o", "json").json]

    pausing = cluster.spawn("drill", "--target", "broker:1", "--fault", "pause", "--hold-s", "60")
    wait_until(lambda: states() == ["running", "paused", "running"])
    os.kill(pausing.pid, signal.SIGINT)
    assert pausing.wait(60) == 130
    assert states() == ["running"] * 3
    names = [topic["name"] for topic in cluster.ok("topic", "list", "-o", "json").json]
    assert not [name for name in names if name.startswith("fairlead-drill")]


def test_what_cannot_be_drilled_is_said(cluster: Cli) -> None:
    isolate = cluster("drill", "--target", "broker:1", "--fault", "isolate")
    assert isolate.code == 1
    assert "fairlead up --fault-proxy" in isolate.err
    assert cluster("drill", "--target", "broker:9", "--fault", "kill").code == 2
    assert cluster("drill", "--target", "orders", "--fault", "kill").code == 2
