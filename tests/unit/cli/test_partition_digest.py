"""The live log in a failover: hundreds of partitions are a line, a few are themselves."""

from dataclasses import replace

import pytest

from fairlead_cli.local.live_log import TerminalReporter
from fairlead_cli.local.partition_digest import LOOKS_HELD_MAX, LogLine, PartitionDigest
from fairlead_controller.decisions.events import PartitionMove
from fairlead_model.ids import TopicId
from fairlead_model.partition import PartitionRegistration

BEFORE = PartitionRegistration(
    replicas=(1, 2, 0), isr=(1, 2, 0), leader=1, leader_epoch=0, partition_epoch=0
)


def moved(topic: str, index: int, *, leader: int = 1, cause: str = "broker 1 is fenced") -> LogLine:
    """What the controller logs of a partition, in its own words."""
    after = replace(BEFORE, isr=(2, 0), leader=leader, leader_epoch=1, partition_epoch=1)
    move = PartitionMove(topic, TopicId(bytes(16)), index, BEFORE, after, cause, "first in sync")
    return LogLine("controller", "INFO", move.sentence())


def more(count: int) -> LogLine:
    return LogLine("controller", "INFO", f"… and {count} more partitions")


def accepted(name: str, topic: str, index: int) -> LogLine:
    return LogLine(name, "INFO", f"in-sync replicas of {topic}-{index}: [2, 1, 0]")


def messages(lines: list[LogLine]) -> list[str]:
    return [line.message for line in lines]


def test_a_few_partitions_are_shown_one_by_one_when_the_next_look_finds_no_more() -> None:
    digest = PartitionDigest()
    lines = [moved("orders", index) for index in range(3)]
    assert digest.take(lines) == []
    assert digest.take([]) == lines
    assert digest.take([]) == []


def test_many_are_one_line_with_counts() -> None:
    digest = PartitionDigest()
    digest.take([moved("my-orders", index) for index in range(7)])
    digest.take([moved("flights", index, leader=2) for index in range(5)])
    (line,) = digest.take([])
    assert line == LogLine(
        "controller",
        "INFO",
        "12 partitions have other leaders or in-sync replicas (broker 1 is fenced): "
        "my-orders 7, flights 5",
    )


def test_those_that_the_controller_only_counts_are_counted() -> None:
    digest = PartitionDigest()
    digest.take([*(moved("orders", index) for index in range(20)), more(201)])
    assert messages(digest.settle()) == [
        "221 partitions have other in-sync replicas (broker 1 is fenced): orders, …"
    ]


def test_each_cause_has_a_line() -> None:
    digest = PartitionDigest()
    lines = []
    for leader in (0, 2):
        cause = f"its leader {leader} proposed it"
        lines += [moved("orders", index, cause=cause) for index in range(20)]
        lines.append(more(leader))
    digest.take(lines)
    assert [text.partition(" ")[0] for text in messages(digest.settle())] == ["20", "22"]


def test_each_broker_has_a_line() -> None:
    digest = PartitionDigest()
    lines = [
        accepted(f"broker-{broker}", topic, index)
        for broker in (0, 2)
        for topic in ("a", "b", "c", "d", "e")
        for index in range(2)
    ]
    digest.take(lines)
    assert digest.settle() == [
        LogLine(name, "INFO", "10 partitions have other in-sync replicas: a 2, b 2, c 2, d 2, …")
        for name in ("broker-0", "broker-2")
    ]


def test_moving_groups_and_deleted_replicas_are_counted() -> None:
    digest = PartitionDigest()
    offsets = "__consumer_offsets"
    texts = [f"no longer coordinating {index} groups of {offsets}-{index}" for index in range(4)]
    texts += [
        f"coordinating 1 groups of {offsets}-{index}: 7 records in 2 ms" for index in range(5)
    ]
    texts += [f"replica gone-{index} is deleted" for index in range(6)]
    assert digest.take([LogLine("broker-0", "INFO", text) for text in texts]) == []
    assert messages(digest.settle()) == [
        f"no longer coordinating 6 groups of 4 partitions: {offsets} 4",
        f"coordinating 5 groups of 5 partitions: {offsets} 5",
        "6 replicas are deleted: gone 6",
    ]


def test_partitions_without_a_leader_are_said() -> None:
    digest = PartitionDigest()
    digest.take([moved("orders", index, leader=-1) for index in range(5)])
    (line,) = digest.settle()
    assert line.message.endswith("orders 5; some have no leader now")


@pytest.mark.parametrize(
    "line",
    [
        LogLine("controller", "WARNING", moved("orders", 1).message),
        LogLine("controller", "INFO", "broker 1 is fenced: its session closed"),
        LogLine("broker-0", "INFO", "in-sync replicas of t-0 stay: NOT_CONTROLLER (x, RETRIED)"),
        LogLine("broker-0", "ERROR", "in-sync replicas of t-0: [1, 2]"),
        LogLine("controller", "INFO", "… and 3 more partitions"),
        LogLine("broker-0", "", "Traceback (most recent call last):"),
    ],
)
def test_everything_else_passes_at_once(line: LogLine) -> None:
    digest = PartitionDigest()
    assert digest.take([line]) == [line]
    assert digest.settle() == []


def test_a_burst_without_end_is_shown_now_and_then() -> None:
    digest = PartitionDigest()
    shown = [
        digest.take([moved("orders", index) for index in range(5)]) for _ in range(LOOKS_HELD_MAX)
    ]
    assert [bool(lines) for lines in shown] == [False] * (LOOKS_HELD_MAX - 1) + [True]
    assert messages(shown[-1])[0].startswith(f"{5 * LOOKS_HELD_MAX} partitions ")


def test_the_live_log_sums_up_unless_it_is_told_not_to(capsys: pytest.CaptureFixture[str]) -> None:
    head = "2026-11-21 05:00:00,123 INFO fairlead_controller.controller: "
    lines = [("controller", head + moved("orders", index).message) for index in range(50)]
    summing = TerminalReporter("")
    summing.output(lines)
    summing.settle()
    assert len(capsys.readouterr().out.splitlines()) == 1
    TerminalReporter("", every_partition=True).output(lines)
    assert len(capsys.readouterr().out.splitlines()) == 50
