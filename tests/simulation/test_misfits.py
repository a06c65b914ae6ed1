"""A mutant that no longer fits the code is an error, and never counts as detected."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from simulator.mutation import Mutants
from simulator.world import SimulationFailed

from fairlead_broker.tasks.isr_proposer import IsrProposer
from fairlead_controller.stores import committer

if TYPE_CHECKING:
    Patch = pytest.MonkeyPatch

MISFITS = Mutants()


@MISFITS.register("kill", "pause")
def calls_a_broker_with_too_few_arguments(patch: Patch) -> None:
    patch.setattr(IsrProposer, "_ask", lambda self: None)


@MISFITS.register("touch_table", "store_doubtful", "kill", fault_pause_s=0.3)
def calls_a_controller_with_too_few_arguments(patch: Patch) -> None:
    """The error comes out of a group of tasks."""
    patch.setattr(committer, "_holds", lambda: True)


@pytest.mark.parametrize("name", MISFITS.all)
def test_a_misfit_is_an_error(name: str) -> None:
    with pytest.raises(SimulationFailed, match="TypeError"):
        MISFITS.first_seed_that_catches(name)
