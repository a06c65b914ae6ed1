"""Groups of KIP-848 under seeded faults, and mutants that the same runs must detect."""

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from consumer_group_world import World
from proofs import GROUP_SEEDS, SIMULATED_MUTANTS

from fairlead_broker.group.consumer.consumer_group import ConsumerGroup
from fairlead_broker.group.consumer.consumer_members import ConsumerMembers
from fairlead_broker.group.consumer.member_timers import MemberTimers, TimerKind
from fairlead_broker.group.consumer.reconciliation import Reconciliation
from fairlead_broker.group.consumer.speculative_state import SpeculativeState
from fairlead_broker.group.records.consumer_records import CurrentAssignment, RecordType
from fairlead_broker.group.records.consumer_state import ConsumerGroupState

FIRST_SEED = int(os.environ.get("FAIRLEAD_FIRST_SEED", "0"))
SEEDS_A_MUTANT = 40

Patch = pytest.MonkeyPatch
CONSUMER_MUTANTS: dict[str, Callable[[Patch], None]] = {}


def mutant(function: Callable[[Patch], None]) -> Callable[[Patch], None]:
    CONSUMER_MUTANTS[function.__name__] = function
    return function


@pytest.mark.proof
@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + GROUP_SEEDS.chosen()))
def test_groups_keep_their_promises(seed: int) -> None:
    World(seed).run()


@mutant
def takes_partitions_for_given_up_that_nobody_says_so_of(patch: Patch) -> None:
    patch.setattr(Reconciliation, "_owns_any", lambda *_: False)


@mutant
def gives_away_what_another_has(patch: Patch) -> None:
    result = Reconciliation.result

    def grabbing(self: Reconciliation) -> CurrentAssignment:
        object.__setattr__(self, "holders", {})
        return result(self)

    patch.setattr(Reconciliation, "result", grabbing)


@mutant
def forgets_who_has_yet_to_give_up(patch: Patch) -> None:
    """KAFKA-16147."""
    set_current = ConsumerGroupState._set_current

    def forgetful(self: ConsumerGroupState, member_id: str, current: Any) -> None:
        set_current(self, member_id, current)
        for partition in () if current is None else current.pending_revocation:
            self.holders.pop(partition, None)

    patch.setattr(ConsumerGroupState, "_set_current", forgetful)
    patch.setattr(
        "fairlead_broker.group.consumer.speculative_state.require_consumer_record", lambda *_: None
    )


@mutant
def answers_before_it_is_committed(patch: Patch) -> None:
    written = ConsumerGroup.written

    def hopeful(self: ConsumerGroup, write: Any, error: Any, **times: int) -> Any:
        effects = written(self, write, error, **times)
        # A client that got an early answer of success is not told of the failure.
        effects.replies = [
            (waiter, hopeful.promised.get(waiter, result))  # type: ignore[attr-defined]
            for waiter, result in effects.replies
        ]
        return effects

    hopeful.promised = {}  # type: ignore[attr-defined]
    close = SpeculativeState.close

    def promising(self: SpeculativeState, replies: Any, **options: Any) -> Any:
        hopeful.promised.update(replies)  # type: ignore[attr-defined]
        return close(self, replies, **options)

    patch.setattr(SpeculativeState, "close", promising)
    patch.setattr(ConsumerGroup, "written", hopeful)


@mutant
def keeps_what_could_not_be_written(patch: Patch) -> None:
    patch.setattr(SpeculativeState, "_fall_back", lambda _: None)


@mutant
def fences_without_a_new_epoch(patch: Patch) -> None:
    remove, refresh = ConsumerMembers.remove, ConsumerMembers.refresh_epoch

    def quiet(self: ConsumerMembers, member_ids: Any) -> None:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(ConsumerMembers, "refresh_epoch", lambda *_, **__: None)
            remove(self, member_ids)

    assert refresh is not None
    patch.setattr(ConsumerMembers, "remove", quiet)


@mutant
def leaves_the_partitions_of_whom_it_fences(patch: Patch) -> None:
    tombstones_of = ConsumerGroupState.tombstones_of

    def some(self: ConsumerGroupState, member_id: str) -> Any:
        for key in tombstones_of(self, member_id):
            if key.type is not RecordType.CURRENT_ASSIGNMENT:
                yield key

    patch.setattr(ConsumerGroupState, "tombstones_of", some)


@mutant
def fences_nobody(patch: Patch) -> None:
    """Timers run out and are forgotten: a mutant that kept them would only stop the clock."""
    due = MemberTimers.due

    def forget(self: MemberTimers, now_ms: int) -> Iterator[tuple[TimerKind, str, int | None]]:
        list(due(self, now_ms))
        return iter(())

    patch.setattr(MemberTimers, "due", forget)


@mutant
def sees_no_new_partitions(patch: Patch) -> None:
    patch.setattr(
        "fairlead_broker.group.consumer.consumer_members.metadata_hash", lambda names, image: 1
    )


@mutant
def forgets_members_with_another_coordinator(patch: Patch) -> None:
    patch.setattr(ConsumerMembers, "begin_sessions", lambda *_: None)


@SIMULATED_MUTANTS.mark
@pytest.mark.parametrize("name", CONSUMER_MUTANTS)
def test_mutants_are_caught(name: str, monkeypatch: Patch) -> None:
    CONSUMER_MUTANTS[name](monkeypatch)
    for seed in range(SEEDS_A_MUTANT):
        try:
            World(seed).run()
        except AssertionError:
            return
    pytest.fail(f"{name} is caught by none of {SEEDS_A_MUTANT} seeds")
