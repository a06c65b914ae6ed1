"""Asks a local cluster's controller repeatedly, at its HTTP port, which brokers are alive."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fairlead_cli.local.declared_topics import read_status

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairlead_cli.local.cluster_file import ProcessEntry


@dataclass
class ControllerWatch:
    """`find` returns the controller's present process, `interval_s` the time between requests."""

    find: Callable[[], ProcessEntry]
    interval_s: Callable[[], float]
    fenced_at: dict[int, float] = field(default_factory=dict)
    """Since when each broker has not been alive; absent if it is alive."""
    is_answering: bool = False
    _task: asyncio.Task[None] | None = None

    @property
    def is_content(self) -> bool:
        """Whether the controller answers, and every broker is alive."""
        return self.is_answering and not self.fenced_at

    def start(self) -> None:
        """Begin to ask."""
        self._task = asyncio.create_task(self._follow())

    async def stop(self) -> None:
        """End the task."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _follow(self) -> None:
        while True:
            status: dict[str, Any] | None = None
            with suppress(ValueError):
                status = await read_status(self.find())
            self.is_answering = status is not None
            if status is not None:
                self._take(status)
            await asyncio.sleep(self.interval_s())

    def _take(self, status: dict[str, Any]) -> None:
        now = time.monotonic()
        for broker in status["brokers"]:
            if broker["state"] == "live":
                self.fenced_at.pop(broker["id"], None)
            else:
                self.fenced_at.setdefault(broker["id"], now)
