"""Which brokers have to give their leaders away, and in which rack a broker is."""

from typing import Any

from fairlead_controller.kubernetes.cluster_spec import ClusterSpec, read_cluster_spec
from fairlead_controller.kubernetes.machines import (
    ZONE_LABEL,
    is_cordoned,
    is_leaving,
    located,
    plan_drains,
)
from fairlead_model.configs.controller_configs import SessionTiming


def test_a_leaving_pod_is_known_by_its_uid_alone(make_registration: Any) -> None:
    brokers = [make_registration(number, pod_uid=f"uid-{number}") for number in range(3)]
    drains = plan_drains(brokers, leaving_pods={"uid-1": "c-a-1"}, cordoned_nodes=[])
    assert drains == {1: "pod c-a-1 is being deleted"}
    successor = [make_registration(1, pod_uid="another")]
    assert plan_drains(successor, leaving_pods={"uid-1": "c-a-1"}, cordoned_nodes=[]) == {}


def test_brokers_without_a_pod_are_not_drained(make_registration: Any) -> None:
    brokers = [make_registration(0, pod_uid="")]
    assert plan_drains(brokers, leaving_pods={"": "x"}, cordoned_nodes=["elsewhere"]) == {}


def test_all_brokers_of_a_cordoned_node(make_registration: Any) -> None:
    brokers = [make_registration(number, host_name=f"n{number % 2}") for number in range(4)]
    drains = plan_drains(brokers, leaving_pods={}, cordoned_nodes=["n1"])
    assert sorted(drains) == [1, 3]
    assert drains[1] == "node n1 is unschedulable"


def test_what_leaves() -> None:
    assert is_leaving({"metadata": {"deletionTimestamp": "now"}})
    assert not is_leaving({"metadata": {}})
    assert is_cordoned({"spec": {"unschedulable": True}})
    assert not is_cordoned({"spec": {}})
    assert not is_cordoned({})


def test_the_rack_is_the_zone_of_the_node_unless_the_broker_says_one(
    make_registration: Any,
) -> None:
    node = {"metadata": {"labels": {ZONE_LABEL: "z1"}}}
    assert located(make_registration(0), node).rack == "z1"
    assert located(make_registration(0, rack="mine"), node).rack == "mine"
    assert located(make_registration(0), None).rack is None
    assert located(make_registration(0), {"metadata": {}}).rack is None


def test_a_log_cluster_as_far_as_it_matters() -> None:
    manifest: dict[str, Any] = {
        "metadata": {"uid": "u", "deletionTimestamp": "now"},
        "spec": {
            "reclaimPolicy": "Delete",
            "defaults": {"partitions": 4, "replicationFactor": 2},
            "config": {
                "auto.leader.rebalance.enable": False,
                "leader.imbalance.check.interval.seconds": 7,
                "leader.imbalance.per.broker.percentage": "0",
                "broker.heartbeat.interval.ms": 500,
                "broker.session.timeout.ms": "9000",
            },
        },
    }
    spec = read_cluster_spec(manifest)
    assert (spec.uid, spec.is_being_deleted, spec.deletes_tables) == ("u", True, True)
    assert (spec.default_partitions, spec.default_replication_factor) == (4, 2)
    assert (spec.balances_leaders, spec.balance_interval_s) == (False, 7)
    assert spec.imbalance_percentage_max == 0
    assert spec.timing == SessionTiming(500, 9000)
    manifest["metadata"]["annotations"] = {"fairlead.io/managed": "false"}
    assert not read_cluster_spec(manifest).deletes_tables, "its brokers run on"


def test_what_is_odd_counts_as_its_default() -> None:
    odd = {
        "metadata": {"uid": "u"},
        "spec": {
            "defaults": {"partitions": "many"},
            "config": {
                "leader.imbalance.check.interval.seconds": -5,
                "broker.session.timeout.ms": "never",
                "broker.heartbeat.interval.ms": 1000,
            },
        },
    }
    assert read_cluster_spec(odd).default_partitions == 1
    assert read_cluster_spec(odd).balance_interval_s == 300
    assert read_cluster_spec(odd).timing == SessionTiming(1000, 6000)
    assert read_cluster_spec({"metadata": {"uid": "u"}}) == ClusterSpec("u")
