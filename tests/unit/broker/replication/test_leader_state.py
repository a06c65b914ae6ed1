"""The high watermark follows the maximal ISR and never falls; who joins and who leaves, and how."""

from dataclasses import dataclass, field

import pytest

from fairlead_broker.replication.isr import IsrState
from fairlead_broker.replication.leader_state import (
    CommittedIsr,
    IsrProposal,
    LeaderState,
    PendingExpandIsr,
    PendingShrinkIsr,
    Refusal,
    ResumedIsr,
)
from fairlead_wire.errors import ErrorCode

MAX_LAG_MS = 1_000


@dataclass
class Brokers:
    """What the image says: every broker n is registered with epoch 10 n and in service."""

    epochs: dict[int, int] = field(default_factory=lambda: {1: 10, 2: 20, 3: 30})
    out_of_service: set[int] = field(default_factory=set)

    def broker_epoch(self, broker_id: int) -> int:
        return self.epochs.get(broker_id, -1)

    def may_join(self, broker_id: int) -> bool:
        return broker_id in self.epochs and broker_id not in self.out_of_service


def reign(
    *isr: int,
    replicas: tuple[int, ...] = (1, 2, 3),
    end: int = 10,
    high_watermark: int = 0,
    min_isr: int = 1,
    brokers: Brokers | None = None,
) -> LeaderState:
    """Broker 1 leads from offset `end` on, since time 0."""
    return LeaderState(
        broker_id=1,
        replicas=replicas,
        leader_epoch=4,
        epoch_start_offset=end,
        isr_state=CommittedIsr(frozenset(isr)),
        min_insync_replicas=min_isr,
        log_end_offset=end,
        high_watermark=high_watermark,
        partition_epoch=7,
        brokers=brokers or Brokers(),
    )


def fetch(state: LeaderState, replica: int, offset: int, *, at_ms: int = 0) -> bool:
    """A fetch of a follower's present start; whether the high watermark moved."""
    return state.record_fetch(replica, replica * 10, offset, at_ms).high_watermark_moved


def isr_state_of(state: LeaderState) -> IsrState:
    """As it is now: mypy takes an attribute for what it was found to be before."""
    return state.isr_state


def commit(state: LeaderState, *isr: int, min_isr: int = 1, at_ms: int = 0) -> bool:
    """The controller writes the next version of the record."""
    return state.isr_committed(
        frozenset(isr),
        partition_epoch=state.partition_epoch + 1,
        min_insync_replicas=min_isr,
        now_ms=at_ms,
    )


def test_alone_the_high_watermark_is_the_log_end() -> None:
    state = reign(1, replicas=(1,))
    assert state.maybe_advance_high_watermark()
    assert state.high_watermark == 10
    assert state.record_append(11)
    assert state.high_watermark == 11


def test_an_append_that_adds_nothing_moves_nothing() -> None:
    state = reign(1, replicas=(1,), high_watermark=10)
    assert not state.record_append(10)


def test_a_follower_that_has_not_fetched_yet_holds_the_high_watermark() -> None:
    state = reign(1, 2, high_watermark=3)
    assert not state.record_append(20)
    assert state.high_watermark == 3


def test_the_slowest_member_decides() -> None:
    """R6."""
    state = reign(1, 2, 3, end=100)
    fetch(state, 2, 60)
    assert state.high_watermark == 0
    assert fetch(state, 3, 40)
    assert state.high_watermark == 40


def test_a_replica_that_lags_outside_the_isr_does_not_count() -> None:
    state = reign(1, 2, end=100)
    fetch(state, 3, 1)
    assert fetch(state, 2, 50)
    assert state.high_watermark == 50


def test_a_replica_that_is_about_to_join_counts() -> None:
    state = reign(1, end=100)
    state.maybe_advance_high_watermark()
    fetch(state, 3, 60)
    state.record_append(120)
    assert state.high_watermark == 120
    assert not fetch(state, 3, 100)
    state.record_append(140)
    assert state.high_watermark == 120, "held at what 3 has not reached yet"
    assert isinstance(state.isr_state, CommittedIsr)
    progress = state.record_fetch(3, 30, 120, 0)
    assert progress.proposal == IsrProposal(4, 7, ((1, 10), (3, 30)))


def test_a_fenced_replica_that_was_about_to_join_holds_nothing_back() -> None:
    brokers = Brokers()
    state = reign(1, end=100, brokers=brokers)
    state.maybe_advance_high_watermark()
    fetch(state, 3, 60)
    fetch(state, 3, 100)
    state.proposal_refused(state.proposal, ErrorCode.INELIGIBLE_REPLICA)  # type: ignore[arg-type]
    state.record_append(140)
    assert state.high_watermark == 100
    brokers.out_of_service.add(3)
    assert state.brokers_changed()
    assert state.high_watermark == 140


def test_a_joining_replica_counts_before_the_controller_has_agreed() -> None:
    state = reign(1, 2, end=100)
    fetch(state, 2, 90)
    assert state.record_fetch(3, 30, 100, 0).proposal is not None
    assert state.isr_state == PendingExpandIsr(frozenset({1, 2}), joining=3)
    state.record_append(120)
    fetch(state, 2, 120)
    assert state.high_watermark == 100
    fetch(state, 3, 110)
    assert state.high_watermark == 110


def test_a_leaving_replica_counts_until_the_controller_has_agreed() -> None:
    state = reign(1, 2, end=100)
    fetch(state, 2, 50)
    assert state.tick(MAX_LAG_MS + 1, MAX_LAG_MS) == IsrProposal(4, 7, ((1, 10),), is_shrink=True)
    assert state.isr_state == PendingShrinkIsr(frozenset({1, 2}), leaving=frozenset({2}))
    assert state.high_watermark == 50
    assert commit(state, 1)
    assert state.high_watermark == 100


def test_the_high_watermark_never_falls() -> None:
    """I2."""
    state = reign(1, 2, end=100)
    fetch(state, 2, 80)
    fetch(state, 2, 10)
    assert state.high_watermark == 80


def test_below_the_minimum_nothing_is_committed() -> None:
    state = reign(1, end=100, min_isr=2, high_watermark=30)
    assert not state.maybe_advance_high_watermark()
    assert not state.has_enough_in_sync_replicas
    assert state.high_watermark == 30


def test_a_joining_replica_does_not_make_up_the_minimum() -> None:
    state = reign(1, end=100, min_isr=2, high_watermark=30)
    assert state.record_fetch(2, 20, 100, 0).proposal is not None
    assert state.high_watermark == 30
    assert commit(state, 1, 2, min_isr=2)
    assert state.high_watermark == 100


def test_a_minimum_above_the_replica_count_asks_for_all_of_them() -> None:
    state = reign(1, replicas=(1,), end=100, min_isr=3)
    assert state.effective_min_insync_replicas == 1
    assert state.has_enough_in_sync_replicas
    assert state.maybe_advance_high_watermark()


def test_the_high_watermark_is_valid_from_the_start_of_the_own_epoch_on() -> None:
    """R7."""
    state = reign(1, 2, end=10, high_watermark=7)
    assert not state.is_high_watermark_valid
    fetch(state, 2, 10)
    assert state.is_high_watermark_valid


def test_who_has_not_reached_the_high_watermark_does_not_join() -> None:
    """R10."""
    state = reign(1, 2, end=5, high_watermark=5)
    state.record_append(100)
    fetch(state, 2, 90)
    assert state.record_fetch(3, 30, 89, 0).proposal is None
    assert state.record_fetch(3, 30, 90, 0).proposal is not None


def test_who_has_not_reached_the_start_of_the_epoch_does_not_join() -> None:
    state = reign(1, 2, end=100, high_watermark=50)
    assert state.record_fetch(3, 30, 60, 0).proposal is None
    assert state.record_fetch(3, 30, 100, 0).proposal is not None


@pytest.mark.parametrize(
    "brokers",
    [
        pytest.param(Brokers(out_of_service={3}), id="fenced or shutting down"),
        pytest.param(Brokers(epochs={1: 10, 2: 20}), id="not registered"),
        pytest.param(Brokers(epochs={1: 10, 2: 20, 3: 29}), id="a start not heard of"),
    ],
)
def test_who_is_not_in_service_with_this_epoch_does_not_join(brokers: Brokers) -> None:
    state = reign(1, 2, brokers=brokers)
    assert state.record_fetch(3, 30, 10, 0).proposal is None
    assert state.isr_state == CommittedIsr(frozenset({1, 2}))


def test_once_in_service_it_joins_without_another_fetch() -> None:
    brokers = Brokers(out_of_service={3})
    state = reign(1, 2, brokers=brokers)
    state.record_fetch(3, 30, 10, 0)
    brokers.out_of_service.clear()
    state.brokers_changed()
    assert state.propose_joining() == IsrProposal(4, 7, ((1, 10), (2, 20), (3, 30)))


def test_fetches_of_an_earlier_start_change_nothing() -> None:
    """R11."""
    state = reign(1, 2, end=100)
    assert state.is_stale(2, 19)
    assert state.record_fetch(2, 19, 100, 0) == (False, None)
    assert state.followers[2].end_offset == -1


def test_a_member_that_keeps_up_with_a_moving_log_stays() -> None:
    state = reign(1, 2, end=0)
    for step in range(1, 50):
        fetch(state, 2, (step - 1) * 10, at_ms=step * 100)
        state.record_append(step * 10)
    assert state.tick(5_000, MAX_LAG_MS) is None


def test_a_member_that_asks_but_never_catches_up_leaves() -> None:
    """R12."""
    state = reign(1, 2, end=0)
    for step in range(1, 50):
        fetch(state, 2, step, at_ms=step * 100)
        state.record_append(step * 10)
    proposal = state.tick(5_000, MAX_LAG_MS)
    assert proposal is not None
    assert proposal.isr == ((1, 10),)


def test_an_idle_member_stays_while_its_session_is_alive() -> None:
    state = reign(1, 2, end=10)
    fetch(state, 2, 10, at_ms=0)
    state.record_alive(2, 5_000)
    assert state.tick(5_500, MAX_LAG_MS) is None
    assert state.tick(6_001, MAX_LAG_MS) is not None


def test_members_that_never_fetched_get_their_time_from_the_start_of_the_reign() -> None:
    state = reign(1, 2, 3)
    assert state.tick(MAX_LAG_MS, MAX_LAG_MS) is None
    fetch(state, 2, 10, at_ms=MAX_LAG_MS)
    proposal = state.tick(MAX_LAG_MS + 1, MAX_LAG_MS)
    assert proposal is not None
    assert [replica for replica, _ in proposal.isr] == [1, 2]


def pending(state: LeaderState) -> IsrProposal:
    proposal = state.record_fetch(3, 30, 10, 0).proposal
    assert proposal is not None
    return proposal


def test_nothing_is_proposed_while_a_proposal_is_pending() -> None:
    """R8."""
    state = reign(1)
    pending(state)
    assert state.record_fetch(2, 20, 10, 0).proposal is None
    assert state.tick(10_000, MAX_LAG_MS) is None


def test_an_accepted_proposal_makes_room_for_the_next() -> None:
    state = reign(1)
    proposal = pending(state)
    fetch(state, 2, 10)
    state.proposal_accepted(
        proposal, frozenset({1, 3}), leader_epoch=4, partition_epoch=8, now_ms=0
    )
    assert state.isr_state == CommittedIsr(frozenset({1, 3}))
    assert state.propose_joining() == IsrProposal(4, 8, ((1, 10), (2, 20), (3, 30)))


@pytest.mark.parametrize(("leader_epoch", "partition_epoch"), [(5, 8), (4, 6)])
def test_an_answer_of_another_epoch_or_from_the_past_is_not_adopted(
    leader_epoch: int, partition_epoch: int
) -> None:
    state = reign(1)
    proposal = pending(state)
    state.proposal_accepted(
        proposal,
        frozenset({1, 3}),
        leader_epoch=leader_epoch,
        partition_epoch=partition_epoch,
        now_ms=0,
    )
    assert state.isr_state == PendingExpandIsr(frozenset({1}), joining=3)


@pytest.mark.parametrize("code", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
def test_a_proposal_that_cannot_be_granted_is_reverted(code: ErrorCode) -> None:
    state = reign(1)
    assert state.proposal_refused(pending(state), code) is Refusal.REVERTED
    assert state.isr_state == CommittedIsr(frozenset({1}))
    assert pending(state) is not None


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    ],
)
def test_an_outdated_proposal_stays_pending_until_the_image_has_changed(code: ErrorCode) -> None:
    state = reign(1)
    proposal = pending(state)
    assert state.proposal_refused(proposal, code) is Refusal.AWAITS_METADATA
    assert state.isr_state == PendingExpandIsr(frozenset({1}), joining=3)
    assert state.tick(10_000, MAX_LAG_MS) is None
    commit(state, 1, 2)
    assert isr_state_of(state) == CommittedIsr(frozenset({1, 2}))
    assert state.proposal_refused(proposal, code) is Refusal.OBSOLETE


def test_a_proposal_of_unknown_outcome_is_repeated_as_it_is() -> None:
    state = reign(1)
    proposal = pending(state)
    assert state.proposal_refused(proposal, ErrorCode.REQUEST_TIMED_OUT) is Refusal.RETRIED
    assert state.proposal is proposal


def test_the_image_settles_a_pending_proposal_before_its_answer_comes() -> None:
    state = reign(1)
    proposal = pending(state)
    commit(state, 1, 3)
    assert state.proposal is None
    assert not state.proposal_accepted(
        proposal, frozenset({1, 3}), leader_epoch=4, partition_epoch=8, now_ms=0
    )
    assert state.isr_state == CommittedIsr(frozenset({1, 3}))


def test_who_left_joins_again_only_once_it_has_fetched_since() -> None:
    # Broker 3 is dead, and nobody has told the image yet; below the minimum the high watermark
    # stands still, so that what it had when it died would do.
    state = reign(1, 2, 3, high_watermark=0)
    fetch(state, 3, 10, at_ms=90)
    commit(state, 1, min_isr=2, at_ms=100)
    assert state.propose_joining() is None
    assert state.tick(150, MAX_LAG_MS) is None
    state.record_alive(3, 90)
    assert state.tick(160, MAX_LAG_MS) is None
    state.record_alive(3, 170)
    assert state.tick(180, MAX_LAG_MS) == IsrProposal(4, state.partition_epoch, ((1, 10), (3, 30)))


def test_a_replica_that_joined_and_was_taken_out_again_holds_nothing_back() -> None:
    # Its disk has failed: its broker lives on, so nobody fences it, but it never fetches again.
    state = reign(1, 2, high_watermark=10)
    fetch(state, 2, 10)
    fetch(state, 3, 10)
    commit(state, 1, 2, 3)
    commit(state, 1, 2, at_ms=50)
    state.record_append(12)
    assert fetch(state, 2, 12, at_ms=60)
    assert state.high_watermark == 12
    # Once it asks again it counts, so that it can catch up with a log that keeps moving.
    state.record_append(14)
    fetch(state, 3, 12, at_ms=70)
    fetch(state, 2, 14, at_ms=80)
    assert state.high_watermark == 12


def test_a_replica_let_go_for_its_lag_does_not_come_straight_back() -> None:
    state = reign(1, 2, 3, min_isr=3)
    fetch(state, 3, 10)
    state.record_append(12)
    fetch(state, 2, 12, at_ms=2 * MAX_LAG_MS)
    proposal = state.tick(2 * MAX_LAG_MS, MAX_LAG_MS)
    assert proposal is not None
    state.proposal_accepted(
        proposal, frozenset({1, 2}), leader_epoch=4, partition_epoch=8, now_ms=2 * MAX_LAG_MS
    )
    assert state.propose_joining() is None
    assert state.tick(2 * MAX_LAG_MS + 1, MAX_LAG_MS) is None


def test_an_older_image_changes_nothing() -> None:
    state = reign(1)
    pending(state)
    state.isr_committed(frozenset({1, 2}), partition_epoch=6, min_insync_replicas=1, now_ms=0)
    assert state.isr_state == PendingExpandIsr(frozenset({1}), joining=3)


def test_converged_means_nothing_to_propose() -> None:
    state = reign(1, 2, 3)
    for replica in (2, 3):
        assert state.record_fetch(replica, replica * 10, 10, 0).proposal is None
    assert state.tick(500, MAX_LAG_MS) is None
    assert state.propose_joining() is None


def test_a_reign_that_goes_on_counts_every_replica_until_the_controller_is_heard() -> None:
    """R34: what the process before had asked for may have been granted."""
    state = reign(1, 2, end=10, high_watermark=4)
    state.isr_state = ResumedIsr(frozenset({1, 2}), frozenset({1, 2, 3}))
    state.brokers_changed()
    assert not state.is_high_watermark_valid
    assert not fetch(state, 2, 10)
    assert state.record_fetch(3, 30, 9, 0).proposal is None
    assert (state.high_watermark, state.is_high_watermark_valid) == (9, False)
    assert state.tick(10 * MAX_LAG_MS, MAX_LAG_MS) is None, "nothing is asked for"
    assert commit(state, 1, 2)
    assert (state.high_watermark, state.is_high_watermark_valid) == (10, True)
    assert isinstance(isr_state_of(state), CommittedIsr)


def test_the_low_watermark_is_the_lowest_log_start_in_service() -> None:
    brokers = Brokers()
    state = reign(1, 2, 3, brokers=brokers)
    assert state.low_watermark(7) == -1, "nobody has fetched"
    fetch(state, 2, 10)
    assert state.record_log_start(2, 7)
    assert state.low_watermark(7) == -1, "one has not"
    fetch(state, 3, 10)
    assert state.record_log_start(3, 4)
    assert state.low_watermark(7) == 4
    assert not state.record_log_start(3, 4)
    assert state.record_log_start(3, 9)
    assert state.low_watermark(7) == 7, "its own counts, too"
    assert state.record_log_start(3, 5), "a disk may remember less after a crash"
    assert state.low_watermark(7) == 5
    brokers.out_of_service.add(3)
    assert state.low_watermark(7) == 7


def test_a_follower_of_an_earlier_release_is_not_waited_for() -> None:
    state = reign(1, 2)
    fetch(state, 2, 10)
    fetch(state, 3, 10)
    assert state.record_log_start(2, 7)
    assert not state.record_log_start(3, -1)
    assert state.low_watermark(7) == 7
