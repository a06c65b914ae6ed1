"""Electors of candidates on a real ensemble, without the processes around them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from waiting import until
from zookeeper_store import connected

from fairlead_bench.peers.own_ports import take_ports
from fairlead_controller.zookeeper.elector import Elector
from fairlead_controller.zookeeper.memory import CandidateMemory
from fairlead_zookeeper.znodes import CandidateRecord

if TYPE_CHECKING:
    from pathlib import Path

    from fairlead_zookeeper.address import ZooKeeperAccess
    from fairlead_zookeeper.client import ZooKeeperClient

SECRET = b"a secret of tests only"


def elector(client: ZooKeeperClient, folder: Path, host: str, port: int = 9191) -> Elector:
    folder.mkdir()
    record = CandidateRecord("controller-10001", 10001, host, port, 8170)
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


def test_a_number_that_a_controller_of_another_folder_has_is_refused(
    access: ZooKeeperAccess, tmp_path: Path
) -> None:
    """Both run on this host: the lock of a folder says nothing of the other one."""
    ports = take_ports(2)

    async def story() -> None:
        listening = await asyncio.start_server(
            lambda _, writer: writer.close(), "127.0.0.1", ports[0]
        )
        async with listening, connected(access) as one, connected(access) as two:
            first = elector(one, tmp_path / "a", "127.0.0.1", ports[0])
            fence = await first.acquire()
            keeping = asyncio.create_task(first.keep())
            second = elector(two, tmp_path / "b", "127.0.0.1", ports[1])
            contending = asyncio.create_task(second.acquire())
            await until(lambda: second.problem or contending.done() or keeping.done())
            assert not contending.done()
            assert f"node.id=10001 is in use by the controller at 127.0.0.1:{ports[0]}" in (
                second.problem
            )
            assert first.fence == fence
            assert not keeping.done()
            for task in (keeping, contending):
                task.cancel()

    asyncio.run(story())


@pytest.mark.parametrize("has_another_port", [False, True])
def test_a_number_whose_controller_of_this_host_is_gone_is_taken_at_once(
    access: ZooKeeperAccess, tmp_path: Path, *, has_another_port: bool
) -> None:
    """Its znodes are still there. It may have had another port, because any free one was taken."""
    ports = take_ports(2)

    async def story() -> None:
        async with connected(access) as one, connected(access) as two:
            first = elector(one, tmp_path / "a", "127.0.0.1", ports[0])
            await first.acquire()
            second = elector(two, tmp_path / "b", "127.0.0.1", ports[has_another_port])
            assert (await second.acquire()).controller_epoch == 2
            assert second.problem == ""

    asyncio.run(story())
