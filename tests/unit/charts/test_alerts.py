"""Alerts and dashboards of the chart: queries that Prometheus takes, alerts that fire in time."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from compiled_programs import MissingError
from needed_tools import missing
from promtool import ensure_promtool
from proofs import PROMETHEUS

FILES = Path(__file__).parents[3] / "charts" / "fairlead" / "files"
ALERTS = FILES / "alerts.yaml"
DASHBOARDS = sorted((FILES / "dashboards").glob("*.json"))
CASES = Path(__file__).with_name("alert_cases.yaml")


def queries(node: Any) -> list[str]:
    """All queries of a dashboard."""
    if isinstance(node, dict):
        own = [node["expr"]] if isinstance(node.get("expr"), str) else []
        return own + [each for value in node.values() for each in queries(value)]
    if isinstance(node, list):
        return [each for value in node for each in queries(value)]
    return []


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_an_alert_asks_in_promql(rule: dict[str, Any]) -> None:
    promql_parser.parse(rule["expr"])


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_asks_in_promql(path: Path) -> None:
    asked = queries(json.loads(path.read_text()))
    assert asked
    for query in asked:
        # Grafana's variables, as Grafana fills them in.
        promql_parser.parse(query.replace("$__rate_interval", "1m"))


def test_each_alert_has_a_case_in_which_it_fires() -> None:
    cases = yaml.safe_load(CASES.read_text())["tests"]
    checks = [check for case in cases for check in case["alert_rule_test"]]
    firing = {check["alertname"] for check in checks if check.get("exp_alerts")}
    assert firing == {rule["alert"] for rule in rules()}


@pytest.mark.timeout(1200)
@PROMETHEUS.mark
def test_prometheus_fires_them_as_the_cases_say() -> None:
    try:
        promtool = ensure_promtool()
    except MissingError as error:
        missing(str(error))
    for command in (("check", "rules", ALERTS), ("test", "rules", CASES)):
        told = subprocess.run(
            [promtool, *command], capture_output=True, text=True, timeout=60, check=False
        )
        assert told.returncode == 0, told.stdout + told.stderr
