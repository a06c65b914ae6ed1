"""What the store in ZooKeeper promises when answers get lost, come late, or never come.

Outcomes are settled by the controller's own `Committer`.
"""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from waiting import until
from watched_store import TABLE, WatchedStore
from zookeeper_ensemble import running_ensemble
from zookeeper_proxy import ZooKeeperProxy
from zookeeper_store import connected, elected_store, sweep_of

from fairlead_controller.decisions.tables.lines import CLUSTER_KEY, partition_line
from fairlead_controller.decisions.tables.stored_table import (
    StoreCorruptError,
    StoreError,
)
from fairlead_controller.stores import zookeeper_multis
from fairlead_controller.stores.metadata_store import (
    SealedError,
    StoreUnavailableError,
    TableTouchedError,
    TableWrite,
    WriteOutcome,
)
from fairlead_controller.stores.zookeeper import ZooKeeperStore
from fairlead_controller.stores.zookeeper_fence import raise_epoch, read_epoch
from fairlead_controller.zookeeper import reign
from fairlead_controller.zookeeper.reign import take_over
from fairlead_model.partition import PartitionRegistration
from fairlead_zookeeper.address import ZooKeeperAccess, parse_connect_string
from fairlead_zookeeper.client import ConnectionState, InDoubtError, ZooKeeperClient
from fairlead_zookeeper.operations import Create, Delete, SetData
from fairlead_zookeeper.znodes import CLUSTER_ID, table_path

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from zookeeper_ensemble import ZooKeeperEnsemble, ZooKeeperServer

    from fairlead_zookeeper.operations import Operation

PATH = table_path(TABLE)
SESSION_S = 10.0
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


class World(WatchedStore[ZooKeeperStore]):
    """A store behind a proxy of one server, and a way by other servers under the same fence."""

    def __init__(
        self,
        server: ZooKeeperServer,
        proxy: ZooKeeperProxy,
        client: ZooKeeperClient,
        other: ZooKeeperClient,
        witness: ZooKeeperStore,
    ) -> None:
        super().__init__(ZooKeeperStore(client, witness._fence), witness)
        self.server = server
        self.proxy = proxy
        self.client = client
        self.other = other
        self.sweep = sweep_of(self.store)

    async def depose(self) -> None:
        """Another controller is elected."""
        known = await read_epoch(self.other)
        await raise_epoch(self.other, known, known.epoch + 1)


@pytest.fixture
def play(zookeeper: ZooKeeperEnsemble, zookeeper_chroot: str) -> Callable[..., None]:
    """Run a story on a world."""

    @asynccontextmanager
    async def world(session_s: float) -> AsyncIterator[World]:
        asked = zookeeper.followers[0]
        proxy = ZooKeeperProxy(asked.client_port)
        timeout_ms = round(1000 * session_s)
        elsewhere = tuple(each.address for each in zookeeper.servers if each is not asked)
        around = ZooKeeperAccess(elsewhere, zookeeper_chroot, 10_000)
        through = ZooKeeperAccess((proxy.address,), zookeeper_chroot, timeout_ms)
        try:
            async with connected(around) as other, connected(through) as client:
                witness = await elected_store(other)
                made = World(asked, proxy, client, other, witness)
                yield made
                await made.store.close()
                await witness.close()
        finally:
            proxy.stop()

    def run(story: Callable[[World], Awaitable[None]], session_s: float = SESSION_S) -> None:
        async def act() -> None:
            async with asyncio.timeout(90), world(session_s) as made:
                await story(made)

        asyncio.run(act())

    return run


@pytest.mark.parametrize("is_new", [False, True])
def test_a_landed_write_whose_answer_is_lost_is_settled_as_written(
    play: Callable[..., None], is_new: bool
) -> None:
    async def story(world: World) -> None:
        before = None if is_new else await world.put(a="1")
        committer = world.committer(before)
        if before is not None:
            await world.store.read(TABLE)
        world.proxy.drop_replies()
        commit = asyncio.create_task(committer.commit([{TABLE: {"a": "2"}}]))
        await until(lambda: _holds(world, "2"))
        assert not commit.done()
        world.proxy.cut()
        await commit
        # Nothing may be written for days: what has landed shows that writes work.
        assert world.store.is_available
        await committer.commit([{TABLE: {"b": "3"}}])
        assert (await world.table()).lines == {"a": "2", "b": "3"}

    play(story)


def test_a_write_without_an_answer_is_unknown_after_a_second(play: Callable[..., None]) -> None:
    async def story(world: World) -> None:
        before = await world.put(a="1")
        await world.store.read(TABLE)
        world.proxy.hold_requests()
        began = time.monotonic()
        assert await world.write(before.version, a="2") is WriteOutcome.UNKNOWN
        assert time.monotonic() - began < 5
        assert not world.store.is_available
        assert world.store.problem
        world.proxy.pass_requests()
        await until(lambda: _holds(world, "2"))

    play(story)


def test_a_write_that_lands_after_another_election_is_refused(play: Callable[..., None]) -> None:
    async def story(world: World) -> None:
        committer = world.committer(await world.put(a="1"))
        await world.store.read(TABLE)
        world.proxy.hold_requests()
        commit = asyncio.create_task(committer.commit([{TABLE: {"a": "2"}}]))
        await until(lambda: not world.store.is_available)
        await world.depose()
        world.proxy.pass_requests()
        with pytest.raises(SealedError):
            await commit
        assert (await world.table()).lines == {"a": "1"}

    play(story)


def test_a_controller_that_has_nothing_to_write_hears_of_another_election(
    play: Callable[..., None],
) -> None:
    """From the sweep, where a znode of Kafka's is missing."""

    async def story(world: World) -> None:
        await world.put(**{CLUSTER_KEY: '{"cluster_id": "c"}'})
        await world.store.load()
        await world.other.multi([Delete(CLUSTER_ID)])
        assert await world.sweep.run() == 1
        await world.other.multi([Delete(CLUSTER_ID)])
        await world.depose()
        with pytest.raises(SealedError):
            await world.sweep.run()
        await world.other.sync()
        assert await world.other.exists(CLUSTER_ID) is None

    play(story)


def test_a_sweep_sees_what_was_done_before_it_by_a_server_that_is_behind(
    play: Callable[..., None],
) -> None:
    async def story(world: World) -> None:
        await world.put(**{CLUSTER_KEY: '{"cluster_id": "c"}'})
        await world.store.load()
        for _ in range(10):
            world.server.pause()
            try:
                await world.other.multi([Delete(CLUSTER_ID)])
                sweep = asyncio.create_task(world.sweep.run())
                await asyncio.sleep(0.05)
            finally:
                world.server.resume()
            assert await sweep == 1

    play(story)


def test_a_sweep_leaves_no_older_znode_than_a_write_beside_it(
    play: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(world: World) -> None:
        before = await world.put(**{CLUSTER_KEY: '{"cluster_id": "old"}'})
        sweep = world.sweep
        await world.store.load()
        await world.other.multi([SetData(CLUSTER_ID, b"by hand")])
        commit = sweep._commit

        async def write_and_commit(*arguments: Any) -> None:
            monkeypatch.setattr(sweep, "_commit", commit)
            newer = {CLUSTER_KEY: '{"cluster_id": "new"}'}
            assert await world.write(before.version, **newer) is WriteOutcome.WRITTEN
            await commit(*arguments)

        monkeypatch.setattr(sweep, "_commit", write_and_commit)
        assert await sweep.run() == 2
        await world.other.sync()
        znode = await world.other.get(CLUSTER_ID)
        assert znode is not None
        assert b"new" in znode.data

    play(story)


def test_a_late_write_of_a_cut_connection_overwrites_nothing(play: Callable[..., None]) -> None:
    async def story(world: World) -> None:
        committer = world.committer(await world.put(a="1"))
        await world.store.read(TABLE)
        world.proxy.hold_requests()
        commit = asyncio.create_task(committer.commit([{TABLE: {"a": "2"}}]))
        await until(lambda: not world.store.is_available)
        world.proxy.cut()
        world.proxy.pass_requests()
        await commit
        await committer.commit([{TABLE: {"a": "3"}}])
        assert (await world.table()).lines == {"a": "3"}
        await committer.commit([{TABLE: {"a": "4"}}])
        assert (await world.table()).lines == {"a": "4"}

    play(story)


def test_a_topic_whose_deletion_is_written_again_is_shown_no_more(
    play: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first write was lost; tools see the topic for as long as it has znodes."""

    async def story(world: World) -> None:
        record = PartitionRegistration((1,), (1,), leader=1)
        header = {"name": "t", "partitions": 1, "state": "deleting", "configs": {}}
        made = {
            f"topic/{TOPIC_ID}": json.dumps(header),
            f"partition/{TOPIC_ID}/0": partition_line(record),
        }
        before = await world.put(**made)
        assert await _is_there(world, "/brokers/topics/t")
        await world.store.load()
        send = world.client.commit

        async def lose_one(*_: Any) -> None:
            monkeypatch.setattr(world.client, "commit", send)
            raise InDoubtError("the connection broke")

        monkeypatch.setattr(world.client, "commit", lose_one)
        await world.committer(before).commit([{TABLE: dict.fromkeys(made)}])
        await world.other.sync()
        assert await _is_gone(world, "/brokers/topics/t")
        assert await _is_gone(world, "/config/topics/t")

    play(story)


def test_znodes_that_a_write_leaves_behind_are_soon_put_back(
    play: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were in a multi of their own, after that of the table, and it was refused."""
    monkeypatch.setattr(zookeeper_multis, "MULTI_OPERATIONS_MAX", 4)
    monkeypatch.setattr(reign, "SWEEP_SOON_S", 0.0)

    def lines_under(leader: int) -> dict[str, str]:
        record = PartitionRegistration((1, 2), (1, 2), leader=leader)
        return {f"partition/{TOPIC_ID}/{index}": partition_line(record) for index in range(6)}

    async def story(world: World) -> None:
        header = {"name": "t", "partitions": 6, "state": "live", "configs": {}}
        lines = {f"topic/{TOPIC_ID}": json.dumps(header)} | lines_under(1)
        before = await world.put(**lines)
        await world.store.load()
        sweeping = asyncio.create_task(reign.keep_sweeping(world.sweep))
        sweep, swept = world.sweep.run, asyncio.Event()

        async def note_and_sweep() -> int:
            mended = await sweep()
            swept.set()
            return mended

        monkeypatch.setattr(world.sweep, "run", note_and_sweep)
        await swept.wait()
        lost = "/brokers/topics/t/partitions/5/state"
        await world.other.multi([Delete(lost)])
        assert await world.write(before.version, **lines_under(2)) is WriteOutcome.WRITTEN
        await until(lambda: _is_there(world, lost))
        znode = await world.other.get("/brokers/topics/t/partitions/4/state")
        assert znode is not None
        assert json.loads(znode.data)["leader"] == 2
        sweeping.cancel()

    play(story)


def test_a_sweep_goes_on_below_a_znode_whose_making_was_in_doubt(
    play: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The multi with a partition's znode landed unheard, and the next, with its state, did not."""
    monkeypatch.setattr(zookeeper_multis, "MULTI_OPERATIONS_MAX", 5)

    async def story(world: World) -> None:
        await world.put(**{CLUSTER_KEY: '{"cluster_id": "one"}'})
        await world.store.load()
        send = world.client.commit
        parent = "/brokers/topics/t/partitions/3"  # the last of its multi

        async def doubt(operations: list[Operation], transaction: Any) -> Any:
            made = {each.path for each in operations if isinstance(each, Create)}
            if f"{parent}/state" in made:
                raise InDoubtError("the connection broke, and this never arrived")
            answer = await send(operations, transaction)
            if parent in made:
                # Until now only the other one was noted.
                world.store.has_lag.clear()
                has_arrived.set()
                raise InDoubtError("the connection broke, and this arrived")
            return answer

        monkeypatch.setattr(world.client, "commit", doubt)
        has_arrived = asyncio.Event()
        record = PartitionRegistration((1, 2), (1, 2), leader=1)
        header = {"name": "t", "partitions": 4, "state": "live", "configs": {}}
        lines = {f"topic/{TOPIC_ID}": json.dumps(header)}
        lines |= {f"partition/{TOPIC_ID}/{index}": partition_line(record) for index in range(4)}
        known = await world.store.read(TABLE)
        assert known is not None
        assert await world.write(known.version, **lines) is WriteOutcome.WRITTEN
        await has_arrived.wait()
        await until(world.store.has_lag.is_set)
        await world.other.sync()
        assert await _is_there(world, parent)
        assert await _is_gone(world, f"{parent}/state")
        monkeypatch.setattr(world.client, "commit", send)
        await world.sweep.run()
        await world.other.sync()
        assert await _is_there(world, f"{parent}/state")
        assert await world.sweep.run() == 0

    play(story)


def test_configs_of_a_broker_that_the_tables_forgot_are_removed(play: Callable[..., None]) -> None:
    """The write that forgot it may have had to do without Kafka's znodes."""

    async def story(world: World) -> None:
        await world.put(**{"configs/1": '{"log.retention.ms":"1"}', "configs/": '{"a":"b"}'})
        await world.store.load()
        await world.other.multi([Create("/config/brokers/3", b'{"version":1,"config":{}}')])
        assert await world.sweep.run() == 1
        assert await world.sweep.run() == 0
        await world.other.sync()
        assert sorted(await world.other.children("/config/brokers") or []) == ["1", "<default>"]
        # The next configs of a broker of this id are shown again.
        (table,) = (await world.store.load()).values()
        assert await world.write(table.version, **{"configs/3": '{"c":"d"}'}) is (
            WriteOutcome.WRITTEN
        )
        await until(lambda: _is_there(world, "/config/brokers/3"))

    play(story)


def test_a_session_that_ends_with_a_write_in_doubt_ends_the_controller(
    play: Callable[..., None],
) -> None:
    async def story(world: World) -> None:
        committer = world.committer(await world.put(a="1"))
        await world.store.read(TABLE)
        await world.client.multi([Create("/mark", is_ephemeral=True)])
        world.proxy.drop_replies()
        commit = asyncio.create_task(committer.commit([{TABLE: {"a": "2"}}]))
        await until(lambda: _holds(world, "2"))
        world.proxy.refuse()
        await until(lambda: _is_gone(world, "/mark"))
        world.proxy.accept()
        with pytest.raises(StoreError, match="session"):
            await commit
        assert world.client.state is ConnectionState.LOST
        assert (await world.table()).lines == {"a": "2"}

    play(story, 4.0)


def test_without_servers_metadata_is_frozen_and_nothing_is_lost(
    play: Callable[..., None], zookeeper: ZooKeeperEnsemble
) -> None:
    async def story(world: World) -> None:
        committer = world.committer(await world.put(a="1"))
        await world.store.read(TABLE)
        await asyncio.to_thread(zookeeper.stop)
        await until(lambda: not world.store.is_available)
        since = world.store.unavailable_since
        commit = asyncio.create_task(committer.commit([{TABLE: {"a": "2"}}]))
        with pytest.raises(StoreUnavailableError):
            await world.store.load()
        await asyncio.wait([commit], timeout=2)
        assert not commit.done()
        assert world.store.unavailable_since == since
        await asyncio.to_thread(zookeeper.start)
        await commit
        assert world.store.is_available
        assert (await world.table()).lines == {"a": "2"}

    play(story)


def test_a_takeover_waits_for_a_connection_and_says_so_once(
    play: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    async def story(world: World) -> None:
        world.proxy.refuse()
        await until(lambda: world.client.state is ConnectionState.SUSPENDED)
        taking = asyncio.create_task(take_over(world.client, world.store))
        await asyncio.wait([taking], timeout=2)
        assert not taking.done()
        said = [each for each in caplog.messages if "not taken over yet" in each]
        assert len(said) == 1
        world.proxy.accept()
        controller = await taking
        assert controller.committed.controller_epoch > 0

    play(story)


def test_servers_that_hang_are_not_available_until_they_take_a_write(
    play: Callable[..., None], zookeeper: ZooKeeperEnsemble
) -> None:
    async def story(world: World) -> None:
        before = await world.put(a="1")
        await world.store.read(TABLE)
        zookeeper.pause()
        try:
            assert await world.write(before.version, a="2") is WriteOutcome.UNKNOWN
            assert not world.store.is_available
        finally:
            zookeeper.resume()
        present = await world.store.read(TABLE)
        assert present is not None
        if present.version == before.version:
            assert await world.write(present.version, a="2") is not WriteOutcome.CONFLICT
        await until(lambda: _holds(world, "2"))

    play(story)


def test_the_death_of_zookeepers_leader_costs_no_write(
    play: Callable[..., None], zookeeper: ZooKeeperEnsemble
) -> None:
    async def story(world: World) -> None:
        committer = world.committer(await world.put(n="0"))
        killed = zookeeper.leader
        for number in range(1, 40):
            if number == 10:
                killed.kill()
            await committer.commit([{TABLE: {"n": str(number)}}])
        assert (await world.table()).lines == {"n": "39"}

    play(story)


def test_a_table_that_somebody_edits_ends_the_reign_and_is_named_by_the_next(
    play: Callable[..., None],
) -> None:
    async def story(world: World) -> None:
        committer = world.committer(await world.put(a="1"))
        znode = await world.other.get(PATH)
        assert znode is not None
        await world.other.multi([SetData(PATH, znode.data + b"nonsense\n")])
        edited = await world.other.get(PATH)
        with pytest.raises(StoreCorruptError, match=f"{PATH} is damaged in line 3"):
            await committer.commit([{TABLE: {"a": "2"}}])
        with pytest.raises(StoreCorruptError, match=f"{PATH} is damaged in line 3: 'nonsense'"):
            await world.store.load()
        assert await world.other.get(PATH) == edited

    play(story)


def test_a_table_that_is_written_by_hand_again_is_no_write_of_ours(
    play: Callable[..., None],
) -> None:
    async def story(world: World) -> None:
        before = await world.put(a="1")
        committer = world.committer(before)
        await world.store.read(TABLE)
        znode = await world.other.get(PATH)
        assert znode is not None
        await world.other.multi([SetData(PATH, znode.data)])
        assert await world.write(before.version, a="2") is WriteOutcome.CONFLICT
        with pytest.raises(TableTouchedError):
            await committer.commit([{TABLE: {"a": "2"}}])

    play(story)


def test_a_table_that_was_deleted_and_made_again_has_another_version(
    play: Callable[..., None],
) -> None:
    async def story(world: World) -> None:
        before = await world.put(a="1")
        await world.other.multi([Delete(PATH)])
        await world.put(a="9")
        assert (await world.table()).version != before.version
        assert await world.write(before.version, a="2") is WriteOutcome.CONFLICT
        assert (await world.table()).lines == {"a": "9"}

    play(story)


def test_a_table_too_large_for_a_znode_is_refused_and_its_longest_line_named(
    play: Callable[..., None],
) -> None:
    async def story(world: World) -> None:
        before = await world.put(a="1")
        await world.store.read(TABLE)
        with pytest.raises(StoreError, match="'fat' is the longest with 900005 bytes"):
            await world.write(before.version, fat="x" * 900_000, thin="y")
        assert (await world.table()).lines == {"a": "1"}

    play(story)


async def _holds(world: World, value: str) -> bool:
    table = await world.witness.read(TABLE)
    return table is not None and table.lines.get("a") == value


async def _is_there(world: World, path: str) -> bool:
    await world.other.sync()
    return not await _is_gone(world, path)


async def _is_gone(world: World, path: str) -> bool:
    return await world.other.exists(path) is None


def test_a_server_that_only_reads_is_never_asked(tmp_path: Path) -> None:
    """What it shows may be old: metadata is frozen, as without any server."""
    settings = {"java.readonlymode.enabled": "true", "localSessionsEnabled": "true"}
    with running_ensemble(tmp_path, settings=settings) as ensemble:
        last, *others = ensemble.servers

        async def story() -> None:
            access = parse_connect_string(last.address, session_timeout_ms=10_000)
            async with asyncio.timeout(90), connected(access) as client:
                store = await elected_store(client)
                (result,) = await store.write([TableWrite(TABLE, None, 1, {"a": "1"})])
                for server in others:
                    server.kill()
                await until(lambda: asyncio.to_thread(lambda: last.mode == "read-only"))
                await until(lambda: not store.is_available)
                write = TableWrite(TABLE, result.version, 1, {"a": "2"})
                assert [each.outcome for each in await store.write([write])] == [
                    WriteOutcome.UNKNOWN
                ]
                with pytest.raises(StoreUnavailableError):
                    await store.load()
                assert client.state is ConnectionState.SUSPENDED
                await store.close()

        asyncio.run(story())
