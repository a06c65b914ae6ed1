"""What a group of KIP-848 does in time, answers when, lets commit, and keeps in its log."""

from dataclasses import replace
from typing import Any

import pytest
from consumer_group_cases import joined_by_a_third, pair, refused
from consumer_group_driver import ConsumerGroupDriver, partitions

from fairlead_wire.errors import ErrorCode


def test_a_silent_member_is_fenced_and_one_that_is_heard_is_not() -> None:
    driver = pair()
    driver.pass_time(30_000)
    driver.beat("b", 3)
    driver.pass_time(15_000)
    assert set(driver.state.members) == {"b"}
    driver.pass_time(30_000)
    assert driver.group.is_empty


def test_whoever_does_not_give_up_its_partitions_in_time_is_fenced() -> None:
    driver = ConsumerGroupDriver(t=4)
    driver.join("a", timeout_ms=7_000)
    driver.join("b", timeout_ms=7_000)
    everything = {"t": [0, 1, 2, 3]}
    driver.beat("a", 2, owned=everything)
    driver.pass_time(6_999)
    driver.beat("a", 2, owned=everything)
    driver.pass_time(1)
    assert set(driver.state.members) == {"b"}


def test_a_member_that_has_given_up_in_time_is_left_alone() -> None:
    driver = ConsumerGroupDriver(t=4)
    driver.join("a", timeout_ms=7_000)
    driver.join("b", timeout_ms=7_000)
    driver.beat("a", 2, owned={"t": [0, 1, 2, 3]})
    driver.settle("a", "b")
    driver.pass_time(10_000)
    assert set(driver.state.members) == {"a", "b"}


def test_a_fencing_that_fails_is_tried_again() -> None:
    driver = pair()
    driver.auto_commit = False
    driver.pass_time(45_000)
    assert driver.writes
    driver.commit(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert set(driver.state.members) == {"a", "b"}
    assert refused(driver, "c", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    driver.pass_time(1_000)
    driver.commit()
    assert driver.group.is_empty
    driver.require_replayable()


def test_a_loop_that_stood_still_fences_nobody_before_it_has_read() -> None:
    driver = pair()
    driver.pass_time(44_000)
    driver.now_ms = 47_000
    driver.take(driver.group.tick(**driver.times))
    assert set(driver.state.members) == {"a", "b"}
    driver.beat("a", 3)
    driver.pass_time(3_000)
    assert set(driver.state.members) == {"a"}


def test_a_coordinator_that_takes_over_gives_everybody_a_session_anew() -> None:
    driver, slow = joined_by_a_third()
    driver.pass_time(9_000)
    other = driver.reload()
    assert other.state.epoch == driver.state.epoch
    other.pass_time(9_999)
    assert set(other.state.members) == {"a", "b", "c"}
    other.pass_time(1)
    # It was told to give something up, and has 10 s for that from the load on.
    assert set(other.state.members) == {"a", "b", "c"} - {slow}
    other.pass_time(35_000)
    assert other.group.is_empty


def test_an_answer_waits_for_all_that_it_rests_on() -> None:
    driver = ConsumerGroupDriver(auto_commit=False, t=2)
    first = driver.send("a", 0, ["t"], owned={}, timeout_ms=1)
    again = driver.send("a", 2, owned={})
    assert driver.answers == {}
    assert driver.group.describe_members().members == []
    assert driver.group.state_name == "Empty"
    driver.commit()
    assert driver.answers[first].member_epoch == driver.answers[again].member_epoch == 2
    assert driver.group.state_name == "Stable"


def test_what_fails_is_as_if_it_had_never_been() -> None:
    """G14."""
    driver = pair()
    driver.auto_commit = False
    before = driver.state.copy()
    joins = [driver.send(each, 0, ["t"], owned={}, timeout_ms=1) for each in "cd"]
    assert set(driver.state.members) == set("abcd")
    driver.commit(ErrorCode.NOT_COORDINATOR)
    assert {driver.answers[each].error for each in joins} == {ErrorCode.NOT_COORDINATOR}
    for name in before.__slots__:
        assert getattr(before, name) == getattr(driver.state, name), name
    driver.auto_commit = True
    assert driver.join("c").error is ErrorCode.NONE
    driver.require_replayable()


def test_what_comes_late_counts_though_nobody_waits_for_it() -> None:
    driver = ConsumerGroupDriver(auto_commit=False, t=2)
    join = driver.send("a", 0, ["t"], owned={}, timeout_ms=1)
    (write,) = driver.writes
    driver.take(driver.group.written(write, ErrorCode.REQUEST_TIMED_OUT, **driver.times))
    assert driver.answers[join].error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    driver.commit()
    assert driver.group.state_name == "Stable"
    driver.require_replayable()


def test_with_another_coordinator_everybody_is_told_so() -> None:
    driver = ConsumerGroupDriver(auto_commit=False, t=2)
    join = driver.send("a", 0, ["t"], owned={}, timeout_ms=1)
    driver.take(driver.group.fail_all(ErrorCode.NOT_COORDINATOR))
    assert driver.answers[join].error is ErrorCode.NOT_COORDINATOR


def test_offsets_are_committed_by_epochs() -> None:
    driver = ConsumerGroupDriver(t=4)
    assert driver.check_commit("", -1) is ErrorCode.NONE
    driver.join("a")
    driver.join("b")
    driver.settle("a", "b")
    stale = ErrorCode.STALE_MEMBER_EPOCH
    for member_id, epoch, offsets, error in (
        ("a", 3, {"t": [0, 1, 2, 3]}, ErrorCode.NONE),
        # KIP-1251: at epoch 2 it had these already, and those are another's.
        ("a", 2, {"t": [0, 1]}, ErrorCode.NONE),
        ("a", 2, {"t": [0, 2]}, stale),
        ("a", 1, {"t": [0]}, stale),
        ("a", 4, {"t": [0]}, stale),
        ("b", 2, {"t": [2]}, stale),
        ("a", 2, {"gone": [0]}, stale),
        ("c", 3, {"t": [0]}, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, {"t": [0]}, ErrorCode.UNKNOWN_MEMBER_ID),
    ):
        assert driver.check_commit(member_id, epoch, offsets) is error, (member_id, epoch, offsets)
    assert driver.check_commit("a", 3, {"t": [0]}, version=8) is ErrorCode.UNSUPPORTED_VERSION


def test_what_has_to_be_given_up_may_be_committed_until_then() -> None:
    """KIP-1251: a commit in flight while another joins."""
    driver = ConsumerGroupDriver(t=4)
    driver.join("a")
    driver.join("b")
    driver.beat("a", 2, owned={"t": [0, 1, 2, 3]})
    assert driver.check_commit("a", 2, {"t": [3]}) is ErrorCode.NONE
    driver.beat("a", 2, owned={"t": [0, 1]})
    assert driver.check_commit("a", 2, {"t": [1]}) is ErrorCode.NONE
    assert driver.check_commit("a", 2, {"t": [3]}) is ErrorCode.STALE_MEMBER_EPOCH


def test_offsets_in_a_transaction_are_checked_by_epochs_too() -> None:
    driver = pair()
    check = driver.group.check_transactional_commit
    mine, others = [("t", 0, b"")], [("t", 2, b"")]
    assert check("a", 3, None, others) is ErrorCode.NONE
    assert check("a", 2, None, mine) is ErrorCode.NONE
    assert check("a", 2, None, others) is ErrorCode.STALE_MEMBER_EPOCH
    assert check("c", 3, None, mine) is ErrorCode.UNKNOWN_MEMBER_ID
    # Before TxnOffsetCommit 3 producers could not say who they are.
    assert check("", -1, None, mine) is ErrorCode.NONE


def test_a_static_member_that_returned_may_commit_what_it_read_before() -> None:
    driver = ConsumerGroupDriver(t=2, u=1)
    driver.join("a", instance="i")
    driver.beat("a", -2, instance="i")
    driver.join("a", ["t", "u"], instance="i")
    assert driver.epoch("a") == 3
    assert driver.check_commit("a", 1, {"t": [0]}) is ErrorCode.NONE
    assert driver.check_commit("a", 1, {"u": [0]}) is ErrorCode.STALE_MEMBER_EPOCH


@pytest.mark.parametrize(
    ("member_id", "epoch", "error"),
    [
        ("a", 3, ErrorCode.NONE),
        ("a", 2, ErrorCode.STALE_MEMBER_EPOCH),
        ("a", -1, ErrorCode.STALE_MEMBER_EPOCH),
        ("c", 3, ErrorCode.UNKNOWN_MEMBER_ID),
        (None, 3, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_whoever_says_who_it_is_must_be_that_to_fetch_offsets(
    member_id: str | None, epoch: int, error: ErrorCode
) -> None:
    assert pair().group.check_fetch(member_id, epoch) is error


def test_a_group_is_what_its_newest_records_say_in_any_order() -> None:
    driver = pair()
    driver.join("c")
    driver.beat("a", 3, owned={"t": [0, 1]})
    driver.require_replayable()
    backwards = dict(reversed(list(driver.log.items())))
    assert driver.reload(backwards).state.currents == driver.state.currents


def test_a_member_of_which_compaction_left_some_records_is_one() -> None:
    driver = pair()
    log = {key: value for key, value in driver.log.items() if key[:2] != b"\0\5"}
    other = driver.reload(log)
    assert set(other.state.members) == {"a", "b"}
    assert other.beat("a", 3, ["t"]).member_epoch == 4
    other.pass_time(45_000)
    assert other.group.is_empty


def test_the_record_of_kafka_4_0_is_removed_where_it_is_met() -> None:
    driver = pair()
    log = driver.log | {b"\0\4\0\1g": b"\0\0\1\0"}
    other = driver.reload(log)
    other.beat("a", 3)
    assert b"\0\4\0\1g" not in other.log
    other.require_replayable()


def test_an_empty_group_ends_with_all_its_records() -> None:
    driver = pair()
    assert driver.group.delete()[0] is ErrorCode.NON_EMPTY_GROUP
    driver.beat("a", -1)
    driver.beat("b", -1)
    code, effects = driver.group.delete()
    assert code is ErrorCode.NONE
    assert driver.group.is_dead
    assert refused(driver, "c", 0, ["t"], owned={}) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    (write,) = effects.writes
    assert {key for key, value in write.records if value is None} == set(driver.log)
    driver.take(driver.group.written(write, ErrorCode.COORDINATOR_NOT_AVAILABLE, **driver.times))
    # Its tombstones may yet be committed: what comes after them is all of the group.
    driver.log.clear()
    driver.join("c")
    driver.require_replayable()


def test_a_pattern_is_resolved_beside_the_heartbeat() -> None:
    driver = ConsumerGroupDriver(orders=2, other=1)
    answer = driver.join("a", None, regex="ord.*")
    assert answer.assigned == frozenset()
    request, driver.resolution = driver.resolution, None
    assert request is not None
    assert request.patterns == {"ord.*"}
    driver.resolve({"ord.*": frozenset({"orders"})})
    told = driver.beat("a", answer.member_epoch, owned={})
    assert told.assigned == partitions({"orders": [0, 1]})
    assert driver.resolution is None
    driver.require_replayable()


def test_the_first_topics_of_a_pattern_wait_for_no_pause_between_assignments() -> None:
    driver = ConsumerGroupDriver(orders=2, t=2)
    driver.host.settings = replace(driver.host.settings, assignment_interval_ms=1_000)
    answer = driver.join("a", None, regex="ord.*")
    assert (answer.member_epoch, driver.state.epoch) == (1, 1)
    assert driver.reload().state.members.keys() == {"a"}
    driver.resolve({"ord.*": frozenset({"orders"})})
    told = driver.beat("a", answer.member_epoch, owned={})
    assert (told.member_epoch, told.assigned) == (2, partitions({"orders": [0, 1]}))
    # A pattern that is looked up beside others costs no assignment before that, either.
    assert driver.join("b", None, regex="t").member_epoch == 2
    assert driver.state.epoch == 2
    # One that is known stands for its topics at once.
    driver.pass_time(1_000)
    assert driver.join("c", None, regex="ord.*").member_epoch == 3
    driver.require_replayable()


def test_a_pattern_that_matches_nothing_yet_costs_no_rebalance() -> None:
    driver = ConsumerGroupDriver(t=1)
    answer = driver.join("a", None, regex="ord.*")
    driver.resolve({"ord.*": frozenset()})
    assert driver.state.epoch == answer.member_epoch == 1
    assert driver.state.regular_expressions["ord.*"].topics == frozenset()
    driver.host.set_topics({"t": 1, "orders": 2})
    driver.resolve({"ord.*": frozenset({"orders"})})
    told = driver.beat("a", 1, owned={})
    assert (told.member_epoch, told.assigned) == (2, partitions({"orders": [0, 1]}))
    driver.require_replayable()


def test_patterns_are_looked_up_again_when_topics_come_or_time_has_gone() -> None:
    driver = ConsumerGroupDriver(orders=1)
    driver.join("a", None, regex="ord.*")
    driver.resolve({"ord.*": frozenset({"orders"})})
    driver.resolution = None
    epoch = driver.state.epoch
    driver.host.set_topics({"orders": 1, "ordinary": 1})
    driver.beat("a", driver.epoch("a"), owned={})
    assert driver.resolution is None
    driver.pass_time(10_000)
    driver.beat("a", driver.epoch("a"), owned={})
    assert driver.asks_for_topics()
    driver.resolve({"ord.*": frozenset({"orders", "ordinary"})})
    assert driver.state.epoch == epoch + 1
    driver.resolution = None
    for _ in range(20):
        driver.pass_time(30_000)
        driver.beat("a", driver.epoch("a"), owned=driver.held("a"))
    assert driver.asks_for_topics()
    # The same topics as before change nothing.
    driver.resolve({"ord.*": frozenset({"orders", "ordinary"})})
    assert driver.state.epoch == epoch + 1


def test_who_subscribes_alone_by_a_pattern_does_not_wait_for_a_pause() -> None:
    """A consumer that is restarted within the pause, or takes another pattern, would read nothing.

    Kafka pauses after the last of the results that the group has, too.
    """
    driver = ConsumerGroupDriver(orders=1, ordinary=1)
    driver.join("a", None, regex="ord.*")
    driver.resolve({"ord.*": frozenset({"orders", "ordinary"})})
    driver.leave(("a", None))
    driver.resolution = None
    driver.join("b", None, regex="ord.*")
    assert driver.asks_for_topics()
    driver.resolve({"ord.*": frozenset({"orders", "ordinary"})})
    driver.resolution = None
    driver.beat("b", driver.epoch("b"), regex="orders", owned={})
    assert driver.asks_for_topics()
    driver.resolve({"orders": frozenset({"orders"})})
    driver.settle("b")
    assert driver.held("b") == {"orders": [0]}
    # One that joins others waits for its turn.
    driver.resolution = None
    driver.join("c", None, regex="ordinary")
    assert driver.resolution is None
    driver.pass_time(10_000)
    driver.beat("c", driver.epoch("c"), owned={})
    assert driver.asks_for_topics()


class Unwalked(dict[str, Any]):
    """Members of whom each can be found, and not all looked at."""

    def _refuse(self, *_: Any) -> Any:
        raise AssertionError("all members were looked at")

    __iter__ = keys = values = items = copy = _refuse


def test_a_heartbeat_without_news_does_not_look_at_all_members() -> None:
    """Ten thousand members send two thousand a second, on the loop that all clients wait for."""
    driver = ConsumerGroupDriver(orders=2, t=2)
    driver.join("a", ["t"], regex="ord.*")
    driver.resolve({"ord.*": frozenset({"orders"})})
    driver.join("b", ["t", "orders"])
    driver.settle("a", "b")
    driver.state.members = Unwalked(driver.state.members)
    for name in ("a", "b", "a"):
        assert driver.beat(name, driver.epoch(name), owned=None).assigned is None


def test_a_first_lookup_that_came_to_nothing_is_repeated_after_the_pause() -> None:
    driver = ConsumerGroupDriver(orders=1)
    driver.join("a", None, regex="ord.*")
    driver.resolve(None)
    driver.resolution = None
    driver.beat("a", driver.epoch("a"), owned={})
    assert driver.resolution is None
    driver.pass_time(10_000)
    driver.beat("a", driver.epoch("a"), owned={})
    assert driver.asks_for_topics()


@pytest.mark.parametrize("is_found", [True, False])
def test_patterns_are_looked_up_again_soon_where_that_came_to_nothing(*, is_found: bool) -> None:
    """What was found could not be written, or nothing could be found."""
    driver = ConsumerGroupDriver(orders=1)
    driver.join("a", None, regex="ord.*")
    driver.resolve({"ord.*": frozenset({"orders"})})
    driver.host.set_topics({"orders": 1, "ordinary": 1})
    driver.pass_time(10_000)
    driver.beat("a", driver.epoch("a"), owned={})
    driver.resolution, driver.auto_commit = None, False
    driver.resolve({"ord.*": frozenset({"orders", "ordinary"})} if is_found else None)
    driver.commit(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    driver.auto_commit = True
    driver.beat("a", driver.epoch("a"), owned=driver.held("a"))
    assert driver.resolution is None
    driver.pass_time(10_000)
    driver.beat("a", driver.epoch("a"), owned=driver.held("a"))
    assert driver.asks_for_topics()
    driver.resolve({"ord.*": frozenset({"orders", "ordinary"})})
    driver.settle("a")
    assert driver.held("a") == {"orders": [0], "ordinary": [0]}


def test_a_pattern_that_nobody_wants_any_more_is_removed() -> None:
    driver = ConsumerGroupDriver(orders=1)
    driver.join("a", None, regex="ord.*")
    driver.resolve({"ord.*": frozenset({"orders"})})
    driver.settle("a")
    before = driver.state.epoch
    driver.beat("a", driver.epoch("a"), regex="", owned={"orders": [0]})
    assert driver.state.regular_expressions == {}
    assert driver.state.epoch == before + 1
    driver.settle("a")
    assert driver.held("a") == {}
    driver.require_replayable()


def test_a_bad_pattern_is_refused_before_anything_else() -> None:
    driver = pair()
    for pattern in ("(", "(?=x)"):
        code = refused(driver, "a", 3, regex=pattern)
        assert code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_names_and_a_pattern_are_read_together() -> None:
    driver = ConsumerGroupDriver(orders=1, t=1)
    driver.join("a", ["t"], regex="ord.*")
    driver.resolve({"ord.*": frozenset({"orders"})})
    driver.settle("a")
    assert driver.held("a") == {"orders": [0], "t": [0]}
    assert driver.group.topics_in_use() == {"orders", "t"}
