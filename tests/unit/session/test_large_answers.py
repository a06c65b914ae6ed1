"""Answers that do not fit into a message of a session."""

from collections.abc import Callable
from typing import Any

import pytest

from fairlead_controller.decisions.events import ListReassignments
from fairlead_model.configs.controller_configs import SessionTiming
from fairlead_model.session.calls import OngoingReassignment
from fairlead_wire.errors import ErrorCode, KafkaError

PATIENT = SessionTiming(session_timeout_ms=60_000)
"""A session that outlasts each stall of the one process in which all run."""


@pytest.mark.parametrize(("count", "name_length"), [(30_000, 249), (100_001, 1)])
def test_an_answer_that_is_too_large_is_an_error_and_the_session_lives(
    play: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, count: int, name_length: int
) -> None:
    """Very many partitions may wait to be moved, and any client may ask for a list of all."""
    moving = OngoingReassignment(
        topic="t" * name_length,
        index=0,
        replicas=[1, 2, 3, 4, 5, 6],
        adding=[4, 5, 6],
        removing=[1, 2, 3],
    )

    async def story(stage: Any) -> None:
        await stage.start_controller(timing=PATIENT)
        node = await stage.start_node(0)
        submit = stage.controller.submit

        async def ask(event: Any) -> Any:
            if isinstance(event, ListReassignments):
                return {"partitions": [moving] * count}
            return await submit(event)

        monkeypatch.setattr(stage.controller, "submit", ask)
        body = {"partitions": None}
        with pytest.raises(KafkaError, match="answer is too large") as caught:
            await node.session.call("list_partition_reassignments", body, timeout_ms=30_000)
        assert caught.value.code is ErrorCode.INVALID_REQUEST
        assert node.session.is_connected
        reply = await node.session.call("allocate_producer_ids", {}, timeout_ms=30_000)
        assert reply["count"] == 1000

    play(story)
