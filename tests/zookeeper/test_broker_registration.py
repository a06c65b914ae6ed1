"""A broker's znode, and how it finds the controllers."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from kazoo.exceptions import NoAuthError
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl
from waiting import until
from zookeeper_store import connected

from fairlead_broker.session.zookeeper_registration import (
    BrokerIdTakenError,
    ZooKeeperRegistration,
)
from fairlead_model.broker import BrokerRegistration, Endpoint
from fairlead_zookeeper.operations import Create, Delete
from fairlead_zookeeper.znodes import (
    CANDIDATES,
    CandidateRecord,
    broker_directory,
    candidate_path,
    candidate_value,
    decode,
)

if TYPE_CHECKING:
    from kazoo.client import KazooClient
    from zookeeper_ensemble import ZooKeeperEnsemble

    from fairlead_zookeeper.address import ZooKeeperAccess
    from fairlead_zookeeper.client import ZooKeeperClient

PATH = "/brokers/ids/3"


def registration(directory: str = "d", start: str = "s") -> BrokerRegistration:
    ends = (Endpoint("CLIENT", "h", 9092), Endpoint("INTERNAL", "h", 9094, is_internal=True))
    return BrokerRegistration(3, endpoints=ends, rack="r", directory_id=directory, start_id=start)


def patient(access: ZooKeeperAccess) -> ZooKeeperAccess:
    """Give a session that is not to end, whatever is done to servers and processor."""
    return replace(access, session_timeout_ms=10_000)


async def add_candidate(client: ZooKeeperClient, number: int) -> str:
    await client.ensure_path(CANDIDATES)
    record = CandidateRecord(f"controller-{number}", number, "127.0.0.1", 9000 + number, 1)
    path = candidate_path(record.identity)
    await client.multi([Create(path, candidate_value(record))])
    return path


def test_a_broker_announces_itself_as_kafka_does_and_leaves_nothing_behind(
    access: ZooKeeperAccess,
) -> None:
    async def story() -> None:
        async with connected(patient(access)) as client:
            mine = ZooKeeperRegistration(
                patient(access), registration(), on_controllers=lambda urls: None
            )
            mine.start()
            await mine.announced
            await client.sync(PATH)
            znode = await client.get(PATH)
            assert znode is not None
            record = decode(znode.data)
            assert record is not None
            assert (record["version"], record["host"], record["port"]) == (5, "h", 9092)
            assert record["endpoints"] == ["CLIENT://h:9092", "INTERNAL://h:9094"]
            assert record["rack"] == "r"
            assert znode.stat.owner != 0
            await mine.stop()
            await until(lambda: _is_gone(client))

    asyncio.run(story())


def test_a_broker_that_comes_first_opens_nothing_of_ours_to_others(
    access: ZooKeeperAccess, zookeeper: ZooKeeperEnsemble, zookeeper_chroot: str
) -> None:
    async def story() -> None:
        own = replace(patient(access), digest="fairlead:secret", sets_acl=True)
        found: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        mine = ZooKeeperRegistration(own, registration(), on_controllers=found.set_result)
        mine.start()
        await mine.announced
        async with connected(own) as client:
            await add_candidate(client, 10_001)
            assert await found == ["ws://127.0.0.1:19001"]
        with zookeeper.client(zookeeper_chroot) as anyone:
            assert anyone.get(PATH)[0]
            for path in ("/fairlead", CANDIDATES):
                with pytest.raises(NoAuthError):
                    anyone.get_children(path)
        await mine.stop()

    asyncio.run(story())


def test_controllers_are_found_and_followed(access: ZooKeeperAccess) -> None:
    async def story() -> None:
        async with connected(patient(access)) as client:
            told: list[list[str]] = []
            mine = ZooKeeperRegistration(access, registration(), on_controllers=told.append)
            mine.start()
            await mine.announced
            assert told == []
            first = await add_candidate(client, 1)
            await until(lambda: told == [["ws://127.0.0.1:9001"]])
            await add_candidate(client, 2)
            await until(lambda: told[-1] == ["ws://127.0.0.1:9001", "ws://127.0.0.1:9002"])
            await client.multi([Delete(first)])
            await until(lambda: told[-1] == ["ws://127.0.0.1:9002"])
            await mine.stop()

    asyncio.run(story())


def test_a_controller_whose_znode_is_hidden_hides_no_other(
    access: ZooKeeperAccess,
    zookeeper: ZooKeeperEnsemble,
    zookeeper_chroot: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A broker that was started then found no controller, and did not serve."""

    async def story(tool: KazooClient) -> None:
        async with connected(patient(access)) as client:
            hidden = await add_candidate(client, 1)
            tool.set_acls(hidden, [make_digest_acl("somebody", "secret", all=True)])
            await add_candidate(client, 2)
            told: list[list[str]] = []
            mine = ZooKeeperRegistration(access, registration(), on_controllers=told.append)
            mine.start()
            await until(lambda: told == [["ws://127.0.0.1:9002"]])
            await add_candidate(client, 3)
            await until(lambda: told[-1] == ["ws://127.0.0.1:9002", "ws://127.0.0.1:9003"])
            said = [each for each in caplog.messages if hidden in each]
            assert len(said) == 1
            assert "NoAuth" in said[0]
            tool.add_auth("digest", "somebody:secret")
            tool.set_acls(hidden, OPEN_ACL_UNSAFE)
            # No watch tells of it.
            await until(lambda: told[-1][0] == "ws://127.0.0.1:9001")
            count = len(told)
            tool.set_acls(hidden, [make_digest_acl("somebody", "secret", all=True)])
            await add_candidate(client, 4)
            await until(lambda: len(told) > count)
            assert told[-1][0] == "ws://127.0.0.1:9001", "it is still where it was"
            await mine.stop()

    with zookeeper.client(zookeeper_chroot) as tool:
        asyncio.run(story(tool))


def test_a_restarted_broker_replaces_the_znode_of_its_earlier_start(
    access: ZooKeeperAccess,
) -> None:
    async def story() -> None:
        before = ZooKeeperRegistration(access, registration(), on_controllers=lambda urls: None)
        before.start()
        await before.announced
        after = ZooKeeperRegistration(
            access, registration(start="s2"), on_controllers=lambda urls: None
        )
        after.start()
        await after.announced
        await after.stop()
        await before.stop()

    asyncio.run(story())


def test_an_id_of_another_broker_that_is_alive_is_refused(access: ZooKeeperAccess) -> None:
    async def story() -> None:
        async with connected(patient(access)) as client:
            other = ZooKeeperRegistration(
                patient(access), registration("theirs"), on_controllers=lambda urls: None
            )
            other.start()
            await other.announced
            mine = ZooKeeperRegistration(access, registration(), on_controllers=lambda urls: None)
            mine.start()
            with pytest.raises(BrokerIdTakenError, match=f"{PATH} belongs to another broker"):
                await mine.announced
            await client.sync(PATH)
            znode = await client.get(PATH)
            assert znode is not None
            assert broker_directory(znode.data) == "theirs"
            await mine.stop()
            await other.stop()

    asyncio.run(story())


def test_a_deleted_znode_and_a_lost_session_are_made_good(
    access: ZooKeeperAccess, zookeeper: ZooKeeperEnsemble
) -> None:
    async def story() -> None:
        async with connected(patient(access)) as client:
            mine = ZooKeeperRegistration(access, registration(), on_controllers=lambda urls: None)
            mine.start()
            await mine.announced
            await client.multi([Delete(PATH)])
            await until(lambda: client.get(PATH))
            await asyncio.to_thread(zookeeper.stop)
            await asyncio.to_thread(zookeeper.start)
            await client.wait_connected()
            await until(lambda: client.get(PATH))
            await mine.stop()

    asyncio.run(story())


def test_a_broker_stops_while_zookeeper_is_away(
    access: ZooKeeperAccess, zookeeper: ZooKeeperEnsemble
) -> None:
    async def story() -> None:
        mine = ZooKeeperRegistration(access, registration(), on_controllers=lambda urls: None)
        mine.start()
        await mine.announced
        await asyncio.to_thread(zookeeper.stop)
        async with asyncio.timeout(20):
            await mine.stop()

    asyncio.run(story())


async def _is_gone(client: ZooKeeperClient) -> bool:
    return await client.get(PATH) is None
