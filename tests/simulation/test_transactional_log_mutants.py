"""Mutants of leaders and followers with transactions, each of which the simulation must detect.

`test_transaction_mutants` does the same for coordinators.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from proofs import SIMULATED_MUTANTS
from simulator.mutation import Mutants

from fairlead_broker.log import follower_append
from fairlead_broker.log.index.transaction_index import TransactionIndex
from fairlead_broker.log.marker_append import replay_marker
from fairlead_broker.log.producers.producer_state import NO_OFFSET, ProducerState
from fairlead_broker.log.producers.unreplicated_transactions import UnreplicatedTransactions
from fairlead_broker.log.producers.verification import Verifications
from fairlead_broker.replication.partition import Partition
from fairlead_broker.tasks.transaction_verifier import TransactionVerifier
from fairlead_broker.transaction import marker_appends
from fairlead_broker.transaction.transaction_types import Effects
from fairlead_broker.transaction.transactional_id import TransactionalId
from fairlead_wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from simulator.mutation import Change

    Patch = pytest.MonkeyPatch

pytestmark = SIMULATED_MUTANTS.marks
MUTANTS = Mutants()


def mutant(*only: str, **settings: Any) -> Callable[[Change], Change]:
    return MUTANTS.register(*only, has_transactions=True, **settings)


@mutant()
def takes_the_stable_offset_from_the_log_end(patch: Patch) -> None:
    """A transaction ends with the marker in the leader's log, before followers have it."""

    def last_stable_offset(self: Partition) -> int:
        opened = self.log.producers.oldest_open
        first = self.log.log_end_offset if opened is None else opened.transaction_first_offset
        return max(min(first, self.high_watermark), self.log.log_start_offset)

    patch.setattr(Partition, "last_stable_offset", property(last_stable_offset))


@mutant()
def reads_beyond_what_is_stable(patch: Patch) -> None:
    end_offset = Partition.end_offset_for_reader

    def read_uncommitted(self: Partition, *, isolation_level: int, replica_id: int) -> int:
        return end_offset(self, isolation_level=0, replica_id=replica_id)

    patch.setattr(Partition, "end_offset_for_reader", read_uncommitted)


@mutant("hold_request")
def verifies_nothing_in_version_1(patch: Patch) -> None:
    verify = TransactionVerifier.verify

    def agree(self: TransactionVerifier, *asked: Any, answer: Any, **how: Any) -> None:
        if how["supports_epoch_bump"]:
            verify(self, *asked, answer=answer, **how)
        else:
            answer(dict.fromkeys(asked[-1], ErrorCode.NONE))

    patch.setattr(TransactionVerifier, "verify", agree)


@mutant("hold_verdict")
def leaves_the_guard_to_who_is_late(patch: Patch) -> None:
    patch.setattr(Verifications, "ended", lambda *_: None)


@mutant("depose_coordinator")
def takes_markers_of_any_epoch(patch: Patch) -> None:
    patch.setattr(ProducerState, "check_marker", lambda *_: None)


@mutant("depose_coordinator")
def takes_markers_of_any_coordinator(patch: Patch) -> None:
    check = ProducerState.check_marker

    def check_producer(self: ProducerState, marker: Any) -> None:
        check(self, marker._replace(coordinator_epoch=1 << 30))

    patch.setattr(ProducerState, "check_marker", check_producer)


@mutant("outlast_reign")
def takes_markers_for_earlier_reigns(patch: Patch) -> None:
    patch.setattr(marker_appends, "LATEST_KNOWN_EPOCH", 1 << 30)


@mutant("strand_leader")
def truncates_the_log_and_not_its_aborted_index(patch: Patch) -> None:
    patch.setattr(TransactionIndex, "truncate", lambda *_: None)


@mutant()
def writes_no_aborted_index_on_followers(patch: Patch) -> None:
    def note_marker(log: Any, header: Any, end: Any, now_ms: int) -> None:
        replay_marker(log.producers, header, end, now_ms)

    patch.setattr(follower_append, "note_marker", note_marker)


@mutant()
def forgets_producers_when_it_begins_to_lead(patch: Patch) -> None:
    begin = Partition._begin_reign

    def begin_anew(self: Partition, *reign: Any) -> None:
        self.log.producers.restore((), 0)
        begin(self, *reign)

    patch.setattr(Partition, "_begin_reign", begin_anew)


@mutant()
def forgets_open_transactions_when_it_starts_again(patch: Patch) -> None:
    restore = ProducerState.restore

    def restore_closed(self: ProducerState, entries: Any, now_ms: int) -> None:
        entries = list(entries)
        for entry in entries:
            entry.transaction_first_offset = NO_OFFSET
        restore(self, entries, now_ms)

    patch.setattr(ProducerState, "restore", restore_closed)


@mutant()
def forgets_ends_that_are_not_replicated(patch: Patch) -> None:
    patch.setattr(UnreplicatedTransactions, "add", lambda *_: None)


@mutant()
def writes_no_markers_again_after_a_move(patch: Patch) -> None:
    patch.setattr(TransactionalId, "resume", lambda self, **_: Effects())


@pytest.mark.parametrize("name", MUTANTS.all)
def test_a_broken_rule_of_transactional_logs_is_caught(name: str) -> None:
    assert MUTANTS.first_seed_that_catches(name) is not None
