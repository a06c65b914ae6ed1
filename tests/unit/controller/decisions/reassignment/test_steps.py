"""One partition moves: what its record says at each step, whoever dies meanwhile."""

from collections.abc import Callable
from typing import Any

import pytest

from fairlead_controller.decisions.events import ReportOffline
from fairlead_model.session.refusals import RefusalCode

NONE = RefusalCode.NONE
INVALID = RefusalCode.INVALID_REPLICA_ASSIGNMENT


def test_a_move_adds_first_and_takes_away_when_all_is_in_sync(mover: Any) -> None:
    before = mover.world.partition()
    assert mover.move(3, 4, 1) is NONE
    begun = mover.world.partition()
    assert begun.replicas == (3, 4, 1, 0, 2)
    assert (begun.adding_replicas, begun.removing_replicas) == ((3, 4), (0, 2))
    assert (begun.leader, begun.leader_epoch) == (0, before.leader_epoch)
    assert sorted(begun.isr) == [0, 1, 2]
    assert begun.directories == ("disk-3", "disk-4", "disk-1", "disk-0", "disk-2")
    mover.propose(0, 1, 2, 3)
    assert mover.world.partition().replicas == begun.replicas, "4 is not in sync yet"
    answer = mover.propose(0, 1, 2, 3, 4)
    done = mover.world.partition()
    assert (done.replicas, done.isr) == ((3, 4, 1), (3, 4, 1))
    assert (done.adding_replicas, done.removing_replicas) == ((), ())
    assert done.unconfirmed_removals == (0, 2)
    assert done.directories == ("disk-3", "disk-4", "disk-1")
    assert (done.leader, done.leader_epoch) == (3, before.leader_epoch + 1)
    assert answer["leader"] == 3, "whoever has led hears that it leads no more"


def test_a_leader_that_stays_leads_in_a_new_epoch_when_a_replica_leaves(mover: Any) -> None:
    before = mover.world.partition()
    mover.move(1, 0, 3)
    mover.propose(0, 1, 2, 3)
    done = mover.world.partition()
    assert (done.leader, done.leader_epoch) == (0, before.leader_epoch + 1)


def test_a_late_proposal_does_not_bring_a_removed_replica_back(mover: Any) -> None:
    mover.move(0, 1, 3)
    older = mover.world.partition()
    mover.propose(0, 1, 2, 3)
    world = mover.world
    record = world.partition()
    assert record.leader_epoch > older.leader_epoch
    answer = mover.propose(0, 1, 3, 2)
    assert answer["error_code"] == RefusalCode.INVALID_REQUEST
    assert world.partition() == record


def test_a_sick_replica_that_stays_does_not_hold_a_move_up(mover: Any) -> None:
    mover.world.fence(2)
    mover.move(0, 2, 3)
    mover.propose(0, 1, 3)
    assert mover.world.partition().replicas == (0, 2, 3)


def test_nothing_is_taken_away_while_too_few_would_be_in_sync(mover: Any) -> None:
    """I15."""
    mover.move(1, 2, 3)
    mover.world.fence(1, 2)
    mover.propose(0, 3)
    mover.tick()
    assert mover.world.partition().is_being_reassigned, "3 alone could acknowledge nothing"
    mover.world.restart(1, "again")
    mover.propose(0, 1, 3)
    assert mover.world.partition().isr == (1, 3), "two were in sync before, and two are now"


def test_it_shrinks_only_to_replicas_in_sync(mover: Any) -> None:
    mover.world.fence(2)
    assert mover.move(0, 2) is NONE
    assert mover.world.partition().removing_replicas == (1,)
    mover.tick()
    assert mover.world.partition().replicas == (0, 2, 1)
    mover.world.restart(2, "again")
    mover.propose(0, 1, 2)
    done = mover.world.partition()
    assert (done.replicas, done.isr, done.unconfirmed_removals) == ((0, 2), (0, 2), (1,))


def test_more_replicas_do_not_raise_the_minimum_before_they_are_in_sync(mover: Any) -> None:
    world = mover.world
    world.create(
        "one",
        partitions=-1,
        replication_factor=-1,
        assignments={0: [0]},
        configs={"min.insync.replicas": "2"},
    )
    mover.move(0, 1, 2, topic="one")
    assert world.partition("one").effective_min_isr == 1
    mover.propose(0, 1, topic="one")
    assert world.partition("one").effective_min_isr == 1
    mover.propose(0, 1, 2, topic="one")
    assert world.partition("one").effective_min_isr == 2


def test_what_a_move_adds_is_not_missed_as_under_replicated(mover: Any) -> None:
    mover.move(0, 1, 3)
    assert not mover.world.partition().is_under_replicated
    mover.world.fence(2)
    assert mover.world.partition().is_under_replicated


def test_another_order_or_fewer_replicas_are_done_at_once(mover: Any) -> None:
    mover.move(2, 1, 0)
    record = mover.world.partition()
    assert (record.replicas, record.isr, record.leader) == ((2, 1, 0), (2, 1, 0), 0)
    mover.move(2, 1)
    record = mover.world.partition()
    assert (record.replicas, record.leader, record.unconfirmed_removals) == ((2, 1), 2, (0,))
    assert not mover.world.state.moves


def test_the_same_target_again_changes_nothing(mover: Any) -> None:
    mover.move(3, 1, 2)
    record = mover.world.partition()
    assert mover.move(3, 1, 2) is NONE
    assert mover.world.partition() is record


def test_a_source_that_dies_does_not_end_a_move(mover: Any) -> None:
    mover.move(3, 4, 5)
    mover.world.fence(0)
    assert mover.world.partition().leader in (1, 2)
    mover.catch_up()
    mover.tick()
    assert mover.world.partition().replicas == (3, 4, 5)


def test_a_target_that_dies_leaves_the_rest_as_it_is(mover: Any) -> None:
    mover.move(3, 1, 2)
    mover.world.fence(3)
    mover.tick()
    record = mover.world.partition()
    assert (record.leader, record.removing_replicas) == (0, (0,))
    mover.world.restart(3, "again")
    mover.settle()
    assert mover.world.partition().replicas == (3, 1, 2)


def test_an_addition_leads_only_when_nobody_else_can(mover: Any) -> None:
    mover.move(3, 4, 5)
    mover.propose(0, 1, 2, 3)
    mover.world.fence(0)
    mover.world.fence(1)
    mover.world.fence(2)
    assert mover.world.partition().leader == 3


def test_a_cancellation_gives_the_original_replicas_back(mover: Any) -> None:
    before = mover.world.partition()
    mover.move(0, 3, 4)
    mover.propose(0, 1, 2, 3)
    assert mover.cancel() is NONE
    record = mover.world.partition()
    assert sorted(record.replicas) == [0, 1, 2]
    assert sorted(record.isr) == [0, 1, 2]
    assert (record.leader, record.leader_epoch) == (0, before.leader_epoch + 1)
    assert set(record.unconfirmed_removals) == {3, 4}
    assert mover.cancel() is RefusalCode.NO_REASSIGNMENT_IN_PROGRESS


def test_a_cancellation_that_could_lose_records_is_refused(mover: Any) -> None:
    mover.move(3, 4, 0)
    mover.propose(0, 1, 2, 3)
    mover.world.fence(1)
    mover.world.fence(2)
    assert mover.cancel() is INVALID
    assert "(missing: 1, 2)" in mover.answers[0]["error_message"]
    mover.world.restart(2, "again")
    mover.propose(0, 2, 3)
    assert mover.cancel() is NONE


def test_a_cancellation_is_refused_while_only_additions_are_in_sync(mover: Any) -> None:
    mover.move(3, 4, 5)
    mover.propose(0, 1, 2, 3)
    mover.world.fence(0, 1, 2)
    assert mover.world.partition().leader == 3
    assert mover.cancel() is INVALID


def test_two_other_targets_and_a_cancellation_end_where_it_began(mover: Any) -> None:
    mover.move(3, 4, 5)
    mover.propose(0, 1, 2, 3)
    mover.move(2, 4, 5)
    record = mover.world.partition()
    assert 3 in record.adding_replicas and 3 in record.removing_replicas, "in sync, so it stays"
    mover.move(1, 2, 4)
    assert 5 not in mover.world.partition().replicas, "never in sync, so it went at once"
    assert mover.cancel() is NONE
    assert sorted(mover.world.partition().replicas) == [0, 1, 2]


def test_a_dropped_addition_that_leads_goes_at_the_end(mover: Any) -> None:
    mover.move(3, 4, 5)
    mover.propose(0, 1, 2, 3)
    mover.world.fence(0, 1, 2)
    mover.move(4, 5, 1)
    record = mover.world.partition()
    assert record.leader == 3 and 3 in record.removing_replicas
    mover.world.restart(1, "again")
    mover.settle()
    record = mover.world.partition()
    assert record.leader != 3
    assert sorted(record.replicas) == [1, 4, 5]


def test_eligible_replicas_stay_within_the_replicas(mover: Any) -> None:
    world = mover.world
    world.fence(2)
    mover.propose(0, 1)
    world.fence(1)
    assert world.partition().elr == (1,)
    mover.move(0, 3, 4)
    mover.settle()
    record = world.partition()
    assert (record.replicas, record.elr) == ((0, 3, 4), ())


def test_a_removed_replica_is_forgotten_when_it_has_deleted_its_data(mover: Any) -> None:
    mover.move(0, 1, 3)
    mover.settle()
    assert mover.world.partition().unconfirmed_removals == (2,)
    mover.confirm(1)
    assert mover.world.partition().unconfirmed_removals == (2,)
    mover.confirm(2)
    assert mover.world.partition().unconfirmed_removals == ()


def test_a_replica_that_comes_again_does_not_delete_what_it_has(mover: Any) -> None:
    mover.move(0, 1, 3)
    mover.settle()
    epoch = mover.world.partition().leader_epoch
    mover.move(0, 1, 2)
    assert mover.world.partition().unconfirmed_removals == ()
    mover.settle()
    mover.move(0, 1, 3)
    mover.settle()
    mover.confirm(2, epoch=epoch)
    assert mover.world.partition().unconfirmed_removals == (2,), "that was its first removal"


def test_a_broken_replica_that_was_moved_away_may_come_again(mover: Any) -> None:
    """Its broker has deleted it, and makes a new one."""
    located: Any = {"topic_id": mover.world.topic("t").topic_id, "index": 0}
    call: Any = {"broker_epoch": mover.world.epoch(2), "partitions": [located], "is_unclean": False}
    mover.world.do(ReportOffline(2, call))
    assert mover.world.sets() == (0, "01", "", "")
    assert mover.propose(0, 1, 2)["error_code"] == RefusalCode.INELIGIBLE_REPLICA
    assert mover.move(0, 1, 3) is RefusalCode.NONE
    assert mover.propose(0, 1, 3)["error_code"] == 0
    mover.confirm(2)
    assert mover.move(0, 1, 2) is RefusalCode.NONE
    assert mover.propose(0, 1, 3, 2)["error_code"] == 0
    assert mover.world.partition().replicas == (0, 1, 2)


def test_a_deleted_topic_waits_for_those_that_it_was_moved_from(mover: Any) -> None:
    from fairlead_controller.decisions.events import DeleteTopics

    mover.move(0, 1, 3)
    mover.settle()
    topic_id = mover.world.topic("t").topic_id
    mover.world.do(DeleteTopics({"topics": [{"name": "t", "topic_id": topic_id}]}))
    header = mover.world.state.image.deleting[topic_id]
    assert header.unconfirmed_deletions == {0, 1, 2, 3}


def test_a_topic_is_deleted_and_made_again_while_it_moves(mover: Any) -> None:
    from fairlead_controller.decisions.events import DeleteTopics

    mover.move(3, 4, 5)
    topic_id = mover.world.topic("t").topic_id
    mover.world.do(DeleteTopics({"topics": [{"name": "t", "topic_id": topic_id}]}))
    assert not mover.world.state.moves
    mover.world.create("t", partitions=1, replication_factor=1)
    assert mover.listed() == []


def test_partitions_that_come_while_others_move_get_the_old_number_of_replicas(
    mover: Any,
) -> None:
    from fairlead_controller.decisions.events import CreatePartitions

    mover.move(3, 4, 5)
    topics: Any = [{"name": "t", "count": 2, "assignments": None}]
    mover.world.do(CreatePartitions({"topics": topics, "validate_only": False}))
    assert len(mover.world.partition("t", 1).replicas) == 3


@pytest.mark.parametrize("target", [(3, 4, 5), (0, 1, 3), (2, 3), (3, 2, 1, 0)])
def test_any_one_broker_dies_at_any_step_and_it_goes_on(
    make_mover: Callable[[int], Any], target: tuple[int, ...]
) -> None:
    for victim in range(6):
        for step in range(3):
            mover = make_mover(6)
            mover.world.create(
                "t", partitions=-1, replication_factor=-1, assignments={0: [0, 1, 2]}
            )
            if step == 0:
                mover.world.fence(victim)
            code = mover.move(*target)
            if step == 1:
                mover.world.fence(victim)
            mover.catch_up()
            if step == 2:
                mover.world.fence(victim)
            assert mover.world.partition().has_leader, (victim, step)
            mover.world.restart(victim, "again")
            mover.settle()
            if code is NONE:
                assert mover.world.partition().replicas == target, (victim, step)
