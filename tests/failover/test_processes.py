"""Brokers and the controller are killed, stopped and frozen at load: nothing acknowledged is lost.

Every drill writes with acks=all, min.insync.replicas=2 and idempotence, reads everything back, and
holds the limits of docs/failover.md.
"""

import json
import os
import re
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest
from drill_settings import FROZEN_TOGETHER_HOLD_S, allowed_ms
from local_cluster import Cli
from waiting import wait_until

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
    """The supervisor replaces the controller, which replaces the leader, before either wakes."""
    hold_s = FROZEN_TOGETHER_HOLD_S
    outcome = drill(cluster, "pause", "leader+controller", hold_s=hold_s)
    for run in outcome.runs:
        assert run.replaced == ["controller"]
        assert run.recovery_ms is not None
        assert run.recovery_ms < hold_s * 1000


def test_a_frozen_controller_is_replaced_and_said(cluster: Cli) -> None:
    before = cluster.status()["controller"]
    os.kill(before["pid"], signal.SIGSTOP)
    frozen_at = time.monotonic()

    def is_replaced() -> bool:
        now = cluster.status()["controller"]
        return now["state"] == "running" and now["pid"] not in (None, before["pid"])

    wait_until(is_replaced)
    assert time.monotonic() - frozen_at < allowed_ms(4000) / 1000
    assert cluster.status()["controller"]["restarts"] == before["restarts"] + 1
    cluster.ok("topic", "create", "after-the-freeze", "--replication-factor", "3")
    log = (cluster.data / "logs" / "supervisor.log").read_text()
    assert re.search(r"controller has not answered for \d+\.\d s .*stopped by a signal", log)


def test_a_controller_that_wakes_in_time_goes_on(cluster: Cli) -> None:
    before = cluster.status()["controller"]
    os.kill(before["pid"], signal.SIGSTOP)
    time.sleep(1.0)
    os.kill(before["pid"], signal.SIGCONT)
    cluster.ok("topic", "create", "after-the-nap", "--replication-factor", "3")
    assert cluster.status()["controller"] == before


def test_a_machine_that_slept_replaces_nobody(cluster: Cli) -> None:
    """The supervisor slept with an open question: its own pause is no silence of anybody."""
    status = cluster.status()
    before = status["controller"]
    controller, supervisor = before["pid"], status["supervisor"]["pid"]
    for pid, number, then_s in (
        (controller, signal.SIGSTOP, 0.75),
        (supervisor, signal.SIGSTOP, 3.0),
        (supervisor, signal.SIGCONT, 0.2),
        (controller, signal.SIGCONT, 0.0),
    ):
        os.kill(pid, number)
        time.sleep(then_s)
    cluster.ok("topic", "create", "after-the-night", "--replication-factor", "3")
    assert cluster.status()["controller"] == before


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
    assert "no fault proxy" in isolate.err
    assert isolate.err.rstrip().endswith(" --fault-proxy")
    assert cluster("drill", "--target", "broker:9", "--fault", "kill").code == 2
    assert cluster("drill", "--target", "orders", "--fault", "kill").code == 2
