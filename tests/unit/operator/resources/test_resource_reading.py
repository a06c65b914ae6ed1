from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from resource_cases import CASES, Case
from resource_manifests import cluster, drill, listener, pool, without
from resource_updates import UPDATES, Update

from fairlead_operator.resources import (
    BrokerPoolSpec,
    ConsumerGroupSpec,
    FailoverDrillSpec,
    LogClusterSpec,
    ManifestError,
    RebalanceSpec,
    UserSpec,
    change_problems,
    parse_topic_manifest,
)
from fairlead_operator.resources.quantity import quantity_value

READERS: dict[str, Callable[[dict[str, Any]], object]] = {
    "LogCluster": LogClusterSpec.from_manifest,
    "BrokerPool": BrokerPoolSpec.from_manifest,
    "Topic": parse_topic_manifest,
    "ConsumerGroup": ConsumerGroupSpec.from_manifest,
    "FailoverDrill": FailoverDrillSpec.from_manifest,
    "Rebalance": RebalanceSpec.from_manifest,
    "User": UserSpec.from_manifest,
}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_readers_say_what_is_wrong(case: Case) -> None:
    read = READERS[case.manifest["kind"]]
    if not case.reader_says:
        read(case.manifest)
        return
    with pytest.raises(ManifestError) as refused:
        read(case.manifest)
    assert case.reader_says in "\n".join(refused.value.problems)
    label = f"{case.manifest['kind']} {case.manifest['metadata']['name']}: "
    assert all(problem.startswith(label) for problem in refused.value.problems)


@pytest.mark.parametrize("update", UPDATES, ids=str)
def test_readers_say_what_cannot_change(update: Update) -> None:
    read = READERS[update.before["kind"]]
    problems = change_problems(read(update.before), read(update.after))
    if update.says:
        assert any(update.says in problem for problem in problems)
    else:
        assert problems == []


def test_fields_come_typed_and_with_their_defaults() -> None:
    given = cluster(
        config={"min.insync.replicas": 2, "preallocate": True, "fetch.max.bytes": None},
        listeners=[listener(nodePortBase=31090)],
    )
    given["spec"]["config"].pop("preallocate")
    spec = LogClusterSpec.from_manifest(given)
    assert spec.config == {"min.insync.replicas": "2", "fetch.max.bytes": None}
    assert spec.defaults.replication_factor == 3
    assert spec.reclaim_policy == "Retain"
    assert spec.drills.enabled
    assert [(item.name, item.port, item.node_port_base) for item in spec.listeners] == [
        ("outside", 9095, 31090)
    ]


def test_amounts_come_as_texts() -> None:
    spec = BrokerPoolSpec.from_manifest(pool(resources={"requests": {"cpu": 1}}))
    assert spec.resources is not None
    assert spec.resources.requests == {"cpu": "1"}
    assert spec.template.tolerations == ()


def test_all_problems_come_at_once() -> None:
    wrong = pool(replicas=-1, storage={"size": "x"}, racks="a")
    wrong["apiVersion"] = "v1"
    with pytest.raises(ManifestError) as refused:
        BrokerPoolSpec.from_manifest(wrong)
    paths = [problem.split(": ")[1] for problem in refused.value.problems]
    assert sorted(paths) == ["apiVersion", "spec.racks", "spec.replicas", "spec.storage.size"]


@pytest.mark.parametrize("wrong", [None, [], {}, {"kind": "LogCluster"}, cluster() | {"spec": []}])
def test_what_is_no_manifest_is_refused(wrong: Any) -> None:
    with pytest.raises(ManifestError):
        LogClusterSpec.from_manifest(wrong)


def test_a_local_drill_needs_no_cluster() -> None:
    spec = FailoverDrillSpec.from_manifest(without(drill(), "clusterName"), is_local=True)
    assert (spec.cluster_name, spec.target.type, spec.runs) == ("", "Leader", 1)
    assert (spec.workload.partitions, spec.limits.lost, spec.limits.recovery_ms) == (6, 0, None)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", Fraction(0)),
        ("500m", Fraction(1, 2)),
        ("1.5Gi", Fraction(3 * 2**29)),
        ("2k", Fraction(2000)),
        ("10G", Fraction(10**10)),
        ("3Pi", Fraction(3 * 2**50)),
    ],
)
def test_amounts_are_exact(text: str, value: Fraction) -> None:
    assert quantity_value(text) == value
