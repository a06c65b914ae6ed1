"""What may be asked for, what waits for its turn, and what is listed."""

from collections.abc import Callable
from typing import Any

import pytest

from fairlead_controller.decisions.reassignment.progress import MOVES_PER_BROKER_MAX
from fairlead_controller.decisions.state import initial_state
from fairlead_controller.decisions.tables.lines import (
    build_partition,
    partition_line,
    read_line,
)
from fairlead_model.session.refusals import RefusalCode

NONE = RefusalCode.NONE
INVALID = RefusalCode.INVALID_REPLICA_ASSIGNMENT


def test_each_partition_is_answered_by_itself(mover: Any) -> None:
    mover.world.fence(5)
    codes = mover.ask(
        ("t", 0, [3, 1, 2]),
        ("t", 1, [3, 1, 2]),
        ("absent", 0, [1]),
        ("t", -1, [1]),
    )
    unknown = RefusalCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [NONE, unknown, unknown, unknown]
    assert mover.listed() == [([3, 1, 2, 0], [3], [0])]


@pytest.mark.parametrize(
    ("target", "why"),
    [
        ([], "none, or named twice"),
        ([1, 1, 2], "named twice"),
        ([0, 1, 77], "there is no broker 77"),
        ([0, 1, -1], "there is no broker -1"),
        ([0, 1, 5], "broker 5 is down"),
        ([0, 1, 4], "broker 4 is being drained"),
    ],
)
def test_targets_that_make_no_sense_are_refused(mover: Any, target: list[int], why: str) -> None:
    mover.world.fence(5)
    mover.drain(4)
    assert mover.ask(("t", 0, target)) == [INVALID]
    assert why in mover.answers[0]["error_message"]
    assert not mover.world.state.moves


def test_two_replicas_on_one_machine_are_refused_while_another_is_free(
    make_mover: Callable[[int], Any],
) -> None:
    mover = make_mover(2)
    mover.world.start_broker(2, host_name="host-1")
    mover.world.create("t", partitions=-1, replication_factor=-1, assignments={0: [0]})
    assert mover.move(1, 2) is INVALID
    assert "on one machine, while host-0 has none" in mover.answers[0]["error_message"]
    assert mover.move(0, 1, 2) is NONE, "there is no third machine"


def test_a_partition_named_twice_is_refused(mover: Any) -> None:
    twice = mover.ask(("t", 0, [3, 1, 2]), ("t", 0, [4, 1, 2]))
    assert twice == [RefusalCode.INVALID_REQUEST] * 2


def test_the_number_of_replicas_is_guarded(mover: Any) -> None:
    factor = RefusalCode.INVALID_REPLICATION_FACTOR
    assert mover.ask(("t", 0, [0, 1]), may_resize=False) == [factor]
    assert mover.ask(("t", 0, [0, 1, 3]), may_resize=False) == [NONE]
    assert mover.ask(("t", 0, [0, 1, 3, 4]), may_resize=False) == [factor]
    assert mover.answers[-1]["error_message"] == "The replication factor is changed from 3 to 4"


def many(make_mover: Callable[[int], Any], count: int) -> Any:
    """A mover with partitions on 0 1 2, all of which are asked to leave 2 for 3."""
    mover = make_mover(5)
    mover.world.create(
        "t",
        partitions=-1,
        replication_factor=-1,
        assignments={index: [0, 1, 2] for index in range(count)},
    )
    assert set(mover.ask(*(("t", index, [0, 1, 3]) for index in range(count)))) == {NONE}
    return mover


def test_few_are_in_flight_and_all_are_listed(make_mover: Callable[[int], Any]) -> None:
    mover = many(make_mover, 40)
    moves = mover.world.state.moves
    assert len(moves.running) == MOVES_PER_BROKER_MAX
    assert len(moves.queued) == 40 - MOVES_PER_BROKER_MAX
    assert mover.listed() == [([0, 1, 3, 2], [3], [2])] * 40
    assert mover.listed(("t", 39), ("t", 77), ("absent", 0)) == [([0, 1, 3, 2], [3], [2])]
    mover.catch_up()
    mover.tick()
    moves = mover.world.state.moves
    assert (len(moves.running), len(moves.queued)) == (MOVES_PER_BROKER_MAX, 20)
    mover.settle()
    assert {each.replicas for each in mover.world.partitions("t")} == {(0, 1, 3)}
    assert not mover.world.state.moves


def test_a_dead_target_keeps_only_those_that_go_there_waiting(
    make_mover: Callable[[int], Any],
) -> None:
    mover = many(make_mover, 20)
    mover.world.fence(3)
    assert mover.move(0, 1, 4, index=19) is NONE
    mover.settle()
    assert mover.world.partition("t", 19).replicas == (0, 1, 4)
    assert len(mover.listed()) == 19
    mover.world.restart(3, "again")
    mover.settle()
    assert mover.listed() == []


def test_what_waits_is_cancelled_without_a_trace(make_mover: Callable[[int], Any]) -> None:
    mover = many(make_mover, 12)
    assert mover.cancel(index=11) is NONE
    record = mover.world.partition("t", 11)
    assert (record.replicas, record.queued_target, record.leader_epoch) == ((0, 1, 2), (), 0)
    assert mover.cancel(index=11) is RefusalCode.NO_REASSIGNMENT_IN_PROGRESS


def test_what_waits_is_given_up_when_its_broker_is_drained(
    make_mover: Callable[[int], Any],
) -> None:
    mover = many(make_mover, 12)
    assert mover.drain(3)[0] is NONE
    mover.settle()
    assert mover.held(3) == [f"t-{index}" for index in range(10)], "to be deleted"
    assert mover.world.state.loads[3].replicas == 0


def test_all_of_it_outlives_the_controller(make_mover: Callable[[int], Any]) -> None:
    mover = many(make_mover, 12)
    state = mover.world.state
    for partition in mover.world.partitions("t"):
        assert build_partition(read_line(partition_line(partition))) == partition
    again = initial_state(state.image, controller_epoch=2, counters=state.counters)
    assert set(again.moves.running) == set(state.moves.running)
    assert set(again.moves.queued) == set(state.moves.queued)
    mover.world.state = again
    for broker_id in range(5):
        mover.world.restart(broker_id, "again")
    mover.settle()
    assert {each.replicas for each in mover.world.partitions("t")} == {(0, 1, 3)}
