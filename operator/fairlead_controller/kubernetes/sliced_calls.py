"""Submits a large request in slices, so that the sessions of brokers are served in between."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from fairlead_controller.controller import Controller
from fairlead_controller.decisions.events import Event


async def submit_slices(controller: Controller, events: Iterable[Event]) -> dict[str, Any]:
    """Submit events in order; return the results of all once they are durable.

    RefusedError if the controller is overloaded or ends: some events may have been carried out.
    """
    waits: list[asyncio.Task[Mapping[str, Any]]] = []
    results: dict[str, Any] = {}
    try:
        for event in events:
            waits.append(asyncio.create_task(controller.submit(event)))
            await asyncio.sleep(0)  # the slice is decided now; the loop turns before the next
        # Not a TaskGroup: it would wrap a refusal in a group, which no caller catches as a refusal.
        for reply in await asyncio.gather(*waits):
            results.update(reply["results"])
    finally:
        for wait in waits:
            wait.cancel()
    return results
