"""Questions to a coordinator: one of each transactional id at a time, and the newest epoch wins."""

import pytest

from fairlead_broker.transaction.ending import TopicPartition
from fairlead_broker.transaction.verification_plan import (
    RETRIES_END_MS,
    Question,
    QuestionQueue,
)
from fairlead_wire.errors import ErrorCode

T0, T1 = ("t", 0), ("t", 1)


class Asker:
    """Makes questions, numbered in the order in which they are made."""

    def __init__(self) -> None:
        self._number = 0

    def __call__(
        self,
        *partitions: TopicPartition,
        epoch: int = 5,
        transactional_id: str = "id",
        producer_id: int = 7,
    ) -> Question:
        self._number += 1
        return Question(
            transactional_id,
            producer_id,
            epoch,
            frozenset(partitions),
            supports_epoch_bump=False,
            answer=lambda verdicts: None,
            number=self._number,
            asked_ms=1_000,
        )


@pytest.fixture
def ask() -> Asker:
    return Asker()


def test_one_question_of_each_id_goes_into_a_request(ask: Asker) -> None:
    queue = QuestionQueue()
    first, second, other = ask(T0), ask(T1), ask(T0, transactional_id="other")
    for question in (first, second, other):
        assert queue.add(question) == []
    assert queue.take(10) == [first, other]
    assert queue.take(10) == [second]
    assert not queue


def test_a_request_is_bounded_and_the_oldest_go_first(ask: Asker) -> None:
    queue = QuestionQueue()
    questions = [ask(T0, transactional_id=str(number)) for number in range(5)]
    again = ask(T1, transactional_id="0")
    large = ask(T0, T1, ("u", 0), ("u", 1), transactional_id="large")
    for question in (*questions, again, large):
        queue.add(question)
    assert queue.take(3) == questions[:3]
    assert queue.take(3) == questions[3:]
    assert queue.take(3) == [large]
    assert queue.take(3) == [again]


def test_a_newer_epoch_fences_those_that_wait(ask: Asker) -> None:
    queue = QuestionQueue()
    old, older, new = ask(T0, epoch=5), ask(T1, epoch=5), ask(T0, epoch=6)
    queue.add(old)
    queue.add(older)
    fenced = ErrorCode.INVALID_PRODUCER_EPOCH
    assert queue.add(new) == [(old, fenced), (older, fenced)]
    assert queue.take(10) == [new]


def test_an_older_epoch_is_fenced_itself(ask: Asker) -> None:
    queue = QuestionQueue()
    new, too, old = ask(T0, epoch=6), ask(T1, epoch=6), ask(T0, epoch=5)
    queue.add(new)
    queue.add(too)
    assert queue.add(old) == [(old, ErrorCode.INVALID_PRODUCER_EPOCH)]
    assert queue.take(10) == [new]
    assert queue.take(10) == [too]


def test_who_asks_again_has_given_up_the_first_question(ask: Asker) -> None:
    queue = QuestionQueue()
    first, second = ask(T0, T1), ask(T0)
    queue.add(first)
    assert queue.add(second) == [(first, ErrorCode.NETWORK_EXCEPTION)]
    assert queue.take(10) == [second]


def test_a_question_that_comes_back_late_gives_way_to_the_one_after_it(ask: Asker) -> None:
    queue = QuestionQueue()
    first, second = ask(T0), ask(T0)
    queue.add(second)
    assert queue.add(first) == [(first, ErrorCode.NETWORK_EXCEPTION)]
    assert queue.take(10) == [second]


def test_epochs_of_different_producer_ids_are_not_compared(ask: Asker) -> None:
    queue = QuestionQueue()
    before, after = ask(T0, epoch=32_000, producer_id=7), ask(T0, epoch=0, producer_id=8)
    assert queue.add(before) == []
    assert queue.add(after) == []
    assert (queue.take(1), queue.take(1)) == ([before], [after])


def test_the_end_of_the_transaction_before_is_asked_for_again_and_again(ask: Asker) -> None:
    question = ask(T0, T1)
    early = {T0: ErrorCode.CONCURRENT_TRANSACTIONS, T1: ErrorCode.NONE}
    now_ms = question.asked_ms
    pauses = []
    while (pause_ms := question.next_try_ms(early, now_ms)) is not None:
        pauses.append(pause_ms)
        now_ms += pause_ms
    assert pauses == [5, 10, 20, 40, 80]
    assert now_ms >= question.asked_ms + RETRIES_END_MS


def test_other_verdicts_are_final(ask: Asker) -> None:
    question = ask(T0, T1)
    verdicts = {T0: ErrorCode.TRANSACTION_ABORTABLE, T1: ErrorCode.NONE}
    assert question.next_try_ms(verdicts, question.asked_ms) is None
