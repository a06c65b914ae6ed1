"""Whether the kopf process of this pod still acts: a file lock beside the socket.

Both processes run in separate containers, and the kubelet stops each by itself. The Lease may be
released only once neither of them acts. The kernel releases this lock even if its holder is killed.
"""

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

LOOK_S: Final = 0.02


def lock_path(socket: Path) -> Path:
    """Return the path of the lock, beside the controller's socket."""
    return socket.with_suffix(".acting")


@asynccontextmanager
async def acting(path: Path) -> AsyncIterator[None]:
    """Hold the lock while this process acts; first wait for a process that has not ended yet.

    The holder then checks again whether it may act: the controller may have checked the lock
    before.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(LOOK_S)
        yield
    finally:
        os.close(descriptor)


def is_acting(path: Path) -> bool:
    """Tell whether a process holds the lock; without the file no process ever did."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


async def wait_until_idle(path: Path, *, timeout_s: float) -> bool:
    """Wait until no process acts; return False if one still does after the timeout."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while is_acting(path):
        if asyncio.get_running_loop().time() >= deadline:
            return False
        await asyncio.sleep(LOOK_S)
    return True
