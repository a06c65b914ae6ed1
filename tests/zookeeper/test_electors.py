"""Electors of candidates on a real ensemble, without the processes around them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from kazoo.security import OPEN_ACL_UNSAFE, make_acl, make_digest_acl
from waiting import until
from zookeeper_store import connected

from fairlead_bench.peers.own_ports import take_ports
from fairlead_controller.zookeeper.elector import Elector
from fairlead_controller.zookeeper.memory import CandidateMemory
from fairlead_model.broker import BrokerRegistration
from fairlead_zookeeper.znodes import (
    CandidateRecord,
    broker_value,
    candidate_path,
    candidate_value,
    cluster_value,
    controller_value,
    root_value,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kazoo.client import KazooClient
    from zookeeper_ensemble import ZooKeeperEnsemble

    from fairlead_zookeeper.address import ZooKeeperAccess
    from fairlead_zookeeper.client import ZooKeeperClient

SECRET = b"a secret of tests only"
THEIRS = make_digest_acl("somebody", "secret", all=True)


def elector(
    client: ZooKeeperClient, folder: Path, host: str, port: int = 9191, *, node_id: int = 10001
) -> Elector:
    folder.mkdir()
    record = CandidateRecord(f"controller-{node_id}", node_id, host, port, 8170)
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


HIDDEN = (
    "/brokers/ids",
    "/brokers/ids/3",
    "/brokers/topics",
    "/cluster/id",
    "/fairlead/candidates/controller-10001",
)


@pytest.mark.parametrize("path", HIDDEN)
def test_a_znode_that_is_hidden_in_our_tree_keeps_nobody_from_a_takeover(
    ours: tuple[ZooKeeperAccess, KazooClient],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    path: str,
) -> None:
    """A person may set an ACL on any of them; who leads must not depend on it."""
    access, tool = ours

    async def story() -> None:
        async with connected(access) as one, connected(access) as two:
            holder = elector(one, tmp_path / "a", "127.0.0.1", take_ports(1)[0])
            await holder.acquire()
            tool.set_acls(path, [THEIRS])
            second = elector(two, tmp_path / "b", "127.0.0.1", node_id=10002)
            contending = asyncio.create_task(second.acquire())
            await until(lambda: second.holder == "controller-10001" or second.problem)
            assert await holder._reason_to_end() == ""
            await one.stop()
            assert (await contending).controller_epoch == 2
            assert second.problem == ""

    asyncio.run(story())
    said = [each for each in caplog.messages if each.startswith(f"{path} is passed over")]
    assert len(said) in (1, 2), "each candidate names it once"


def test_a_znode_that_is_hidden_in_a_tree_of_nobody_is_not_passed_over(
    access: ZooKeeperAccess, zookeeper: ZooKeeperEnsemble, zookeeper_chroot: str, tmp_path: Path
) -> None:
    """It may be that of a Kafka broker."""

    async def story(tool: KazooClient) -> None:
        tool.ensure_path("/brokers/ids")
        tool.create("/brokers/ids/3", b"", acl=[THEIRS])
        async with connected(access) as client:
            mine = elector(client, tmp_path / "a", "127.0.0.1")
            contending = asyncio.create_task(mine.acquire())
            await until(lambda: mine.problem)
            contending.cancel()
            assert mine.problem.startswith("/brokers/ids/3 cannot be read")
        assert not tool.exists("/controller_epoch")

    with zookeeper.client(zookeeper_chroot) as tool:
        asyncio.run(story(tool))


@pytest.mark.parametrize("path", ["/controller_epoch", "/fairlead"])
def test_an_election_that_an_acl_prevents_says_so_once_and_waits(
    ours: tuple[ZooKeeperAccess, KazooClient],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    path: str,
) -> None:
    """It was tried 20 times a second, as if others had been faster; no page named the reason."""
    access, tool = ours
    caplog.set_level("INFO")

    async def story() -> None:
        tool.create("/controller_epoch", b"7")
        tool.set_acls(path, [THEIRS, make_acl("world", "anyone", read=path != "/fairlead")])
        async with connected(access) as client:
            mine = elector(client, tmp_path / "a", "127.0.0.1")
            contending = asyncio.create_task(mine.acquire())
            await until(lambda: mine.problem)
            assert f"{path}: NoAuthError" in mine.problem
            await asyncio.sleep(2)
            assert sum("contending" in each for each in caplog.messages) <= 2
            assert sum("NoAuthError" in each for each in caplog.messages) == 1
            tool.add_auth("digest", "somebody:secret")
            tool.set_acls(path, OPEN_ACL_UNSAFE)
            assert (await contending).controller_epoch == 8
            assert mine.problem == ""

    asyncio.run(story())


def test_znodes_of_a_copied_tree_are_of_no_controller(
    ours: tuple[ZooKeeperAccess, KazooClient], tmp_path: Path
) -> None:
    """Programs that copy trees make ephemeral znodes anew as ones that stay."""
    access, tool = ours
    gone = CandidateRecord("controller-10002", 10002, "b.example", 9191, 8170)
    same = CandidateRecord("controller-10001", 10001, "a.example", 9191, 8170)
    tool.create("/controller_epoch", b"7")
    tool.create("/controller", controller_value(gone, 0))
    for each in (gone, same):
        tool.create(candidate_path(each.identity), candidate_value(each), makepath=True)

    async def story() -> None:
        async with connected(access) as client, asyncio.timeout(30):
            mine = elector(client, tmp_path / "a", "c.example")
            assert (await mine.acquire()).controller_epoch == 8
            znode = await client.get("/controller")
            assert znode is not None
            assert znode.stat.owner == client.session_id

    asyncio.run(story())


@pytest.mark.parametrize("number", [b"2147483648", b"9" * 5000])
def test_an_epoch_that_nobody_can_follow_is_named(
    ours: tuple[ZooKeeperAccess, KazooClient], tmp_path: Path, number: bytes
) -> None:
    access, tool = ours
    tool.create("/controller_epoch", number)

    async def story() -> None:
        async with connected(access) as client:
            mine = elector(client, tmp_path / "a", "127.0.0.1")
            contending = asyncio.create_task(mine.acquire())
            await until(lambda: mine.problem or contending.done())
            assert not contending.done()
            assert mine.problem.startswith("/controller_epoch is no epoch: '")
            contending.cancel()

    asyncio.run(story())


@pytest.fixture
def ours(
    access: ZooKeeperAccess, zookeeper: ZooKeeperEnsemble, zookeeper_chroot: str
) -> Iterator[tuple[ZooKeeperAccess, KazooClient]]:
    """A tree of a cluster of ours, with a broker and a table, and a tool's client."""
    broker = broker_value(BrokerRegistration(3, directory_id="d"), 0)
    with zookeeper.client(zookeeper_chroot) as tool:
        for path, value in (
            ("/fairlead", root_value("A")),
            ("/fairlead/tables/cluster", b""),
            ("/cluster/id", cluster_value("A")),
            ("/brokers/topics", b""),
            ("/brokers/ids/3", broker),
        ):
            tool.create(path, value, makepath=True)
        yield access, tool
