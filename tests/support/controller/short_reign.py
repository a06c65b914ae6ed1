"""A controller that reigns only until it has handled some events."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from fairlead_controller.controller import open_controller
from fairlead_controller.stores.file import open_file_store

if TYPE_CHECKING:
    from pathlib import Path

    from fairlead_controller.decisions.events import Event
    from fairlead_controller.decisions.state import ControllerState


async def reign(directory: Path, *events: Event) -> ControllerState:
    """Let a controller handle some events; return its last committed state."""
    store = await open_file_store(directory)
    try:
        source = random.Random(str(directory))
        controller = await open_controller(store, now_ms=lambda: 1, random_source=source)
        task = asyncio.create_task(controller.run())
        try:
            for event in events:
                await controller.submit(event)
            return controller.committed
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    finally:
        await store.close()
