"""A sweep mends what it can: what it may not touch, and what others do meanwhile, stops nothing."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.security import make_acl, make_digest_acl
from waiting import until
from watched_store import TABLE
from zookeeper_store import connected, elected_store, sweep_of

from fairlead_controller.decisions.tables.lines import partition_line
from fairlead_controller.stores import zookeeper_multis, zookeeper_projections
from fairlead_controller.stores.committer import Committer
from fairlead_controller.stores.metadata_store import TableWrite, WriteOutcome
from fairlead_model.partition import PartitionRegistration
from fairlead_zookeeper.client import InDoubtError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from kazoo.client import KazooClient
    from zookeeper_ensemble import ZooKeeperEnsemble

    from fairlead_controller.stores.zookeeper import ZooKeeperStore
    from fairlead_zookeeper.address import ZooKeeperAccess
    from fairlead_zookeeper.operations import Operation

    Story = Callable[[ZooKeeperStore, KazooClient], Awaitable[None]]

TOP = "/brokers/topics/t"
GONE = b'{"version":3,"topic_id":"AAAAAAAAAAAAAAAAAAAAAQ","partitions":{"0":[1]}}'
THEIRS = make_digest_acl("somebody", "secret", all=True)
READABLE = make_acl("world", "anyone", read=True)


def topic(
    name: str, partitions: int, number: int = 1, isr: tuple[int, ...] = (1, 2)
) -> dict[str, str]:
    """Return the lines of a topic."""
    topic_id = f"AAAAAAAAAAAAAAAAAAAAA{'AQgw'[number]}"
    header = {"name": name, "partitions": partitions, "state": "live", "configs": {}}
    line = partition_line(PartitionRegistration((1, 2), isr, leader=1))
    return {f"topic/{topic_id}": json.dumps(header)} | {
        f"partition/{topic_id}/{index}": line for index in range(partitions)
    }


async def write(store: ZooKeeperStore, lines: dict[str, str | None]) -> None:
    known = await store.read(TABLE)
    version = None if known is None else known.version
    (result,) = await store.write([TableWrite(TABLE, version, 1, lines)])
    assert result.outcome is WriteOutcome.WRITTEN


@pytest.fixture
def play(
    zookeeper: ZooKeeperEnsemble, zookeeper_chroot: str, access: ZooKeeperAccess
) -> Callable[[Story], None]:
    """Tell a story about a topic with three partitions, and a tool's client."""

    async def tell(story: Story, tool: KazooClient) -> None:
        async with asyncio.timeout(60), connected(access) as client:
            store = await elected_store(client)
            await write(store, {**topic("t", 3)})
            await story(store, tool)
            await store.close()

    def run(story: Story) -> None:
        with zookeeper.client(zookeeper_chroot) as tool:
            asyncio.run(tell(story, tool))

    return run


@pytest.mark.parametrize("acl", [[THEIRS], [THEIRS, READABLE]], ids=["hidden", "read-only"])
def test_a_znode_with_an_acl_of_others_keeps_no_other_from_being_put_back(
    play: Callable[[Story], None], acl: list[object], caplog: pytest.LogCaptureFixture
) -> None:
    async def story(store: ZooKeeperStore, tool: KazooClient) -> None:
        sweep = sweep_of(store)
        tool.set(f"{TOP}/partitions/0/state", b"by hand")
        tool.set_acls(f"{TOP}/partitions/0/state", acl)
        tool.delete(f"{TOP}/partitions/1/state")
        tool.delete(f"{TOP}/partitions/2", recursive=True)
        tool.delete("/config/topics/t")
        tool.create("/config/topics/gone", b"")
        assert await sweep.run() == 5
        for path in (f"{TOP}/partitions/1/state", f"{TOP}/partitions/2/state", "/config/topics/t"):
            assert tool.exists(path)
        assert not tool.exists("/config/topics/gone")
        assert await sweep.run() == 0
        assert not store.has_lag.is_set(), "the next sweep would change nothing"

    play(story)
    said = [each for each in caplog.messages if "cannot be compared" in each]
    assert len(said) == 1
    assert said[0].startswith(f"{TOP}/partitions/0/state cannot be compared with the tables, or me")


def test_a_hidden_parent_keeps_nothing_below_it_from_being_written(
    play: Callable[[Story], None],
) -> None:
    """Newer servers tell nobody whether a znode exists who may not read it."""

    async def story(store: ZooKeeperStore, tool: KazooClient) -> None:
        sweep = sweep_of(store)
        tool.delete(f"{TOP}/partitions/1/state")
        tool.delete(f"{TOP}/partitions/2/state")
        tool.set_acls(TOP, [THEIRS, make_acl("world", "anyone", create=True, delete=True)])
        await write(store, {**topic("t", 3, isr=(1,))})
        state = f"{TOP}/partitions/1/state"
        assert json.loads(tool.get(state)[0])["isr"] == [1]
        tool.delete(state)
        assert await sweep.run() == 1
        assert tool.exists(state)

    play(story)


def test_what_is_left_of_topics_is_removed_beside_what_cannot_be(
    play: Callable[[Story], None],
) -> None:
    async def story(store: ZooKeeperStore, tool: KazooClient) -> None:
        sweep = sweep_of(store)
        tool.create("/brokers/topics/a-hidden", GONE, acl=[THEIRS])
        tool.create("/brokers/topics/b-locked/partitions", b"", makepath=True)
        tool.set("/brokers/topics/b-locked", GONE)
        tool.set_acls("/brokers/topics/b-locked", [THEIRS, READABLE])
        tool.create("/brokers/topics/c-gone/partitions", b"", makepath=True)
        tool.set("/brokers/topics/c-gone", GONE)
        tool.create("/config/topics/d-gone/below", b"", makepath=True)
        tool.create("/config/brokers/7", b"")
        assert await sweep.run() == 3
        assert sorted(tool.get_children("/brokers/topics")) == ["a-hidden", "b-locked", "t"]
        assert tool.get_children("/config/topics") == ["t"]
        assert tool.get_children("/config/brokers") == []

    play(story)


def test_what_is_left_of_a_topic_with_too_many_partitions_to_show_is_removed(
    play: Callable[[Story], None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its znode said nothing of whose it was, and counted as made by a tool."""
    monkeypatch.setattr(zookeeper_projections, "VALUE_BYTES_MAX", 90)

    async def story(store: ZooKeeperStore, tool: KazooClient) -> None:
        path = "/brokers/topics/u"
        lines = topic("u", 9, number=2)
        await write(store, {**lines})
        shown = tool.get(path)[0]
        await write(store, dict.fromkeys(lines))
        await until(lambda: tool.exists(path) is None)
        tool.create(path, shown)
        assert await sweep_of(store).run() == 1
        assert tool.exists(path) is None

    play(story)
    assert not [each for each in caplog.messages if "was made by a tool" in each]


def test_partitions_of_a_predecessor_with_more_of_them_are_removed(
    play: Callable[[Story], None],
) -> None:
    """Tools that list the znodes of partitions took them for partitions of the topic."""

    async def story(store: ZooKeeperStore, tool: KazooClient) -> None:
        sweep = sweep_of(store)
        tool.create(f"{TOP}/partitions/3/state", b"{}", makepath=True)
        tool.create(f"{TOP}/partitions/40/state/below", b"{}", makepath=True)
        tool.create(f"{TOP}/partitions/note", b"of somebody")
        assert await sweep.run() == 2
        tool.sync(TOP)
        assert sorted(tool.get_children(f"{TOP}/partitions")) == ["0", "1", "2", "note"]
        assert await sweep.run() == 0

    play(story)


def test_a_topic_made_while_its_predecessor_is_removed_is_looked_at_soon(
    play: Callable[[Story], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its znodes may have gone with those of its predecessor."""

    async def story(store: ZooKeeperStore, tool: KazooClient) -> None:
        sweep = sweep_of(store)
        tool.create("/brokers/topics/u/partitions/0/state", b"", makepath=True)
        tool.set("/brokers/topics/u", GONE)
        delete_tree = sweep._delete_tree

        async def make_and_delete(path: str) -> None:
            monkeypatch.setattr(sweep, "_delete_tree", delete_tree)
            await write(store, {**topic("u", 1, number=2)})
            await delete_tree(path)

        monkeypatch.setattr(sweep, "_delete_tree", make_and_delete)
        await sweep.run()
        assert store.has_lag.is_set()
        await sweep.run()
        assert tool.exists("/brokers/topics/u/partitions/0/state")
        assert not store.has_lag.is_set()

    play(story)


@pytest.fixture
def doubt(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Callable[[ZooKeeperStore], Any]:
    """Let the multis of the next write land, and the answers of all but the first be lost.

    What this returns waits until the store has heard that, and ends it.
    """
    monkeypatch.setattr(zookeeper_multis, "MULTI_OPERATIONS_MAX", 4)

    def begin(store: ZooKeeperStore) -> Callable[[], Awaitable[None]]:
        send, sent = store._client.commit, 0

        async def commit(operations: Sequence[Operation], prepared: Any) -> list[Any]:
            nonlocal sent
            sent += 1
            is_first = sent == 1
            answer = await send(operations, prepared)
            if not is_first:
                raise InDoubtError("the connection broke")
            return answer

        monkeypatch.setattr(store._client, "commit", commit)

        async def end() -> None:
            await until(lambda: sum("are behind" in each for each in caplog.messages) == sent - 1)
            assert store.has_lag.is_set()
            monkeypatch.setattr(store._client, "commit", send)

        return end

    return begin


def test_what_changes_back_after_a_doubt_is_shown_at_once(
    play: Callable[[Story], None], doubt: Callable[..., Any]
) -> None:
    """The store believed that the znode had never changed, and that nothing was to be done."""

    async def story(store: ZooKeeperStore, tool: KazooClient) -> None:
        sweep = sweep_of(store)
        state = f"{TOP}/partitions/2/state"
        end = doubt(store)
        await write(store, {**topic("t", 3, isr=(1,))})
        await end()
        assert await sweep.run() == 0
        tool.sync(state)
        assert json.loads(tool.get(state)[0])["isr"] == [1]
        await write(store, {**topic("t", 3)})
        # The write has ended with its first multi, and this znode is in the last.
        await until(lambda: json.loads(tool.get(state)[0])["isr"] == [1, 2])

    play(story)


def test_what_was_made_in_doubt_goes_with_its_topic(
    play: Callable[[Story], None], doubt: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    async def story(store: ZooKeeperStore, tool: KazooClient) -> None:
        sweep = sweep_of(store)
        end = doubt(store)
        await write(store, {**topic("u", 3, number=2)})
        await end()
        assert await sweep.run() == 0
        await write(store, dict.fromkeys(topic("u", 3, number=2)))
        await until(lambda: tool.exists("/config/topics/u") is None)
        assert tool.get_children("/brokers/topics") == ["t"]
        assert not store.has_lag.is_set()

    play(story)
    assert not [each for each in caplog.messages if "without Kafka's znodes" in each]


def test_a_write_that_lands_late_is_not_forgotten(
    play: Callable[[Story], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It landed after the table was read again, and before its repetition."""

    async def story(store: ZooKeeperStore, tool: KazooClient) -> None:
        table = await store.read(TABLE)
        assert table is not None
        committer = Committer(store, {TABLE: table}, 1)
        send = store._client.commit
        stuck: list[Any] = []

        async def commit(operations: Sequence[Operation], prepared: Any) -> list[Any]:
            if not stuck:
                stuck.append((operations, prepared))
                raise InDoubtError("the connection broke")
            monkeypatch.setattr(store._client, "commit", send)
            await send(*stuck[0])
            return await send(operations, prepared)

        monkeypatch.setattr(store._client, "commit", commit)
        await committer.commit([{TABLE: {**topic("t", 3, isr=(1,))}}])
        assert store.has_lag.is_set()
        state = f"{TOP}/partitions/0/state"
        tool.sync(state)
        assert json.loads(tool.get(state)[0])["isr"] == [1]
        await committer.commit([{TABLE: {**topic("t", 3)}}])
        tool.sync(state)
        assert json.loads(tool.get(state)[0])["isr"] == [1, 2]

    play(story)
