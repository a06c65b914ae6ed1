"""Many resources in one request: a refusal of the controller is told as any other call's."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest
from controller_bench import running_controller

from fairlead_controller import controller as shell
from fairlead_controller.decisions.tables.stored_table import StoreError
from fairlead_controller.kubernetes import topic_resource_calls
from fairlead_controller.kubernetes.topic_resource_calls import (
    TopicDefaults,
    TopicRequest,
    apply_topics,
    read_topic_request,
)
from fairlead_controller.kubernetes.user_resource_calls import apply_users
from fairlead_model.session.refusals import RefusalCode, RefusedError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from fairlead_controller.controller import Controller

FORGET = [f"r-{number}" for number in range(120)]


async def forget_topics(controller: Controller) -> None:
    forget = [{"resource": name, "deleteTopic": False} for name in FORGET]
    await apply_topics(controller, {"forget": forget}, TopicDefaults())


async def forget_users(controller: Controller) -> None:
    sessions: Any = None
    await apply_users(controller, sessions, {"forget": FORGET})


@pytest.mark.parametrize("call", [forget_topics, forget_users])
def test_a_controller_that_ends_says_so(tmp_path: Path, call: Any) -> None:
    async def play() -> None:
        async with running_controller(tmp_path) as controller:
            controller.end(StoreError("its store is gone"))
            with pytest.raises(RefusedError) as refused:
                await call(controller)
            assert refused.value.code is RefusalCode.NOT_CONTROLLER

    asyncio.run(play())


@pytest.mark.parametrize("call", [forget_topics, forget_users])
def test_a_controller_with_too_much_to_do_says_so(
    tmp_path: Path, call: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play() -> None:
        async with running_controller(tmp_path) as controller:
            monkeypatch.setattr(shell, "EVENTS_WAITING_MAX", 0)
            with pytest.raises(RefusedError) as refused:
                await call(controller)
            assert refused.value.code is RefusalCode.REQUEST_TIMED_OUT

    asyncio.run(play())


def test_many_manifests_are_read_beside_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticked = threading.Event()

    def wait_for_the_loop(request: Mapping[str, Any]) -> TopicRequest:
        assert ticked.wait(5), "the loop stands still"
        return read_topic_request(request)

    async def play() -> None:
        async with running_controller(tmp_path) as controller:
            monkeypatch.setattr(topic_resource_calls, "read_topic_request", wait_for_the_loop)
            applying = asyncio.create_task(forget_topics(controller))
            await asyncio.sleep(0)
            ticked.set()
            await applying

    asyncio.run(play())
