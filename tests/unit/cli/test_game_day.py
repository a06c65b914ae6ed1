"""The document of a game day says what the drill has found."""

from typing import Any

import yaml

from fairlead_cli.drill.game_day import of_document, of_resource, render
from fairlead_cli.drill.timings import RunTimings

DRILL: dict[str, Any] = {
    "apiVersion": "fairlead.io/v1alpha1",
    "kind": "FailoverDrill",
    "metadata": {"name": "zone-a", "creationTimestamp": "2026-01-01T00:00:00Z"},
    "spec": {
        "clusterName": "demo",
        "target": {"type": "Zone", "zone": "a"},
        "fault": {"type": "Kill"},
        "limits": {"recoveryMs": 100},
    },
    "status": {
        "runs": [
            {
                "target": "zone a (broker 0)",
                "faultAt": "t",
                "recoveryMaxMs": 1739,
                "forecastLeaders": 8,
                "movedLeaders": 7,
            }
        ],
        "timeline": [{"offsetMs": 1739, "event": "first new acknowledgement"}],
        "acknowledged": 9628,
        "lost": 0,
        "conditions": [{"type": "Passed", "status": "False", "message": "recovery took 1739 ms"}],
    },
}


def test_a_resource_becomes_a_document_that_can_be_repeated() -> None:
    text = render(of_resource(DRILL))
    assert text.startswith("# Game day: zone-a\n\n**Failed.**")
    assert "| recovery, slowest partition | 1 | 1,739 | 1,739 | 1,739 |" in text
    assert "| 1 | 8 | 7 |" in text
    assert "| 1,739 | first new acknowledgement |" in text
    assert "* 9,628 records acknowledged" in text
    assert "* recovery took 1739 ms\n* limit: recoveryMs 100\n" in text
    manifest = yaml.safe_load(text.split("<<EOF\n")[1].split("EOF")[0])
    assert manifest["spec"] == DRILL["spec"]


def test_a_drill_that_has_not_begun_has_a_document_too() -> None:
    text = render(of_resource({key: DRILL[key] for key in DRILL if key != "status"}))
    assert "**Not finished.**" in text
    assert "What clients saw" not in text


def test_a_local_drill_becomes_one_too() -> None:
    run = RunTimings(["broker-1"], detection_ms=30, recovery_ms=60)
    run.forecast = {"leadersMove": 2}
    counts = {"acknowledged": 1000, "lost": 1, "duplicated": 0, "reordered": 0}
    document = {
        "passed": False,
        "failures": ["1 acknowledged records are lost"],
        "targets": ["broker:1"],
        "fault": "kill",
        "limit": {"timing": "recovery_ms", "p99Ms": 250},
        "runs": [run.as_json()],
        "check": counts,
    }
    text = render(of_document(document, "now", "fairlead drill --target broker:1 --fault kill"))
    assert "* run 1: broker-1" in text
    assert "| 60 | recovery |" in text
    assert "| 1 | 2 | - |" in text
    assert "* 1 acknowledged records are lost" in text
    assert "fairlead drill --target broker:1 --fault kill" in text
