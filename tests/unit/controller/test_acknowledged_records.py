"""Random lives of one partition: whatever is acknowledged, every cleanly elected leader holds.

A model of the brokers at their worst: a follower outside the ISR gets nothing, an unclean restart
loses everything, and records are acknowledged whenever the committed record of the partition
allows it. Only the controller's decisions stand between that and a loss.
"""

import random
from collections.abc import Callable
from typing import Any

import pytest
from decision_world import World

from fairlead_controller.decisions import registration
from fairlead_controller.decisions.events import (
    AlterConfigs,
    AlterPartition,
    BalanceLeaders,
    ElectLeaders,
    FenceReason,
    LeavePartitions,
    RegisterBroker,
    ReportLogs,
    ReportOffline,
    ShutDownBroker,
    UnfenceBroker,
)
from fairlead_controller.decisions.state import initial_state
from fairlead_model.partition import LeaderRecoveryState

BROKERS = range(4)
STEPS = 80


class Life:
    """The controller's real decisions, and what the model's replicas hold."""

    def __init__(self, world: World, seed: int) -> None:
        self.random = random.Random(seed)
        self.world = world
        self.replicas = self.random.sample(BROKERS, 3)
        self.minimum = self.random.choice([1, 2, 2, 3])
        self.held: dict[int, set[int]] = {broker: set() for broker in self.replicas}
        self.acknowledged: set[int] = set()
        self.stopped: set[int] = set()
        self.records = self.starts = self.clean_elections = self.recoveries = 0
        world.create(
            "t",
            assignments={0: self.replicas},
            partitions=-1,
            replication_factor=-1,
            configs={"min.insync.replicas": str(self.minimum)},
        )
        self.known = world.partition()

    def step(self) -> None:
        acts = [
            (self.append, 6),
            (self.shrink, 2),
            (self.grow, 5),
            (self.die, 2),
            (self.stop, 1),
            (self.restart, 6),
            (self.wake, 2),
            (self.change_minimum, 1),
            (self.break_disk, 0.3),
            (self.restart_controller, 0.5),
            (self.report, 3),
            (lambda: self.world.do(BalanceLeaders(0)), 1),
        ]
        functions, weights = zip(*acts, strict=True)
        self.random.choices(functions, weights)[0]()
        self.check()

    def check(self) -> None:
        before, after = self.known, self.world.partition()
        self.known = after
        assert after.problems() == []
        assert after.partition_epoch >= before.partition_epoch
        if after.leader != before.leader:
            assert after.leader_epoch > before.leader_epoch
        if after.leader_recovery_state is LeaderRecoveryState.RECOVERED:
            for broker in (*after.isr, *after.elr):
                lost = self.acknowledged - self.held[broker]
                assert not lost, f"{broker} counts and lacks {len(lost)} acknowledged records"
        if not after.has_leader or after.leader_epoch == before.leader_epoch:
            return
        if after.leader_recovery_state is LeaderRecoveryState.RECOVERING:
            # Loss was possible, and is said; what this leader holds is the truth from here on.
            self.recoveries += 1
            self.acknowledged = set(self.held[after.leader])
            return
        self.clean_elections += 1
        lost = self.acknowledged - self.held[after.leader]
        assert not lost, f"leader {after.leader} lacks {len(lost)} acknowledged records"

    def append(self) -> None:
        partition = self.world.partition()
        if not partition.has_leader or partition.leader in self.stopped:
            return
        self.records += 1
        followers = [each for each in partition.isr if each not in self.stopped]
        # A follower may be behind: then nothing is acknowledged, and it may get there alone.
        reached = followers if self.random.random() < 0.8 else followers[:1]
        self.held[partition.leader].add(self.records)
        for broker in reached:
            self.held[broker] = set(self.held[partition.leader])
        is_committed = set(partition.isr) <= set(reached)
        if is_committed and len(partition.isr) >= partition.effective_min_isr:
            self.acknowledged |= self.held[partition.leader]

    def propose(self, isr: list[Any], epochs: dict[int, Any] | None = None) -> None:
        partition = self.world.partition()
        topic = self.world.topic("t")
        proposal = {
            "topic_id": topic.topic_id,
            "index": 0,
            "leader_epoch": partition.leader_epoch,
            "partition_epoch": partition.partition_epoch,
            "isr": [
                [member, epochs[member] if epochs else self.world.epoch(member)] for member in isr
            ],
        }
        call: Any = {"broker_epoch": self.world.epoch(partition.leader), "partitions": [proposal]}
        self.world.do(AlterPartition(partition.leader, call))

    def shrink(self) -> None:
        partition = self.world.partition()
        if partition.has_leader and partition.leader not in self.stopped:
            others = [each for each in partition.isr if each != partition.leader]
            kept = self.random.sample(others, self.random.randrange(len(others) + 1))
            self.propose([partition.leader, *kept])

    def grow(self) -> None:
        partition = self.world.partition()
        joining = [
            each
            for each in partition.replicas
            if each not in partition.isr and each not in self.stopped
        ]
        if not partition.has_leader or partition.leader in self.stopped or not joining:
            return
        newcomer = self.random.choice(joining)
        # It has followed the leader to the end before it is proposed.
        self.held[newcomer] = set(self.held[partition.leader])
        epochs = {broker: self.world.epoch(broker) for broker in self.replicas}
        if self.random.random() < 0.2:
            # It loses everything while the proposal is on its way.
            self.restart_one(newcomer, clean=False)
        if self.world.partition().leader == partition.leader:
            self.propose([*partition.isr, newcomer], epochs)

    def die(self) -> None:
        broker = self.random.choice(self.replicas)
        self.stopped.add(broker)
        chance = self.random.random()
        if 0.5 < chance < 0.8:
            # The controller may end before the decision that fences it.
            epoch, reason = self.world.epoch(broker), FenceReason.SESSION_EXPIRED
            self.world.do(LeavePartitions(broker, epoch, reason))
            self.check()
        if chance < 0.7:
            self.world.fence(broker)
        elif chance < 0.8:
            self.restart_controller()

    def stop(self) -> None:
        broker = self.random.choice(self.replicas)
        if broker not in self.stopped:
            self.world.do(ShutDownBroker(broker, self.world.epoch(broker)))
            self.stopped.add(broker)
            self.world.fence(broker)

    def restart(self) -> None:
        self.restart_one(self.random.choice(self.replicas), clean=self.random.random() < 0.6)

    def restart_one(self, broker: int, *, clean: bool) -> None:
        self.starts += 1
        if not clean:
            self.held[broker].clear()
        self.world.restart(broker, f"start {self.starts}", clean=clean)
        self.stopped.discard(broker)

    def wake(self) -> None:
        """A broker had only been frozen: it goes on with the epoch that it has."""
        if self.stopped:
            broker = self.random.choice(sorted(self.stopped))
            self.stopped.discard(broker)
            self.world.do(UnfenceBroker(broker, self.world.epoch(broker)))

    def break_disk(self) -> None:
        broker = self.random.choice(self.replicas)
        located = {"topic_id": self.world.topic("t").topic_id, "index": 0}
        call: Any = {
            "broker_epoch": self.world.epoch(broker),
            "partitions": [located],
            "is_unclean": True,
        }
        self.world.do(ReportOffline(broker, call))
        self.held[broker].clear()

    def change_minimum(self) -> None:
        value = str(self.random.choice([1, 2, 3]))
        alteration = {"name": "min.insync.replicas", "operation": 0, "value": value}
        resource = {"resource_type": 2, "name": "t", "alterations": [alteration]}
        call: Any = {"resources": [resource], "validate_only": False, "incremental": True}
        self.world.do(AlterConfigs(call))

    def report(self) -> None:
        partition = self.world.partition()
        if not partition.awaits_recovery:
            return
        for broker in set(self.replicas) - self.stopped:
            entry = {
                "topic_id": self.world.topic("t").topic_id,
                "index": 0,
                "leader_epoch": partition.leader_epoch,
                "last_epoch": max(self.held[broker], default=-1),
                "log_end_offset": len(self.held[broker]),
            }
            call: Any = {"broker_epoch": self.world.epoch(broker), "partitions": [entry]}
            self.world.do(ReportLogs(broker, call))

    def restart_controller(self) -> None:
        state = self.world.state
        self.world.state = initial_state(
            state.image, controller_epoch=state.controller_epoch + 1, counters=state.counters
        )
        self.world.do(ElectLeaders())
        self.check()
        for broker in set(BROKERS) - self.stopped:
            known = self.world.state.image.brokers[broker]
            self.world.do(RegisterBroker(known, ""))
            if known.fenced:
                self.world.do(UnfenceBroker(broker, known.broker_epoch))
            self.check()


@pytest.mark.parametrize("seed", [*range(150), 329])
def test_every_clean_leader_holds_what_was_acknowledged(
    make_world: Callable[..., World], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if seed % 2:
        # As where a stopping broker has so many partitions that this one's turn comes too late.
        monkeypatch.setattr(registration, "LEFT_PER_DECISION_MAX", 0)
    life = Life(make_world(4), seed)
    for _ in range(STEPS):
        life.step()


def test_the_lives_are_eventful(make_world: Callable[..., World]) -> None:
    clean = recoveries = acknowledged = 0
    for seed in range(20):
        life = Life(make_world(4), seed)
        for _ in range(STEPS):
            life.step()
        clean += life.clean_elections
        recoveries += life.recoveries
        acknowledged += len(life.acknowledged)
    assert clean > 60
    assert recoveries > 5
    assert acknowledged > 60
