"""Electors of candidates on a real ensemble, without the processes around them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from waiting import until
from zookeeper_store import connected

from fairlead_controller.zookeeper.elector import Elector
from fairlead_controller.zookeeper.memory import CandidateMemory
from fairlead_zookeeper.znodes import CandidateRecord

if TYPE_CHECKING:
    from pathlib import Path

    from fairlead_zookeeper.address import ZooKeeperAccess
    from fairlead_zookeeper.client import ZooKeeperClient

SECRET = b"a secret of tests only"


def elector(client: ZooKeeperClient, folder: Path, host: str) -> Elector:
    folder.mkdir()
    record = CandidateRecord("controller-10001", 10001, host, 9191, 8170)
    return Elector(client, record, CandidateMemory(folder), SECRET)


def test_a_number_that_a_controller_on_another_host_has_is_refused(
    access: ZooKeeperAccess, tmp_path: Path
) -> None:
    """Settings were copied. Each would take the other for what it was before its own restart."""

    async def story() -> None:
        async with connected(access) as one, connected(access) as two:
            first = elector(one, tmp_path / "a", "a.example")
            fence = await first.acquire()
            keeping = asyncio.create_task(first.keep())
            second = elector(two, tmp_path / "b", "b.example")
            contending = asyncio.create_task(second.acquire())
            await until(lambda: second.problem or contending.done())
            assert not contending.done()
            assert "node.id=10001 is in use by the controller at a.example:9191" in second.problem
            assert first.fence == fence
            assert not keeping.done()
            keeping.cancel()
            await first.release()
            await one.stop()
            await contending
            assert second.problem == ""

    asyncio.run(story())
