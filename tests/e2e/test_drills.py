"""Failover drills on the cluster: smoke in every run, distributions where FAIRLEAD_RUNS is set.

The distributions go into docs/failover.md, between its marks.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from drill_settings import HOLD_S, IS_MEASURED, RUNS, allowed_ms
from kubernetes_commands import Kubectl, run
from kubernetes_drill_table import write_kubernetes_drills
from kubernetes_installation import CLUSTER, OPERATOR_NAMESPACE, Installation, Summary

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(3600)]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "failover.md"
LEADER = {"type": "Leader", "topic": "orders", "partition": 0}
# Target, fault, and the milliseconds within which every partition takes records again.
DRILLS: dict[str, tuple[dict[str, Any], str, int]] = {
    "kill-leader": (LEADER, "Kill", 500),
    "delete-leader": (LEADER, "Delete", 200),
    "pause-leader": (LEADER, "Pause", 2500),
    "cut-leader": (LEADER, "Isolate", 2500),
    "kill-controller": ({"type": "Controller"}, "Kill", 4000),
}
LASTING = {"Pause", "Isolate"}
# Runs that wait for a Lease or for a process that stands still are fewer in a smoke test.
SMOKE_RUNS = {
    "kill-leader": 3,
    "delete-leader": 2,
    "pause-leader": 1,
    "cut-leader": 1,
    "kill-controller": 1,
}


def build_drill(name: str) -> dict[str, Any]:
    target, fault, limit_ms = DRILLS[name]
    lasting = {"durationSeconds": int(HOLD_S) + 1} if fault in LASTING else {}
    return {
        "apiVersion": "fairlead.io/v1alpha1",
        "kind": "FailoverDrill",
        "metadata": {"name": name},
        "spec": {
            "clusterName": CLUSTER,
            "target": target,
            "fault": {"type": fault, **lasting},
            "runs": RUNS if IS_MEASURED else SMOKE_RUNS[name],
            "limits": {"recoveryMs": allowed_ms(limit_ms)},
        },
    }


def apply_drill(kubectl: Kubectl, name: str) -> dict[str, Any]:
    """Make a drill and wait for its end; its status."""
    kubectl("delete", "failoverdrill", name, "--ignore-not-found")
    manifest = build_drill(name)
    kubectl.apply(manifest)
    limit_s = 60 + 40 * manifest["spec"]["runs"]
    wait = ("wait", "--for=condition=Complete", f"failoverdrill/{name}", f"--timeout={limit_s}s")
    kubectl(*wait)
    status: dict[str, Any] = kubectl.get("failoverdrill", name)["status"]
    return status


@pytest.fixture(scope="module")
def beside_operator(installation: Installation) -> Iterator[Kubectl]:
    """A cluster in the operator's own namespace: the only one whose drills reach the controller."""
    installation.ensure_installed()
    installation.install_cluster_beside_operator()
    try:
        yield installation.operator
    finally:
        installation.uninstall_cluster_beside_operator()


def check_document(namespace: str, name: str, status: dict[str, Any]) -> None:
    """What a run wrote into its status can be printed as the document of a game day."""
    plugin = (sys.executable, "-m", "fairlead_cli.kubectl.main")
    text = run(*plugin, "drill", "--report", name, "-n", namespace)
    assert text.startswith(f"# Game day: {name}\n\n**Passed.**"), text
    assert all(" ".join(entry["event"].split()) in text for entry in status["timeline"]), text


def test_a_namespace_may_not_break_the_controller_of_all(installation: Installation) -> None:
    installation.ensure_installed()
    status = apply_drill(installation.kubectl, "kill-controller")
    assert status["phase"] == "Refused"
    complete = installation.kubectl.condition("failoverdrill", "kill-controller", "Complete")
    assert complete["reason"] == "NotInOperatorNamespace"
    assert OPERATOR_NAMESPACE in complete["message"]


@pytest.mark.parametrize("name", DRILLS)
def test_a_drill_passes(
    installation: Installation, summary: Summary, request: pytest.FixtureRequest, name: str
) -> None:
    installation.ensure_installed()
    kubectl = installation.kubectl
    if DRILLS[name][0]["type"] == "Controller":
        kubectl = request.getfixturevalue("beside_operator")
    status = apply_drill(kubectl, name)
    passed = kubectl.condition("failoverdrill", name, "Passed")
    promised_ms = DRILLS[name][2]
    names = ("detectionMs", "electionMs", "recoveryP50Ms", "recoveryMaxMs", "lost", "duplicates")
    shown = " ".join(f"{key.removesuffix('Ms')} {status.get(key, '-')}" for key in names)
    summary.add(f"drill {name}", shown, f"recovery ≤ {promised_ms} ms, lost 0")
    if IS_MEASURED:
        write_kubernetes_drills(PAGE, name, status, promised_ms)
    assert passed["status"] == "True", (passed, status["runs"], status["timeline"])
    assert status["acknowledged"] > 0
    assert (status["lost"], status["duplicates"], status["reordered"]) == (0, 0, 0)
    check_document(kubectl.namespace, name, status)
    if DRILLS[name][1] == "Isolate":
        assert "cut" not in status
        assert not kubectl.items("networkpolicy", "-l", "app.kubernetes.io/component=drill")
        assert not kubectl.items("pod", "-l", "fairlead.io/cut")
