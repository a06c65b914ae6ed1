"""Every metric of every process is in docs/metrics.md; dashboards and alerts use no others."""

import asyncio
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from fairlead_broker.http.metrics_page import MetricsPage
from fairlead_broker.http.readiness import Phase, Readiness
from fairlead_controller.controller import open_controller
from fairlead_controller.kubernetes.metrics import CandidateMetrics
from fairlead_controller.metrics.local_page import LocalMetrics
from fairlead_controller.metrics.loop_lag import LoopLag
from fairlead_controller.sessions.server import SessionServer
from fairlead_controller.stores.file import open_file_store
from fairlead_controller.zookeeper.metrics import CandidateMetrics as ZooKeeperCandidateMetrics

ROOT = Path(__file__).resolve().parents[4]
DOCUMENT = ROOT / "docs" / "metrics.md"
FILES = ROOT / "charts" / "fairlead" / "files"
TYPE_LINE = re.compile(r"^# TYPE (\w+) (\w+)$", re.MULTILINE)
ITEM = re.compile(
    r"^\* `(\w+)` \((\w+)\): ((?:.+\n)(?:  [^ *].*\n)*)  \* Look when: (.+)$", re.MULTILINE
)
NAME = re.compile(r"\b(?:fairlead|kafka|process)_\w+")
SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("", "_sum", "_count")}

Types = dict[str, str]


def types_in(text: str) -> Types:
    """Kinds by name; `_created` is an artefact of the client library."""
    return {name: kind for name, kind in TYPE_LINE.findall(text) if not name.endswith("_created")}


def operator_types() -> Types:
    pytest.importorskip("kopf")
    from prometheus_client import generate_latest

    from fairlead_kube.request_families import ApiRequests
    from fairlead_operator.consumer_groups.metrics import GroupMetrics
    from fairlead_operator.drills.metrics import DrillMetrics
    from fairlead_operator.events import EventCounters
    from fairlead_operator.metrics import OperatorMetrics, ReignCounters
    from fairlead_operator.rebalances.metrics import RebalanceMetrics
    from fairlead_operator.stream_jobs.metrics import StreamJobMetrics
    from fairlead_operator.topics.metrics import TopicNamespaceMetrics

    metrics = OperatorMetrics()
    DrillMetrics(metrics.registry)
    RebalanceMetrics(metrics.registry)
    StreamJobMetrics(metrics.registry)
    scope: Any = SimpleNamespace(sights={}, groups={})
    metrics.registry.register(GroupMetrics(scope, statuses=lambda: 0, looks={}))
    metrics.registry.register(ApiRequests({}))
    no_topics: Any = SimpleNamespace(limit_uses=list)
    metrics.registry.register(TopicNamespaceMetrics(no_topics))
    metrics.registry.register(
        ReignCounters(events=EventCounters(), topic_statuses=lambda: 0, user_statuses=lambda: 0)
    )
    return types_in(generate_latest(metrics.registry).decode())


async def controller_types(directory: Path) -> Types:
    controller = await open_controller(await open_file_store(directory), now_ms=lambda: 0)
    local = LocalMetrics(controller, SessionServer(controller, b"secret"), LoopLag())
    gate: Any = SimpleNamespace(waiting=0)
    candidate = CandidateMetrics(
        clients={},
        find_informers=dict,
        reigns={},
        gate=gate,
        find_certificate_end=lambda _: None,
        lag=LoopLag(),
    )
    on_zookeeper = ZooKeeperCandidateMetrics(
        find_reign=lambda: None,
        is_connected=lambda: True,
        waiting_brokers=lambda: 0,
        lag=LoopLag(),
        certificate=None,
    )
    pages = [await page.text() for page in (local, candidate, on_zookeeper)]
    return types_in(b"".join(pages).decode())


@pytest.fixture
def exposed(stage: Any, tmp_path: Path) -> Types:
    """What any process exposes."""
    page = MetricsPage(Readiness(phase=Phase.SERVING))
    page.broker = stage.broker
    broker = types_in(stage.run(page.text()))
    return broker | asyncio.run(controller_types(tmp_path / "controller")) | operator_types()


def test_the_document_lists_every_metric_with_its_kind(exposed: Types) -> None:
    documented = {name: kind for name, kind, _, _ in ITEM.findall(DOCUMENT.read_text())}
    assert documented == exposed


def test_the_document_says_of_each_what_it_means_and_what_to_do() -> None:
    for name, _, meaning, advice in ITEM.findall(DOCUMENT.read_text()):
        assert len(meaning.strip()) > 5, name
        assert advice.strip(), name


AGGREGATION = re.compile(r"\b(?:sum|min|max|avg|count)\b(?: by \(([\w, ]+)\))?")


def expressions(node: Any) -> list[str]:
    """All queries of a dashboard or of a list of rules."""
    if isinstance(node, dict):
        own = [value for key, value in node.items() if key in ("expr", "query")]
        found = [text for text in own if isinstance(text, str)]
        return found + [each for value in node.values() for each in expressions(value)]
    if isinstance(node, list):
        return [each for value in node for each in expressions(value)]
    return []


@pytest.mark.parametrize(
    "path", [FILES / "alerts.yaml", *sorted((FILES / "dashboards").glob("*.json"))], ids=str
)
def test_dashboards_and_alerts_ask_only_for_what_is_there(path: Path, exposed: Types) -> None:
    text = path.read_text()
    tree = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    series = {
        name + suffix for name, kind in exposed.items() for suffix in SUFFIXES.get(kind, ("",))
    }
    asked = {name for expression in expressions(tree) for name in NAME.findall(expression)}
    assert asked, "nothing is asked for"
    assert asked - series == set()


def test_alerts_tell_operators_of_several_namespaces_apart() -> None:
    """One that acts must not hide that another does not; pods of both may have one name."""
    rules = yaml.safe_load((FILES / "alerts.yaml").read_text())
    for expression in expressions(rules):
        kept = AGGREGATION.findall(expression)
        assert all("namespace" in labels for labels in kept), expression
