"""What a member commits and when, with a consumer that only takes notes."""

import time
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from fairlead_cli.client import membership
from fairlead_cli.client.assignment import IDLE_PATIENCE_S, Assignment
from fairlead_cli.client.membership import Membership
from fairlead_cli.client.places import Place

A0, A1 = Place("a", 0), Place("a", 1)


@dataclass
class FakeMessage:
    place: Place
    at: int

    def topic(self) -> str:
        return self.place.topic

    def partition(self) -> int:
        return self.place.partition

    def offset(self) -> int:
        return self.at

    def leader_epoch(self) -> int:
        return 3


@dataclass
class FakeConsumer:
    """Fails with `errors` first, then takes what it is given."""

    errors: list[int] = field(default_factory=list)
    commits: list[dict[Place, int]] = field(default_factory=list)
    kinds: list[bool] = field(default_factory=list)

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> Any:
        if self.errors:
            raise KafkaException(KafkaError(self.errors.pop(0)))
        self.commits.append({Place(at.topic, at.partition): at.offset for at in offsets})
        self.kinds.append(asynchronous)
        return offsets

    def committed(self, partitions: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        return [TopicPartition(at.topic, at.partition, 7) for at in partitions if at.partition]


def join(*places: Place, is_committing: bool = True) -> Membership:
    member = Membership("g", Assignment(), start_name="beginning", is_committing=is_committing)
    member.on_assign(FakeConsumer(), [TopicPartition(*place) for place in places])
    return member


def write(member: Membership, *offsets: tuple[Place, int]) -> None:
    member.mark_written([FakeMessage(place, offset) for place, offset in offsets])


def test_only_what_was_written_is_committed_and_only_once() -> None:
    member, consumer = join(A0, A1), FakeConsumer()
    write(member, (A0, 4), (A0, 5), (A1, 9))
    assert member.finish(consumer) is None
    assert member.finish(consumer) is None
    assert (consumer.commits, consumer.kinds) == ([{A0: 6, A1: 10}], [False])


def test_commits_go_out_once_a_second_without_waiting() -> None:
    member, consumer = join(A0), FakeConsumer()
    write(member, (A0, 4))
    assert not member.maybe_commit(consumer)
    member.committed_at = time.monotonic() - membership.COMMIT_INTERVAL_S
    assert member.maybe_commit(consumer)
    assert (consumer.commits, consumer.kinds) == ([{A0: 5}], [True])
    member.on_commit(None, [TopicPartition("a", 0, 5)])
    assert member.find_due() == {}


def test_a_commit_that_failed_is_due_again_and_said_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    member = join(A0)
    write(member, (A0, 4))
    for _ in range(3):
        member.on_commit(KafkaError(KafkaError.ILLEGAL_GENERATION), [])
    assert list(member.find_due()) == [A0]
    assert capsys.readouterr().err.count("offsets not committed") == 1


def test_what_is_revoked_is_committed_first_and_then_forgotten() -> None:
    member, consumer = join(A0, A1), FakeConsumer()
    write(member, (A0, 4), (A1, 9))
    member.on_revoke(consumer, [TopicPartition("a", 0)])
    assert consumer.commits == [{A0: 5}]
    assert member.assignment.places == {A1}
    assert list(member.find_due()) == [A1]


def test_what_is_lost_is_not_committed(capsys: pytest.CaptureFixture[str]) -> None:
    member, consumer = join(A0, A1), FakeConsumer()
    write(member, (A0, 4), (A1, 9))
    member.on_lost(consumer, [TopicPartition("a", 0), TopicPartition("a", 1)])
    assert member.finish(consumer) is None
    assert consumer.commits == []
    assert "lost a: 0-1" in capsys.readouterr().err


def test_the_last_commit_outlives_a_moving_coordinator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(membership, "RETRY_PAUSE_S", 0.0)
    member = join(A0)
    consumer = FakeConsumer([KafkaError.NOT_COORDINATOR, KafkaError._WAIT_COORD])
    write(member, (A0, 4))
    assert member.finish(consumer) is None
    assert consumer.commits == [{A0: 5}]


def test_the_last_commit_says_what_refused_it() -> None:
    member = join(A0)
    write(member, (A0, 4))
    error = member.finish(FakeConsumer([KafkaError.GROUP_AUTHORIZATION_FAILED]))
    assert error is not None
    assert error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED


def test_never_means_never() -> None:
    member, consumer = join(A0, is_committing=False), FakeConsumer()
    write(member, (A0, 4))
    member.committed_at = 0.0
    assert not member.maybe_commit(consumer)
    member.on_revoke(consumer, [TopicPartition("a", 0)])
    assert member.finish(consumer) is None
    assert consumer.commits == []


def test_an_assignment_says_where_it_begins(capsys: pytest.CaptureFixture[str]) -> None:
    join(A0, A1)
    assert capsys.readouterr().err == "group g: assigned a-0 from beginning, a-1 from 7\n"
    join(*(Place("b", number) for number in range(20)))
    assert capsys.readouterr().err == "group g: assigned b: 0-19\n"
    join()
    assert "assigned nothing so far" in capsys.readouterr().err


def test_an_end_that_was_seen_counts_until_the_partition_moves() -> None:
    assignment = Assignment()
    assert not assignment.is_at_end(time.monotonic())
    assignment.add([A0, A1])
    assignment.ended |= {A0, A1}
    assert assignment.is_at_end(time.monotonic())
    assignment.remove([A0])
    assert assignment.is_at_end(time.monotonic())
    assignment.add([A0])
    assert not assignment.is_at_end(time.monotonic())


def test_a_member_without_partitions_waits_before_it_calls_that_the_end() -> None:
    assignment = Assignment()
    assignment.add([])
    assert not assignment.is_at_end(assignment.changed_at + IDLE_PATIENCE_S - 1)
    assert assignment.is_at_end(assignment.changed_at + IDLE_PATIENCE_S)
