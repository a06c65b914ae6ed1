"""What Prometheus is told of groups: each once, in bounds, and documented."""

from pathlib import Path

import pytest
from fake_groups import sight
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from fairlead_operator.consumer_groups import metrics
from fairlead_operator.consumer_groups.group_scope import GroupScope

DOCUMENT = Path(__file__).resolve().parents[4] / "docs" / "metrics.md"


def scope(*names: str, group_id: str | None = None) -> GroupScope:
    known = GroupScope()
    known.clusters["ns", "demo"] = {"metadata": {"namespace": "ns", "name": "demo"}}
    for name in names:
        spec = {"clusterName": "demo"} | ({"groupId": group_id} if group_id else {})
        known.take(
            ("ns", name),
            {
                "apiVersion": "fairlead.io/v1alpha1",
                "kind": "ConsumerGroup",
                "metadata": {"namespace": "ns", "name": name},
                "spec": spec,
            },
        )
        known.sights["ns", name] = sight("app", a=1, b=10)
    return known


def lines(known: GroupScope) -> list[str]:
    registry = CollectorRegistry()
    looks = {"ok": 3, "failed": 1}
    registry.register(metrics.GroupMetrics(known, statuses=lambda: 7, looks=looks))
    text = generate_latest(registry).decode()
    return [line for line in text.splitlines() if not line.startswith("#")]


def test_a_group_is_told_under_the_names_of_exporters() -> None:
    labels = 'cluster="demo",consumergroup="billing",namespace="ns"'
    assert lines(scope("billing")) == [
        f"kafka_consumergroup_members{{{labels}}} 1.0",
        f'kafka_consumergroup_lag_sum{{{labels},topic="a"}} 9.0',
        f'kafka_consumergroup_lag_sum{{{labels},topic="b"}} 0.0',
        f"fairlead_consumergroup_lag_max{{{labels}}} 9.0",
        "fairlead_operator_consumer_group_statuses_written_total 7.0",
        'fairlead_operator_consumer_group_looks_total{outcome="ok"} 3.0',
        'fairlead_operator_consumer_group_looks_total{outcome="failed"} 1.0',
    ]


def test_every_metric_is_documented() -> None:
    text = DOCUMENT.read_text()
    for line in lines(scope("billing")):
        assert f"`{line.split('{')[0].split(' ')[0]}`" in text


def test_a_group_of_two_resources_is_told_once() -> None:
    known = scope("one", "two", group_id="shared")
    assert sum("kafka_consumergroup_members" in line for line in lines(known)) == 1


def test_a_resource_that_is_gone_is_not_told() -> None:
    known = scope("one")
    known.take(("ns", "one"), None)
    assert not any("consumergroup=" in line for line in lines(known))


def test_a_group_that_nobody_looks_at_any_more_is_not_told() -> None:
    known = scope("one", "two", group_id="shared")
    manifest = known.groups["ns", "one"].manifest
    manifest["metadata"]["annotations"] = {"fairlead.io/managed": "false"}
    known.take(("ns", "one"), manifest)
    known.sights["ns", "two"] = sight("app", a=5)
    assert any(line.endswith(" 5.0") for line in lines(known)), "the one that is followed"
    del known.clusters["ns", "demo"]
    assert not any("consumergroup=" in line for line in lines(known))


def test_the_page_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "GROUPS_MAX", 3)
    monkeypatch.setattr(metrics, "TOPIC_LINES_MAX", 5)
    told = lines(scope(*(f"g{number}" for number in range(9))))
    assert sum("kafka_consumergroup_members" in line for line in told) == 3
    assert sum("kafka_consumergroup_lag_sum" in line for line in told) == 5
