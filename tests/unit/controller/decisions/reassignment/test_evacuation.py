"""A broker is emptied and stays empty, until somebody takes that back."""

from collections.abc import Callable
from typing import Any

import pytest

from fairlead_controller.decisions.events import (
    AdvanceReassignments,
    AlterConfigs,
    BalanceLeaders,
    CreatePartitions,
)
from fairlead_controller.decisions.reassignment.planning import Holdings
from fairlead_controller.decisions.reassignment.progress import (
    PLANS_PER_DECISION_MAX,
    STARTS_PER_DECISION_MAX,
    _Steps,
)
from fairlead_controller.decisions.state import initial_state
from fairlead_model.session.calls import AlterConfigsCall, ResourceType
from fairlead_model.session.refusals import RefusalCode

NONE = RefusalCode.NONE
REFUSED = RefusalCode.POLICY_VIOLATION


@pytest.fixture
def four(make_mover: Callable[[int], Any]) -> Any:
    """Four brokers with 24 partitions of three replicas."""
    mover = make_mover(4)
    mover.world.create("t", partitions=24, replication_factor=3)
    return mover


def replicas(mover: Any, broker_id: int) -> int:
    load = mover.world.state.loads.get(broker_id)
    return 0 if load is None else int(load.replicas)


def test_everything_leaves_a_drained_broker_and_nothing_else_moves(four: Any) -> None:
    before = [each.replicas for each in four.world.partitions("t")]
    assert four.drain(2)[0] is NONE
    assert 2 not in four.world.leaders("t"), "leaders go at once"
    four.settle()
    assert replicas(four, 2) == 0
    for old, partition in zip(before, four.world.partitions("t"), strict=True):
        assert set(partition.replicas) == ({0, 1, 3} if 2 in old else set(old))
    assert [replicas(four, each) for each in (0, 1, 3)] == [24] * 3


def test_few_are_in_flight_at_a_time(four: Any) -> None:
    four.drain(2)
    four.tick()
    assert 0 < len(four.world.state.moves.running) <= 30
    arriving = [each for part in four.world.partitions("t") for each in part.adding_replicas]
    assert max(map(arriving.count, arriving)) <= 10


def test_thousands_that_wait_are_not_planned_at_once(
    make_mover: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan looks at all brokers, and those of all that wait would hold up the controller."""
    planned: list[tuple[int, ...]] = []
    replaced = Holdings.replaced

    def note(holdings: Holdings, replicas: Any, leaving: Any) -> Any:
        planned.append(replicas)
        return replaced(holdings, replicas, leaving)

    monkeypatch.setattr(Holdings, "replaced", note)
    mover = make_mover(6)
    mover.world.create("t", partitions=3000, replication_factor=3)
    for broker_id in (0, 1):
        mover.drain(broker_id)
    for _ in range(3):
        mover.tick()
        assert len(planned) <= PLANS_PER_DECISION_MAX + STARTS_PER_DECISION_MAX
        planned.clear()


def test_each_turn_plans_for_others(four: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """So nobody waits for ever behind those whose receiver is busy, or away."""
    monkeypatch.setattr(
        "fairlead_controller.decisions.reassignment.progress.PLANS_PER_DECISION_MAX", 2
    )
    four.drain(2)
    four.settle()
    assert replicas(four, 2) == 0
    asked: list[int] = []
    four.undrain(2)
    four.world.create("u", partitions=24, replication_factor=3)
    four.drain(2)
    monkeypatch.setattr(_Steps, "_move_off", lambda *args: asked.append(args[3]))
    for turn in range(12):
        four.world.do(AdvanceReassignments(turn=turn))
    held = [index for index, each in enumerate(four.world.partitions("u")) if 2 in each.replicas]
    assert set(asked) == set(held)
    assert len(asked) == 24


def test_nothing_new_is_placed_on_it(four: Any) -> None:
    four.drain(2)
    four.settle()
    four.world.create("u", partitions=12, replication_factor=2)
    topics: Any = [{"name": "t", "count": 30, "assignments": None}]
    four.world.do(CreatePartitions({"topics": topics, "validate_only": False}))
    assert replicas(four, 2) == 0
    answer = four.world.create("v", partitions=1, replication_factor=4)
    assert answer["error_code"] == RefusalCode.INVALID_REPLICATION_FACTOR
    why = "3 brokers that are not being drained, fenced or cordoned (1 are)"
    assert why in answer["error_message"]
    fields = {"partitions": -1, "replication_factor": -1, "assignments": {0: [2]}}
    answer = four.world.create("w", **fields)
    assert answer["error_code"] == RefusalCode.INVALID_REPLICA_ASSIGNMENT


def test_the_order_outlives_the_broker_and_the_controller(four: Any) -> None:
    """I17."""
    four.drain(2)
    four.settle()
    four.world.restart(2, "another start")
    four.world.start_broker(2, start_id="yet another", directory_id="new disk")
    state = four.world.state
    four.world.state = initial_state(state.image, controller_epoch=2, counters=state.counters)
    for broker_id in range(4):
        four.world.restart(broker_id, "after the controller")
    assert four.world.state.cordoned == {2}
    four.world.create("u", partitions=12, replication_factor=2)
    assert replicas(four, 2) == 0


def test_a_broker_that_is_down_is_emptied_too(four: Any) -> None:
    four.world.fence(2)
    assert four.drain(2)[0] is NONE
    four.settle()
    assert replicas(four, 2) == 0


def test_the_only_replica_moves_while_it_serves_and_waits_while_it_is_down(
    make_mover: Callable[[int], Any],
) -> None:
    mover = make_mover(2)
    mover.world.create("t", partitions=-1, replication_factor=-1, assignments={0: [1]})
    mover.world.fence(1)
    mover.drain(1)
    mover.settle()
    assert mover.world.partition().replicas == (1,)
    mover.world.restart(1, "again")
    mover.settle()
    assert mover.world.partition().replicas == (0,)


def test_it_says_why_it_cannot(make_mover: Callable[[int], Any]) -> None:
    mover = make_mover(3)
    mover.world.create("orders", partitions=2, replication_factor=3)
    code, why = mover.drain(1)
    assert code is REFUSED
    assert why == (
        "broker 1 cannot be drained: partition orders-0 has 3 replicas, and besides only brokers "
        "0, 2 could have them; add a broker, or lower the topic's replication factor"
    )
    assert not mover.world.state.cordoned


def test_the_last_one_cannot_be_drained(make_mover: Callable[[int], Any]) -> None:
    mover = make_mover(3)
    mover.world.create("t", partitions=3, replication_factor=1)
    assert mover.drain(0)[0] is NONE
    mover.world.fence(1)
    code, why = mover.drain(2)
    assert code is REFUSED
    assert why.endswith("no other broker is in service, and neither being drained nor cordoned")


def test_an_order_in_capitals_is_taken_back_as_any(four: Any) -> None:
    """Kafka reads booleans whatever their case, and so does the order itself."""
    before = [set(each.replicas) for each in four.world.partitions("t")]
    assert four.drain(2, "TRUE")[0] is NONE
    four.tick()
    assert four.world.state.moves.running
    assert four.undrain(2)[0] is NONE
    assert not four.world.state.moves.running
    assert [set(each.replicas) for each in four.world.partitions("t")] == before


def test_undraining_calls_back_what_is_under_way(make_mover: Callable[[int], Any]) -> None:
    mover = make_mover(4)
    mover.world.create("t", partitions=60, replication_factor=3)
    mover.drain(2)
    mover.tick()
    assert mover.undrain(2)[0] is NONE
    assert not mover.world.state.moves
    held = replicas(mover, 2)
    assert held > 0
    mover.settle()
    assert replicas(mover, 2) == held
    mover.world.do(BalanceLeaders(0))
    assert 2 in mover.world.leaders("t"), "of the moves that had not begun"


def test_a_target_that_stays_away_is_replaced_by_another(make_mover: Callable[[int], Any]) -> None:
    mover = make_mover(5)
    fields = {"partitions": -1, "replication_factor": -1, "assignments": {0: [0, 1, 2]}}
    mover.world.create("t", **fields)
    mover.drain(2)
    mover.tick()
    (target,) = mover.world.partition().adding_replicas
    mover.world.fence(target)
    mover.settle()
    assert mover.world.partition().adding_replicas == (target,), "it may come back soon"
    mover.tick(target)
    mover.settle()
    assert set(mover.world.partition().replicas) == {0, 1, 7 - target}


def test_all_configs_at_once_do_not_end_a_drain(four: Any) -> None:
    four.drain(2)
    rate = "leader.replication.throttled.rate"
    call = AlterConfigsCall(
        resources=[
            {
                "resource_type": ResourceType.BROKER,
                "name": "2",
                "alterations": [{"name": rate, "operation": 0, "value": "1000"}],
            }
        ],
        validate_only=False,
        incremental=False,
    )
    four.world.do(AlterConfigs(call))
    assert four.world.state.cordoned == {2}
    assert four.world.state.image.broker_configs["2"][rate] == "1000"


def test_racks_and_machines_are_kept_apart(make_mover: Callable[[int], Any]) -> None:
    mover = make_mover(0)
    for broker_id, (rack, host) in enumerate(
        [("a", "h1"), ("b", "h2"), ("c", "h3"), ("c", "h4"), ("b", "h2"), ("a", "h5")]
    ):
        mover.world.start_broker(broker_id, rack=rack, host_name=host)
    fields = {"partitions": -1, "replication_factor": -1, "assignments": {0: [0, 1, 2]}}
    mover.world.create("t", **fields)
    mover.drain(2)
    mover.settle()
    assert mover.world.partition().replicas == (0, 1, 3), "the rack c that it leaves"


def test_the_last_broker_of_a_rack_goes_when_a_person_asks(
    make_mover: Callable[[int], Any],
) -> None:
    """The others of fewer racks take what it has; a rack that comes back gets its share again."""
    mover = make_mover(0)
    for broker_id, rack in enumerate(["a", "b", "c", "c"]):
        mover.world.start_broker(broker_id, rack=rack, host_name=f"h{broker_id}")
    mover.world.create("t", partitions=12, replication_factor=3)
    assert mover.drain(1)[0] is NONE
    mover.settle()
    for partition in mover.world.partitions("t"):
        assert set(partition.replicas) == {0, 2, 3}
    mover.world.create("u", partitions=6, replication_factor=2)
    for partition in mover.world.partitions("u"):
        assert 0 in partition.replicas, "two racks are left, and each has one"
        assert 1 not in partition.replicas
    assert mover.undrain(1)[0] is NONE
    mover.world.create("v", partitions=6, replication_factor=3)
    for partition in mover.world.partitions("v"):
        assert {0, 1} < set(partition.replicas)
