"""What a Rebalance does next: phases as a function of spec, status and cluster."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from fairlead_controller.decisions.state import (
    BrokerConfirmed,
    ControllerState,
    CountersChanged,
    initial_state,
)
from fairlead_model.broker import BrokerRegistration
from fairlead_model.cluster import (
    BrokerChanged,
    PartitionChanged,
    TopicChanged,
    TopicHeader,
    TopicRemoved,
    empty_image,
)
from fairlead_model.ids import TOPIC_NAME_LENGTH_MAX, TopicId
from fairlead_model.partition import PartitionRegistration
from fairlead_operator.rebalances import steps
from fairlead_operator.rebalances.measured_load import LoadReading
from fairlead_operator.rebalances.plan_status import PlanLimits, make_plan, sort_moves
from fairlead_operator.rebalances.status import RebalanceStatusDraft
from fairlead_operator.resources import RebalanceSpec
from fairlead_operator.resources.rebalance import MOVES_MAX
from fairlead_operator.resources.tables import LINES_LENGTH_MAX

T = TopicId(b"t" * 16)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
PARTITIONS = 6


def registered(broker_id: int, **fields: Any) -> BrokerChanged:
    return BrokerChanged(BrokerRegistration(broker_id, 1, **({"fenced": False} | fields)))


def build_state() -> ControllerState:
    """Brokers 0 and 1 with all partitions, and an empty broker 2."""
    image = empty_image("c").apply(
        [
            *map(registered, range(3)),
            TopicChanged(TopicHeader("t", T, PARTITIONS)),
            *(
                PartitionChanged(T, index, PartitionRegistration((0, 1), (0, 1), 0))
                for index in range(PARTITIONS)
            ),
        ]
    )
    state = initial_state(image, controller_epoch=1, counters=CountersChanged(1, 0))
    return state.apply(map(BrokerConfirmed, range(3)))


STATE = build_state()
UNKNOWN = LoadReading(STATE).finish(NOW)
"""What is known where no broker answers."""
PLAN = make_plan(STATE, UNKNOWN, NOW)
ID = PLAN["id"]
SEEN = steps.ClusterSight(state=STATE)
UNSEEN = steps.ClusterSight()


def view(
    phase: str | None = None,
    *,
    is_deleting: bool = False,
    has_finalizer: bool = False,
    status: dict[str, Any] | None = None,
    **spec: Any,
) -> steps.RebalanceView:
    shown: dict[str, Any] = {} if phase is None else {"phase": phase, "plan": PLAN}
    return steps.RebalanceView(
        spec=RebalanceSpec(cluster_name="demo", **spec),
        status=shown | (status or {}),
        is_deleting=is_deleting,
        has_finalizer=has_finalizer,
    )


def moved(count: int, *, queued: int = 0, running: int = 0) -> ControllerState:
    """The state with so many moves of the plan done, then some queued, then some running."""
    changes: list[Any] = []
    for number, move in enumerate(PLAN["moves"]):
        before, after = tuple(move["before"]), tuple(move["after"])
        record = STATE.image.partition("t", move["partition"])
        assert record is not None
        if number < count:
            record = PartitionRegistration(after, after, after[0], leader_epoch=1)
        elif number < count + queued:
            record = record.changed(queued_target=after)
        elif number < count + queued + running:
            union = (*after, *(each for each in before if each not in after))
            record = record.changed(
                replicas=union,
                adding_replicas=tuple(each for each in after if each not in before),
                removing_replicas=tuple(each for each in before if each not in after),
            )
        changes.append(PartitionChanged(T, move["partition"], record))
    return STATE.apply(changes)


def sight(state: ControllerState | None = STATE, **fields: Any) -> steps.ClusterSight:
    return steps.ClusterSight(state=state, **fields)


def said(step: steps.Step) -> str:
    assert isinstance(step, steps.Tell), step
    return step.reason


decide = steps.decide_rebalance_step


@pytest.mark.parametrize("phase", [None, "ProposalReady"])
@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (sight(None, presence="Absent"), "ClusterNotFound"),
        (sight(presence="Paused"), "ClusterPaused"),
        (sight(presence="Hibernated"), "ClusterHibernated"),
        (sight(presence="Changing"), "ClusterChanging"),
        (sight(other="first"), "AnotherRebalance"),
        (UNSEEN, "ControllerUnavailable"),
        (sight(STATE.apply([registered(1, fenced=True)])), "ClusterUnhealthy"),
        (sight(STATE.apply([registered(1, in_controlled_shutdown=True)])), "ClusterUnhealthy"),
        (
            sight(initial_state(STATE.image, controller_epoch=2, counters=CountersChanged(9, 0))),
            "ClusterUnhealthy",
        ),
    ],
)
def test_no_plan_is_made_or_begun_while_something_is_in_the_way(
    phase: str | None, seen: steps.ClusterSight, reason: str
) -> None:
    it = view(phase, approve=ID)
    assert it.needs_sight
    assert said(decide(it, seen)) == reason


def test_a_plan_is_made_and_waits_for_its_own_id() -> None:
    assert decide(view(), SEEN) == steps.MakePlan()
    it = view("ProposalReady")
    assert not it.needs_sight, "a plan that waits costs nothing"
    assert said(decide(it, UNSEEN)) == "AwaitingApproval"
    assert said(decide(view("ProposalReady", approve="0" * 12), UNSEEN)) == "OtherPlan"
    assert decide(view("ProposalReady", approve=ID), SEEN) == steps.AddFinalizer()
    begun = decide(view("ProposalReady", approve=ID, has_finalizer=True), SEEN)
    assert isinstance(begun, steps.Enter)
    assert begun.phase == "Moving"
    assert said(decide(view("ProposalReady", approve=ID, paused=True), SEEN)) == "Paused"


def test_what_an_old_approval_was_refused_for_stays_to_be_read() -> None:
    condition = {"type": "Complete", "reason": steps.STALE, "message": "plan aaaaaaaaaaaa is stale"}
    status = {"conditions": [condition]}
    assert decide(view("ProposalReady", approve="a" * 12, status=status), UNSEEN) == steps.Idle()
    other = decide(view("ProposalReady", approve="b" * 12, status=status), UNSEEN)
    assert said(other) == "OtherPlan"


@pytest.mark.parametrize("phase", ["ProposalReady", "Moving"])
def test_a_stale_plan_is_made_anew_while_nothing_of_it_has_begun(phase: str) -> None:
    it = view(phase, approve=ID, has_finalizer=True)
    stale = sight(STATE.apply([registered(7), BrokerConfirmed(7)]))
    step = decide(it, stale)
    assert isinstance(step, steps.Replan)
    assert "broker 7 has come" in step.message
    edited = PLAN | {"moves": PLAN["moves"][1:]}
    step = decide(view(phase, approve=ID, status={"plan": edited}), SEEN)
    assert isinstance(step, steps.Replan)
    assert "edited" in step.message


def test_moves_are_handed_over_once_and_what_has_begun_is_not_again() -> None:
    it = view("Moving", approve=ID)
    step = decide(it, SEEN)
    assert step == steps.HandOver(PLAN["moves"])
    # Another operator came to half of it: the rest, although the cluster has changed since.
    partly = moved(1, queued=1).apply([registered(7), BrokerConfirmed(7)])
    assert decide(it, sight(partly)) == steps.HandOver(PLAN["moves"][2:])
    given = view("Moving", approve=ID, status={"isHandedOver": True})
    step = decide(given, sight(moved(1, queued=1)))
    assert said(step) == "Moving"
    assert isinstance(step, steps.Tell)
    rest = len(PLAN["moves"]) - 2
    assert step.progress == {"done": 1, "moving": 1, "notMoved": rest, "changedSince": 0}


def test_it_ends_once_nothing_moves_any_more() -> None:
    it = view("Moving", approve=ID, status={"isHandedOver": True})
    all_of_them = len(PLAN["moves"])
    step = decide(it, sight(moved(all_of_them)))
    assert isinstance(step, steps.End)
    assert (step.phase, step.elections) == ("Complete", [])
    step = decide(it, sight(moved(all_of_them - 1)))
    assert isinstance(step, steps.End)
    assert (step.phase, step.reason) == ("Failed", "NotMoved")
    refusal = {"topic": "t", "partition": 0, "reason": "X", "message": "broker 2 is down"}
    refused = view("Moving", approve=ID, status={"isHandedOver": True, "refusals": [refusal]})
    step = decide(refused, sight(moved(0)))
    assert isinstance(step, steps.End)
    assert "t-0: broker 2 is down" in step.message
    step = decide(it, sight(STATE.apply([TopicRemoved(T)])))
    assert isinstance(step, steps.End)
    assert (step.phase, step.progress and step.progress["changedSince"]) == (
        "Complete",
        all_of_them,
    )


def test_leaders_that_the_plan_wants_are_elected_at_the_end() -> None:
    done = moved(len(PLAN["moves"]))
    move = PLAN["moves"][0]
    record = done.image.partition("t", move["partition"])
    assert record is not None
    other = PartitionChanged(T, move["partition"], record.changed(leader=record.replicas[1]))
    it = view("Moving", approve=ID, status={"isHandedOver": True})
    step = decide(it, sight(done.apply([other])))
    assert isinstance(step, steps.End)
    assert step.elections == [move]


def test_a_pause_calls_back_what_waits_and_goes_on_with_the_rest() -> None:
    step = decide(view("Moving", approve=ID, paused=True), SEEN)
    assert isinstance(step, steps.Enter)
    assert step.phase == "Paused"
    it = view("Paused", approve=ID, paused=True)
    both = sight(moved(0, queued=2, running=1))
    assert decide(it, both) == steps.CallBack(PLAN["moves"][:2])
    assert said(decide(it, sight(moved(0, running=1)))) == "Paused"
    assert said(decide(it, sight(moved(1)))) == "Paused"
    ended = decide(it, sight(moved(len(PLAN["moves"]))))
    assert isinstance(ended, steps.End)
    assert ended.phase == "Complete"
    step = decide(view("Paused", approve=ID), sight(moved(1)))
    assert isinstance(step, steps.Enter)
    assert step.phase == "Moving"


@pytest.mark.parametrize("phase", ["Moving", "Paused"])
def test_a_cancellation_calls_everything_back(phase: str) -> None:
    step = decide(view(phase, approve=ID, cancel=True, paused=phase == "Paused"), SEEN)
    assert isinstance(step, steps.Enter)
    assert step.phase == "Cancelling"
    it = view("Cancelling", approve=ID, cancel=True)
    both = sight(moved(1, queued=1, running=1))
    assert decide(it, both) == steps.CallBack(PLAN["moves"][1:3])
    step = decide(it, sight(moved(1)))
    assert isinstance(step, steps.End)
    assert (step.phase, step.progress and step.progress["done"]) == ("Cancelled", 1)


@pytest.mark.parametrize("phase", [None, "ProposalReady"])
def test_what_has_not_begun_is_cancelled_at_once(phase: str | None) -> None:
    step = decide(view(phase, cancel=True), SEEN)
    assert isinstance(step, steps.End)
    assert step.phase == "Cancelled"


@pytest.mark.parametrize("phase", ["Moving", "Paused", "Cancelling"])
def test_a_deletion_waits_until_nothing_of_the_plan_moves(phase: str) -> None:
    it = view(phase, approve=ID, is_deleting=True, has_finalizer=True)
    assert said(decide(it, UNSEEN)) == "ControllerUnavailable"
    assert decide(it, sight(moved(0, running=2))) == steps.CallBack(PLAN["moves"][:2])
    assert decide(it, sight(moved(1))) == steps.DropFinalizer()
    assert decide(it, sight(None, presence="Absent")) == steps.DropFinalizer()


@pytest.mark.parametrize("phase", [None, "ProposalReady", "Complete", "Cancelled", "Failed"])
def test_a_deletion_waits_for_nothing_else(phase: str | None) -> None:
    it = view(phase, is_deleting=True, has_finalizer=True)
    assert not it.needs_sight
    assert decide(it, UNSEEN) == steps.DropFinalizer()
    assert decide(view(phase, is_deleting=True), UNSEEN) == steps.Idle()


def test_it_fails_with_its_cluster_and_waits_for_its_controller() -> None:
    it = view("Moving", approve=ID)
    step = decide(it, sight(None, presence="Absent"))
    assert isinstance(step, steps.End)
    assert (step.phase, step.reason) == ("Failed", "ClusterNotFound")
    assert said(decide(it, UNSEEN)) == "ControllerUnavailable"


def draft(status: dict[str, Any]) -> RebalanceStatusDraft:
    return RebalanceStatusDraft({"metadata": {"generation": 3}, "status": status})


def test_a_status_that_says_nothing_new_is_not_written() -> None:
    first = draft({})
    first.tell("ControllerUnavailable", "it does not answer", NOW)
    written = first.as_patch()
    assert written["phase"] == "Pending"
    again = draft(written)
    again.tell("ControllerUnavailable", "it does not answer", datetime.now(UTC))
    assert again.as_patch() == {}


def test_a_new_plan_takes_the_place_of_a_stale_one_and_says_why() -> None:
    old = draft({"phase": "ProposalReady", "plan": PLAN, "isHandedOver": False})
    old.replan("plan x is stale", NOW)
    patch = old.as_patch()
    assert (patch["phase"], patch["plan"], patch["isHandedOver"]) == ("Pending", None, None)
    left = {name: value for name, value in patch.items() if value is not None}
    new = draft(left)
    new.propose(PLAN, NOW)
    conditions = {each["type"]: each for each in new.as_patch()["conditions"]}
    assert conditions["ProposalReady"]["status"] == "True"
    assert conditions["Complete"]["reason"] == steps.STALE
    assert ID in conditions["Complete"]["message"]
    assert "plan x is stale" in conditions["Complete"]["message"]


def test_a_plan_of_the_same_facts_is_the_same_and_one_too_large_is_cut() -> None:
    assert make_plan(STATE, UNKNOWN, datetime.now(UTC)) | {"madeAt": ""} == PLAN | {"madeAt": ""}
    part = make_plan(STATE, UNKNOWN, NOW, PlanLimits(moves=1))
    assert len(part["moves"]) == 1
    assert part["leftOut"] == len(PLAN["moves"]) - 1
    assert part["id"] != ID
    assert any("leaves them out" in note for note in part["notes"])
    (share,) = [each for each in part["shares"] if each["broker"] == 2]
    assert share["replicasAfter"] == share["arriving"] <= 1
    assert sort_moves(part, STATE)


def test_a_large_plan_fits_into_an_object() -> None:
    longest = max(len(json.dumps(move)) for move in PLAN["moves"])
    others = TOPIC_NAME_LENGTH_MAX + len("1234567890, " * 4)
    assert (longest + others) * MOVES_MAX < LINES_LENGTH_MAX
