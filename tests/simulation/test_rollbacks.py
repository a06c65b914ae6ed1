"""Tables that are restored from an old copy, and the rules that then prevent lost records."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from proofs import SIMULATED_MUTANTS
from simulator import rollback_stories as stories
from simulator.broker_process import BrokerProcess
from simulator.mutation import Mutants
from simulator.world import World, tell

from fairlead_controller import controller
from fairlead_controller.decisions import decide, leadership, registration
from fairlead_controller.decisions.tables import lines, new_beginning
from fairlead_controller.decisions.tables.history import MetadataHistory
from fairlead_controller.decisions.tables.stored_table import HighestSeen
from fairlead_controller.sessions import hearing
from fairlead_controller.stores import committer
from fairlead_controller.stores.metadata_store import TableTouchedError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Patch = pytest.MonkeyPatch

MUTANTS = Mutants()
mutant = MUTANTS.register


@pytest.mark.parametrize(
    "story",
    [
        stories.a_table_goes_back_under_a_controller,
        stories.a_table_went_back_while_no_controller_was_there,
        stories.a_table_of_an_earlier_reign_comes_back,
        stories.all_tables_go_back,
        stories.all_tables_go_back_and_all_brokers_restart,
        stories.the_table_of_the_cluster_goes_back,
        stories.ids_are_given_out_after_a_rollback_of_a_moment,
        stories.all_tables_go_back_and_only_disks_remember,
        stories.an_old_copy_is_confirmed,
        stories.a_copy_is_confirmed_and_who_missed_records_is_back_first,
        stories.a_copy_from_before_a_move_is_confirmed,
        stories.a_copy_from_before_a_confirmation_is_confirmed,
        stories.two_confirm_at_once,
        stories.the_table_of_the_cluster_comes_back_from_an_earlier_reign,
        stories.the_table_with_the_header_goes_back,
    ],
    ids=lambda story: story.__name__,
)
def test_a_rollback_costs_nothing(story: Callable[[World], Awaitable[None]]) -> None:
    for seed in range(3):
        tell(story, seed=seed)


@mutant(story=stories.a_table_went_back_while_no_controller_was_there)
def believes_a_table_more_than_brokers(patch: Patch) -> None:
    patch.setattr(hearing, "contradiction", lambda *_, **__: "")


@mutant(story=stories.all_tables_go_back_and_all_brokers_restart)
def believes_a_store_more_than_disks(patch: Patch) -> None:
    patch.setattr(hearing, "contradiction", lambda *_, **__: "")


@mutant(story=stories.the_table_with_the_header_goes_back)
def takes_any_part_of_a_topic_for_a_leftover(patch: Patch) -> None:
    from fairlead_controller.decisions.tables.loading import _Partitions

    patch.setattr(_Partitions, "_check_unfinished", lambda *_: None)


@mutant(story=stories.the_table_of_the_cluster_comes_back_from_an_earlier_reign)
def looks_at_no_epochs_of_tables(patch: Patch) -> None:
    patch.setattr(controller, "rolled_back_tables", lambda _: "")


@mutant(story=stories.ids_are_given_out_after_a_rollback_of_a_moment)
def goes_on_with_the_stored_producer_ids(patch: Patch) -> None:
    patch.setattr(decide, "PRODUCER_IDS_PER_REIGN", 0)


@mutant(story=stories.the_table_of_the_cluster_goes_back)
def reuses_producer_ids(patch: Patch) -> None:
    """Ids have neither a range for each reign nor a jump at a confirmation."""
    patch.setattr(decide, "PRODUCER_IDS_PER_REIGN", 0)
    patch.setattr(new_beginning, "PRODUCER_ID_JUMP", 0)


@mutant(story=stories.all_tables_go_back_and_only_disks_remember)
def counts_no_writes(patch: Patch) -> None:
    patch.setattr(MetadataHistory, "problem", lambda *_: "")


@mutant(story=stories.all_tables_go_back_and_only_disks_remember)
def forgets_with_the_process(patch: Patch) -> None:
    patch.setattr(BrokerProcess, "_note_metadata", lambda _: None)


@mutant(story=stories.an_old_copy_is_confirmed)
def believes_the_restored_epoch(patch: Patch) -> None:
    """It takes the leader epochs of the copy for the last ones."""
    jump = new_beginning.jumped_partition

    def believe(partition: Any, seen: Any) -> Any:
        return replace(jump(partition, seen), leader_epoch=partition.leader_epoch)

    patch.setattr(new_beginning, "jumped_partition", believe)


@mutant(story=stories.a_copy_is_confirmed_and_who_missed_records_is_back_first)
def believes_the_restored_isr(patch: Patch) -> None:
    jump = new_beginning.jumped_partition

    def believe(partition: Any, seen: Any) -> Any:
        jumped = jump(partition, seen)
        return replace(jumped, isr=partition.isr, elr=partition.elr, last_known_elr=())

    patch.setattr(new_beginning, "jumped_partition", believe)
    patch.setattr(new_beginning, "forgotten_start", lambda broker: replace(broker, fenced=True))


@mutant(story=stories.a_copy_from_before_a_move_is_confirmed)
def strands_the_new_holder(patch: Patch) -> None:
    patch.setattr(registration, "holders_found", lambda *_: [])


@mutant(story=stories.a_copy_from_before_a_move_is_confirmed)
def elects_before_all_have_said_what_they_hold(patch: Patch) -> None:
    patch.setattr(leadership, "awaits_testimony", lambda _: False)


@mutant(story=stories.a_copy_from_before_a_confirmation_is_confirmed)
def jumps_no_further_than_the_last_time(patch: Patch) -> None:
    patch.setattr(lines, "build_seen", lambda _: HighestSeen())


@mutant(story=stories.a_table_goes_back_under_a_controller)
def takes_an_older_table_for_a_touched_one(patch: Patch) -> None:
    patch.setattr(committer, "StoreRolledBackError", TableTouchedError)


@SIMULATED_MUTANTS.mark
@pytest.mark.parametrize("name", MUTANTS.all)
def test_a_broken_rule_is_caught(name: str) -> None:
    assert MUTANTS.first_seed_that_catches(name) is not None
