"""Tables of cases: ISR, eligible and last known eligible replicas through whole stories."""

from typing import Any

import pytest
from decision_world import World

from fairlead_controller.decisions.events import (
    AlterConfigs,
    ElectLeaders,
    ShutDownBroker,
    UnfenceBroker,
)
from fairlead_controller.decisions.membership import with_min_insync_replicas
from fairlead_controller.decisions.state import initial_state
from fairlead_model.partition import LeaderRecoveryState, PartitionRegistration

CREATE = {"assignments": {0: [0, 1, 2]}, "partitions": -1, "replication_factor": -1}

# Each step is an action and a broker, then leader, isr, elr, last known elr.
STORIES = [
    pytest.param(
        "1",
        [
            ("fence", 2, 0, "01", "", ""),
            ("fence", 1, 0, "0", "", ""),
            ("fence", 0, -1, "0", "", ""),
        ],
        id="with a minimum of one nobody is eligible",
    ),
    pytest.param(
        "2",
        [
            ("fence", 2, 0, "01", "", ""),
            ("fence", 1, 0, "0", "1", ""),
            ("fence", 0, -1, "0", "1", ""),
            ("clean", 2, -1, "0", "1", ""),
            ("clean", 1, 1, "1", "0", ""),
            ("clean", 0, 1, "1", "0", ""),
        ],
        id="an eligible one leads while the last in-sync one is away",
    ),
    pytest.param(
        "2",
        [
            ("fence", 0, 1, "12", "", ""),
            ("fence", 1, 2, "2", "1", ""),
            ("fence", 2, -1, "2", "1", ""),
            ("clean", 2, 2, "2", "1", ""),
        ],
        id="the last one comes back clean and leads again",
    ),
    pytest.param(
        "2",
        [
            ("fence", 2, 0, "01", "", ""),
            ("fence", 1, 0, "0", "1", ""),
            ("fence", 0, -1, "0", "1", ""),
            ("unclean", 1, -1, "0", "", "1"),
            ("clean", 1, -1, "0", "", "1"),
            ("unclean", 2, -1, "0", "", "1"),
            ("clean", 0, 0, "0", "", "1"),
        ],
        id="a second, clean restart does not launder an unclean one",
    ),
    pytest.param(
        "2",
        [("unclean", 1, 0, "02", "", ""), ("unclean", 2, 0, "0", "", "2")],
        id="an unclean one is forgotten while enough are in sync",
    ),
    pytest.param(
        "3",
        [
            ("fence", 2, 0, "01", "2", ""),
            ("fence", 0, 1, "1", "02", ""),
            ("clean", 2, 1, "1", "02", ""),
        ],
        id="a minimum of all keeps everybody eligible",
    ),
    pytest.param(
        "5",
        [("fence", 2, 0, "01", "2", ""), ("fence", 1, 0, "0", "12", "")],
        id="a minimum above the replicas means all of them",
    ),
]


@pytest.mark.parametrize(("minimum", "steps"), STORIES)
def test_stories(world: World, minimum: str, steps: list[tuple[Any, ...]]) -> None:
    world.create("t", **CREATE, configs={"min.insync.replicas": minimum})
    assert world.sets() == (0, "012", "", "")
    for number, (action, broker, *expected) in enumerate(steps):
        before = world.partition()
        if action == "fence":
            world.fence(broker)
        else:
            world.restart(broker, f"start {number}", clean=action == "clean")
        assert world.sets() == tuple(expected), f"step {number}: {action} {broker}"
        after = world.partition()
        assert after.problems() == []
        assert after.partition_epoch >= before.partition_epoch
        if after.leader != before.leader:
            assert after.leader_epoch > before.leader_epoch


def set_minimum(world: World, minimum: int) -> None:
    alteration = {"name": "min.insync.replicas", "operation": 0, "value": str(minimum)}
    resource: Any = {"resource_type": 2, "name": "t", "alterations": [alteration]}
    world.do(AlterConfigs({"resources": [resource], "validate_only": False, "incremental": True}))


def restart_controller(world: World) -> None:
    """Another one reigns; it has heard of no broker yet."""
    state = world.state
    world.state = initial_state(
        state.image, controller_epoch=state.controller_epoch + 1, counters=state.counters
    )
    world.do(ElectLeaders())


def test_who_leaves_while_nobody_leads_stays_eligible(world: World) -> None:
    """A follower has lost its disk, and a new controller has not heard so yet. The leader dies and
    comes back whole: it alone holds what was acknowledged, whatever the minimum is by now."""
    world.create("t", **CREATE | {"assignments": {0: [0, 1]}}, configs={"min.insync.replicas": "2"})
    restart_controller(world)
    set_minimum(world, 1)
    world.fence(0)
    assert world.sets() == (-1, "1", "0", "")
    world.restart(1, "on an empty disk", clean=False)
    assert world.sets() == (-1, "", "0", "1")
    world.restart(0, "whole", clean=True)
    assert world.sets() == (0, "0", "", "")
    assert world.partition().leader_recovery_state is LeaderRecoveryState.RECOVERED


def test_a_leader_with_enough_in_sync_forgets_who_was_eligible_before_it(world: World) -> None:
    """Eligible while nobody led; then the minimum fell, and the last in-sync one, which had only
    been frozen, acknowledges alone what the eligible one has never seen."""
    world.create("t", **CREATE, configs={"min.insync.replicas": "2"})
    world.fence(2, 1, 0)
    assert world.sets() == (-1, "0", "1", "")
    set_minimum(world, 1)
    assert world.sets() == (-1, "0", "1", "")
    world.do(UnfenceBroker(0, world.epoch(0)))
    assert world.sets() == (0, "0", "", "")
    # It is told to stop, and leads on until broker 2 is in sync; then the controller dies, too.
    world.restart(2, "whole")
    world.do(ShutDownBroker(0, world.epoch(0)))
    assert world.partition().leader == 0
    restart_controller(world)
    world.restart(1, "whole")
    assert world.sets() == (-1, "0", "", "")


def record(leader: int, minimum: int = 2, elr: tuple[int, ...] = (1,)) -> PartitionRegistration:
    return PartitionRegistration(
        (0, 1, 2), (0,), leader, elr=elr, min_insync_replicas=minimum, partition_epoch=7
    )


def test_another_minimum_under_a_leader_forgets_the_eligible_in_the_same_step() -> None:
    changed = with_min_insync_replicas(record(0), 1)
    assert (changed.min_insync_replicas, changed.elr, changed.partition_epoch) == (1, (), 8)


def test_without_a_leader_the_eligible_stay() -> None:
    changed = with_min_insync_replicas(record(-1), 1)
    assert (changed.min_insync_replicas, changed.elr, changed.partition_epoch) == (1, (1,), 8)


def test_the_same_minimum_changes_nothing() -> None:
    partition = record(0)
    assert with_min_insync_replicas(partition, 2) is partition
