"""What a transactional id answers in each of its states, and what it does then."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
from transaction_driver import (
    ABORTABLE,
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
    TransactionDriver,
    at,
    in_flight,
    metadata,
    outcome,
)

from fairlead_broker.limits import TRANSACTION_COMPLETION_RETRY_MS, TRANSACTION_PARTITIONS_MAX
from fairlead_broker.transaction.transaction_types import (
    TransactionAnswer,
    TransactionState,
)
from fairlead_wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Callable


class TestInitProducerId:
    """KIP-98 and KIP-360."""

    def test_a_new_id_gets_a_producer_id_and_epoch_0_when_that_is_durable(self) -> None:
        driver = TransactionDriver()
        driver.init()
        assert driver.answers == {}
        assert driver.machine.is_unwritten
        driver.commit()
        assert driver.answers["init"] == TransactionAnswer(NONE, FIRST_SPARE_ID, 0)
        assert (driver.state, driver.pair) == (EMPTY, (FIRST_SPARE_ID, 0))
        assert driver.machine.metadata.previous_producer_id == FIRST_SPARE_ID

    def test_without_a_producer_id_at_hand_a_new_one_is_asked_to_come_again(self) -> None:
        driver = TransactionDriver()
        driver.has_producer_ids = False
        driver.init()
        assert driver.error("init") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert driver.machine.is_unused

    @pytest.mark.parametrize("state", IDLE)
    def test_each_producer_gets_a_higher_epoch(self, state: TransactionState) -> None:
        driver = at(state)
        driver.now_ms = 9
        driver.init(timeout_ms=77)
        assert in_flight(driver) == metadata(
            EMPTY, 6, timeout_ms=77, start_ms=-1, update_ms=WALL_MS + 9
        )
        driver.commit()
        assert driver.answers["init"] == TransactionAnswer(NONE, PRODUCER_ID, 6)

    @pytest.mark.parametrize("state", [PREPARE_COMMIT, PREPARE_ABORT])
    def test_a_decided_transaction_is_ended_first(self, state: TransactionState) -> None:
        driver = at(state)
        driver.init()
        assert driver.error("init") is CONCURRENT
        assert not driver.in_flight

    @pytest.mark.parametrize("opened_by", [TV1, TV2])
    def test_an_open_transaction_is_aborted_and_its_producer_fenced(self, opened_by: int) -> None:
        """By the rules of version 2, whatever the producer speaks: its epoch is raised."""
        driver = at(ONGOING, client_transaction_version=opened_by)
        driver.init()
        assert driver.answers == {}
        prepared = in_flight(driver)
        assert (prepared.state, prepared.producer_epoch) == (PREPARE_ABORT, 6)
        assert prepared.client_transaction_version == TV2
        driver.commit()
        assert driver.error("init") is CONCURRENT
        (ending,) = driver.endings
        assert (ending.marker.producer_epoch, ending.marker.is_commit) == (6, False)
        driver.finish()
        assert (driver.state, driver.pair) == (COMPLETE_ABORT, (PRODUCER_ID, 6))
        driver.init()
        driver.commit()
        assert driver.answers["init"] == TransactionAnswer(NONE, PRODUCER_ID, 7)

    @pytest.mark.parametrize("state", IDLE)
    @pytest.mark.parametrize(
        ("expected", "result"),
        [
            ((PRODUCER_ID, 5), 6),
            ((PRODUCER_ID, 4), FENCED),
            ((PRODUCER_ID, 6), FENCED),
            ((PRODUCER_ID + 1, 5), FENCED),
            ((PRODUCER_ID + 1, 32_766), FENCED),
        ],
    )
    def test_a_producer_that_goes_on_says_what_it_has(
        self, state: TransactionState, expected: tuple[int, int], result: int | ErrorCode
    ) -> None:
        driver = at(state)
        driver.init(expected=expected)
        if isinstance(result, ErrorCode):
            assert driver.error("init") is result
            assert not driver.in_flight
        else:
            driver.commit()
            assert driver.answers["init"] == TransactionAnswer(NONE, PRODUCER_ID, result)

    def test_one_that_missed_its_answer_gets_the_same_again(self) -> None:
        driver = at(EMPTY)
        for _ in range(3):
            driver.init(expected=(PRODUCER_ID, 5))
            driver.commit()
            assert driver.answers["init"] == TransactionAnswer(NONE, PRODUCER_ID, 6)

    def test_a_newer_producer_ends_that(self) -> None:
        driver = at(EMPTY)
        driver.init(expected=(PRODUCER_ID, 5))
        driver.commit()
        driver.init()
        driver.commit()
        driver.init("old", expected=(PRODUCER_ID, 5))
        assert driver.error("old") is FENCED

    @pytest.mark.parametrize("epoch", [4, 6])
    def test_who_recovers_ends_no_transaction_that_it_has_not_begun(self, epoch: int) -> None:
        driver = at(ONGOING)
        driver.init(expected=(PRODUCER_ID, epoch))
        assert driver.error("init") is FENCED
        assert (driver.state, driver.in_flight) == (ONGOING, [])

    def test_after_a_change_of_coordinators_it_is_fenced(self) -> None:
        """What the epoch was before is in no record."""
        driver = at(EMPTY)
        driver.init(expected=(PRODUCER_ID, 5))
        driver.commit()
        driver.reload()
        driver.init(expected=(PRODUCER_ID, 5))
        assert driver.error("init") is FENCED

    @pytest.mark.parametrize("expected", [None, (PRODUCER_ID, 32_766)])
    def test_after_the_highest_epoch_comes_another_producer_id(
        self, expected: tuple[int, int] | None
    ) -> None:
        driver = at(COMPLETE_COMMIT, 32_765)
        driver.init()
        driver.commit()
        assert driver.pair == (PRODUCER_ID, 32_766)
        driver.init(expected=expected)
        driver.commit()
        given = TransactionAnswer(NONE, FIRST_SPARE_ID, 0)
        assert driver.answers["init"] == given
        assert driver.machine.metadata.previous_producer_id == PRODUCER_ID
        driver.init("again", expected=(PRODUCER_ID, 32_766))
        if expected is None:
            assert driver.error("again") is FENCED
        else:
            driver.commit()
            assert driver.answers["again"] == given
            # That answer may be lost, too.
            driver.init("once more", expected=(PRODUCER_ID, 32_766))
            driver.commit()
            assert driver.answers["once more"] == given

    def test_an_exhausted_epoch_that_somebody_else_expects_is_fenced(self) -> None:
        driver = at(EMPTY, 32_766)
        driver.init(expected=(PRODUCER_ID, 32_765))
        assert driver.error("init") is FENCED

    def test_without_another_producer_id_the_highest_epoch_stays(self) -> None:
        driver = at(EMPTY, 32_766)
        driver.has_producer_ids = False
        driver.init()
        assert driver.error("init") is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert (driver.pair, driver.in_flight) == ((PRODUCER_ID, 32_766), [])


class TestAddPartitions:
    @pytest.mark.parametrize("version", [TV1, TV2])
    @pytest.mark.parametrize("state", IDLE)
    def test_the_first_partitions_begin_a_transaction(
        self, state: TransactionState, version: int
    ) -> None:
        driver = at(state)
        driver.now_ms = 9
        driver.add(2, version=version)
        assert outcome(driver, "add") == BEGINS
        driver.commit()
        assert driver.error("add") is NONE
        assert driver.machine.metadata == metadata(
            ONGOING,
            5,
            2,
            start_ms=WALL_MS + 9,
            update_ms=WALL_MS + 9,
            client_transaction_version=version,
        )

    def test_more_partitions_join_and_the_transaction_has_begun_when_it_had(self) -> None:
        driver = at(ONGOING)
        driver.now_ms = 9
        driver.add(1, 2)
        driver.commit()
        assert driver.machine.metadata == metadata(ONGOING, 5, 0, 1, 2, update_ms=WALL_MS + 9)

    def test_those_that_are_there_need_no_record(self) -> None:
        driver = at(ONGOING)
        driver.add(0, 1)
        assert (outcome(driver, "add"), driver.in_flight) == (NONE, [])

    @pytest.mark.parametrize("state", ALL)
    @pytest.mark.parametrize(
        ("pair", "code"),
        [
            ((PRODUCER_ID + 1, 5), MAPPING),
            ((PRODUCER_ID, 4), FENCED),
            ((PRODUCER_ID, 6), FENCED),
        ],
    )
    def test_only_the_present_producer_adds(
        self, state: TransactionState, pair: tuple[int, int], code: ErrorCode
    ) -> None:
        driver = at(state)
        driver.add(2, pair=pair)
        assert outcome(driver, "add") is code
        assert set(driver.machine.verify(*pair, [("t", 0)]).values()) == {code}

    @pytest.mark.parametrize("state", [PREPARE_COMMIT, PREPARE_ABORT])
    def test_while_markers_are_written_it_is_to_ask_again(self, state: TransactionState) -> None:
        driver = at(state)
        driver.add(0)
        assert outcome(driver, "add") is CONCURRENT
        assert driver.machine.verify(PRODUCER_ID, 5, [("t", 0)]) == {("t", 0): CONCURRENT}

    def test_a_transaction_has_a_largest_size(self) -> None:
        driver = at(EMPTY)
        driver.add(*range(TRANSACTION_PARTITIONS_MAX))
        driver.commit()
        driver.add(TRANSACTION_PARTITIONS_MAX)
        assert outcome(driver, "add") is ErrorCode.POLICY_VIOLATION

    @pytest.mark.parametrize("state", [*IDLE, ONGOING])
    def test_a_leader_hears_which_partitions_are_in_the_open_transaction(
        self, state: TransactionState
    ) -> None:
        asked = [("t", 0), ("t", 9)]
        expected = NONE if state is ONGOING else ABORTABLE
        assert at(state).machine.verify(PRODUCER_ID, 5, asked) == {
            ("t", 0): expected,
            ("t", 9): ABORTABLE,
        }

    def test_a_transition_in_flight_does_not_keep_a_leader_from_hearing_it(self) -> None:
        driver = at(ONGOING)
        driver.end(commit=True, version=TV1)
        assert driver.machine.verify(PRODUCER_ID, 5, [("t", 0)]) == {("t", 0): NONE}


class TestOneTransitionInFlight:
    @pytest.mark.parametrize("state", ALL)
    def test_everybody_else_is_to_ask_again(self, state: TransactionState) -> None:
        """T3: memory changes when the record is committed, and until then nothing else begins."""
        driver = at(state)
        if state in (PREPARE_COMMIT, PREPARE_ABORT):
            driver.take(driver.machine.resume(now_ms=driver.wall_ms))
            (ending,) = driver.endings
            driver.take(
                driver.machine.partitions_ended(ending, ending.partitions, now_ms=driver.wall_ms)
            )
        else:
            driver.add(7)
        before = driver.machine.metadata
        for name, ask in {
            "init": driver.init,
            "add": lambda: driver.add(8),
            "end": lambda: driver.end(commit=True, version=TV1),
            "end 2": lambda: driver.end("end 2", commit=False, version=TV2),
            # Not known yet: the pair that an overflow has promised.
            "end 3": lambda: driver.end("end 3", commit=False, version=TV2, pair=(9, 0)),
        }.items():
            cast("Callable[[], object]", ask)()
            assert outcome(driver, name) is CONCURRENT
        driver.now_ms = 10 * TIMEOUT_MS
        driver.time_out()
        driver.take(driver.machine.maybe_expire(now_ms=driver.wall_ms, expiration_ms=1))
        assert (len(driver.in_flight), driver.machine.metadata) == (1, before)

    def test_a_completion_that_cannot_be_written_is_tried_again_after_a_pause(self) -> None:
        driver = at(ONGOING)
        driver.end(commit=True, version=TV2)
        driver.commit()
        (ending,) = driver.endings
        driver.take(
            driver.machine.partitions_ended(ending, ending.partitions, now_ms=driver.wall_ms)
        )
        for turn in range(3):
            driver.now_ms = turn * 1_000
            driver.fail()
            assert driver.machine.next_deadline_ms() == (
                turn * 1_000 + TRANSACTION_COMPLETION_RETRY_MS
            )
            driver.add(0)
            assert outcome(driver, "add") is CONCURRENT
            driver.tick()
            assert driver.machine.next_deadline_ms() is None
        driver.tick()
        driver.commit()
        assert driver.state is COMPLETE_COMMIT

    def test_who_waited_too_long_is_told_and_what_is_in_the_log_counts_all_the_same(self) -> None:
        driver = at(EMPTY)
        driver.init()
        (transition,) = driver.in_flight
        driver.take(driver.machine.timed_out(transition))
        assert driver.error("init") is ErrorCode.COORDINATOR_NOT_AVAILABLE
        driver.commit()
        assert driver.pair == (PRODUCER_ID, 6)


class TestRegressions:
    """What other brokers got wrong."""

    @pytest.mark.parametrize("commit", [False, True])
    def test_an_end_at_the_highest_epoch_answers_the_pair_that_comes_next(
        self, commit: bool
    ) -> None:
        """KAFKA-18660: under it the client goes on while the markers of the old one are written."""
        driver = at(ONGOING, 32_766)
        driver.end(commit=commit, version=TV2)
        prepared = in_flight(driver)
        assert (prepared.producer_id, prepared.producer_epoch) == (PRODUCER_ID, 32_767)
        assert prepared.next_producer_id == FIRST_SPARE_ID
        driver.commit()
        assert driver.answers["end"] == TransactionAnswer(NONE, FIRST_SPARE_ID, 0)
        (ending,) = driver.endings
        assert (ending.marker.producer_id, ending.marker.producer_epoch) == (PRODUCER_ID, 32_767)
        driver.take(
            driver.machine.partitions_ended(ending, ending.partitions, now_ms=driver.wall_ms)
        )
        # Asked under the new pair while the old one is in the state.
        driver.add(0, pair=(FIRST_SPARE_ID, 0), version=TV2)
        assert outcome(driver, "add") is CONCURRENT
        driver.end(commit=commit, version=TV2, pair=(FIRST_SPARE_ID, 0))
        assert outcome(driver, "end") is CONCURRENT
        driver.commit()
        assert driver.pair == (FIRST_SPARE_ID, 0)
        assert driver.machine.metadata.previous_producer_id == PRODUCER_ID
        assert driver.machine.metadata.next_producer_id == -1
        # The client that missed the answer asks with what it had.
        driver.end(commit=commit, version=TV2, pair=(PRODUCER_ID, 32_766))
        assert driver.answers["end"] == TransactionAnswer(NONE, FIRST_SPARE_ID, 0)
        driver.end(commit=not commit, version=TV2, pair=(PRODUCER_ID, 32_766))
        assert outcome(driver, "end") is INVALID
        driver.add(0, pair=(FIRST_SPARE_ID, 0), version=TV2)
        driver.commit()
        assert outcome(driver, "add") is NONE

    def test_under_the_next_pair_partitions_cannot_be_added_while_markers_are_written(
        self,
    ) -> None:
        """KAFKA-18660: it is neither fenced nor unknown, which clients give up on."""
        driver = at(ONGOING, 32_766)
        driver.end(commit=True, version=TV2)
        driver.commit()
        for _ in range(2):
            given = (FIRST_SPARE_ID, 0)
            driver.add(0, pair=given, version=TV2)
            driver.end(commit=True, version=TV2, pair=given)
            driver.init(expected=given)
            assert [outcome(driver, each) for each in ("add", "end", "init")] == [CONCURRENT] * 3
            assert driver.in_flight == []
            driver.reload()

    def test_a_producer_that_finds_a_transaction_open_at_the_highest_epoch_bumps_once(
        self,
    ) -> None:
        """KAFKA-19367: to 32767, not beyond, and the next id begins at 0."""
        driver = at(ONGOING, 32_765)
        driver.init()
        assert in_flight(driver).producer_epoch == 32_766
        driver = at(ONGOING, 32_766)
        driver.init()
        assert in_flight(driver).producer_epoch == 32_767
        driver.commit()
        driver.finish()
        assert driver.pair == (FIRST_SPARE_ID, 0)
        driver.init()
        driver.commit()
        assert driver.answers["init"] == TransactionAnswer(NONE, FIRST_SPARE_ID, 1)

    def test_a_transaction_that_times_out_at_the_highest_epoch_is_not_stuck(self) -> None:
        """KAFKA-20090: the producer id changes, and a late abort of the old producer is taken."""
        driver = at(ONGOING, 32_766)
        driver.now_ms = 2 * TIMEOUT_MS
        driver.time_out()
        driver.commit()
        driver.finish()
        assert (driver.state, driver.pair) == (COMPLETE_ABORT, (FIRST_SPARE_ID, 0))
        driver.end(commit=False, version=TV2, pair=(PRODUCER_ID, 32_766))
        assert driver.answers["end"] == TransactionAnswer(NONE, FIRST_SPARE_ID, 0)

    @pytest.mark.parametrize("how", ["time-out", "init"])
    def test_an_id_that_is_at_the_epoch_of_fences_can_be_aborted(self, how: str) -> None:
        """KAFKA-20090: nothing comes after 32767, so it stays, and the producer id changes."""
        driver = at(ONGOING, 32_767)
        driver.now_ms = 2 * TIMEOUT_MS
        if how == "init":
            driver.init()
        else:
            driver.time_out()
        assert in_flight(driver).producer_epoch == 32_767
        driver.commit()
        driver.finish()
        assert driver.pair == (FIRST_SPARE_ID, 0)

    @pytest.mark.parametrize("version", [TV1, TV2])
    @pytest.mark.parametrize("state", ALL)
    @pytest.mark.parametrize("epoch", range(3, 8))
    def test_an_abort_is_never_answered_that_it_must_be_aborted(
        self, state: TransactionState, epoch: int, version: int
    ) -> None:
        """KAFKA-19250: clients abort then, for ever."""
        for ended_by in (TV1, TV2):
            driver = at(state, client_transaction_version=ended_by)
            driver.end(commit=False, version=version, pair=(PRODUCER_ID, epoch))
            assert outcome(driver, "end") is not ABORTABLE

    def test_the_epoch_does_not_creep_while_a_fence_cannot_be_written(self) -> None:
        """KAFKA-9666: too few replicas for an hour, and a producer that tries again and again."""
        driver = at(ONGOING, 5)
        for _ in range(100):
            driver.init()
            assert in_flight(driver).producer_epoch == 6
            driver.fail()
        driver.init()
        driver.commit()
        driver.finish()
        assert driver.pair == (PRODUCER_ID, 6)

    def test_a_coordinator_that_dies_between_the_markers_and_their_record_ends_it_once(
        self,
    ) -> None:
        """KAFKA-19999: all partitions get the same marker again, with the newer epoch."""
        driver = at(ONGOING)
        driver.end(commit=True, version=TV2)
        driver.commit()
        (before,) = driver.endings
        driver.take(
            driver.machine.partitions_ended(before, before.partitions, now_ms=driver.wall_ms)
        )
        driver.reload()
        (again,) = driver.endings
        assert again.marker == before.marker._replace(coordinator_epoch=8)
        assert again.partitions == before.partitions
        driver.take(
            driver.machine.partitions_ended(before, before.partitions, now_ms=driver.wall_ms)
        )
        assert driver.state is PREPARE_COMMIT
        driver.finish()
        assert (driver.state, driver.pair) == (COMPLETE_COMMIT, (PRODUCER_ID, 6))

    def test_a_time_out_that_loses_its_coordinator_at_any_step_is_done_by_the_next(self) -> None:
        """Redpanda 24445: expiry must not go on asking who is no coordinator any more."""
        for lost_after in range(4):
            driver = TransactionDriver(metadata(EMPTY))
            driver.add(0)
            driver.commit()
            driver.now_ms = 2 * TIMEOUT_MS
            steps = [driver.time_out, driver.commit, driver.finish]
            for number, step in enumerate(steps):
                if number == lost_after:
                    driver.reload()
                    break
                step()
            driver.time_out()
            if driver.in_flight:
                driver.commit()
            if driver.endings:
                driver.finish()
            assert (driver.state, driver.pair) == (COMPLETE_ABORT, (PRODUCER_ID, 6))

    def test_an_end_that_comes_before_the_time_out_wins_and_one_after_it_is_fenced(self) -> None:
        """KIP-98: both decide under the one transition in flight."""
        driver = at(ONGOING)
        driver.now_ms = 2 * TIMEOUT_MS
        driver.end(commit=True, version=TV1)
        driver.time_out()
        driver.commit()
        assert driver.state is PREPARE_COMMIT
        driver = at(ONGOING)
        driver.now_ms = 2 * TIMEOUT_MS
        driver.time_out()
        driver.end(commit=True, version=TV1)
        assert outcome(driver, "end") is CONCURRENT
        driver.commit()
        driver.end(commit=True, version=TV1, pair=(PRODUCER_ID, 5))
        assert outcome(driver, "end") is FENCED
