"""Stories of topics that are deleted while a broker is away, and of logs whose start advances."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from simulator.records import encode_batch
from simulator.world import World, tell

if TYPE_CHECKING:
    from simulator.broker_host import BrokerHost

NAME = "churn-a"


async def _make_topic(world: World) -> bytes:
    """Create a topic with replicas on all three brokers; return its id."""
    world.churn.create_named(NAME, replicas=3)
    topics = world.checker.topics
    await world.until(lambda: topics.live(NAME) is not None)
    topic_id = topics.live(NAME)
    assert topic_id is not None
    await world.until(lambda: len(world.checker.truths[(topic_id, 0)].committed) > 5)
    return topic_id


def _held(host: BrokerHost, topic_id: bytes) -> list[Any]:
    return [log for log in host.disk.logs.values() if log.topic_id == topic_id]


def test_a_broker_that_was_absent_lets_go_of_a_deleted_topic_later() -> None:
    async def story(world: World) -> None:
        await world.progress()
        old_id = await _make_topic(world)
        absent, topics = world.brokers[3], world.checker.topics
        absent.kill()
        world.churn.delete(NAME)
        await world.until(lambda: old_id in topics.gone)
        await world.until(lambda: topics.headers[old_id].unconfirmed == {absent.broker_id})
        assert _held(absent, old_id)
        # A new topic may have the name at once.
        world.churn.create_named(NAME, replicas=2)
        await world.until(lambda: topics.live(NAME) not in (None, old_id))
        absent.start()
        await world.until(lambda: old_id not in topics.headers)
        assert not _held(absent, old_id)

    tell(story)


def test_a_topic_that_was_deleted_and_made_again_is_another_one() -> None:
    async def story(world: World) -> None:
        await world.progress()
        old_id = await _make_topic(world)
        world.churn.delete(NAME)
        await world.until(lambda: old_id in world.checker.topics.gone)
        new_id = await _make_topic(world)
        assert new_id != old_id
        old = {entry.value for entry in world.checker.truths[(old_id, 0)].committed}
        new = {entry.value for entry in world.checker.truths[(new_id, 0)].committed}
        assert old
        assert not old & new

    tell(story)


def test_a_deletion_outlives_the_controller_that_began_it() -> None:
    async def story(world: World) -> None:
        await world.progress()
        old_id = await _make_topic(world)
        absent, topics = world.brokers[2], world.checker.topics
        absent.kill()
        world.churn.delete(NAME)
        await world.until(lambda: old_id in topics.gone)
        for controller in world.controllers.values():
            controller.kill()
        await asyncio.sleep(3)
        absent.start()
        await world.until(lambda: old_id not in topics.headers, limit_s=30)

    tell(story)


def test_a_follower_that_is_behind_its_leaders_start_begins_there() -> None:
    async def story(world: World) -> None:
        world.retention_chance = 0.0
        await world.progress(count=20)
        behind = world.followers()[0]
        behind.kill()
        end = _log(behind, world).log_end_offset
        await world.progress(count=40)
        running = world.leader().running
        assert running is not None
        leader = running.partitions[world.key()]
        start = end + 7
        world.checker.on_forgetting(leader, start)
        leader.delete_records(start)
        behind.start()
        await world.until(lambda: behind.broker_id in world.record().isr)
        assert _log(behind, world).log_start_offset == start
        assert _log(behind, world).base_offset <= start
        await world.progress()

    tell(story)


def _log(host: BrokerHost, world: World) -> Any:
    return host.log(world.key())


def test_a_log_that_parts_just_below_its_leaders_start_counts_for_nothing() -> None:
    """Its last records were never committed, and the leader no longer has that part of the log."""

    async def story(world: World) -> None:
        world.retention_chance = 0.0
        await world.progress()
        old = world.leader()
        for producer in world.producers:
            producer.process.pause()
        await asyncio.sleep(1.0)
        # A record that only the old leader has; the new leader has another one at its offset.
        log = _log(old, world)
        end = log.log_end_offset
        world.isolate(old, from_=[*[host.name for host in world.followers()], *world.controllers])
        assert old.running is not None
        zombie = old.running.partitions[world.key()]
        zombie.append_as_leader(
            encode_batch([world.next_value(world.key())], -1, -1, -1), required_acks=1, now_ms=0
        )
        await world.until(lambda: world.record().leader not in (-1, old.broker_id))
        running = world.leader().running
        assert running is not None
        leader = running.partitions[world.key()]
        leader.append_as_leader(
            encode_batch([world.next_value(world.key())], -1, -1, -1), required_acks=-1, now_ms=0
        )
        await world.until(lambda: leader.high_watermark == end + 1)
        world.checker.on_forgetting(leader, end + 1)
        leader.delete_records(end + 1)
        world.network.heal_all()
        await world.until(lambda: old.broker_id in world.record().isr)
        last_entry = _log(world.leader(), world).entries[-1]
        assert log.log_start_offset == end + 1 or log.entries[-1] == last_entry
        for producer in world.producers:
            producer.process.resume()
        await world.progress()

    tell(story)
