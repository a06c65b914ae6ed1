"""The Lease is given back only once the kopf process of the pod acts no more."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import DEADLINE_S

from fairlead_controller.kubernetes.acting_lock import (
    acting,
    is_acting,
    lock_path,
    wait_until_idle,
)

HOLDER = """
import asyncio, sys
from pathlib import Path
from fairlead_controller.kubernetes.acting_lock import acting
async def hold():
    async with acting(Path(sys.argv[1])):
        print("acting", flush=True)
        await asyncio.Event().wait()
asyncio.run(hold())
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return lock_path(tmp_path / "controller.sock")


@pytest.fixture
def holder(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that acts."""
    command = [sys.executable, "-c", HOLDER, str(path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "acting\n"
        yield process
    finally:
        process.kill()
        process.communicate(timeout=DEADLINE_S)


def test_a_process_that_is_killed_acts_no_more(path: Path, holder: subprocess.Popen[str]) -> None:
    assert is_acting(path)
    assert not asyncio.run(wait_until_idle(path, timeout_s=0.1))
    holder.send_signal(signal.SIGKILL)
    assert asyncio.run(wait_until_idle(path, timeout_s=DEADLINE_S))
    assert not is_acting(path)


def test_nobody_acts_where_nobody_ever_did(path: Path) -> None:
    assert not is_acting(path)
    assert asyncio.run(wait_until_idle(path, timeout_s=0.0))
    assert not path.exists(), "looking leaves nothing behind"


def test_one_acts_after_the_other(path: Path, holder: subprocess.Popen[str]) -> None:
    async def scenario() -> None:
        entered = asyncio.Event()

        async def follow() -> None:
            async with acting(path):
                entered.set()
                assert is_acting(path)

        following = asyncio.create_task(follow())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(entered.wait(), 0.2)
        holder.kill()
        await asyncio.wait_for(following, DEADLINE_S)

    asyncio.run(scenario())
    assert not is_acting(path)


def test_looking_keeps_nobody_from_acting(path: Path) -> None:
    async def scenario() -> None:
        async with acting(path):
            assert is_acting(path)
            assert is_acting(path)

    asyncio.run(scenario())
    assert not is_acting(path)
