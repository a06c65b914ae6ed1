"""The child process that compacts: started for the first order, ended when there is none left.

A plain `Popen` and a watched pipe: asyncio's own subprocesses leave pipes open when the task that
waits for them is cancelled at the wrong moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

from fairlead_broker.limits import CLEANER_MESSAGE_BYTES_MAX, CLEANER_SILENCE_S
from fairlead_broker.log.compaction.cleaner_worker import encode_order

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence
    from concurrent.futures import Executor

    from fairlead_broker.log.compaction.log_cleaning import CleaningOrder

READ_BYTES: Final = 64 * 1024
COMMAND: Final = (sys.executable, "-m", "fairlead_broker.log.compaction.cleaner_worker")


class CleanerDiedError(Exception):
    """The child ended in the middle of an order, or sent an invalid message."""


class CleanerProcess:
    """At most one child process; each order ends with a report, or a reason why not."""

    def __init__(self, executor: Executor, command: Sequence[str] = COMMAND) -> None:
        self._executor = executor
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""

    @property
    def pid(self) -> int | None:
        """Of the child, if there is one."""
        return None if self._process is None else self._process.pid

    async def run(self, order: CleaningOrder) -> AsyncGenerator[dict[str, Any], None]:
        """Messages of the child about an order, as `cleaner_worker` says. CleanerDiedError.

        A caller that leaves before the last message has to `kill` the child.
        """
        try:
            process = self._process or self._start()
        except OSError as error:
            raise CleanerDiedError(f"the cleaner could not be started: {error}") from error
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CLEANER_SILENCE_S):
                # In a thread: the child may take a while before it reads.
                await loop.run_in_executor(self._executor, _write, process, encode_order(order))
        except TimeoutError as error:
            raise _silent() from error
        except OSError as error:
            raise CleanerDiedError(f"the cleaner hung up: {error}") from error
        while True:
            message = _decode(await self._read_line(process))
            yield message
            if "bytes" not in message and "group" not in message:
                return

    async def kill(self) -> None:
        """End the child, idle or not; the files of an unfinished order are of no use."""
        process = self._process
        if process is None:
            return
        process.kill()
        # It ends at once, unless the disk hangs; wait for it even if this task was cancelled.
        waiting = asyncio.get_running_loop().run_in_executor(self._executor, _reap, process)
        await asyncio.shield(waiting)
        self._process = None

    def _start(self) -> subprocess.Popen[bytes]:
        self._rest = b""
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        return self._process

    async def _read_line(self, process: subprocess.Popen[bytes]) -> bytes:
        while b"\n" not in self._rest:
            try:
                async with asyncio.timeout(CLEANER_SILENCE_S):
                    data = await _read(process)
            except TimeoutError as error:
                raise _silent() from error
            if not data:
                raise CleanerDiedError("the cleaner ended unexpectedly")
            self._rest += data
            if len(self._rest) > CLEANER_MESSAGE_BYTES_MAX:
                raise CleanerDiedError(f"a message of {len(self._rest)} bytes from the cleaner")
        line, _, self._rest = self._rest.partition(b"\n")
        return line


def _decode(line: bytes) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except ValueError as error:
        raise CleanerDiedError(f"the cleaner said {line[:80]!r}") from error
    if not isinstance(message, dict):
        raise CleanerDiedError(f"the cleaner said {line[:80]!r}")
    return message


def _silent() -> CleanerDiedError:
    return CleanerDiedError(f"the cleaner has said nothing for {CLEANER_SILENCE_S} seconds")


def _reap(process: subprocess.Popen[bytes]) -> None:
    """Wait for a killed child, then close its pipes: before, a write may hang in one of them."""
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()


def _write(process: subprocess.Popen[bytes], line: bytes) -> None:
    if process.stdin is None:
        raise BrokenPipeError("no pipe to the cleaner")
    process.stdin.write(line)
    process.stdin.flush()


async def _read(process: subprocess.Popen[bytes]) -> bytes:
    """Return what the child has said since; nothing once it is gone."""
    if process.stdout is None:
        return b""
    loop, fd = asyncio.get_running_loop(), process.stdout.fileno()
    readable = asyncio.Event()
    loop.add_reader(fd, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(fd)
    return os.read(fd, READ_BYTES)
