"""What the controller is told of logs while nobody is known to hold all of a partition."""

import asyncio
from typing import Any

import pytest
from waiting import until

from fairlead_broker.session import replica_reporter


def told_ends(stage: Any) -> list[dict[str, Any]]:
    return [
        end
        for method, body in stage.controller.calls
        if method == "report_logs"
        for end in body["partitions"]
    ]


def test_how_far_a_log_goes_is_told_for_the_record_that_asks(stage: Any) -> None:
    stage.controller.script["report_logs"] = lambda _: {}
    topic_id = stage.topic("t")
    stage.append("t", b"a", b"b")
    stage.change("t", isr=(), leader=-1)
    stage.publish()
    assert told_ends(stage) == [
        {"topic_id": topic_id, "index": 0, "leader_epoch": 1, "last_epoch": 0, "log_end_offset": 2}
    ]


def reports(stage: Any, method: str) -> list[int]:
    """Return how many replicas each of the calls told of."""
    return [len(body["partitions"]) for name, body in stage.controller.calls if name == method]


def test_very_many_logs_are_told_of_in_several_calls(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a power cut these may be all; the controller decides a call before it hears others."""
    monkeypatch.setattr(replica_reporter, "REPLICAS_PER_REPORT_MAX", 2)
    stage.controller.script["report_logs"] = lambda _: {}
    names = ["t", "u", "v", "w", "x"]
    topics = {stage.topic(name) for name in names}
    for name in names:
        stage.append(name, b"a")
        stage.change(name, isr=(), leader=-1)
    stage.controller.calls.clear()

    async def ask() -> None:
        reporter = stage.broker.reporter
        reporter.stop()
        await asyncio.sleep(0)
        for name in names:
            reporter.on_recovery_wanted(stage.partition(name))
        await until(lambda: len(told_ends(stage)) == len(names))

    stage.run(ask())
    assert {end["topic_id"] for end in told_ends(stage)} == topics
    assert reports(stage, "report_logs") == [2, 2, 1]


def test_very_many_lost_replicas_are_told_of_in_several_calls(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that fails has them all at once."""
    monkeypatch.setattr(replica_reporter, "REPLICAS_PER_REPORT_MAX", 2)
    stage.controller.script["report_offline"] = lambda _: {}
    topics = {name: stage.topic(name) for name in ("t", "u", "v", "w", "x")}

    async def fail() -> None:
        for name, topic_id in topics.items():
            stage.broker.reporter.on_unusable(name, topic_id, 0)
        reporting = stage.broker.reporter._task
        await reporting

    stage.run(fail())
    assert reports(stage, "report_offline") == [2, 2, 1]


def test_a_log_that_may_still_grow_is_not_told_of(stage: Any) -> None:
    """The image has the next record already, the replica acts on it in a later turn."""
    stage.controller.script["report_logs"] = lambda _: {}
    stage.topic("t")
    partition = stage.partition("t")
    stage.change("t", isr=(), leader=-1)
    partition.leader_epoch -= 1
    stage.controller.calls.clear()

    async def ask() -> None:
        stage.broker.reporter.stop()
        await asyncio.sleep(0)
        stage.broker.reporter.on_recovery_wanted(partition)

    stage.run(ask())
    stage.publish()
    assert told_ends(stage) == []
