"""Mutants: small changes of code that keeps a promise. The simulation must detect each one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pytest
from simulator.first_seeds import seeds_to_try
from simulator.world import Options, SimulationFailed, World, run_seed, tell

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

Change: TypeAlias = "Callable[[pytest.MonkeyPatch], None]"

SEEDS_MAX: Final = 250
"""The rarest are caught at about the hundredth seed, most at the first."""


@dataclass(frozen=True)
class Mutant:
    """A change, and the faults or the story that bring it out."""

    change: Change
    only: tuple[str, ...] = ()
    fault_pause_s: float = 1.1
    settle_s: float = 30.0
    is_compacting: bool = False
    has_transactions: bool = False
    has_zookeeper: bool = False
    has_moves: bool = False
    has_several_disks: bool = False
    reads_followers: bool = False
    story: Callable[[World], Awaitable[None]] | None = None

    def play(self, seed: int) -> None:
        if self.story is not None:
            tell(
                self.story,
                seed=seed,
                is_compacting=self.is_compacting,
                has_transactions=self.has_transactions,
                has_zookeeper=self.has_zookeeper,
            )
            return
        options = Options(
            only=self.only,
            fault_pause_s=self.fault_pause_s,
            settle_s=self.settle_s,
            is_violent=False,
            is_compacting=self.is_compacting,
            has_transactions=self.has_transactions,
            has_zookeeper=self.has_zookeeper,
            has_moves=self.has_moves or None,
            has_several_disks=self.has_several_disks or None,
            reads_followers=self.reads_followers,
        )
        run_seed(seed, options)


class Mutants:
    """The mutants of one test module, by name."""

    def __init__(self) -> None:
        self.all: dict[str, Mutant] = {}

    @property
    def with_settings(self) -> list[str]:
        """Return the mutants that need more than an ordinary seed."""
        return [name for name, each in self.all.items() if each.only or each.story]

    def register(self, *only: str, **settings: Any) -> Callable[[Change], Change]:
        """`only` names the possible faults; by default all."""

        def register(change: Change) -> Change:
            self.all[change.__name__] = Mutant(change, only, **settings)
            return change

        return register

    def first_seed_that_catches(self, name: str) -> int | None:
        mutant = self.all[name]
        with pytest.MonkeyPatch.context() as patch:
            mutant.change(patch)
            for seed in seeds_to_try(name, SEEDS_MAX):
                try:
                    mutant.play(seed)
                except SimulationFailed as failure:
                    if isinstance(_first_cause(failure), TypeError | AttributeError | NameError):
                        raise  # The mutant no longer fits the code.
                    return seed
        return None


def _first_cause(failure: BaseException) -> BaseException | None:
    """Return the cause of a failure; the controller's tasks run in groups, which wrap it."""
    cause = failure.__cause__
    while isinstance(cause, BaseExceptionGroup):
        cause = cause.exceptions[0]
    return cause
