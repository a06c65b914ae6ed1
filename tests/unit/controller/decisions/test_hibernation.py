"""All brokers of a cluster stop in good order and come back: in whatever order, nothing is lost."""

from itertools import permutations
from typing import Any

import pytest

from fairlead_controller.decisions.cluster_limits import ClusterLimits
from fairlead_controller.decisions.events import LimitCluster, ShutDownBroker
from fairlead_controller.kubernetes.cluster_spec import read_cluster_spec

CREATE = {"assignments": {0: [0, 1, 2]}, "partitions": -1, "replication_factor": -1}
ORDERS = list(permutations(range(3)))


def fall_asleep(world: Any, order: tuple[int, ...]) -> set[int]:
    """Stop all brokers; return those that hold everything: after them nobody acknowledged."""
    for broker in order:
        world.do(ShutDownBroker(broker, world.epoch(broker)))
        world.fence(broker)
    partition = world.partition()
    assert partition.leader == -1
    return {*partition.isr, *partition.elr}


@pytest.mark.parametrize("minimum", ["1", "2", "3"])
@pytest.mark.parametrize("allows_unclean", ["false", "true"])
@pytest.mark.parametrize("stops", ORDERS[:3], ids=str)
@pytest.mark.parametrize("starts", ORDERS, ids=str)
def test_whoever_is_back_first_leads_only_with_all_records(
    world: Any, minimum: str, allows_unclean: str, stops: Any, starts: Any
) -> None:
    configs = {"min.insync.replicas": minimum, "unclean.leader.election.enable": allows_unclean}
    world.create("t", **CREATE, configs=configs)
    world.do(LimitCluster(ClusterLimits(withholds_unclean=True)))
    whole = fall_asleep(world, stops)
    assert len(whole) >= int(minimum)
    awake: set[int] = set()
    for broker in starts:
        world.restart(broker, "woken")
        awake.add(broker)
        assert (world.partition().leader in whole) == bool(awake & whole), (broker, whole)
    assert world.partition().leader_recovery_state.name == "RECOVERED"


def test_an_unclean_election_that_was_withheld_happens_once_it_is_not(world: Any) -> None:
    world.create("t", **CREATE, configs={"unclean.leader.election.enable": "true"})
    asleep = ClusterLimits(withholds_unclean=True)
    world.do(LimitCluster(asleep))
    fall_asleep(world, (0, 1, 2))
    world.restart(0, "woken")
    world.do(LimitCluster(asleep))
    assert world.partition().leader == -1, "only 2 has everything, and it may come back"
    world.do(LimitCluster(ClusterLimits()))
    assert world.partition().leader == 0


def sleeping(reason: str, *, hibernated: bool) -> dict[str, Any]:
    condition = {"type": "Hibernated", "status": "False", "reason": reason}
    return {
        "metadata": {"uid": "u"},
        "spec": {"hibernated": hibernated},
        "status": {"conditions": [condition]},
    }


@pytest.mark.parametrize(
    ("manifest", "withholds", "is_down"),
    [
        ({"metadata": {"uid": "u"}, "spec": {}}, False, False),
        ({"metadata": {"uid": "u"}, "spec": {"hibernated": True}}, True, False),
        (sleeping("BrokerNotReady", hibernated=True), True, False),
        (sleeping("BrokerNotReady", hibernated=False), False, False),
        (sleeping("StoppingBrokers", hibernated=True), True, True),
        (sleeping("Asleep", hibernated=True), True, True),
        (sleeping("Asleep", hibernated=False), True, True),
        (sleeping("Waking", hibernated=False), True, False),
    ],
    ids=["awake", "asked", "waits", "given up", "stops", "sleeps", "is to wake", "wakes"],
)
def test_what_a_controller_reads_of_a_logcluster_that_sleeps(
    manifest: Any, withholds: bool, is_down: bool
) -> None:
    spec = read_cluster_spec(manifest)
    assert (spec.limits.withholds_unclean, spec.is_down) == (withholds, is_down)
