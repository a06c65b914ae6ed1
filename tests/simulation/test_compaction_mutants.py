"""Mutants of the rules of compaction, each of which the simulation must detect."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from proofs import SIMULATED_MUTANTS
from simulator.mutation import Mutants

from fairlead_broker.log import truncation
from fairlead_broker.log.compaction import batch_cleaning, log_cleaning
from fairlead_broker.log.compaction.batch_cleaning import BatchCleaning
from fairlead_broker.log.compaction.cleaning_state import LogCleaner, log_facts
from fairlead_broker.log.compaction.offset_map import OffsetMap
from fairlead_broker.log.producer_loading import load_producers
from fairlead_broker.log.producers.producer_state import ProducerState
from fairlead_broker.log.recovery.log_recovery import LogRecovery
from fairlead_broker.tasks import cleaner
from fairlead_wire.record_batch import BATCH_HEADER_SIZE

if TYPE_CHECKING:
    from collections.abc import Callable

    from simulator.mutation import Change

    Patch = pytest.MonkeyPatch

pytestmark = SIMULATED_MUTANTS.marks
MUTANTS = Mutants()


def mutant(*only: str, **settings: Any) -> Callable[[Change], Change]:
    return MUTANTS.register(*only, is_compacting=True, **settings)


def change_orders(patch: Patch, **fields: Any) -> None:
    order = LogCleaner.order

    def changed(self: LogCleaner, now_ms: int, **options: Any) -> Any:
        return replace(order(self, now_ms, **options), **fields)

    patch.setattr(LogCleaner, "order", changed)


@mutant("cut_off", "cut_link", "pause", fault_pause_s=0.5)
def compacts_above_the_high_watermark(patch: Patch) -> None:
    def facts_of_all(log: Any, _: int, *, high_watermark: int) -> Any:
        return log_facts(log, log.log_end_offset, high_watermark=high_watermark)

    patch.setattr(cleaner, "log_facts", facts_of_all)


@mutant()
def compacts_what_is_too_young(patch: Patch) -> None:
    from fairlead_broker.log.compaction import cleaning_plan

    patch.setattr(cleaning_plan, "_is_too_young", lambda *_: False)


@mutant()
def drops_tombstones_at_once(patch: Patch) -> None:
    change_orders(patch, delete_retention_ms=0)


@mutant()
def never_drops_what_a_tombstone_deletes(patch: Patch) -> None:
    """The cleaner removes a tombstone, and keeps an older value of its key."""
    newest = OffsetMap.newest
    tombstones: set[bytes] = set()
    survivors = BatchCleaning._survivors

    def survive(self: BatchCleaning, header: Any, body: bytes) -> Any:
        for _, _, key, is_tombstone, _ in batch_cleaning.read_keyed_records(header, body):
            if is_tombstone and key is not None:
                tombstones.add(key)
        return survivors(self, header, body)

    patch.setattr(BatchCleaning, "_survivors", survive)
    patch.setattr(
        OffsetMap, "newest", lambda self, key: -1 if key in tombstones else newest(self, key)
    )


@mutant()
def keeps_the_older_of_two_values(patch: Patch) -> None:
    put = OffsetMap.put

    def put_first(self: OffsetMap, key: bytes, offset: int) -> bool:
        return self.newest(key) >= 0 or put(self, key, offset)

    def survive(self: BatchCleaning, header: Any, body: bytes) -> Any:
        kept = batch_cleaning._Survivors()
        for start, end, key, _, delta in batch_cleaning.read_keyed_records(header, body):
            first = self._newest.newest(key or b"")
            if not 0 <= first < header.base_offset + delta:
                kept.starts.append(start)
                kept.ends.append(end)
        return kept, False

    patch.setattr(OffsetMap, "put", put_first)
    patch.setattr(BatchCleaning, "_survivors", survive)


@mutant()
def gives_offsets_anew(patch: Patch) -> None:
    clean = BatchCleaning.clean

    def clean_densely(self: BatchCleaning, header: Any, batch: memoryview, *, is_last: bool) -> Any:
        cleaned = clean(self, header, batch, is_last=is_last)
        if cleaned is None or not 0 < cleaned.header.records_count < header.records_count:
            return cleaned
        removed = header.records_count - cleaned.header.records_count
        moved = cleaned.header._replace(
            base_offset=header.base_offset + removed,
            last_offset_delta=header.last_offset_delta - removed,
        )
        return batch_cleaning._sealed(moved, bytes(cleaned.data[BATCH_HEADER_SIZE:]))

    patch.setattr(BatchCleaning, "clean", clean_densely)


@mutant("lose_disk", "kill", fault_pause_s=0.6)
def forgets_the_last_batch_of_a_producer(patch: Patch) -> None:
    change_orders(patch, last_offsets=[])


@mutant("cut_off", "cut_link", "pause", fault_pause_s=0.6)
def forgets_producers_behind_a_truncation(patch: Patch) -> None:
    def load_without_a_clock(*arguments: Any, now_ms: int, **options: Any) -> None:
        load_producers(*arguments, now_ms=0, **options)

    patch.setattr(truncation, "load_producers", load_without_a_clock)
    # Else only producers all of whose batches are cut off are read from the log.
    patch.setattr(ProducerState, "maybe_cut_to", lambda *_: False)


@mutant("lose_power", fault_pause_s=0.4)
def replaces_segments_by_what_is_not_durable(patch: Patch) -> None:
    def finish(self: Any) -> None:
        if self._pending:
            self._write()

    patch.setattr(log_cleaning._Output, "finish", finish)


@mutant("lose_power", fault_pause_s=0.4)
def takes_what_a_power_cut_took_for_compacted(patch: Patch) -> None:
    def is_compacted_away(self: LogRecovery, base: int) -> bool:
        return self._order.has_holes and base >= self._end_offset

    patch.setattr(LogRecovery, "_is_compacted_away", is_compacted_away)


@pytest.mark.parametrize("name", MUTANTS.all)
def test_a_broken_rule_is_caught(name: str) -> None:
    assert MUTANTS.first_seed_that_catches(name) is not None


@pytest.mark.parametrize("name", MUTANTS.with_settings)
def test_what_brings_a_mutant_out_breaks_no_rule_itself(name: str) -> None:
    for seed in range(3):
        MUTANTS.all[name].play(seed)
