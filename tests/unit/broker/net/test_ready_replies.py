"""Replies that become ready together leave together, in the turn that made them ready."""

from collections.abc import Callable
from typing import Any, cast

import pytest

from fairlead_broker.net.ready_replies import ReadyReplies


class Turns:
    """What the loop was asked to call in its next turn."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []

    def call_soon(self, call: Callable[[], None]) -> None:
        self.calls.append(call)

    def run(self) -> None:
        calls, self.calls = self.calls, []
        for call in calls:
            call()


class Sender:
    def __init__(self, on_send: Callable[[], None] = lambda: None) -> None:
        self.sent_count = 0
        self._on_send = on_send

    def send_answered(self) -> None:
        self.sent_count += 1
        self._on_send()


@pytest.fixture
def turns() -> Turns:
    return Turns()


@pytest.fixture
def ready(turns: Turns) -> ReadyReplies:
    return ReadyReplies(cast("Any", turns))


def test_single_ones_leave_in_the_next_turn_together(turns: Turns, ready: ReadyReplies) -> None:
    senders = [Sender(), Sender()]
    for sender in senders:
        ready.add(sender)
    assert (len(ready), len(turns.calls)) == (2, 1)
    turns.run()
    assert [sender.sent_count for sender in senders] == [1, 1]
    assert (len(ready), turns.calls) == (0, [])


def test_those_of_one_check_leave_at_its_end_without_another_turn(
    turns: Turns, ready: ReadyReplies
) -> None:
    sender = Sender()
    with ready:
        ready.add(sender)
        assert sender.sent_count == 0
    assert (sender.sent_count, turns.calls) == (1, [])


def test_they_leave_though_the_check_fails(turns: Turns, ready: ReadyReplies) -> None:
    sender = Sender()
    with pytest.raises(RuntimeError, match="a handler's fault"), ready:
        ready.add(sender)
        raise RuntimeError("a handler's fault")
    assert (sender.sent_count, turns.calls) == (1, [])


def test_one_that_fails_keeps_no_other_back(turns: Turns, ready: ReadyReplies) -> None:
    def fail() -> None:
        raise RuntimeError("a defect")

    senders = [Sender(fail), Sender(), Sender()]
    for sender in senders:
        ready.add(sender)
    with pytest.raises(RuntimeError, match="a defect"):
        turns.run()
    turns.run()
    assert [sender.sent_count for sender in senders] == [1, 1, 1]
    assert (len(ready), turns.calls) == (0, [])


def test_a_check_sends_what_was_ready_before_it(turns: Turns, ready: ReadyReplies) -> None:
    earlier = Sender()
    ready.add(earlier)
    with ready:
        ready.add(Sender())
    assert earlier.sent_count == 1
    turns.run()
    assert earlier.sent_count == 1


def test_what_sending_makes_ready_is_not_lost(turns: Turns, ready: ReadyReplies) -> None:
    follower = Sender()
    with ready:
        ready.add(Sender(lambda: ready.add(follower)))
    assert follower.sent_count == 0
    turns.run()
    assert follower.sent_count == 1
