"""Which broker may restart next."""

from dataclasses import replace
from typing import Any

import pytest

from fairlead_operator.clusters.rolling import (
    DRAIN_S_MAX,
    OUTSIDE_WINDOW,
    BrokerState,
    DeletePod,
    Drain,
    NothingToRoll,
    RollObserved,
    Undrain,
    Wait,
    decide_roll_action,
)


def broker(number: int, **changes: Any) -> BrokerState:
    """A broker that serves and runs with the present settings."""
    state = BrokerState(
        broker_id=number,
        pod=f"demo-main-{number}",
        pod_uid=f"uid-{number}",
        is_outdated=False,
        is_ready=True,
        is_live=True,
        leaders=4,
    )
    return replace(state, **changes)


def observed(*brokers: BrokerState, **changes: Any) -> RollObserved:
    return replace(RollObserved(brokers=brokers, under_replicated=0, offline=0), **changes)


OLD = {"is_outdated": True}


def test_converged_input_gives_nothing() -> None:
    assert decide_roll_action(observed(broker(0), broker(1))) == NothingToRoll()


def test_leaders_move_before_a_pod_is_deleted() -> None:
    assert decide_roll_action(observed(broker(0, **OLD), broker(1))) == Drain(0)
    draining = broker(0, **OLD, draining_s=1.0)
    assert isinstance(decide_roll_action(observed(draining, broker(1))), Wait)
    drained = replace(draining, leaders=0)
    action = decide_roll_action(observed(drained, broker(1)))
    assert isinstance(action, DeletePod)
    assert (action.pod, action.pod_uid) == ("demo-main-0", "uid-0")


def test_a_broker_of_no_known_pool_that_is_away_holds_up_those_that_serve() -> None:
    away = {"others_away": ["demo-old-0"]}
    drained = broker(0, **OLD, draining_s=1.0, leaders=0)
    action = decide_roll_action(observed(drained, broker(1), **away))
    assert isinstance(action, Wait)
    assert "demo-old-0" in action.message
    stuck = broker(2, **OLD, is_ready=False, is_live=False)
    assert isinstance(decide_roll_action(observed(drained, stuck, **away)), DeletePod)
    assert decide_roll_action(observed(broker(0), **away)) == NothingToRoll()


def test_leaders_without_another_replica_do_not_hold_up_for_ever() -> None:
    stuck = broker(0, **OLD, draining_s=DRAIN_S_MAX)
    assert isinstance(decide_roll_action(observed(stuck)), DeletePod)


def test_the_broker_with_fewest_leaders_goes_first_and_a_drained_one_before_it() -> None:
    many, few = broker(0, **OLD, leaders=9), broker(1, **OLD, leaders=2)
    assert decide_roll_action(observed(many, few)) == Drain(1)
    drained = replace(many, draining_s=1.0, leaders=0)
    action = decide_roll_action(observed(drained, few))
    assert isinstance(action, DeletePod)
    assert action.broker_id == 0


def test_leaders_come_back_to_a_broker_that_has_restarted() -> None:
    assert decide_roll_action(observed(broker(0, draining_s=9.0), broker(1, **OLD))) == Undrain(0)


@pytest.mark.parametrize(
    ("situation", "reason"),
    [
        (observed(broker(0, **OLD), broker(1), under_replicated=1), "PartitionsNotInSync"),
        (observed(broker(0, **OLD), broker(1), offline=1), "PartitionsNotInSync"),
        (observed(broker(0, **OLD), broker(1), under_replicated=None), "ControllerNotReachable"),
        (observed(broker(0, **OLD), broker(1), offline=None), "ControllerNotReachable"),
        (observed(broker(0, **OLD), broker(1, is_terminating=True)), "BrokerStopping"),
        (observed(broker(0, **OLD), broker(1, is_ready=False)), "BrokerNotReady"),
        (observed(broker(0, **OLD), broker(1, is_live=False)), "BrokerNotReady"),
        (observed(broker(0, **OLD), broker(1, pod_uid=None, is_ready=False)), "BrokerNotReady"),
        (observed(broker(0, **OLD), broker(1), is_settled=False), "TemplateNotSeen"),
    ],
)
def test_whatever_is_wrong_or_unknown_makes_it_wait(situation: RollObserved, reason: str) -> None:
    action = decide_roll_action(situation)
    assert isinstance(action, Wait)
    assert action.reason == reason


@pytest.mark.parametrize("recovering", [True, None])
def test_a_broker_that_recovers_or_cannot_be_asked_is_never_restarted(
    recovering: bool | None,
) -> None:
    busy = broker(0, **OLD, is_ready=False, is_live=False, is_recovering=recovering)
    action = decide_roll_action(observed(busy, broker(1)))
    assert isinstance(action, Wait)
    assert action.reason == "BrokerNotReady"


def test_a_broker_that_serves_nothing_gets_its_new_settings_at_once() -> None:
    stuck = broker(1, **OLD, is_ready=False, is_live=False, is_recovering=False)
    action = decide_roll_action(observed(broker(0, **OLD), stuck, under_replicated=3))
    assert isinstance(action, DeletePod)
    assert action.broker_id == 1


def test_a_fenced_broker_whose_pod_is_ready_is_left_alone() -> None:
    fenced = broker(0, **OLD, is_live=False)
    assert isinstance(decide_roll_action(observed(fenced, broker(1))), Wait)


def test_a_broker_that_goes_anyway_is_not_restarted_while_it_serves() -> None:
    leaving = broker(2, **OLD, is_leaving=True)
    assert decide_roll_action(observed(broker(0), leaving)) == NothingToRoll()
    assert decide_roll_action(observed(broker(0, **OLD), leaving)) == Drain(0)
    stuck = replace(leaving, is_ready=False, is_live=False)
    assert isinstance(decide_roll_action(observed(broker(0), stuck)), DeletePod)
    begun = replace(leaving, draining_s=1.0, leaders=0)
    assert isinstance(decide_roll_action(observed(broker(0), begun)), DeletePod)


HELD = {"hold": "the next one begins at noon"}


def test_brokers_that_serve_wait_for_a_window() -> None:
    waits = Wait(OUTSIDE_WINDOW, "the next one begins at noon")
    assert decide_roll_action(observed(broker(0, **OLD), broker(1), **HELD)) == waits
    assert decide_roll_action(observed(broker(0), broker(1), **HELD)) == NothingToRoll()


def test_a_broker_that_was_about_to_restart_when_the_window_ended_gets_its_leaders_back() -> None:
    draining = broker(0, **OLD, draining_s=3.0, leaders=0)
    action = decide_roll_action(observed(draining, broker(1), **HELD))
    assert action == Undrain(0, is_put_off=True)
    restarted = broker(0, draining_s=3.0)
    assert decide_roll_action(observed(restarted, broker(1, **OLD), **HELD)) == Undrain(0)


def test_a_broker_that_does_not_run_waits_for_no_window() -> None:
    stuck = broker(1, **OLD, is_ready=False, is_live=False, is_recovering=False)
    action = decide_roll_action(observed(broker(0, **OLD), stuck, **HELD))
    assert isinstance(action, DeletePod)
    assert action.broker_id == 1


def test_a_fenced_broker_is_left_as_it_is_and_others_wait_for_it() -> None:
    fenced = {"is_fenced": True, "is_ready": False, "is_live": False, "is_recovering": False}
    assert decide_roll_action(observed(broker(0), broker(1, **OLD, **fenced))) == NothingToRoll()
    action = decide_roll_action(observed(broker(0, **OLD), broker(1, **OLD, **fenced)))
    assert action == Wait("BrokerNotReady", "broker 1 is fenced by order")
