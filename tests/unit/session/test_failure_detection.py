"""From the death of a broker to the delta that moves its leaders, over real sockets."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from fairlead_bench.peers.own_ports import take_ports
from fairlead_controller.decisions.events import (
    AllocateProducerIds,
    FenceReason,
    RegisterBroker,
    UnregisterBroker,
)
from fairlead_controller.sessions import liveness, messages
from fairlead_controller.sessions import server as session_server
from fairlead_controller.sessions.server import SessionServer
from fairlead_model.broker import Endpoint
from fairlead_model.cluster import ClusterImage
from fairlead_model.configs.controller_configs import DEFAULT_TIMING, SessionTiming
from fairlead_model.session.session_messages import pack_message
from fairlead_model.session.session_protocol import MessageType
from fairlead_wire.errors import KafkaError


class Listener:
    """The port that a broker listens on, and how often somebody has knocked there."""

    def __init__(self) -> None:
        (self.port,) = take_ports(1)
        self.knocks = 0
        self._server: asyncio.Server | None = None

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """The address that the broker registers."""
        return (Endpoint("INTERNAL", "127.0.0.1", self.port, is_internal=True),)

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._on_knock, "127.0.0.1", self.port)

    def _on_knock(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.knocks += 1
        writer.close()

    async def close(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()
            await server.wait_closed()


class Cluster:
    """Three brokers that listen; each is a leader."""

    def __init__(self, stage: Any, until: Any) -> None:
        self.stage = stage
        self.until = until
        self.nodes: list[Any] = []
        self.listeners: list[Listener] = []

    async def start(self, timing: SessionTiming = DEFAULT_TIMING) -> None:
        await self.stage.start_controller(timing=timing)
        for broker_id in range(3):
            self.listeners.append(Listener())
            await self.listeners[-1].open()
            endpoints = self.listeners[-1].endpoints
            self.nodes.append(await self.stage.start_node(broker_id, endpoints=endpoints))
        topic = {
            "name": "t",
            "partitions": 9,
            "replication_factor": 3,
            "assignments": {},
            "configs": {"min.insync.replicas": "2"},
        }
        body = {
            "topics": [topic],
            "validate_only": False,
            "default_partitions": 1,
            "default_replication_factor": 1,
        }
        reply = await self.nodes[0].session.call("create_topics", body, timeout_ms=30_000)
        assert reply["topics"][0]["error_code"] == 0

    def silence(self, broker_id: int) -> None:
        """Stop a broker's heartbeats; its connection stays open."""
        self.nodes[broker_id].session._beating.cancel()

    async def end_session(self, broker_id: int) -> None:
        """What the kernel does with a process's connection: it is cut, nobody says goodbye."""
        for task in self.nodes[broker_id].session._tasks():
            task.cancel()
        self.stage.server.sessions._sessions[broker_id].abort()

    async def fenced_after(self, broker_id: int, watcher: int) -> float:
        """Seconds until another broker has heard; all leaders have moved by then."""
        loop = asyncio.get_running_loop()
        begun = loop.time()

        def image() -> ClusterImage:
            found: ClusterImage = self.nodes[watcher].image
            return found

        await self.until(lambda: image().brokers[broker_id].fenced)
        took = loop.time() - begun
        topic = image().topic("t")
        assert topic is not None
        for partition in topic.partitions:
            assert partition.leader not in {-1, broker_id}
            assert broker_id not in partition.isr
            assert len(partition.isr) == 2
        return took

    async def get(self, path: str) -> Any:
        url = f"http://127.0.0.1:{self.stage.server.http_port}{path}"
        async with aiohttp.ClientSession() as http, http.get(url) as response:
            return response.status, json.loads(await response.text()) if response.ok else None

    async def close(self) -> None:
        for listener in self.listeners:
            await listener.close()


def scene(
    play: Any, wait_until: Any, story: Any, *, timing: SessionTiming = DEFAULT_TIMING
) -> None:
    async def whole(stage: Any) -> None:
        cluster = Cluster(stage, wait_until)
        await cluster.start(timing)
        try:
            await story(cluster)
        finally:
            await cluster.close()

    play(whole)


@pytest.mark.parametrize("victim", [0, 2])
@pytest.mark.usefixtures("endless_grace")
def test_a_killed_broker_is_fenced_long_before_its_grace_is_over(
    play: Callable[..., Any], wait_until: Callable[..., Awaitable[None]], victim: int
) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.listeners[victim].close()
        await cluster.end_session(victim)
        await cluster.fenced_after(victim, watcher=1)
        assert [FenceReason.CONNECTION_REFUSED in each for each in cluster.stage.fencings()] == [
            True
        ]

    scene(play, wait_until, story)


@pytest.mark.usefixtures("endless_grace")
def test_a_process_that_closes_its_port_a_moment_later_is_found_by_the_next_probe(
    play: Callable[..., Any], wait_until: Callable[..., Awaitable[None]]
) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.end_session(2)
        await wait_until(lambda: cluster.listeners[2].knocks)
        await cluster.listeners[2].close()
        await cluster.fenced_after(2, watcher=0)
        decisions = (await cluster.get("/explain"))[1]["decisions"]
        assert any("refused a connection" in each["what"] for each in decisions)

    scene(play, wait_until, story)


def test_a_broker_that_still_listens_has_the_grace(
    play: Callable[..., Any], wait_until: Callable[..., Awaitable[None]]
) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.end_session(2)
        assert await cluster.fenced_after(2, watcher=0) >= 0.08
        decisions = (await cluster.get("/explain"))[1]["decisions"]
        assert any("did not come back in time" in each["what"] for each in decisions)

    scene(play, wait_until, story)


def test_silence_is_believed_after_the_timeout_that_is_set(
    play: Callable[..., Any], wait_until: Callable[..., Awaitable[None]]
) -> None:
    async def story(cluster: Cluster) -> None:
        session = cluster.nodes[2].session
        assert session.longest_stop_ms == 2400, "the broker was told"
        cluster.silence(2)
        # From the last heartbeat that was heard, which a busy machine may have held up before.
        assert await cluster.fenced_after(2, watcher=0) >= 2.0
        assert cluster.stage.server.sessions.fencings == {"session_expired": 1}

    scene(play, wait_until, story, timing=SessionTiming(100, 2500))


def test_a_broker_that_hears_nothing_or_is_cut_off_is_not_sure_of_its_session(
    play: Callable[..., Any], wait_until: Callable[..., Awaitable[None]]
) -> None:
    async def story(cluster: Cluster) -> None:
        session = cluster.nodes[2].session
        assert session.has_session
        session._heard_at -= (session.longest_stop_ms + 1) / 1000
        assert session.is_connected
        assert not session.has_session
        await cluster.until(lambda: session.has_session)  # A heartbeat has been answered.
        await cluster.end_session(2)
        await cluster.until(lambda: not session.has_session)

    scene(play, wait_until, story)


def test_another_timeout_holds_for_sessions_that_begin_later(
    play: Callable[..., Any], wait_until: Callable[..., Awaitable[None]]
) -> None:
    async def story(cluster: Cluster) -> None:
        cluster.stage.server.sessions.set_timing(SessionTiming(50, 500))
        assert cluster.nodes[2].session.longest_stop_ms == 1250
        cluster.silence(2)
        assert await cluster.fenced_after(2, watcher=0) >= 1.0
        late = await cluster.stage.start_node(3)
        assert late.session.longest_stop_ms == 450

    scene(play, wait_until, story)


def test_status_and_explanations_show_what_a_death_did(
    play: Callable[..., Any], wait_until: Callable[..., Awaitable[None]]
) -> None:
    async def story(cluster: Cluster) -> None:
        await cluster.listeners[2].close()
        await cluster.end_session(2)
        await cluster.fenced_after(2, watcher=0)
        _, status = await cluster.get("/status")
        assert status["partitions"] == {
            "partitions": 9,
            "underReplicated": 9,
            "underMinIsr": 0,
            "offline": 0,
            "lossPossible": 0,
            "misplacedLeaders": 3,
        }
        leaders = {broker["id"]: broker["leaders"] for broker in status["brokers"]}
        assert leaders[2] == 0
        assert sum(leaders.values()) == 9
        _, topic = await cluster.get("/status/topics/t")
        moved = [each for each in topic["partitionList"] if each["replicas"][0] == 2]
        assert len(moved) == 3
        _, why = await cluster.get(f"/explain/t/{moved[0]['partition']}")
        assert why["why"] == "first electable replica of the assignment that is in sync"
        assert [each["state"] for each in why["replicas"]] == ["fenced", "live", "live"]
        assert "broker 2 is fenced" in why["history"][-1]["what"]
        for path in ("/explain/t/99", "/explain/unknown/0", "/status/topics/unknown"):
            assert (await cluster.get(path))[0] == 404

    scene(play, wait_until, story)


def test_leaders_are_elected_by_hand_and_proposed_over_the_session(
    play: Callable[..., Any], wait_until: Callable[..., Awaitable[None]]
) -> None:
    async def story(cluster: Cluster) -> None:
        session = cluster.nodes[0].session
        topic = session.image.topic("t")
        index = next(i for i, each in enumerate(topic.partitions) if each.leader == 0)
        partition = topic.partitions[index]
        proposal = {
            "topic_id": topic.topic_id,
            "index": index,
            "leader_epoch": partition.leader_epoch,
            "partition_epoch": partition.partition_epoch,
            "isr": [[0, session.broker_epoch]],
        }
        body = {"broker_epoch": session.broker_epoch, "partitions": [proposal]}
        answer = await session.call("alter_partition", body, timeout_ms=30_000)
        assert answer["partitions"][0]["isr"] == [0]
        # The delta has come before the reply.
        changed = session.image.topic("t").partitions[index]
        assert (changed.isr, set(changed.elr)) == ((0,), {1, 2})
        wanted = [{"topic": "t", "index": index}]
        body = {"partitions": wanted, "election_type": 0}
        elected = await session.call("elect_leaders", body, timeout_ms=30_000)
        assert elected["partitions"][0]["error_code"] == 84

    scene(play, wait_until, story)


def test_an_unregistered_broker_that_wakes_up_joins_as_a_new_one(
    play: Callable[..., Any], wait_until: Callable[..., Awaitable[None]]
) -> None:
    """It has followed this very controller, whose tables have not gone back for all that."""

    async def story(stage: Any) -> None:
        await stage.start_controller()
        watcher, node = [await stage.start_node(broker_id) for broker_id in range(2)]
        first = node.session.broker_epoch
        with pytest.raises(KafkaError, match="it is in service, or was a moment ago"):
            await watcher.session.call("unregister_broker", {"broker_id": 1}, timeout_ms=30_000)
        for task in node.session._tasks():
            task.cancel()
        stage.server.sessions._sessions[1].abort()
        await wait_until(lambda: not watcher.is_live(1))
        reply = await watcher.session.call("unregister_broker", {"broker_id": 1}, timeout_ms=30_000)
        assert reply == {}
        assert list(watcher.image.brokers) == [0]
        with pytest.raises(KafkaError, match="broker 1 is not registered"):
            await watcher.session.call("unregister_broker", {"broker_id": 1}, timeout_ms=30_000)
        woken = stage.node(1)
        woken.session.controller_epoch = node.session.controller_epoch
        woken.session.broker_epoch = first
        await woken.session.start()
        await wait_until(lambda: woken.is_live(1) and watcher.is_live(1))
        assert woken.session.broker_epoch == watcher.image.brokers[1].broker_epoch > first

    play(story)


def test_a_broker_that_is_unregistered_while_it_registers_asks_again(
    play: Callable[..., Any],
    wait_until: Callable[..., Awaitable[None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(stage: Any) -> None:
        await stage.start_controller()
        watcher, node = await stage.start_node(0), stage.node(1)
        sessions, controller = stage.server.sessions, stage.controller
        submit = controller.submit
        forgotten: list[Any] = []

        async def submit_and_forget(event: Any) -> Any:
            """What was asked for before the broker had come, and is decided right after it."""
            if not isinstance(event, RegisterBroker) or len(forgotten) == 2:
                return await submit(event)
            if not forgotten:
                # While this is written, the next two gather: they become durable together.
                asyncio.ensure_future(submit(AllocateProducerIds(0)))  # noqa: RUF006
                await asyncio.sleep(0.001)
            answer = asyncio.ensure_future(submit(event))
            await (answer if forgotten else asyncio.sleep(0))
            forgotten.append(asyncio.ensure_future(submit(UnregisterBroker(1))))
            return await answer

        monkeypatch.setattr(controller, "submit", submit_and_forget)
        await node.session.start()
        await wait_until(lambda: node.is_live(1) and watcher.is_live(1))
        assert [await each for each in forgotten] == [{}, {}]
        assert sessions._sessions[1].broker_epoch == watcher.image.brokers[1].broker_epoch == 4

    play(story)


def test_a_broker_that_is_back_in_the_turn_of_its_verdict_is_watched_again(
    play: Callable[..., Any],
    wait_until: Callable[..., Awaitable[None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its grace ended just before it was let in; it is fenced and serves again, and may die."""
    admit = SessionServer._admit
    verdicts: list[int] = []

    def judge_and_admit(server: SessionServer, *arguments: Any) -> Any:
        watched = server._liveness._watched.get(2)
        if watched is not None and not verdicts:
            now_ms = watched.deadline_ms = time.monotonic_ns() // 1_000_000
            server._fence_dead(now_ms)
            verdicts.append(now_ms)
        return admit(server, *arguments)

    async def story(cluster: Cluster) -> None:
        server = cluster.stage.server.sessions
        with monkeypatch.context() as patch:
            for module in (liveness, session_server):
                patch.setattr(module, "RECONNECT_GRACE_MS", 3_600_000)
            patch.setattr(SessionServer, "_admit", judge_and_admit)
            server._sessions[2].abort()
            await wait_until(lambda: sum(server.fencings.values()) == 1)
            await wait_until(lambda: cluster.stage.controller.committed.image.is_live(2))
        assert len(verdicts) == 1
        await cluster.end_session(2)
        await cluster.fenced_after(2, watcher=0)

    scene(play, wait_until, story)


def test_the_late_goodbye_of_a_start_does_not_keep_its_successor_from_being_watched(
    play: Callable[..., Any],
    wait_until: Callable[..., Awaitable[None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It lay unread while the next start of the broker was let in, on the same disk."""
    receive = messages.receive_any
    arrived, has_successor, is_read = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def receive_late(socket: Any) -> Any:
        message = await receive(socket)
        if message is not None and message["type"] == MessageType.GOODBYE:
            arrived.set()
            await has_successor.wait()
            asyncio.get_running_loop().call_soon(is_read.set)
        return message

    async def story(cluster: Cluster) -> None:
        first = cluster.nodes[2].session
        first._link.send(pack_message(MessageType.GOODBYE))
        await arrived.wait()
        for task in first._tasks():
            task.cancel()
        cluster.nodes[2] = await cluster.stage.start_node(
            2, start_id="again", endpoints=cluster.listeners[2].endpoints
        )
        has_successor.set()
        await is_read.wait()
        await cluster.listeners[2].close()
        await cluster.end_session(2)
        await cluster.fenced_after(2, watcher=0)

    monkeypatch.setattr(session_server, "receive_any", receive_late)
    scene(play, wait_until, story)
