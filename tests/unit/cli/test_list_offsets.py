"""Offsets of partitions whose leader moves while they are asked for."""

import time
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from fairlead_cli.client import offsets
from fairlead_cli.client.offsets import list_offsets
from fairlead_cli.errors import CliError

PLACES = [("t", 0), ("t", 1)]
LATEST = OffsetSpec.latest()


class MovingAdmin:
    """Answers with partition 1's refusals one after the other, then with its offset."""

    def __init__(self, *refusals: int) -> None:
        self._refusals = list(refusals)
        self.asked: list[list[int]] = []

    def list_offsets(self, request: dict[TopicPartition, Any], **_: Any) -> dict[Any, Any]:
        self.asked.append([at.partition for at in request])
        return {at: self._answer(at.partition) for at in request}

    def _answer(self, partition: int) -> "Future[Any]":
        answer: Future[Any] = Future()
        if partition == 1 and self._refusals:
            answer.set_exception(KafkaException(KafkaError(self._refusals.pop(0))))
        else:
            answer.set_result(SimpleNamespace(offset=10 + partition))
        return answer


def test_a_partition_whose_leader_has_moved_is_asked_for_again() -> None:
    admin = MovingAdmin(KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)
    assert list_offsets(admin, PLACES, LATEST) == {("t", 0): 10, ("t", 1): 11}
    assert admin.asked == [[0, 1], [1], [1]]


def test_one_that_keeps_moving_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets, "LEADER_PATIENCE_S", 0.05)
    admin = MovingAdmin(*[KafkaError.NOT_LEADER_FOR_PARTITION] * 100)
    with pytest.raises(CliError, match="NOT_LEADER_FOR_PARTITION"):
        list_offsets(admin, PLACES, LATEST)


def test_one_that_has_moved_is_asked_for_again_if_its_refusal_comes_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The broker that led it had no processor for seconds."""
    monkeypatch.setattr(offsets, "LEADER_PATIENCE_S", 2.0)
    admin = MovingAdmin(*[KafkaError.NOT_LEADER_FOR_PARTITION] * 2)
    answer_at_once, pauses_s = admin.list_offsets, iter([2.5])

    def list_offsets_late(*asked: Any, **rest: Any) -> dict[Any, Any]:
        time.sleep(next(pauses_s, 0))
        return answer_at_once(*asked, **rest)

    monkeypatch.setattr(admin, "list_offsets", list_offsets_late)
    assert list_offsets(admin, PLACES, LATEST) == {("t", 0): 10, ("t", 1): 11}


def test_another_refusal_is_told_at_once() -> None:
    admin = MovingAdmin(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(CliError, match="TOPIC_AUTHORIZATION_FAILED"):
        list_offsets(admin, PLACES, LATEST)
    assert len(admin.asked) == 1


def test_nothing_is_asked_for_nothing() -> None:
    admin = MovingAdmin()
    assert list_offsets(admin, [], LATEST) == {}
    assert admin.asked == []
