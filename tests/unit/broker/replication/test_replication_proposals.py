"""Proposals on their way to the controller, and the guard of a leader that woke."""

from fairlead_broker.replication.isr import IsrProposal
from fairlead_broker.replication.isr_proposals import (
    RETRY_DELAY_MIN_MS,
    IsrProposals,
    SentProposal,
)
from fairlead_broker.replication.wake_guard import PATIENCE_MS, WakeGuard


def proposal(partition_epoch: int = 1) -> IsrProposal:
    return IsrProposal(4, partition_epoch, ((1, 10),))


def test_what_waits_goes_in_one_call() -> None:
    proposals: IsrProposals[str] = IsrProposals(batch_max=10)
    proposals.add("a", proposal())
    proposals.add("b", proposal())
    assert [sent.partition for sent in proposals.take(0)] == ["a", "b"]
    assert len(proposals) == 0


def test_one_call_is_in_flight_at_a_time() -> None:
    proposals: IsrProposals[str] = IsrProposals(batch_max=10)
    proposals.add("a", proposal())
    proposals.take(0)
    proposals.add("b", proposal())
    assert proposals.take(0) == []
    proposals.settle([], 0)
    assert [sent.partition for sent in proposals.take(0)] == ["b"]


def test_a_call_is_bounded() -> None:
    proposals: IsrProposals[int] = IsrProposals(batch_max=2)
    for partition in range(3):
        proposals.add(partition, proposal())
    assert len(proposals.take(0)) == 2
    proposals.settle([], 0)
    assert len(proposals.take(0)) == 1


def test_a_newer_proposal_replaces_one_that_waits() -> None:
    proposals: IsrProposals[str] = IsrProposals(batch_max=10)
    proposals.add("a", proposal(1))
    proposals.add("a", proposal(2))
    assert proposals.take(0) == [SentProposal("a", proposal(2))]


def test_what_must_be_repeated_waits_a_little_longer_each_time() -> None:
    proposals: IsrProposals[str] = IsrProposals(batch_max=10)
    proposals.add("a", proposal())
    sent = proposals.take(0)
    proposals.settle(sent, 100)
    assert proposals.take(100) == []
    assert proposals.take(100 + RETRY_DELAY_MIN_MS) == sent
    proposals.settle(sent, 200)
    assert proposals.due_ms == 200 + 2 * RETRY_DELAY_MIN_MS


def test_a_newer_proposal_is_not_replaced_by_the_repetition() -> None:
    proposals: IsrProposals[str] = IsrProposals(batch_max=10)
    proposals.add("a", proposal(1))
    sent = proposals.take(0)
    proposals.add("a", proposal(2))
    proposals.settle(sent, 0)
    assert proposals.take(10_000) == [SentProposal("a", proposal(2))]


def guard() -> WakeGuard:
    return WakeGuard(gap_max_ms=1_500, monotonic_ms=0, wall_ms=0)


def test_a_process_that_runs_is_not_held_up() -> None:
    woken = guard()
    assert not woken.note_time(monotonic_ms=1_500, wall_ms=1_500)
    assert not woken.is_closed(1_500)


def test_a_stop_shorter_than_the_session_counts_from_the_heartbeat_before_it() -> None:
    woken = WakeGuard(gap_max_ms=1_500 - 250, monotonic_ms=0, wall_ms=0)
    assert not woken.note_time(monotonic_ms=1_250, wall_ms=1_250)
    assert woken.note_time(monotonic_ms=1_250 + 1_300, wall_ms=1_250 + 1_300)
    assert woken.is_closed(2_600)


def test_after_a_gap_acknowledgements_wait_for_the_answer_to_a_question_asked_since() -> None:
    woken = guard()
    assert woken.note_time(monotonic_ms=2_000, wall_ms=2_000)
    assert woken.is_closed(2_000)
    assert not woken.confirmed(0, 2_001)
    assert woken.confirmed(1, 2_001)
    assert not woken.is_closed(2_001)


def test_without_controller_they_wait_for_a_bounded_time() -> None:
    woken = guard()
    woken.note_time(monotonic_ms=2_000, wall_ms=2_000)
    assert woken.is_closed(1_999 + PATIENCE_MS)
    assert not woken.is_closed(2_000 + PATIENCE_MS)


def test_an_answer_from_before_a_second_gap_confirms_nothing() -> None:
    woken = guard()
    woken.note_time(monotonic_ms=2_000, wall_ms=2_000)
    woken.note_time(monotonic_ms=4_000, wall_ms=4_000)
    assert not woken.confirmed(1, 2_001)
    assert woken.is_closed(4_000)


def test_a_suspended_host_is_noticed_by_the_wall_clock() -> None:
    woken = guard()
    assert woken.note_time(monotonic_ms=10, wall_ms=60_000)
