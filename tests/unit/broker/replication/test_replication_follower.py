"""What a follower asks, and what it makes of each answer."""

import pytest
from epoch_histories import History

from fairlead_broker.log.leader_epochs import LeaderEpochs
from fairlead_broker.replication.follower_state import (
    RETRY_DELAY_MAX_MS,
    RETRY_DELAY_MIN_MS,
    Action,
    Append,
    FetchedPartition,
    FetchPosition,
    FollowerState,
    Nothing,
    RestartAt,
    Retry,
    TruncateTo,
)
from fairlead_wire.errors import ErrorCode


def history(*epochs: tuple[int, int], end: int, start: int = 0) -> History:
    return History(LeaderEpochs(list(epochs)), end, start)


def answer(state: FollowerState, log: History, **facts: object) -> Action:
    """The leader answers what the follower asks now."""
    return state.on_fetched(log, FetchedPartition(state.next_fetch(log), **facts))  # type: ignore[arg-type]


def test_it_asks_from_its_end_and_names_its_last_epoch() -> None:
    assert FollowerState(7).next_fetch(history((3, 0), (5, 40), end=60)) == FetchPosition(60, 5, 7)


def test_an_empty_log_names_no_epoch() -> None:
    assert FollowerState(7).next_fetch(history(end=0)) == FetchPosition(0, -1, 7)


def test_records_and_marks_are_taken_over() -> None:
    action = answer(
        FollowerState(7),
        history((7, 0), end=60),
        records=b"batches",
        high_watermark=55,
        log_start_offset=3,
    )
    assert action == Append(b"batches", 55, 3)


def test_an_answer_to_a_question_of_an_older_epoch_is_discarded() -> None:
    log = history((7, 0), end=60)
    asked = FollowerState(7).next_fetch(log)
    action = FollowerState(8).on_fetched(log, FetchedPartition(asked, records=b"batches"))
    assert action == Nothing()


def test_an_answer_to_a_position_that_was_left_is_discarded() -> None:
    state, log = FollowerState(7), history((7, 0), end=60)
    asked = state.next_fetch(log)
    log.log_end_offset = 50
    assert state.on_fetched(log, FetchedPartition(asked, records=b"batches")) == Nothing()


@pytest.mark.parametrize(
    ("own", "epoch", "end_offset", "expected"),
    [
        pytest.param(((3, 0), (4, 50)), 4, 60, 60, id="the leader's epoch ends earlier"),
        pytest.param(((3, 0), (4, 50)), 3, 40, 40, id="the leader never had the last epoch"),
        pytest.param(((3, 0), (4, 50)), 3, 70, 50, id="own end of the common epoch"),
        pytest.param(((3, 0), (5, 50)), 4, 70, 50, id="the leader's epoch is unknown here"),
        pytest.param(((3, 0), (5, 80)), 4, 80, 80, id="an own epoch without records is forgotten"),
        pytest.param((), 2, 30, 30, id="a log that never knew epochs"),
    ],
)
def test_where_logs_part_the_follower_cuts(
    own: tuple[tuple[int, int], ...], epoch: int, end_offset: int, expected: int
) -> None:
    """R1."""
    action = answer(
        FollowerState(7),
        history(*own, end=80),
        diverging_epoch=epoch,
        diverging_end_offset=end_offset,
        log_start_offset=0,
    )
    assert action == TruncateTo(expected)


def test_a_log_that_parts_below_its_start_begins_anew() -> None:
    action = answer(
        FollowerState(7),
        history((5, 50), end=80, start=50),
        diverging_epoch=4,
        diverging_end_offset=30,
        log_start_offset=10,
    )
    assert action == RestartAt(30)


def test_a_divergence_that_cuts_nothing_is_not_asked_about_at_once() -> None:
    action = answer(
        FollowerState(7), history((4, 0), end=80), diverging_epoch=4, diverging_end_offset=80
    )
    assert action == Retry(RETRY_DELAY_MIN_MS)


@pytest.mark.parametrize("leader_start", [80, 100])
def test_below_the_leaders_start_everything_is_dropped(leader_start: int) -> None:
    action = answer(
        FollowerState(7),
        history((4, 0), end=80),
        error_code=ErrorCode.OFFSET_OUT_OF_RANGE,
        log_start_offset=leader_start,
    )
    assert action == RestartAt(leader_start)


def test_out_of_range_within_the_leaders_log_drops_nothing() -> None:
    action = answer(
        FollowerState(7),
        history((4, 0), end=80),
        error_code=ErrorCode.OFFSET_OUT_OF_RANGE,
        log_start_offset=10,
    )
    assert action == Retry(RETRY_DELAY_MIN_MS)


def test_errors_are_retried_ever_more_slowly_until_something_comes() -> None:
    state, log = FollowerState(7), history((7, 0), end=60)
    delays = []
    for _ in range(9):
        action = answer(state, log, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert isinstance(action, Retry)
        delays.append(action.after_ms)
    assert delays[0] == RETRY_DELAY_MIN_MS
    assert delays == sorted(delays)
    assert delays[-1] == RETRY_DELAY_MAX_MS
    answer(state, log, high_watermark=1, log_start_offset=0)
    assert answer(state, log, error_code=ErrorCode.UNKNOWN_LEADER_EPOCH) == Retry(
        RETRY_DELAY_MAX_MS
    ), "it may be that nothing of it could be taken in"
    state.taken_in()
    assert answer(state, log, error_code=ErrorCode.UNKNOWN_LEADER_EPOCH) == Retry(
        RETRY_DELAY_MIN_MS
    )
