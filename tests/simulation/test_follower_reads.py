"""Whole runs in which consumers read from the follower in their rack during all other faults.

Consumers see only committed records, all of them, each once and in order: the observer checks this
for every consumer. Mutants of a follower's answers must be detected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from proofs import FOLLOWER_READ_SEEDS, OLD_SEEDS, SIMULATED_MUTANTS, seed_chunks
from simulator.mutation import Mutants
from simulator.world import Options, World

from fairlead_broker.handlers.records import fetch
from fairlead_broker.replication.partition import NO_REPLICA, Partition

if TYPE_CHECKING:
    Patch = pytest.MonkeyPatch

MUTANTS = Mutants()
mutant = MUTANTS.register


@pytest.mark.proof
@pytest.mark.parametrize(
    "seeds", seed_chunks(FOLLOWER_READ_SEEDS), ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}"
)
def test_no_promise_is_broken_while_followers_are_read(seeds: list[int]) -> None:
    for seed in seeds:
        transactions = True if seed % 3 == 1 else None
        World(seed, Options(reads_followers=True, has_transactions=transactions)).run()


@OLD_SEEDS.mark
def test_a_seed_that_once_failed() -> None:
    """See 1795721320 of the ZooKeeper seeds."""
    World(1795721259, Options(reads_followers=True)).run()


@OLD_SEEDS.mark
def test_a_second_power_cut_after_retention_opens_no_transaction_again() -> None:
    """The only snapshot after the first recovery was older than the log's start."""
    World(1795950103, Options(reads_followers=True, has_transactions=True)).run()


def test_followers_are_read() -> None:
    sent = read = 0
    for seed in range(2):
        world = World(seed, Options(reads_followers=True, has_faults=False))
        world.run()
        sent += world.checker.sent_elsewhere
        read += world.checker.read_elsewhere
    assert (sent > 3, read > 40) == (True, True)


def _followed(partition: Partition) -> bool:
    return partition.leader is None


@mutant(reads_followers=True)
def reads_what_is_not_committed(patch: Patch) -> None:
    """A follower returns all its records to a consumer."""
    end_offset = Partition.end_offset_for_reader

    def end(self: Partition, *, isolation_level: int, replica_id: int = NO_REPLICA) -> int:
        if _followed(self) and replica_id < 0:
            return self.log_end_offset
        return end_offset(self, isolation_level=isolation_level, replica_id=replica_id)

    patch.setattr(Partition, "end_offset_for_reader", end)


@mutant(has_transactions=True, reads_followers=True)
def followers_know_no_stable_offset(patch: Patch) -> None:
    """A follower returns records of open transactions to a consumer with read_committed."""
    stable = Partition.last_stable_offset.fget  # type: ignore[attr-defined]

    def last_stable_offset(self: Partition) -> Any:
        return self.high_watermark if _followed(self) else stable(self)

    patch.setattr(Partition, "last_stable_offset", property(last_stable_offset))


@mutant(has_transactions=True, reads_followers=True)
def followers_name_no_aborted_transactions(patch: Patch) -> None:
    aborted = fetch._aborted

    def none_of_followers(partition: Partition, *arguments: Any) -> Any:
        return [] if _followed(partition) else aborted(partition, *arguments)

    patch.setattr(fetch, "_aborted", none_of_followers)


@pytest.mark.parametrize("name", MUTANTS.all)
def test_a_broken_rule_is_caught(name: str) -> None:
    assert MUTANTS.first_seed_that_catches(name) is not None


@SIMULATED_MUTANTS.mark
@pytest.mark.parametrize("name", MUTANTS.with_settings)
def test_what_brings_a_mutant_out_breaks_no_rule_itself(name: str) -> None:
    for seed in range(3):
        MUTANTS.all[name].play(seed)
