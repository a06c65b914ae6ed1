"""Changes that people make outside of Fairlead break no promise; mutants of the rules are found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from simulator.mutation import Mutants
from simulator.world import Options, run_seed

from fairlead_controller.decisions import registration
from fairlead_controller.sessions import server as session_server
from fairlead_controller.stores import committer

if TYPE_CHECKING:
    from fairlead_controller.decisions.events import RegisterBroker

    Patch = pytest.MonkeyPatch

MUTANTS = Mutants()
mutant = MUTANTS.register


@mutant("touch_table", "store_doubtful", "kill", fault_pause_s=0.3)
def takes_a_label_for_its_own_write(patch: Patch) -> None:
    patch.setattr(committer, "_holds", lambda *_: True)


@mutant("remove_folder", "kill", "cut_off", fault_pause_s=0.5)
def counts_a_replica_whose_folder_is_gone(patch: Patch) -> None:
    patch.setattr(session_server, "read_replicas", lambda _: ())


@mutant("replace_directory", "kill", "cut_off", fault_pause_s=0.5, has_several_disks=True)
def counts_as_clean_though_a_directory_is_another_one(patch: Patch) -> None:
    def only_what_is_named(known: object, event: RegisterBroker, *, is_clean: bool) -> object:
        return lambda topic, index: not is_clean or (topic.name, index) in event.unclean

    patch.setattr(registration, "may_lack_records", only_what_is_named)


def test_another_disk_among_several_costs_only_what_was_on_it() -> None:
    done = 0
    for seed in range(4):
        only = ("replace_directory", "kill", "stop_cleanly", "lose_power", "pause")
        options = Options(has_several_disks=True, only=only, is_violent=False)
        done += run_seed(seed, options).faults.get("directory replaced", 0)
    assert done > 4


def test_all_that_meddlers_do_is_survived() -> None:
    done: dict[str, int] = {}
    for seed in range(3):
        only = ("touch_table", "remove_folder", "allow_unclean", "kill")
        outcome = run_seed(seed, Options(has_meddlers=True, only=only, is_violent=False))
        for name, count in outcome.faults.items():
            done[name] = done.get(name, 0) + count
    assert min(done[name] for name in ("touched", "folder removed", "unclean")) > 2


@pytest.mark.parametrize("name", MUTANTS.all)
def test_a_broken_rule_is_caught(name: str) -> None:
    assert MUTANTS.first_seed_that_catches(name) is not None


@pytest.mark.parametrize("name", MUTANTS.with_settings)
def test_what_brings_a_mutant_out_breaks_no_rule_itself(name: str) -> None:
    for seed in range(3):
        MUTANTS.all[name].play(seed)
