"""Brokers and a controller over real sockets."""

import asyncio
import json
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.request import urlopen

import aiohttp
import pytest

from fairlead_broker.session import controller_session
from fairlead_broker.session.link import SessionRefusedError
from fairlead_controller.decisions.events import FenceReason
from fairlead_controller.decisions.tables.history import count_writes
from fairlead_controller.decisions.tables.regressions import rolled_back_tables
from fairlead_controller.decisions.tables.stored_table import StoreRolledBackError
from fairlead_controller.sessions import hearing
from fairlead_controller.sessions import server as session_server
from fairlead_controller.stores.file import open_file_store, read_file_store
from fairlead_model.cluster import TopicState
from fairlead_model.metadata_seen import MetadataSeen
from fairlead_model.resources.topic_manifest import TopicSpec
from fairlead_model.session.refusals import RefusalCode
from fairlead_wire.errors import ErrorCode, KafkaError


def test_a_broker_registers_follows_and_calls(play: Callable[..., Any]) -> None:
    async def story(stage: Any) -> None:
        await stage.start_controller()
        node = await stage.start_node(0)
        other = await stage.start_node(1)
        assert (node.session.broker_epoch, other.session.broker_epoch) == (1, 2)
        assert node.session.cluster_id == stage.controller.committed.image.cluster_id
        reply = await node.create("t", partitions=4)
        topic_id = reply["topics"][0]["topic_id"]
        # The delta comes before the reply.
        assert node.image.topic_name(topic_id) == "t"
        leaders = sorted(partition.leader for partition in node.image.topic("t").partitions)
        assert leaders == [0, 0, 1, 1]
        for delta, image in node.published:
            assert delta
            assert image.cluster_id == node.session.cluster_id
        ids = await node.session.call("allocate_producer_ids", {}, timeout_ms=30_000)
        assert ids == {"first_producer_id": 0, "count": 1000}

    play(story)


def test_all_brokers_see_the_same(
    play: Callable[..., Any], wait_until: Callable[..., Awaitable[None]]
) -> None:
    async def story(stage: Any) -> None:
        await stage.start_controller()
        nodes = [await stage.start_node(number) for number in range(3)]
        await asyncio.gather(*(node.create(f"t{n}") for n, node in enumerate(nodes)))
        for node in nodes:
            await wait_until(lambda node=node: len(node.image.names) == 3)
        images = [node.image for node in nodes]
        assert list(images[0].changes_since(images[1])) == []
        assert list(images[0].changes_since(images[2])) == []

    play(story)


def test_a_wrong_secret_is_refused_and_told_nowhere(
    play: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    wrong = b"not-the-secret-not-the-secret"

    async def story(stage: Any) -> None:
        await stage.start_controller()
        node = stage.node(0, secret=wrong)
        await node.session.start()
        with pytest.raises(SessionRefusedError, match="secret") as refused:
            await node.session.wait_registered(30)
        assert refused.value.code == RefusalCode.CLUSTER_AUTHORIZATION_FAILED
        assert stage.controller.committed.image.brokers == {}

    with caplog.at_level(logging.DEBUG):
        play(story)
    assert "secret of this broker" in caplog.text
    for text in (wrong, b"0123456789abcdef"):
        assert text.decode() not in caplog.text
        assert text.hex() not in caplog.text


def test_a_broker_of_another_cluster_is_refused(play: Callable[..., Any]) -> None:
    async def story(stage: Any) -> None:
        await stage.start_controller()
        node = stage.node(0, cluster_id="AnotherClusterAltogether")
        await node.session.start()
        with pytest.raises(SessionRefusedError, match="cluster") as refused:
            await node.session.wait_registered(30)
        assert refused.value.code == RefusalCode.INCONSISTENT_CLUSTER_ID

    play(story)


def test_few_refusals_are_remembered(
    play: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who knows the secret may ask under any id."""
    monkeypatch.setattr("fairlead_controller.sessions.server.REFUSED_MAX", 2)

    async def story(stage: Any) -> None:
        await stage.start_controller()
        for broker_id in (5, 6, 5, 7):
            node = stage.node(broker_id, cluster_id="AnotherClusterAltogether")
            await node.session.start()
            with pytest.raises(SessionRefusedError, match="cluster"):
                await node.session.wait_registered(30)
            await node.session.stop()
        assert sorted(stage.server.sessions.refused) == [5, 7]

    play(story)


def test_what_a_broker_of_another_cluster_has_seen_is_no_word_on_this_one(
    play: Callable[..., Any],
) -> None:
    async def story(stage: Any) -> None:
        await stage.start_controller()
        seen = [[bytes(15) + b"1", "t", [0, 900, 900]]]
        node = stage.node(
            0,
            cluster_id="AnotherClusterAltogether",
            previous_broker_epoch=900,
            replicas_seen=lambda: seen,
        )
        node.session.controller_epoch = 900
        await node.session.start()
        with pytest.raises(SessionRefusedError, match="cluster") as refused:
            await node.session.wait_registered(30)
        assert refused.value.code == RefusalCode.INCONSISTENT_CLUSTER_ID
        await stage.start_node(1)

    play(story)


def test_a_broker_is_told_how_many_writes_the_tables_have_had(
    play: Callable[..., Any], wait_until: Callable[..., Awaitable[None]]
) -> None:
    async def story(stage: Any) -> None:
        await stage.start_controller()
        node = await stage.start_node(0)

        def knows() -> bool:
            controller = stage.controller
            seen: object = node.session.metadata_seen
            return seen == (
                controller.committed.controller_epoch,
                controller.writes,
            )

        await wait_until(knows)
        before = node.session.metadata_seen
        # No change that brokers are sent.
        await node.session.call("allocate_producer_ids", {}, timeout_ms=30_000)
        await wait_until(lambda: node.session.metadata_seen > before and knows())
        await stage.stop_controller()
        store = await open_file_store(stage.directory)
        assert count_writes(await store.load()) == node.session.metadata_seen.writes
        await store.close()

    play(story)


def test_a_disk_that_has_seen_more_than_the_tables_know_ends_the_reign(
    play: Callable[..., Any], wait_until: Callable[..., Awaitable[None]]
) -> None:
    """The processes that saw it are gone, and no log tells of it."""

    async def story(stage: Any) -> None:
        await stage.start_controller()
        node = await stage.start_node(0)
        await node.session.stop()
        await stage.stop_controller()
        seen = MetadataSeen(node.session.controller_epoch, node.session.metadata_seen.writes + 9)
        await stage.start_controller()
        again = stage.node(0, metadata_seen=seen)
        await again.session.start()
        await wait_until(lambda: rolled_back_tables(read_file_store(stage.directory)))
        with pytest.raises(TimeoutError):
            await again.session.wait_registered(0.1)
        assert again.published == []
        await stage.stop_controller()
        with pytest.raises(StoreRolledBackError, match=f"has seen {seen.writes} writes"):
            await stage.start_controller()

    play(story)


def test_a_duplicate_id_is_refused_while_the_first_lives(
    play: Callable[..., Any], wait_until: Callable[..., Awaitable[None]]
) -> None:
    async def story(stage: Any) -> None:
        await stage.start_controller()
        first = await stage.start_node(0)
        double = stage.node(0, start_id="double", directory_id="elsewhere")
        await double.session.start()
        with pytest.raises(SessionRefusedError, match="in use") as refused:
            await double.session.wait_registered(30)
        assert refused.value.code == RefusalCode.DUPLICATE_BROKER_REGISTRATION
        assert first.session.is_connected
        assert first.is_live(0)

    play(story)


def test_a_duplicate_id_is_refused_by_a_new_controller_that_has_heard_the_first_before(
    play: Callable[..., Any],
    wait_until: Callable[..., Awaitable[None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both wait until all brokers were heard, and are let in at the same moment."""
    asked: list[str] = []
    hear = hearing.Hearing.hear

    async def note_and_hear(self: Any, asking: Any, testimony: Any) -> None:
        asked.append(asking.start_id)
        await hear(self, asking, testimony)

    async def story(stage: Any) -> None:
        await stage.start_controller()
        first, other = [await stage.start_node(number) for number in range(2)]
        await stage.stop_controller()
        # Not before: the tables have to show it in service, so that it is waited for.
        for task in other.session._tasks():
            task.cancel()
        monkeypatch.setattr(hearing, "HEARING_S", 30.0)
        monkeypatch.setattr(hearing, "NEWCOMERS_S", 30.0)
        monkeypatch.setattr(hearing.Hearing, "hear", note_and_hear)
        await stage.start_controller()
        await wait_until(lambda: "start-0" in asked)
        double = stage.node(0, start_id="double", directory_id="elsewhere", host_name="there")
        await double.session.start()
        await wait_until(lambda: "double" in asked)
        await stage.node(1).session.start()
        with pytest.raises(SessionRefusedError, match="in use") as refused:
            await double.session.wait_registered(30)
        assert refused.value.code == RefusalCode.DUPLICATE_BROKER_REGISTRATION
        await wait_until(lambda: first.session.is_connected)
        assert stage.controller.committed.image.brokers[0].directory_id == "disk-0"

    play(story)


def test_the_kernel_notices_a_controllers_machine_that_is_gone(play: Callable[..., Any]) -> None:
    """No FIN comes from a machine without power, and not every wait on a link ends by itself."""

    async def story(stage: Any) -> None:
        await stage.start_controller()
        node = await stage.start_node(0)
        raw = node.session._link._socket.get_extra_info("socket")
        assert raw.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        patience_s = raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) + raw.getsockopt(
            socket.IPPROTO_TCP, socket.TCP_KEEPINTVL
        ) * raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT)
        assert patience_s == 11
        assert raw.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 11_000

    play(story)


def test_a_session_that_cannot_be_written_to_leaves_no_trace(
    play: Callable[..., Any],
    wait_until: Callable[..., Awaitable[None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(session: Any) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr("fairlead_controller.sessions.session.BrokerSession.write", fail)

    async def story(stage: Any) -> None:
        await stage.start_controller()
        node = stage.node(0)
        await node.session.start()
        await wait_until(lambda: stage.server.sessions.session_count == 1)
        await node.session.stop()
        await wait_until(lambda: stage.server.sessions.session_count == 0)

    play(story)


def test_a_restarted_broker_supersedes_itself(
    play: Callable[..., Any],
    wait_until: Callable[..., Awaitable[None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(stage: Any) -> None:
        await stage.start_controller()
        await stage.start_node(1)
        first = await stage.start_node(0)
        await first.create("t", partitions=2)
        # The process of before is gone: it does not come back in its turn.
        for name in ("RECONNECT_DELAY_MIN_S", "RECONNECT_DELAY_MAX_S"):
            monkeypatch.setattr(controller_session, name, 3600.0)
        again = await stage.start_node(0, start_id="again")
        assert again.session.broker_epoch == 3
        await wait_until(lambda: all(part.has_leader for part in again.image.topic("t").partitions))
        epochs = {part.leader: part.leader_epoch for part in again.image.topic("t").partitions}
        assert epochs == {0: 2, 1: 0}

    play(story)


def test_what_was_missed_is_resumed_where_it_broke(
    play: Callable[..., Any], wait_until: Callable[..., Awaitable[None]]
) -> None:
    async def story(stage: Any) -> None:
        await stage.start_controller()
        node = await stage.start_node(0)
        other = await stage.start_node(1)
        await wait_until(lambda: node.is_live(1))
        count = len(node.published)
        cut(stage, 0)
        await other.create("t")
        await wait_until(lambda: node.image.topic("t") is not None)
        assert node.session.broker_epoch == 1
        assert len(node.published) > count
        # Resumed, not rebuilt: no publication repeats what was known.
        for delta, _ in node.published[count:]:
            assert len(delta.changes) <= 2

    play(story)


def cut(stage: Any, broker_id: int) -> None:
    """Break the connection of a broker."""
    stage.server.sessions._sessions[broker_id].abort()


def test_a_controller_restart_keeps_epochs_rising_and_leaders_in_place(
    play: Callable[..., Any], wait_until: Callable[..., Awaitable[None]]
) -> None:
    async def story(stage: Any) -> None:
        await stage.start_controller()
        nodes = [await stage.start_node(number) for number in range(2)]
        await nodes[0].create("t", partitions=4)
        before = nodes[0].image.topic("t").partitions
        await stage.stop_controller()
        await wait_until(lambda: not nodes[0].session.is_connected)
        assert nodes[0].image.topic("t").partitions == before, "the image is kept"
        with pytest.raises(KafkaError, match="no controller") as error:
            await nodes[0].session.call("allocate_producer_ids", {}, timeout_ms=50)
        assert error.value.code is ErrorCode.REQUEST_TIMED_OUT
        await stage.start_controller()
        for node in nodes:
            await wait_until(lambda node=node: node.session.controller_epoch == 2)
            await wait_until(lambda node=node: node.session.position.controller_epoch == 2)
        assert [node.session.broker_epoch for node in nodes] == [1, 2]
        assert nodes[0].image.topic("t").partitions == before, "nothing moved"
        third = await stage.start_node(2)
        assert third.session.broker_epoch == 3

    play(story)


def test_who_died_with_its_controller_is_neither_waited_for_nor_alive(
    play: Callable[..., Any],
    wait_until: Callable[..., Awaitable[None]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its port refuses: it can say nothing that the others would have to wait for."""

    async def story(stage: Any) -> None:
        await stage.start_controller()
        nodes = [await stage.start_node(number) for number in range(3)]
        await nodes[0].create("t", partitions=3)
        await stage.stop_controller()
        await nodes[1].session.stop()
        await wait_until(lambda: not nodes[0].session.is_connected)
        monkeypatch.setattr(hearing, "HEARING_S", 3600.0)
        # Nobody is excused for being late, nor looked at, before all others have come.
        for module in (hearing, session_server):
            monkeypatch.setattr(module, "NEWCOMERS_S", 5.0)
        await stage.start_controller()
        await wait_until(lambda: nodes[0].image.brokers[1].fenced)
        assert [FenceReason.CONNECTION_REFUSED in each for each in stage.fencings()] == [True]
        assert nodes[2].is_live(2)

    play(story)


def test_a_broker_without_a_controller_asks_often_where_nobody_listens(
    play: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(stage: Any) -> None:
        node = stage.node(0)
        await node.session.start()
        await stage.start_controller()
        await node.session.wait_registered(30)

    for name in ("RECONNECT_DELAY_MIN_S", "RECONNECT_DELAY_MAX_S"):
        monkeypatch.setattr(controller_session, name, 3600.0)
    monkeypatch.setattr(controller_session, "REFUSED_DELAY_MAX_S", 0.01)
    play(story)


def test_a_call_waits_for_a_controller_that_is_coming_back(
    play: Callable[..., Any], wait_until: Callable[..., Awaitable[None]]
) -> None:
    async def story(stage: Any) -> None:
        await stage.start_controller()
        node = await stage.start_node(0)
        await stage.stop_controller()
        await wait_until(lambda: not node.session.is_connected)
        calling = asyncio.create_task(
            node.session.call("allocate_producer_ids", {}, timeout_ms=10_000)
        )
        await asyncio.sleep(0)
        await stage.start_controller()
        assert (await calling)["count"] == 1000

    play(story)


def test_goodbye_fences_at_once(
    play: Callable[..., Any], wait_until: Callable[..., Awaitable[None]]
) -> None:
    async def story(stage: Any) -> None:
        await stage.start_controller()
        node = await stage.start_node(0)
        other = await stage.start_node(1)
        await node.create("t", partitions=2)
        assert await node.session.call("controlled_shutdown", {}, timeout_ms=30_000) == {
            "remaining_leaders": 0
        }
        await node.session.stop()
        await wait_until(lambda: other.image.brokers[0].fenced)
        assert [FenceReason.STOPPED in each for each in stage.fencings()] == [True]
        assert {part.leader for part in other.image.topic("t").partitions} == {-1, 1}

    play(story)


@pytest.mark.usefixtures("endless_grace")
def test_a_dead_broker_is_found_by_its_refusing_port(
    play: Callable[..., Any], wait_until: Callable[..., Awaitable[None]]
) -> None:
    async def story(stage: Any) -> None:
        await stage.start_controller()
        nodes = [await stage.start_node(number) for number in range(3)]
        await nodes[0].create("t", partitions=3)
        # As a killed process: its sockets close, nobody says goodbye, nothing listens.
        for task in nodes[1].session._tasks():
            task.cancel()
        cut(stage, 1)
        await wait_until(lambda: nodes[0].image.brokers[1].fenced)
        assert [FenceReason.CONNECTION_REFUSED in each for each in stage.fencings()] == [True]
        leaders = {part.leader for part in nodes[0].image.topic("t").partitions}
        assert leaders == {0, -1, 2}

    play(story)


def test_a_silent_broker_is_fenced_after_the_session_timeout(
    play: Callable[..., Any], wait_until: Callable[..., Awaitable[None]]
) -> None:
    async def story(stage: Any) -> None:
        await stage.start_controller()
        nodes = [await stage.start_node(number) for number in range(3)]
        nodes[2].session._send_heartbeat = lambda lag_s: None
        await wait_until(lambda: nodes[0].image.brokers[2].fenced)
        assert [FenceReason.SESSION_EXPIRED in each for each in stage.fencings()] == [True]
        del nodes[2].session._send_heartbeat
        await wait_until(lambda: nodes[0].is_live(2))
        assert nodes[2].session.broker_epoch == 3, "the same incarnation came back"

    play(story)


def test_a_broker_that_is_not_ready_stays_fenced(
    play: Callable[..., Any], wait_until: Callable[..., Awaitable[None]]
) -> None:
    async def story(stage: Any) -> None:
        await stage.start_controller()
        node = await stage.start_node(0, is_ready=False)
        for _ in range(3):
            node.session._send_heartbeat(0.0)
            await node.session.call("allocate_producer_ids", {}, timeout_ms=30_000)
        assert not node.is_live(0)
        node.session.set_ready()
        await wait_until(lambda: node.is_live(0))

    play(story)


def test_deletions_wait_for_absent_brokers(
    play: Callable[..., Any], wait_until: Callable[..., Awaitable[None]]
) -> None:
    async def story(stage: Any) -> None:
        await stage.start_controller()
        nodes = [await stage.start_node(number) for number in range(2)]
        topic_id = (await nodes[0].create("t", partitions=2))["topics"][0]["topic_id"]
        await nodes[1].session.stop()
        await nodes[0].session.call(
            "delete_topics", {"topics": [{"name": "t", "topic_id": bytes(16)}]}, timeout_ms=30_000
        )
        assert nodes[0].image.deleting[topic_id].state is TopicState.DELETING
        confirm = {"topic_ids": [topic_id]}
        await nodes[0].session.call("confirm_deletions", confirm, timeout_ms=30_000)
        returned = await stage.start_node(1, start_id="again")
        assert set(returned.image.deleting[topic_id].unconfirmed_deletions) == {1}
        await returned.session.call("confirm_deletions", confirm, timeout_ms=30_000)
        await wait_until(lambda: not nodes[0].image.deleting)
        assert not returned.image.deleting

    play(story)


def test_refusals_of_calls_carry_code_and_words(play: Callable[..., Any]) -> None:
    async def story(stage: Any) -> None:
        await stage.start_controller()
        node = await stage.start_node(0)
        for method, body in (("nonsense", {}), ("create_topics", {"topics": 5})):
            with pytest.raises(KafkaError) as error:
                await node.session.call(method, body, timeout_ms=30_000)
            assert error.value.code is ErrorCode.INVALID_REQUEST
        assert node.session.is_connected

    play(story)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param({"topics": ["x" * 1000] * 9_000}, id="bytes"),
        pytest.param({"topics": [{"assignments": {0: [1] * 200_000}}]}, id="elements"),
        pytest.param({"topics": [{"configs": dict.fromkeys(map(str, range(110_000)))}]}, id="keys"),
    ],
)
def test_a_call_that_is_too_large_is_refused_and_the_session_lives(
    play: Callable[..., Any], body: dict[str, Any]
) -> None:
    async def story(stage: Any) -> None:
        await stage.start_controller()
        node = await stage.start_node(0)
        with pytest.raises(KafkaError, match="send it in parts") as error:
            await node.session.call("delete_topics", body, timeout_ms=30_000)
        assert error.value.code is ErrorCode.INVALID_REQUEST
        assert node.session.is_connected
        reply = await node.session.call("allocate_producer_ids", {}, timeout_ms=30_000)
        assert reply["count"] == 1000
        assert node.session.broker_epoch == 1, "it never had to register again"

    play(story)


def test_declared_topics_are_spread_over_the_expected_brokers(
    play: Callable[..., Any], wait_until: Callable[..., Awaitable[None]]
) -> None:
    async def story(stage: Any) -> None:
        await stage.start_controller(TopicSpec("t", "t", 6), expected_brokers=3)
        nodes = [await stage.start_node(number) for number in range(3)]
        await wait_until(lambda: nodes[0].image.topic("t") is not None)
        leaders = [part.leader for part in nodes[0].image.topic("t").partitions]
        assert sorted(leaders) == [0, 0, 1, 1, 2, 2]

    play(story)


def test_one_of_several_candidates_is_enough(play: Callable[..., Any]) -> None:
    async def story(stage: Any) -> None:
        await stage.start_controller()
        node = await stage.start_node(0, urls=["ws://127.0.0.1:1", stage.url])
        assert node.session.is_connected

    play(story)


def test_strangers_get_no_further_than_the_challenge(
    play: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_server, "HANDSHAKE_TIMEOUT_S", 0.2)

    async def story(stage: Any) -> None:
        await stage.start_controller()
        attempts = [b"", b"\xc1", b"\x80", os.urandom(1000), b"\x81\xa4type\xa8register"]
        async with aiohttp.ClientSession() as http:
            for attempt in attempts:
                async with http.ws_connect(f"{stage.url}/session") as socket:
                    assert (await socket.receive()).type is aiohttp.WSMsgType.BINARY
                    await socket.send_bytes(attempt)
                    assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE
            async with http.ws_connect(f"{stage.url}/session") as socket:
                await socket.receive()
                assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE, "too slow"
            async with http.get(f"http://127.0.0.1:{stage.port}/status") as response:
                assert response.status == 404
        assert stage.controller.committed.image.brokers == {}

    play(story)


def test_status_shows_brokers_topics_and_what_is_offline(play: Callable[..., Any]) -> None:
    async def story(stage: Any) -> None:
        await stage.start_controller(TopicSpec("waits", "waits"), expected_brokers=9)
        nodes = [await stage.start_node(number) for number in range(2)]
        await nodes[0].create("t", partitions=4)
        await nodes[1].session.stop()
        base = f"http://127.0.0.1:{stage.server.http_port}"
        health = json.loads(await asyncio.to_thread(fetch, f"{base}/healthz"))
        assert health == {"status": "ok", "controllerEpoch": 1}
        for _ in range(200):
            status = json.loads(await asyncio.to_thread(fetch, f"{base}/status"))
            if status["brokers"][1]["state"] == "fenced":
                break
        assert [broker["state"] for broker in status["brokers"]] == ["live", "fenced"]
        assert status["controller"] == {"pid": os.getpid(), "epoch": 1}
        (topic,) = status["topics"]
        del topic["topicId"]
        assert topic == {
            "name": "t",
            "partitions": 4,
            "replicationFactor": 1,
            "underReplicated": 2,
            "underMinIsr": 2,
            "offline": 2,
            "reassigning": 0,
            "lossPossible": 0,
            "isInternal": False,
            "resource": None,
        }
        assert status["declaredTopics"]["waiting"] == ["waits"]

    play(story)


def fetch(url: str) -> bytes:
    with urlopen(url, timeout=5) as response:
        return bytes(response.read())


def test_a_broker_tells_whether_its_log_directories_take_anything(
    play: Callable[..., Any], wait_until: Callable[..., Awaitable[None]]
) -> None:
    """Not before it is up to date; then by its next heartbeat."""
    cordoned = True

    async def story(stage: Any) -> None:
        nonlocal cordoned

        def told() -> bool:
            return bool(stage.controller.committed.image.brokers[0].is_cordoned)

        await stage.start_controller()
        first = stage.node(0, cordoned=lambda: cordoned, is_ready=False)
        await first.session.start()
        await first.session.wait_registered(10)
        await wait_until(told)
        other = await stage.start_node(1)
        first.session.set_ready()
        await wait_until(lambda: first.is_live(0))
        assert (await other.create("t", partitions=4))["topics"][0]["error_code"] == 0
        assert {each.leader for each in other.image.topic("t").partitions} == {1}
        cordoned = False
        await wait_until(lambda: not told())
        await other.create("u", partitions=4)
        assert {each.leader for each in other.image.topic("u").partitions} == {0, 1}
        cordoned = True
        await wait_until(told)
        await stage.stop_controller()
        await stage.start_controller()
        assert told(), "the next controller knows it from its tables"

    play(story)
