"""What the controller is told of logs while nobody is known to hold all of a partition."""

import asyncio
from typing import Any


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
