"""A controller on files, with nobody around it, for the length of a story."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fairlead_controller.controller import Controller, open_controller
from fairlead_controller.decisions.events import ElectLeaders
from fairlead_controller.stores.file import open_file_store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path


def play(directory: Path, story: Callable[[Controller], Awaitable[None]]) -> None:
    """Tell a story to a controller that has taken over the files of a directory."""

    async def run() -> None:
        store = await open_file_store(directory)
        controller = await open_controller(store, now_ms=lambda: 0)
        running = asyncio.create_task(controller.run())
        try:
            await controller.submit(ElectLeaders())
            await story(controller)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await store.close()

    asyncio.run(run())
