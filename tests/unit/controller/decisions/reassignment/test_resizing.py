"""A topic gets as many replicas as its resource says, and what was begun can be taken back."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from fairlead_cli.topic.assignment import Assigner, Place, TooFewBrokersError
from fairlead_controller.decisions.events import ApplyTopicResources, DeclareTopics
from fairlead_controller.decisions.reassignment import resizing
from fairlead_controller.decisions.reassignment.planning import Holdings, host_of
from fairlead_model.resources.topic_manifest import TopicSpec
from fairlead_model.session.refusals import RefusalCode

NONE = RefusalCode.NONE
PARTITIONS = 12


@pytest.fixture
def declared(make_mover: Callable[[int], Any]) -> Any:
    """Five brokers, and a topic of twelve partitions that a resource declares with two replicas."""
    mover = make_mover(5)
    mover.world.do(DeclareTopics((TopicSpec("t", "t", PARTITIONS, 2),)))
    return mover


def ask(mover: Any, factor: int) -> tuple[str, str]:
    """Apply the resource with so many replicas; state and reason of the result."""
    spec = TopicSpec("t", "t", PARTITIONS, factor)
    result = mover.world.do(ApplyTopicResources(apply=(spec,)))["results"]["t"]
    return result["state"], result["reason"]


DONE = ("ok", "Applied")
BUSY = ("waiting", "ReassignmentInProgress")


def factors(mover: Any) -> set[int]:
    return {len(part.replicas) for part in mover.world.partitions("t")}


def test_replicas_are_added_and_taken_away(declared: Any) -> None:
    before = [part.replicas for part in declared.world.partitions("t")]
    assert ask(declared, 3) == DONE
    declared.settle()
    assert factors(declared) == {3}
    after = [part.replicas for part in declared.world.partitions("t")]
    assert [each[:2] for each in after] == before, "what is there keeps its place"
    held = [sum(broker in each for each in after) for broker in range(5)]
    assert max(held) - min(held) <= 2
    assert ask(declared, 1) == DONE
    declared.settle()
    assert [part.replicas for part in declared.world.partitions("t")] == [
        each[:1] for each in before
    ]


def test_asked_again_nothing_is_written(declared: Any) -> None:
    ask(declared, 3)
    spec = TopicSpec("t", "t", PARTITIONS, 3)
    assert declared.world.decide(ApplyTopicResources(apply=(spec,))).changes == ()
    declared.settle()
    assert declared.world.decide(ApplyTopicResources(apply=(spec,))).changes == ()


def test_few_are_in_flight_and_the_others_wait_for_their_turn(make_mover: Any) -> None:
    mover = make_mover(3)
    mover.world.do(DeclareTopics((TopicSpec("t", "t", 60, 1),)))
    spec = TopicSpec("t", "t", 60, 2)
    mover.world.do(ApplyTopicResources(apply=(spec,)))
    moves = mover.world.state.moves
    assert (len(moves.running) <= 30, len(moves.running) + len(moves.queued)) == (True, 60)
    mover.settle()
    assert factors(mover) == {2}


def test_put_back_it_is_called_back_whether_it_runs_or_waits(make_mover: Any) -> None:
    mover = make_mover(3)
    mover.world.do(DeclareTopics((TopicSpec("t", "t", 60, 1),)))
    before = [part.replicas for part in mover.world.partitions("t")]
    for factor in (2, 1):
        spec = TopicSpec("t", "t", 60, factor)
        mover.world.do(ApplyTopicResources(apply=(spec,)))
        assert bool(mover.world.state.moves) is (factor == 2)
    assert [part.replicas for part in mover.world.partitions("t")] == before


def test_put_back_when_half_is_done_what_has_come_goes(declared: Any) -> None:
    ask(declared, 3)
    declared.catch_up()
    assert ask(declared, 2) == DONE
    declared.settle()
    assert factors(declared) == {2}


def test_another_number_while_replicas_come_changes_the_course(declared: Any) -> None:
    ask(declared, 3)
    assert ask(declared, 4) == DONE
    declared.settle()
    assert factors(declared) == {4}


def test_what_somebody_else_moves_is_resized_after_that(declared: Any) -> None:
    old = declared.world.partition("t", 0).replicas
    new = [each for each in range(5) if each not in old][:2]
    assert declared.move(*new, index=0) is NONE
    assert ask(declared, 3) == BUSY
    assert declared.world.partition("t", 0).target_replicas == tuple(new)
    assert all(part.adding_replicas for part in declared.world.partitions("t")), "others begin"
    declared.settle()
    assert ask(declared, 3) == DONE
    declared.settle()
    assert factors(declared) == {3}
    assert declared.world.partition("t", 0).replicas[:2] == tuple(new), "the move is respected"


def test_a_drain_and_another_number_of_replicas_do_not_meet(declared: Any) -> None:
    declared.drain(4)
    declared.tick()
    assert ask(declared, 3) == BUSY
    declared.settle()
    assert ask(declared, 3) == DONE
    declared.settle()
    assert factors(declared) == {3}
    assert all(4 not in part.replicas for part in declared.world.partitions("t"))


def test_people_may_call_replicas_back_and_the_resource_asks_again(declared: Any) -> None:
    ask(declared, 3)
    assert declared.cancel(index=0) is NONE
    assert len(declared.world.partition("t", 0).target_replicas) == 2
    assert ask(declared, 3) == DONE
    assert len(declared.world.partition("t", 0).target_replicas) == 3


def test_a_partition_without_leader_waits_until_somebody_can_send(make_mover: Any) -> None:
    mover = make_mover(3)
    mover.world.do(DeclareTopics((TopicSpec("t", "t", 1, 1),)))
    (holder,) = mover.world.partition().replicas
    mover.world.fence(holder)
    spec = TopicSpec("t", "t", 1, 2)
    mover.world.do(ApplyTopicResources(apply=(spec,)))
    assert mover.world.partition().queued_target
    mover.settle()
    assert mover.world.partition().replicas == (holder,)
    mover.world.restart(holder, "again")
    mover.settle()
    assert factors(mover) == {2}


def test_one_decision_resizes_so_many_and_the_rest_follows(
    declared: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resizing, "PARTITIONS_PER_DECISION_MAX", 5)
    assert [ask(declared, 3) for _ in range(3)] == [BUSY, BUSY, DONE]
    assert all(part.adding_replicas for part in declared.world.partitions("t"))


def test_those_that_miss_records_or_have_to_go_anyway_go_first(make_mover: Any) -> None:
    mover = make_mover(5)
    fields = {"partitions": -1, "replication_factor": -1}
    mover.world.create("t", assignments={0: [0, 1, 2], 1: [0, 3, 4]}, **fields)
    mover.world.fence(1)
    mover.propose(0, 2)
    mover.world.do(DeclareTopics((TopicSpec("t", "t", 2, 2),)))
    assert mover.world.partition("t", 0).replicas == (0, 2)
    holdings = Holdings(mover.world.state)
    assert holdings.resized((0, 3, 4), 6, (0, 3, 4)) is None


@pytest.mark.parametrize("seed", range(60))
def test_the_command_decides_alike(make_mover: Any, seed: int) -> None:
    """`fairlead topic alter --replication-factor` has the same rules, where machines differ."""
    random = Random(seed)
    mover = make_mover(0)
    racks = random.choice([["a"], ["a", "b", "c"]])
    for broker_id in range(6):
        mover.world.start_broker(broker_id, rack=random.choice(racks))
    for number in range(3):
        mover.world.create(f"t{number}", partitions=5, replication_factor=random.randint(1, 4))
    state = mover.world.state
    before = random.sample(range(6), random.randint(1, 5))
    in_sync = set(before) - set(random.sample(before, random.randint(0, len(before) - 1)))
    places = {
        each: Place(each, host_of(broker), broker.rack)
        for each, broker in state.image.brokers.items()
    }
    assigner = Assigner(places)
    for each, load in state.loads.items():
        assigner.replicas[each] = load.replicas
    for factor in range(1, 7):
        ours = Holdings(state).resized(before, factor, in_sync)
        if factor >= len(before):
            assert ours == tuple(_resized(assigner, before, factor, in_sync))
        else:
            assert ours is not None
            assert ours[0] == before[0]
            assert set(ours) <= set(before)
            missing = [each for each in ours if each not in in_sync]
            spared = [each for each in before if each in in_sync and each not in ours]
            assert not (missing[1:] and spared), "whoever misses records goes first"
    with pytest.raises(TooFewBrokersError):
        _resized(assigner, before, 7, in_sync)
    assert Holdings(state).resized(before, 7, in_sync) is None


def _resized(assigner: Assigner, before: list[int], factor: int, in_sync: set[int]) -> list[int]:
    fresh = Assigner(assigner.places, assigner.replicas.copy())
    return fresh.resized(before, factor, in_sync)
