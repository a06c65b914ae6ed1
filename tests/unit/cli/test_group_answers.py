"""What brokers answer about groups: partly, not yet, or in the words of another version."""

from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from fairlead_cli.client import coordinators
from fairlead_cli.client.coordinators import settle
from fairlead_cli.client.groups import describe_group, read_committed
from fairlead_cli.client.places import Place

MOVING = KafkaError.NOT_COORDINATOR


def future_of(outcome: object) -> Future[Any]:
    """Already done; an error code is raised."""
    future: Future[Any] = Future()
    if isinstance(outcome, int):
        future.set_exception(KafkaException(KafkaError(outcome)))
    else:
        future.set_result(outcome)
    return future


def answers(*outcomes: object) -> Callable[..., Future[Any]]:
    """One after the other, the last one for ever."""
    left = list(outcomes)
    return lambda *_args, **_named: future_of(left.pop(0) if len(left) > 1 else left[0])


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinators, "RETRY_PAUSE_S", 0.0)


def admin_of(**methods: object) -> Any:
    return SimpleNamespace(**methods)


def test_a_coordinator_that_moves_is_asked_again() -> None:
    ask = answers(KafkaError.COORDINATOR_LOAD_IN_PROGRESS, "answer")
    assert settle(future_of(MOVING), ask) == "answer"


def test_an_error_inside_an_answer_is_asked_again_while_it_passes() -> None:
    ask = answers(MOVING, KafkaError.UNKNOWN_MEMBER_ID)

    def find(answer: object) -> KafkaError | None:
        return KafkaError(answer.code) if isinstance(answer, SimpleNamespace) else None

    passing = future_of(SimpleNamespace(code=MOVING))
    lasting = SimpleNamespace(code=KafkaError.UNKNOWN_MEMBER_ID)
    assert settle(passing, answers(lasting), find) is lasting
    with pytest.raises(KafkaException):
        settle(passing, ask, find)


def test_a_coordinator_that_never_comes_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinators, "REQUEST_TIMEOUT_S", 0.0)
    with pytest.raises(KafkaException) as raised:
        settle(future_of(MOVING), answers(MOVING))
    assert raised.value.args[0].code() == MOVING


def test_a_group_that_newer_brokers_do_not_find_is_dead() -> None:
    missing = KafkaError.GROUP_ID_NOT_FOUND
    admin = admin_of(
        describe_consumer_groups=lambda groups, **_: {groups[0]: future_of(missing)},
        list_consumer_group_offsets=lambda _request, **_: {"g": future_of(missing)},
    )
    assert not describe_group(admin, "g").exists
    assert read_committed(admin, "g") == {}


def test_offsets_keep_their_epoch_where_there_is_one() -> None:
    def at(partition: int, offset: int, epoch: int | None) -> object:
        return SimpleNamespace(
            topic="t",
            partition=partition,
            offset=offset,
            error=None,
            leader_epoch=epoch,
        )

    answer = SimpleNamespace(topic_partitions=[at(2, 5, 3), at(0, 7, None), at(1, -1001, None)])
    admin = admin_of(list_consumer_group_offsets=lambda _request, **_: {"g": future_of(answer)})
    assert read_committed(admin, "g") == {
        Place("t", 0): (7, None, ""),
        Place("t", 2): (5, 3, ""),
    }
