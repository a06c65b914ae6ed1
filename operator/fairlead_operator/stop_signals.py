"""SIGTERM and SIGINT, and how the kopf process ends: soon, and in good order.

kopf handles these signals itself as soon as it runs. It then ends alone and gives every task of the
process five seconds; only after that this module would learn of it. So it handles the signals again
(`listen`), and cancels everything that this process does at once.
"""

import asyncio
import io
import logging
import signal
from collections.abc import Collection, Coroutine
from typing import Any, Final, TypeVar

logger = logging.getLogger(__name__)

STOP_S: Final = 3.0
"""How long tasks that were cancelled may take before they are named, and left behind."""

_Outcome = TypeVar("_Outcome")


class StopSignals:
    """Made in a running loop, and listening from then on."""

    def __init__(self) -> None:
        self._asked = asyncio.Event()
        self.listen()

    def listen(self) -> None:
        """Handle the signals; call it again after other code has replaced the handlers."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._asked.set)

    async def run(self, work: Coroutine[Any, Any, _Outcome]) -> _Outcome | None:
        """Return what `work` gives, or None if it had to be stopped before."""
        working = asyncio.create_task(work, name="operator")
        asked = asyncio.create_task(self._asked.wait(), name="stop signals")
        await asyncio.wait({working, asked}, return_when=asyncio.FIRST_COMPLETED)
        asked.cancel()
        if not working.done():
            logger.info("ending: asked to stop")
            await end_tasks({working})
        if not working.done() or working.cancelled():
            return None
        return working.result()


async def end_tasks(tasks: Collection[asyncio.Task[Any]]) -> bool:
    """Cancel tasks and wait for them; name those that do not end, and tell whether all did."""
    for task in tasks:
        task.cancel()
    if not tasks:
        return True
    _, left = await asyncio.wait(tasks, timeout=STOP_S)
    for task in left:
        logger.error("%s does not end:\n%s", task.get_name(), _where(task))
    return not left


async def end_all_tasks() -> bool:
    """End whatever else runs on this loop; tell whether it did."""
    return await end_tasks(asyncio.all_tasks() - {asyncio.current_task()})


def _where(task: asyncio.Task[Any]) -> str:
    stack = io.StringIO()
    task.print_stack(file=stack)
    return stack.getvalue()
