"""When a PodDisruptionBudget lets a broker go."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from fairlead_operator.clusters.disruptions import (
    CALM_S,
    DisruptionSight,
    decide_disruptions,
    read_budget,
)
from fairlead_operator.controller_client import ControllerStandbyError, TopicChanges
from fairlead_operator.topics.cluster_topics import ClusterTopics

WHOLE = DisruptionSight(under_replicated=0, offline=0, brokers_away=0)
NOT_WHOLE = {
    "under-replicated": replace(WHOLE, under_replicated=1),
    "offline": replace(WHOLE, offline=1),
    "a broker is away": replace(WHOLE, brokers_away=1),
    "nobody can be asked": replace(WHOLE, under_replicated=None, offline=None),
}


@pytest.mark.parametrize("sight", NOT_WHOLE.values(), ids=NOT_WHOLE)
@pytest.mark.parametrize("present", [None, 0, 1])
def test_no_broker_may_go_while_anything_is_missing(
    sight: DisruptionSight, present: int | None
) -> None:
    assert decide_disruptions(sight, calm_s=0.0, present=present) == 0


def test_the_next_one_may_go_after_a_while_of_calm() -> None:
    assert decide_disruptions(WHOLE, calm_s=CALM_S - 0.1, present=0) == 0
    assert decide_disruptions(WHOLE, calm_s=CALM_S, present=0) == 1


@pytest.mark.parametrize("present", [None, 1])
def test_a_new_operator_closes_nothing_that_was_open(present: int | None) -> None:
    assert decide_disruptions(WHOLE, calm_s=0.0, present=present) == 1


def test_a_budget_that_somebody_wrote_otherwise_is_none_of_ours() -> None:
    assert read_budget({"spec": {"maxUnavailable": 0}}) == 0
    assert read_budget({"spec": {"maxUnavailable": "50%"}}) is None
    assert read_budget({"spec": {"minAvailable": 1}}) is None
    assert read_budget(None) is None


class ToldController:
    """Says one answer after another, then that it is active no more."""

    def __init__(self, *answers: TopicChanges) -> None:
        self._answers = list(answers)

    async def topics(self, *_: str, **__: Any) -> TopicChanges:
        if not self._answers:
            raise ControllerStandbyError("over")
        return self._answers.pop(0)

    async def apply_topics(self, *_: Any) -> dict[str, Any]:
        return {}


def told(*, is_full: bool = False, removed: tuple[str, ...] = (), **lacking: int) -> TopicChanges:
    topics = [{"name": name, "underReplicated": count} for name, count in lacking.items()]
    return TopicChanges("7.1", is_full, topics, removed)


def changes_of_health(*answers: TopicChanges) -> int:
    heard: list[tuple[str, str]] = []
    view = ClusterTopics(
        ("ns", "demo"),
        ToldController(*answers),
        complete_request=lambda _: {},
        on_start=lambda _: None,
        on_change=lambda _cluster, _names: None,
        on_health=heard.append,
    )
    with pytest.raises(ControllerStandbyError):
        asyncio.run(view.run())
    assert set(heard) <= {("ns", "demo")}
    return len(heard)


def test_it_is_heard_at_once_that_a_replica_is_missing_and_that_none_is_any_more() -> None:
    assert changes_of_health(told(is_full=True, a=0, b=0)) == 0
    assert changes_of_health(told(is_full=True, a=0, b=2)) == 1
    assert changes_of_health(told(is_full=True, a=0), told(a=1), told(a=2, b=1)) == 1
    assert changes_of_health(told(is_full=True, a=1, b=1), told(a=0), told(b=0)) == 2
    assert changes_of_health(told(is_full=True, a=1), told(removed=("a",))) == 2
    assert changes_of_health(told(is_full=True, a=1), told(is_full=True, b=0)) == 2
