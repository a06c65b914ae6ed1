"""What the controller is told of logs while nobody is known to hold all of a partition."""

import asyncio
from typing import Any

import pytest
from waiting import until

from fairlead_broker.session import replica_reporter
from fairlead_model.session.session_messages import is_call_acceptable, pack_message


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


def test_all_replicas_of_a_very_large_disk_that_is_full_are_told_of(stage: Any) -> None:
    """One call with all of them was too large, and was tried for ever."""
    stage.controller.script["report_offline"] = lambda _: {}
    full = {(bytes([topic]) * 16, index) for topic in range(1, 46) for index in range(1_000)}

    async def tell() -> None:
        stage.broker.reporter.tell_full(full)
        await stage.broker.reporter._full_task

    stage.run(tell())
    told: list[tuple[bytes, int]] = []
    bodies = [body for method, body in stage.controller.calls if method == "report_offline"]
    for body in bodies:
        assert is_call_acceptable(pack_message("call", id=1, method="report_offline", body=body))
        keys = [(each["topic_id"], each["index"]) for each in body["partitions"]]
        after, until = body.get("after"), body.get("until")
        assert (after is None) == (not told)
        assert after is None or (after["topic_id"], after["index"]) == told[-1]
        assert until is None or (until["topic_id"], until["index"]) == keys[-1]
        told += keys
    assert bodies[-1].get("until") is None
    assert told == sorted(full)


def test_what_changes_between_two_calls_about_a_full_disk_is_told_of_at_once(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_reporter, "FULL_REPLICAS_PER_REPORT_MAX", 2)
    full = [(b"t" * 16, index) for index in range(5)]
    reporter = stage.broker.reporter

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        if len(body["partitions"]) == 2:
            reporter.tell_full(full[:1])
        return {}

    stage.controller.script["report_offline"] = answer

    async def tell() -> None:
        reporter.tell_full(full)
        await reporter._full_task

    stage.run(tell())
    assert reports(stage, "report_offline") == [2, 1]


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
