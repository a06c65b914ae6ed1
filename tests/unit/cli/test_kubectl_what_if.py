"""`kubectl fairlead whatif`: the state out of API objects, and which brokers a target means."""

from collections.abc import Mapping
from typing import Any

import pytest

from fairlead_cli.errors import CliError, InputError
from fairlead_cli.kubectl.whatif import find_brokers, load_cluster
from fairlead_controller.decisions.state import ControllerState, CountersChanged, Intent
from fairlead_controller.decisions.tables import lines
from fairlead_controller.decisions.what_if import forecast_loss
from fairlead_controller.stores.kubernetes_tables import build_table
from fairlead_controller.stores.metadata_store import TableWrite
from fairlead_model.broker import BrokerRegistration
from fairlead_model.cluster import TopicHeader
from fairlead_model.ids import TopicId
from fairlead_model.partition import PartitionRegistration

T = TopicId(b"t" * 16)
TABLE = "00000"
POOLS = [
    {"metadata": {"name": "main"}, "spec": {"replicas": 2, "clusterName": "events"}},
    {"metadata": {"name": "more"}, "spec": {"idBase": 2, "replicas": 5, "clusterName": "events"}},
]


LEAVING = [(1, "main"), (3, "gone")]
"""Brokers that pools give up; of the second there is no BrokerPool any more."""


def stored(table: str, content: Mapping[str, str]) -> dict[str, Any]:
    write = TableWrite(table, None, 7, dict(content))
    manifest, _ = build_table(write, None, namespace="ns", cluster="events")
    manifest["metadata"]["resourceVersion"] = "1"
    return manifest


def cluster_lines() -> dict[str, str]:
    brokers = [
        BrokerRegistration(
            number, 1, host_name=f"worker-{number // 2}", rack=f"zone-{number % 2}", fenced=False
        )
        for number in range(4)
    ]
    return {
        lines.CLUSTER_KEY: lines.dump_line({"cluster_id": "an-id"}),
        lines.COUNTERS_KEY: lines.counters_line(CountersChanged(5, 0)),
        **{lines.broker_key(each.broker_id): lines.broker_line(each) for each in brokers},
        f"{lines.TABLE_PREFIX}{TABLE}": lines.dump_line({"state": "made"}),
        f"{lines.TABLE_PREFIX}security-00000": lines.dump_line({"state": "made"}),
    }


def partition_lines() -> dict[str, str]:
    records = [(0, 1), (0, 2), (2,)]
    return {
        lines.topic_key(T): lines.header_line(TopicHeader("t", T, len(records))),
        **{
            lines.partition_key(T, index): lines.partition_line(
                PartitionRegistration(replicas, replicas, replicas[0], leader_epoch=1)
            )
            for index, replicas in enumerate(records)
        },
    }


@pytest.fixture
def state() -> ControllerState:
    objects = [stored("cluster", cluster_lines()), stored(TABLE, partition_lines())]
    return load_cluster(objects, "events")


def test_the_objects_are_the_controllers_state(state: ControllerState) -> None:
    """Rules and users are in Secrets; without them nothing is missing here."""
    forecast = forecast_loss(state, [0])
    assert [each.after.leader for each in forecast.partitions] == [1, 2]
    assert forecast.is_safe
    lost = forecast_loss(state, find_brokers(state, POOLS, "node/worker-1"))
    assert [each.index for each in lost.partitions if each.loses_leader] == [2]


@pytest.mark.parametrize(
    ("target", "brokers"),
    [
        ("node/worker-0", [0, 1]),
        ("zone/zone-1", [1, 3]),
        ("pool/main", [0, 1]),
        ("pool/more", [2, 3]),
        ("broker/3,1", [1, 3]),
    ],
)
def test_targets_are_brokers(state: ControllerState, target: str, brokers: list[int]) -> None:
    assert find_brokers(state, POOLS, target) == brokers


@pytest.mark.parametrize(
    ("target", "message", "hint"),
    [
        ("node/x", "no broker is on node 'x'", "There are: worker-0, worker-1."),
        ("zone/x", "no broker is on zone 'x'", "There are: zone-0, zone-1."),
        ("pool/x", "no broker is on pool 'x'", "There are: main, more."),
        ("broker/9", "there is no broker 9", "There are: 0, 1, 2, 3."),
        ("rack/x", "'rack' is no kind of target", "Write node/NAME"),
        ("node", "'node' names no target", "Write node/NAME"),
    ],
)
def test_what_means_no_broker_is_said(
    state: ControllerState, target: str, message: str, hint: str
) -> None:
    with pytest.raises(InputError) as refused:
        find_brokers(state, POOLS, target)
    assert refused.value.message == message
    assert (refused.value.hint or "").startswith(hint)


def test_objects_that_do_not_fit_are_not_guessed_from() -> None:
    with pytest.raises(CliError, match="do not fit together"):
        load_cluster([stored("cluster", cluster_lines())], "events")


def test_a_broker_that_a_pool_gives_up_is_one_of_the_pool_until_it_is_gone() -> None:
    """It still has what it holds, and what is counted on goes with the pool."""
    leaving = {f"{lines.INTENT_PREFIX}remove-broker-{number}": pool for number, pool in LEAVING}
    intents = {
        key: lines.intent_line(Intent("remove-broker", pool, 1)) for key, pool in leaving.items()
    }
    objects = [stored("cluster", cluster_lines() | intents), stored(TABLE, partition_lines())]
    state = load_cluster(objects, "events")
    pools = [{"metadata": {"name": "main"}, "spec": {"replicas": 1, "clusterName": "events"}}]
    assert find_brokers(state, pools, "pool/main") == [0, 1]
    assert find_brokers(state, pools, "pool/gone") == [3]
    with pytest.raises(InputError):
        find_brokers(state, pools, "pool/x")
