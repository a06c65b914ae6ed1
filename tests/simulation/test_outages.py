"""A killed broker may resume its leadership: others see only a slow broker (R33).

Each mutant removes one of the conditions for that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from proofs import SIMULATED_MUTANTS
from simulator import outage_stories as stories
from simulator.mutation import Mutants
from simulator.world import Options, World, run_seed, tell

from fairlead_broker.replication import reign
from fairlead_broker.replication.isr import CommittedIsr
from fairlead_broker.replication.leader_state import LeaderState
from fairlead_broker.session import resumption

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Patch = pytest.MonkeyPatch

MUTANTS = Mutants()
mutant = MUTANTS.register


@pytest.mark.parametrize(
    "story",
    [
        stories.a_leader_is_killed_twice,
        stories.a_follower_is_killed,
        stories.a_fencing_in_doubt_lands_later,
        stories.only_the_leader_is_cut_off,
        stories.a_machine_loses_power,
        stories.a_disk_has_lost_pages,
        stories.a_replica_has_been_let_in_unheard,
        stories.followers_are_late,
    ],
    ids=lambda story: story.__name__,
)
def test_an_outage_costs_nothing(story: Callable[[World], Awaitable[None]]) -> None:
    for seed in range(2):
        tell(story, seed=seed)


def test_brokers_are_killed_while_nobody_can_be_elected() -> None:
    outages = 0
    for seed in range(5):
        outcome = run_seed(seed, Options(has_outages=True, only=("kill_in_outage", "kill")))
        outages += outcome.faults.get("outage", 0)
    assert outages > 5


def _without(patch: Patch, problem: str) -> None:
    """Skip one of the checks."""
    patch.setattr(resumption, problem, lambda *_: None)


@mutant(story=stories.a_machine_loses_power)
def goes_on_after_another_boot(patch: Patch) -> None:
    _without(patch, "_problem_of_disk")


@mutant(story=stories.a_disk_has_lost_pages)
def goes_on_though_its_logs_are_not_whole(patch: Patch) -> None:
    _without(patch, "_problem_of_disk")


@mutant(story=stories.a_replica_has_been_let_in_unheard)
def forgets_what_it_has_asked_for(patch: Patch) -> None:
    patch.setattr(reign, "first_isr_state", lambda record, _: CommittedIsr(frozenset(record.isr)))


@mutant(story=stories.followers_are_late)
def takes_the_checkpoint_for_all_that_is_committed(patch: Patch) -> None:
    """Only after a new leader epoch does it wait for followers."""
    patch.setattr(
        LeaderState,
        "is_high_watermark_valid",
        property(lambda self: self.high_watermark > 0),
    )


@mutant(story=stories.a_leader_is_killed_twice)
def waits_for_a_controller_in_any_case(patch: Patch) -> None:
    patch.setattr(resumption, "resumption_problem", lambda *_: "nobody may")


@pytest.mark.skipif(not SIMULATED_MUTANTS.is_done(), reason="a part of the proofs: make proofs")
@pytest.mark.proof
@pytest.mark.parametrize("name", MUTANTS.all)
def test_a_broken_rule_is_caught(name: str) -> None:
    assert MUTANTS.first_seed_that_catches(name) is not None
