"""A pool's size changes at random while brokers die, topics come and the operator begins anew.

The operator's and the controller's own decisions in turn; pods are a number, as in a StatefulSet.
"""

import random
from collections.abc import Callable
from typing import Any

import pytest
from operator_views import pool_view

from fairlead_controller.decisions.events import ConfirmDeletions, ScaleDownPool, UnregisterBroker
from fairlead_controller.decisions.reassignment.scale_down import find_leaving
from fairlead_controller.views.status import build_status
from fairlead_model.session.calls import ConfirmedRemoval
from fairlead_operator.clusters.pool_decisions import PoolTraces, count_brokers, decide_scale
from fairlead_operator.clusters.scale_down import decide_order, find_departed, read_holdings

BROKERS_MAX = 6
SMALLEST = 3
SEEDS = 20
STEPS = 120


class Pool:
    """A StatefulSet, its pods and the controller; `wanted` is what somebody has asked for."""

    def __init__(self, mover: Any, seed: int) -> None:
        self.mover = mover
        self.random = random.Random(seed)
        self.wanted = 5
        self.stateful_set: int | None = 5
        self.pods = set(range(5))
        self.starts = 0
        self.topics = 0
        self.removed = 0
        self.refused = 0

    @property
    def state(self) -> Any:
        return self.mover.world.state

    def reconcile(self, *, dies_after: int = 9) -> None:
        """One pass of the operator, which may die after some of its steps."""
        brokers = read_holdings(build_status(self.state, pid=1, declarations={}))
        assert brokers is not None
        pool = pool_view(replicas=self.wanted)
        present = count_brokers(
            0,
            self.stateful_set,
            PoolTraces(pods=self.pods, claims=range(BROKERS_MAX), registered=brokers),
            {broker_id: each.replicas for broker_id, each in brokers.items()},
        )
        scale = decide_scale(pool, present, brokers, {})
        order = decide_order(pool, present, brokers)
        names = [pool.pod_name(each) for each in self.pods]
        departed = find_departed(pool, self.stateful_set, names, brokers)
        if dies_after > 0:
            self._set_size(scale.replicas)
        if dies_after > 1:
            for broker_id in departed:
                self.mover.world.do(UnregisterBroker(broker_id))
        if dies_after > 1 and order is not None:
            event = ScaleDownPool("main", frozenset(order.leaving), frozenset(order.staying), 1)
            problem = self.mover.world.do(event)["problem"]
            self.refused += bool(problem)

    def _set_size(self, replicas: int) -> None:
        self.stateful_set = replicas
        for broker_id in sorted(self.pods):
            if broker_id >= replicas:
                self._check_nothing_is_lost(broker_id)
                self.pods.discard(broker_id)
                self.removed += 1
                self.die(broker_id)
        for broker_id in range(replicas):
            if broker_id not in self.pods:
                self.pods.add(broker_id)
                self.come(broker_id)

    def _check_nothing_is_lost(self, broker_id: int) -> None:
        load = self.state.loads.get(broker_id)
        assert load is None or not load.replicas, "a pod is removed that holds replicas"
        if self.state.image.is_live(broker_id):
            assert not self.mover.held(broker_id), "a pod is removed that has data to delete"

    def die(self, broker_id: int) -> None:
        if self.state.image.is_live(broker_id):
            self.mover.world.fence(broker_id)

    def come(self, broker_id: int) -> None:
        self.starts += 1
        if broker_id in self.state.image.brokers:
            self.mover.world.restart(broker_id, f"start {self.starts}")
        else:
            self.mover.world.start_broker(broker_id)

    def live(self) -> list[int]:
        return [each for each in sorted(self.pods) if self.state.image.is_live(each)]

    def confirm(self) -> None:
        """Let live brokers delete what was taken from them."""
        for topic in list(self.state.image.topics()):
            for index, partition in enumerate(topic.partitions):
                for broker_id in partition.unconfirmed_removals:
                    if self.state.image.is_live(broker_id):
                        epoch = self.mover.world.partition(topic.name, index).leader_epoch
                        removal = ConfirmedRemoval(
                            topic_id=topic.topic_id, index=index, leader_epoch=epoch
                        )
                        self.mover.world.do(ConfirmDeletions(broker_id, [], [removal]))

    def step(self) -> None:
        """Let something happen."""
        what = self.random.choice(
            ["scale", "die", "come", "topic", "copy", "copy", "confirm", "orphan", "pass", "crash"]
        )
        match what:
            case "scale":
                self.wanted = self.random.randint(SMALLEST, BROKERS_MAX)
            case "die" if len(self.live()) > SMALLEST:
                self.die(self.random.choice(self.live()))
            case "come":
                for broker_id in sorted(self.pods.difference(self.live())):
                    self.come(broker_id)
            case "topic" if self.topics < 8:
                self.topics += 1
                factor = self.random.randint(1, 3)
                self.mover.world.create(f"t{self.topics}", partitions=6, replication_factor=factor)
            case "copy":
                self.mover.catch_up()
                self.mover.tick()
            case "confirm":
                self.confirm()
            case "orphan":
                self.stateful_set = None
            case "crash":
                self.reconcile(dies_after=self.random.randint(0, 1))
            case _:
                self.reconcile()

    def settle(self) -> None:
        """Let everything that was begun come to its end."""
        for broker_id in sorted(self.pods.difference(self.live())):
            self.come(broker_id)
        for _ in range(60):
            self.reconcile()
            self.mover.settle()
            self.confirm()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_size_is_reached_and_nothing_is_lost(
    make_mover: Callable[[int], Any], seed: int
) -> None:
    pool = Pool(make_mover(5), seed)
    for _ in range(STEPS):
        pool.step()
    pool.settle()
    assert pool.stateful_set == pool.wanted
    assert pool.pods == set(range(pool.wanted))
    assert not pool.state.moves
    assert pool.state.cordoned.isdisjoint(pool.pods), "whoever stays is not drained any more"
    gone = set(pool.state.image.brokers) - pool.pods
    assert gone <= pool.state.cordoned, "nothing new is placed where nobody is"
    assert find_leaving(pool.state).keys() == gone
    for broker_id in gone:
        assert pool.mover.held(broker_id), "only who has data to delete stays registered"
    for topic in pool.state.image.topics():
        for partition in topic.partitions:
            assert partition.has_leader
            assert set(partition.replicas) <= pool.pods


def test_the_seeds_visit_what_they_are_for(make_mover: Callable[[int], Any]) -> None:
    removed = refused = 0
    for seed in range(10):
        pool = Pool(make_mover(5), seed)
        for _ in range(STEPS):
            pool.step()
        removed, refused = removed + pool.removed, refused + pool.refused
    assert removed > 10
    assert refused > 5
