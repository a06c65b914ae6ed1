"""Many resources in one request: a refusal of the controller is told as any other call's."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from controller_bench import running_controller

from fairlead_controller import controller as shell
from fairlead_controller.decisions.tables.stored_table import StoreError
from fairlead_controller.kubernetes.topic_resource_calls import TopicDefaults, apply_topics
from fairlead_controller.kubernetes.user_resource_calls import apply_users
from fairlead_model.session.refusals import RefusalCode, RefusedError

if TYPE_CHECKING:
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
