"""The child process that compacts: started for the first order, ended when there is none left."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any, Final

from fairlead_broker.limits import CLEANER_MESSAGE_BYTES_MAX
from fairlead_broker.log.cleaner_worker import encode_order

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fairlead_broker.log.log_cleaning import CleaningOrder

END_S: Final = 5.0


class CleanerDiedError(Exception):
    """The child ended in the middle of an order."""


class CleanerProcess:
    """At most one child; what it says about an order ends with a report, or why there is none."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int | None:
        """Of the child, if there is one."""
        return None if self._process is None else self._process.pid

    async def run(self, order: CleaningOrder) -> AsyncIterator[dict[str, Any]]:
        """Messages of the child about an order, as `cleaner_worker` says. CleanerDiedError."""
        process = self._process
        if process is None or process.returncode is not None:
            process = self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "fairlead_broker.log.cleaner_worker",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=CLEANER_MESSAGE_BYTES_MAX,
            )
        if process.stdin is None or process.stdout is None:
            raise CleanerDiedError("the cleaner has no pipes")
        try:
            process.stdin.write(encode_order(order))
            await process.stdin.drain()
            while True:
                line = await process.stdout.readline()
                if not line.endswith(b"\n"):
                    raise CleanerDiedError(f"the cleaner ended with {await process.wait()}")
                message = json.loads(line)
                yield message
                if "bytes" not in message and "group" not in message:
                    return
        except ConnectionError as error:
            raise CleanerDiedError(f"the cleaner hung up: {error}") from error

    async def end(self) -> None:
        """Let an idle child go."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        try:
            async with asyncio.timeout(END_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    async def kill(self) -> None:
        """Stop the child in the middle of its order; its files are of no use then."""
        process, self._process = self._process, None
        if process is not None:
            if process.returncode is None:
                process.kill()
            await process.wait()
