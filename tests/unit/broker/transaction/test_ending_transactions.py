"""How transactions end: by their producer, or because nobody ends them in time."""

from __future__ import annotations

import pytest
from transaction_driver import (
    ALL,
    BEGINS,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    CONCURRENT,
    EMPTY,
    FENCED,
    FIRST_SPARE_ID,
    IDLE,
    INVALID,
    MAPPING,
    NONE,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PRODUCER_ID,
    TIMEOUT_MS,
    TV1,
    TV2,
    WALL_MS,
    at,
    in_flight,
    metadata,
    outcome,
)

from fairlead_broker.transaction.transaction_types import (
    NEVER_TIMES_OUT_MS,
    TransactionAnswer,
    TransactionState,
)
from fairlead_wire.errors import ErrorCode

TV1_ENDS: dict[TransactionState, tuple[ErrorCode | str, ErrorCode | str]] = {
    # State: what an abort, and what a commit is answered.
    EMPTY: (INVALID, INVALID),
    ONGOING: (BEGINS, BEGINS),
    PREPARE_COMMIT: (INVALID, CONCURRENT),
    PREPARE_ABORT: (CONCURRENT, INVALID),
    COMPLETE_COMMIT: (INVALID, NONE),
    COMPLETE_ABORT: (NONE, INVALID),
}
TV2_ENDS: dict[TransactionState, tuple[ErrorCode | str, ...]] = {
    # Abort with the epoch before, with the present one; commit with either.
    EMPTY: (FENCED, BEGINS, FENCED, INVALID),
    ONGOING: (FENCED, BEGINS, FENCED, BEGINS),
    # With the present epoch a producer that has had its answer ends its next transaction. Kafka
    # says so, too: while markers are written there, a transition is in flight.
    PREPARE_COMMIT: (INVALID, CONCURRENT, CONCURRENT, CONCURRENT),
    PREPARE_ABORT: (CONCURRENT, CONCURRENT, INVALID, CONCURRENT),
    COMPLETE_COMMIT: (INVALID, BEGINS, NONE, INVALID),
    COMPLETE_ABORT: (NONE, BEGINS, INVALID, INVALID),
}


class TestEnds:
    @pytest.mark.parametrize("state", ALL)
    @pytest.mark.parametrize("commit", [False, True])
    def test_what_an_end_in_version_1_is_answered(
        self, state: TransactionState, commit: bool
    ) -> None:
        """T5: what is decided stays, and asking again is answered the same."""
        driver = at(state)
        driver.end(commit=commit, version=TV1)
        assert outcome(driver, "end") == TV1_ENDS[state][commit]

    @pytest.mark.parametrize("state", ALL)
    @pytest.mark.parametrize("epoch", [4, 6])
    def test_in_version_1_only_the_present_epoch_ends(
        self, state: TransactionState, epoch: int
    ) -> None:
        driver = at(state)
        driver.end(commit=True, version=TV1, pair=(PRODUCER_ID, epoch))
        assert outcome(driver, "end") is FENCED

    @pytest.mark.parametrize("state", ALL)
    @pytest.mark.parametrize("commit", [False, True])
    @pytest.mark.parametrize("is_current", [False, True])
    def test_what_an_end_in_version_2_is_answered(
        self, state: TransactionState, commit: bool, is_current: bool
    ) -> None:
        driver = at(state, client_transaction_version=TV2)
        driver.end(commit=commit, version=TV2, pair=(PRODUCER_ID, 4 + is_current))
        expected = TV2_ENDS[state][2 * commit + is_current]
        assert outcome(driver, "end") == expected
        if expected is NONE:
            assert driver.answers["end"] == TransactionAnswer(NONE, PRODUCER_ID, 5)

    @pytest.mark.parametrize("state", ALL)
    @pytest.mark.parametrize("epoch", [3, 6, -1])
    def test_in_version_2_other_epochs_are_fenced(
        self, state: TransactionState, epoch: int
    ) -> None:
        driver = at(state)
        driver.end(commit=False, version=TV2, pair=(PRODUCER_ID, epoch))
        assert outcome(driver, "end") is FENCED

    @pytest.mark.parametrize("commit", [False, True])
    @pytest.mark.parametrize("state", [PREPARE_COMMIT, PREPARE_ABORT, *IDLE])
    def test_a_fenced_producer_does_not_get_the_pair_of_a_newer_one_that_speaks_version_1(
        self, state: TransactionState, commit: bool
    ) -> None:
        """That one keeps its epoch, so the fenced one's is the epoch before, as after an end."""
        driver = at(state, client_transaction_version=TV1)
        driver.end(commit=commit, version=TV2, pair=(PRODUCER_ID, 4))
        assert outcome(driver, "end") is FENCED

    def test_no_epoch_comes_before_the_first(self) -> None:
        driver = at(COMPLETE_ABORT, 0, client_transaction_version=TV2)
        driver.end(commit=False, version=TV2, pair=(PRODUCER_ID, -1))
        assert outcome(driver, "end") is FENCED

    @pytest.mark.parametrize("version", [TV1, TV2])
    @pytest.mark.parametrize("state", ALL)
    def test_another_producer_id_is_another_producer(
        self, state: TransactionState, version: int
    ) -> None:
        driver = at(state)
        driver.end(commit=True, version=version, pair=(PRODUCER_ID + 1, 5))
        assert outcome(driver, "end") is MAPPING

    @pytest.mark.parametrize("commit", [False, True])
    def test_version_1_keeps_the_epoch_and_its_markers_carry_it(self, commit: bool) -> None:
        driver = at(ONGOING)
        driver.end(commit=commit, version=TV1)
        prepared = in_flight(driver)
        assert prepared.producer_epoch == 5
        driver.commit()
        assert driver.answers["end"] == TransactionAnswer(NONE)
        (ending,) = driver.endings
        assert ending.marker == (PRODUCER_ID, 5, 7, commit, TV1)
        driver.finish()
        assert driver.pair == (PRODUCER_ID, 5)

    @pytest.mark.parametrize("commit", [False, True])
    def test_version_2_raises_the_epoch_and_its_markers_carry_the_new_one(
        self, commit: bool
    ) -> None:
        driver = at(ONGOING)
        driver.now_ms = 9
        driver.end(commit=commit, version=TV2)
        assert in_flight(driver) == metadata(
            PREPARE_COMMIT if commit else PREPARE_ABORT,
            6,
            0,
            1,
            update_ms=WALL_MS + 9,
            client_transaction_version=TV2,
        )
        driver.commit()
        assert driver.answers["end"] == TransactionAnswer(NONE, PRODUCER_ID, 6)
        (ending,) = driver.endings
        assert tuple(ending) == ("x", 3, (PRODUCER_ID, 6, 7, commit, TV2), {("t", 0), ("t", 1)})
        driver.finish()
        assert driver.machine.metadata == metadata(
            COMPLETE_COMMIT if commit else COMPLETE_ABORT,
            6,
            update_ms=WALL_MS + 9,
            client_transaction_version=TV2,
        )

    @pytest.mark.parametrize("state", IDLE)
    def test_a_producer_that_may_have_begun_nothing_can_abort_it(
        self, state: TransactionState
    ) -> None:
        """A client of version 2 does not know whether its first record added a partition."""
        driver = at(state)
        driver.now_ms = 9
        driver.end(commit=False, version=TV2)
        assert (in_flight(driver).state, in_flight(driver).start_ms) == (PREPARE_ABORT, WALL_MS + 9)
        driver.commit()
        assert driver.answers["end"] == TransactionAnswer(NONE, PRODUCER_ID, 6)
        # Without partitions no marker is to be written.
        assert driver.endings == []
        driver.commit()
        assert (driver.state, driver.pair) == (COMPLETE_ABORT, (PRODUCER_ID, 6))

    @pytest.mark.parametrize("version", [TV1, TV2])
    def test_nobody_hears_of_a_decision_that_is_not_durable(self, version: int) -> None:
        """T4: the client and the partitions are told when the record is committed, not before."""
        driver = at(ONGOING)
        driver.end(commit=True, version=version)
        assert (driver.answers, driver.endings, driver.state) == ({}, [], ONGOING)
        driver.fail()
        assert driver.error("end") is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (driver.endings, driver.state, driver.pair) == ([], ONGOING, (PRODUCER_ID, 5))
        driver.end(commit=False, version=version)
        driver.commit()
        assert driver.state is PREPARE_ABORT

    def test_an_end_is_complete_with_the_marker_of_the_last_partition(self) -> None:
        driver = at(ONGOING)
        driver.end(commit=True, version=TV2)
        driver.commit()
        (ending,) = driver.endings
        assert set(driver.machine.partitions) == {("t", 0), ("t", 1)}
        for _ in range(2):
            driver.take(driver.machine.partitions_ended(ending, [("t", 0)], now_ms=driver.wall_ms))
            assert (driver.in_flight, set(driver.machine.partitions)) == ([], {("t", 1)})
        driver.take(driver.machine.partitions_ended(ending, [("t", 1)], now_ms=driver.wall_ms))
        assert in_flight(driver).state is COMPLETE_COMMIT
        driver.take(driver.machine.partitions_ended(ending, [("t", 1)], now_ms=driver.wall_ms))
        driver.commit()
        assert driver.state is COMPLETE_COMMIT

    def test_late_news_of_the_transaction_before_ends_nothing(self) -> None:
        """In version 1 the markers of two transactions look the same."""
        driver = at(ONGOING)
        driver.end(commit=True, version=TV1)
        driver.commit()
        (first,) = driver.endings
        driver.finish()
        driver.add(0, 1)
        driver.commit()
        driver.end(commit=True, version=TV1)
        driver.commit()
        (second,) = driver.endings
        assert first == second
        driver.take(driver.machine.partitions_ended(first, first.partitions, now_ms=driver.wall_ms))
        assert (driver.state, driver.in_flight) == (PREPARE_COMMIT, [])


class TestTimeOuts:
    @pytest.mark.parametrize("opened_by", [TV1, TV2])
    def test_a_transaction_that_nobody_ends_is_aborted_and_its_producer_fenced(
        self, opened_by: int
    ) -> None:
        """T6: counted from its first partition."""
        driver = at(ONGOING, client_transaction_version=opened_by)
        driver.now_ms = TIMEOUT_MS
        driver.time_out()
        assert driver.in_flight == []
        driver.now_ms += 1
        driver.time_out()
        prepared = in_flight(driver)
        assert (prepared.state, prepared.producer_epoch) == (PREPARE_ABORT, 6)
        assert prepared.client_transaction_version == TV2
        driver.commit()
        driver.finish()
        driver.add(0, pair=(PRODUCER_ID, 5))
        assert outcome(driver, "add") is FENCED
        driver.end(commit=True, version=TV1, pair=(PRODUCER_ID, 5))
        assert outcome(driver, "end") is FENCED

    @pytest.mark.parametrize("state", [each for each in ALL if each is not ONGOING])
    def test_nothing_else_times_out(self, state: TransactionState) -> None:
        driver = at(state)
        driver.now_ms = 10 * TIMEOUT_MS
        driver.time_out()
        assert driver.in_flight == []

    def test_a_prepared_transaction_of_its_client_never_does(self) -> None:
        driver = at(ONGOING, timeout_ms=NEVER_TIMES_OUT_MS)
        driver.now_ms = 2 * NEVER_TIMES_OUT_MS
        driver.time_out()
        assert driver.in_flight == []

    def test_without_a_producer_id_it_is_aborted_later(self) -> None:
        driver = at(ONGOING, 32_766)
        driver.now_ms = 2 * TIMEOUT_MS
        driver.has_producer_ids = False
        driver.time_out()
        assert driver.in_flight == []
        driver.has_producer_ids = True
        driver.time_out()
        assert in_flight(driver).next_producer_id == FIRST_SPARE_ID

    @pytest.mark.parametrize("state", ALL)
    def test_an_id_that_nobody_uses_is_forgotten(self, state: TransactionState) -> None:
        driver = at(state)
        driver.now_ms = 999
        driver.take(driver.machine.maybe_expire(now_ms=driver.wall_ms, expiration_ms=1_000))
        assert driver.in_flight == []
        driver.now_ms = 1_000
        driver.take(driver.machine.maybe_expire(now_ms=driver.wall_ms, expiration_ms=1_000))
        if state not in IDLE:
            assert driver.in_flight == []
            return
        (transition,) = driver.in_flight
        assert transition.value is None
        driver.init()
        assert outcome(driver, "init") is CONCURRENT
        driver.commit()
        assert driver.machine.is_unused

    def test_a_tombstone_that_fails_leaves_the_id_as_it_was(self) -> None:
        driver = at(EMPTY)
        driver.now_ms = 1_000
        driver.take(driver.machine.maybe_expire(now_ms=driver.wall_ms, expiration_ms=1_000))
        driver.fail()
        assert driver.pair == (PRODUCER_ID, 5)
        driver.init()
        driver.commit()
        assert driver.pair == (PRODUCER_ID, 6)
