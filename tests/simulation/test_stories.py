"""Short stories of failures that other systems had; the observer checks all promises in each.

The times between the steps are realistic. Clients produce and consume all the time.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest
from simulator import stories
from simulator.control_plane import ControllerHost
from simulator.memory_log import MemoryLog
from simulator.opening import PLAIN
from simulator.records import encode_batch
from simulator.world import World, tell

CONTROLLERS = ["controller-0", "controller-1"]


def controller_of(world: World) -> ControllerHost:
    return next(each for each in world.controllers.values() if each.is_running)


def test_a_killed_leader_is_replaced_at_once() -> None:
    async def story(world: World) -> None:
        await world.progress()
        old, killed_s = world.leader(), world.loop.time()
        old.kill()
        await world.until(lambda: world.record().leader not in (-1, old.broker_id))
        assert world.loop.time() - killed_s < 0.3
        assert old.broker_id not in world.record().isr
        await world.progress()

    tell(story)


def test_a_clean_stop_moves_leaders_first() -> None:
    async def story(world: World) -> None:
        await world.progress()
        old = world.leader()
        assert old.running is not None
        old.running.process.spawn(old.running.stop())
        await world.until(lambda: not old.is_running)
        assert world.record().leader not in (-1, old.broker_id)
        assert old.disk.clean_marker is not None
        await world.progress()

    tell(story)


def test_a_broker_that_is_told_to_stop_before_it_is_registered_returns_clean() -> None:
    """It is registered while it stops; its marker of a clean stop must have the new epoch."""

    async def story(world: World) -> None:
        await world.progress()
        broker = world.followers()[0]
        broker.kill()
        await world.until(lambda: broker.broker_id not in world.record().isr)
        known_epoch = broker.disk.registered_epoch
        world.isolate(broker, from_=CONTROLLERS)
        broker.start()
        assert broker.running is not None
        broker.running.process.spawn(broker.running.stop())
        await asyncio.sleep(0.1)
        world.network.heal_all()
        await world.until(lambda: not broker.is_running)
        assert broker.disk.registered_epoch > known_epoch
        assert broker.disk.clean_marker == broker.disk.registered_epoch
        broker.start()
        await world.until(lambda: broker.broker_id in world.record().isr)

    tell(story)


def test_a_leader_cut_off_from_the_others_cannot_shrink_its_isr_alone() -> None:
    """Jepsen 2013: the leader acknowledged alone, died, and a stale replica was elected."""

    async def story(world: World) -> None:
        await world.progress()
        old = world.leader()
        others = [host.name for host in world.followers()]
        world.isolate(old, from_=[*others, *CONTROLLERS])
        await asyncio.sleep(1.2)
        assert old.running is not None
        zombie = old.running.partitions[world.key()]
        alone = zombie.high_watermark
        await world.until(lambda: world.record().leader != old.broker_id)
        await world.progress()
        assert zombie.is_leader, "nobody could tell it"
        assert zombie.high_watermark <= alone + 2
        old.kill()

    tell(story)


def test_a_leader_that_was_stopped_wakes_as_nobody() -> None:
    async def story(world: World) -> None:
        await world.progress()
        old = world.leader()
        epoch = world.record().leader_epoch
        old.pause()
        await world.until(lambda: world.record().leader not in (-1, old.broker_id))
        await world.progress()
        old.resume()
        await world.until(lambda: old.broker_id in world.record().isr)
        assert world.record().leader_epoch > epoch
        assert old.running is not None
        assert not old.running.partitions[world.key()].is_leader

    tell(story)


def test_a_leader_that_stops_just_before_a_heartbeat_wakes_as_nobody_sooner() -> None:
    """Its session ends 1.5 s after its last heartbeat, so it was stopped for less than that."""

    async def story(world: World) -> None:
        await world.progress(1)
        old, epoch = world.leader(1), world.record(1).leader_epoch
        assert old.running is not None
        session = old.running.session
        number = session._heartbeat_number
        while session._heartbeat_number == number:  # noqa: ASYNC110 (time is virtual)
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.24)
        old.pause()
        stopped_s = world.loop.time()
        await world.until(lambda: world.record(1).leader_epoch > epoch)
        assert world.loop.time() - stopped_s < 1.4
        old.resume()
        await world.until(lambda: old.broker_id in world.record(1).isr)
        await world.progress(1)
        memory_log = world.leader(1).log(world.key(1))
        assert isinstance(memory_log, MemoryLog)
        kept = {entry.value for entry in memory_log.entries}
        for producer in world.producers:
            if producer.key == world.key(1) and producer.acks == 1:
                assert producer.acknowledged
                assert producer.acknowledged.keys() <= kept

    tell(story)


def test_the_last_replica_standing_loses_power() -> None:
    """KIP-966: a replica that left an ISR of the minimum size has all records, and may lead."""

    async def story(world: World) -> None:
        await world.progress()
        first, second = world.followers()
        last = world.leader()
        first.kill()
        await world.until(lambda: first.broker_id not in world.record().isr)
        await world.progress()
        second.kill()
        await world.until(lambda: world.record().isr == (last.broker_id,))
        assert world.record().elr == (second.broker_id,)
        await asyncio.sleep(1)
        world.may_lose(last)
        last.lose_power()
        await asyncio.sleep(4)
        last.start()
        await asyncio.sleep(3)
        assert world.record().leader == -1, "it may lack what it acknowledged"
        second.start()
        await world.until(lambda: world.record().leader == second.broker_id)
        await world.progress()

    tell(story)


def test_an_eligible_replica_is_enough_where_two_are_all() -> None:
    """With a minimum of two both have all acknowledged records, and either may be lost."""

    async def story(world: World) -> None:
        world.change_min_insync("2")
        await world.until(lambda: world.record(topic=PLAIN).min_insync_replicas == 2)
        await world.progress(topic=PLAIN)
        leader, follower = world.leader(topic=PLAIN), world.followers(topic=PLAIN)[0]
        follower.kill()
        await world.until(lambda: world.record(topic=PLAIN).isr == (leader.broker_id,))
        assert world.record(topic=PLAIN).elr == (follower.broker_id,)
        assert world.may_lose(leader)
        leader.lose_disk()
        assert not world.checker.truths[world.key(topic=PLAIN)].is_forgiven
        leader.start()
        follower.start()
        await world.progress(topic=PLAIN)
        assert world.leader(topic=PLAIN) is follower

    tell(story)


def test_a_replica_that_was_in_sync_alone_from_the_beginning_is_not_made_up_for() -> None:
    """The other replicas were away when the partition was created, so they lack its records. When
    the first one returns without its data, the replica with the longest log leads."""

    async def story(world: World) -> None:
        await world.progress()
        alone, *others = world.brokers.values()
        for other in others:
            other.kill()
        await world.until(lambda: world.record().isr == (alone.broker_id,))
        world.churn.create_named("churn-a", replicas=3, partitions=1)
        await world.until(lambda: world.checker.topics.live("churn-a"))
        topic_id = world.checker.topics.live("churn-a")
        assert topic_id is not None
        truth = world.checker.truths[(topic_id, 0)]
        assert truth.record is not None
        assert (truth.record.isr, truth.record.elr) == ((alone.broker_id,), ())
        assert world.may_lose(alone)
        assert truth.is_forgiven
        assert not world.checker.truths[world.key()].is_forgiven
        alone.lose_disk()
        for broker in world.brokers.values():
            broker.start()
        await world.until(lambda: truth.record is not None and truth.record.is_recovering)
        await world.until(lambda: truth.committed)

    tell(story)


def test_a_minimum_of_one_promises_nothing_while_a_replica_is_hurt() -> None:
    """The controller elects a follower that has lost its power, which nobody knows yet. It might
    have acknowledged alone, and returns with fewer records. The partition then recovers, and the
    observer forgives what is lost."""

    async def story(world: World) -> None:
        world.change_min_insync("2")
        await world.until(lambda: world.record(topic=PLAIN).min_insync_replicas == 2)
        await world.progress(topic=PLAIN)
        leader, follower = world.leader(topic=PLAIN), world.followers(topic=PLAIN)[0]
        world.may_lose(follower)
        follower.lose_power()
        world.change_min_insync("1")
        await world.until(lambda: world.record(topic=PLAIN).min_insync_replicas == 1)
        leader.kill()
        await world.until(lambda: world.record(topic=PLAIN).leader == follower.broker_id)
        await world.until(lambda: world.record(topic=PLAIN).leader == -1)
        leader.start()
        await world.until(lambda: world.is_in_service(leader))
        follower.start()
        await world.until(lambda: world.record(topic=PLAIN).is_recovering)
        await world.progress(topic=PLAIN)
        assert world.checker.truths[world.key(topic=PLAIN)].is_forgiven

    tell(story)


def test_a_second_restart_launders_nothing() -> None:
    """After a power cut a second start looks clean, and its data is as incomplete as before."""

    async def story(world: World) -> None:
        await world.progress()
        last = world.leader()
        for follower in world.followers():
            follower.kill()
            await world.until(lambda: follower.broker_id not in world.record().isr)  # noqa: B023
        assert world.record().isr == (last.broker_id,)
        world.may_lose(last)
        last.lose_power()
        for _ in range(2):
            last.start()
            await asyncio.sleep(2.5)
            assert world.record().leader == -1
            assert last.broker_id not in (*world.record().isr, *world.record().elr)
            last.kill()
        last.start()
        for follower in world.followers():
            follower.start()
        await world.progress()

    tell(story)


@pytest.mark.parametrize(
    "story",
    [
        stories.power_fails_before_the_answer,
        stories.an_old_question_comes_late,
        stories.a_second_controller_begins,
        stories.only_a_deposed_controller_is_heard,
        stories.the_minimum_falls_while_a_disk_is_lost,
    ],
    ids=lambda story: story.__name__,
)
def test_what_hardly_ever_happens_breaks_nothing(
    story: Callable[[World], Awaitable[None]],
) -> None:
    tell(story)


def test_a_broker_that_comes_back_empty_is_a_follower() -> None:
    async def story(world: World) -> None:
        await world.progress()
        old = world.leader()
        old.lose_disk()
        old.start()
        await world.until(lambda: world.record().leader not in (-1, old.broker_id))
        await world.until(lambda: old.broker_id in world.record().isr)
        log = old.log(world.key())
        assert log is not None
        assert log.log_end_offset > 0

    tell(story)


def test_a_broker_that_comes_back_with_another_ones_disk_counts_for_nothing() -> None:
    async def story(world: World) -> None:
        await world.progress()
        one, other = world.followers()
        one.kill()
        await world.progress(count=20)
        # An old copy of its data under another directory id: its logs end before the leader's.
        disk = one.disk
        one.lose_disk()
        for key, log in disk.logs.items():
            copy = one.make_log(key, log.topic)
            assert isinstance(copy, MemoryLog) and isinstance(log, MemoryLog)
            copy.base_offset = copy.log_start_offset = log.base_offset
            middle = log.batch_start(log.base_offset + len(log.entries) // 2)
            copy.entries = log.entries[: middle - log.base_offset]
            copy._rebuild_epochs()
        one.start()
        await world.until(lambda: one.broker_id in world.record().isr)
        assert other.broker_id in world.record().isr

    tell(story)


def test_leader_and_controller_die_together() -> None:
    async def story(world: World) -> None:
        await world.progress()
        old, killed_s = world.leader(), world.loop.time()
        controller_of(world).kill()
        old.kill()
        await world.until(lambda: world.record().leader not in (-1, old.broker_id))
        assert world.loop.time() - killed_s < 4.5
        await world.progress()

    tell(story)


def test_nobody_notices_a_controller_that_goes_and_comes_back() -> None:
    async def story(world: World) -> None:
        await world.progress()
        epochs = [world.record(index).leader_epoch for index in (0, 1)]
        controller_of(world).kill()
        await world.progress(count=20)
        await world.until(lambda: any(each.is_running for each in world.controllers.values()))
        await asyncio.sleep(3)
        assert [world.record(index).leader_epoch for index in (0, 1)] == epochs

    tell(story)


def test_a_deposed_controller_changes_nothing() -> None:
    async def story(world: World) -> None:
        await world.progress()
        old = controller_of(world)
        assert old.process is not None
        old.process.pause()
        new = world.controllers["controller-1"]
        new.start()
        await world.until(lambda: new.controller is not None)
        world.leader().kill()
        await world.progress()
        old.process.resume()
        await world.until(lambda: not old.is_running)
        await world.progress()

    tell(story)


def test_without_the_store_leaders_go_on() -> None:
    async def story(world: World) -> None:
        await world.progress()
        world.store.go_away()
        await world.progress(count=20)
        world.store.come_back()

    tell(story)


def test_a_failed_disk_gives_leadership_away() -> None:
    async def story(world: World) -> None:
        await world.progress()
        old = world.leader()
        old.fail_disk()
        await world.until(lambda: old.broker_id not in world.record().isr)
        await world.progress()
        assert old.is_running
        old.kill()

    tell(story)


def test_a_lower_minimum_forgets_who_was_eligible_under_the_higher_one() -> None:
    async def story(world: World) -> None:
        await world.progress(topic=PLAIN)
        await _alter_minimum(world, "2")
        (follower,) = world.followers(topic=PLAIN)
        follower.kill()
        await world.until(lambda: world.record(topic=PLAIN).elr == (follower.broker_id,))
        await _alter_minimum(world, "1")
        await world.until(lambda: world.record(topic=PLAIN).elr == ())
        await world.progress(topic=PLAIN)
        leader = world.leader(topic=PLAIN)
        leader.kill()
        await world.until(lambda: world.record(topic=PLAIN).leader == -1)
        follower.start()
        await asyncio.sleep(2)
        assert world.record(topic=PLAIN).leader == -1
        leader.start()
        await world.progress(topic=PLAIN)

    tell(story)


def test_a_minimum_in_the_settings_comes_and_goes_with_the_brokers_that_have_it() -> None:
    async def story(world: World) -> None:
        async def restart_with(minimum: int) -> None:
            for broker_id in world.record(topic=PLAIN).replicas:
                host = world.brokers[broker_id]
                host.kill()
                host.min_insync_replicas = minimum
                host.start()
                await world.until(lambda: host.broker_id in world.record(topic=PLAIN).isr)  # noqa: B023
                await world.progress(topic=PLAIN)

        await world.progress(topic=PLAIN)
        await _alter_minimum(world, None)
        await restart_with(2)
        assert world.record(topic=PLAIN).min_insync_replicas == 2
        await restart_with(1)
        assert world.record(topic=PLAIN).min_insync_replicas == 1

    tell(story)


async def _alter_minimum(world: World, value: str | None) -> None:
    """Set the topic's own value; None removes it."""
    alteration = {"name": "min.insync.replicas", "operation": int(value is None), "value": value}
    resource = {"resource_type": 2, "name": PLAIN, "alterations": [alteration]}
    body = {"resources": [resource], "validate_only": False, "incremental": True}
    world.tell_controller("alter_configs", body)
    controller = controller_of(world).controller
    assert controller is not None

    def is_altered() -> bool:
        topic = controller.committed.image.topic(PLAIN)
        is_known = topic is not None and topic.configs.get("min.insync.replicas") == value
        return is_known and world.record(topic=PLAIN).min_insync_replicas == int(value or 1)

    await world.until(is_altered)


@pytest.mark.parametrize("seed", range(5))
def test_leaders_that_take_turns_in_quick_succession(seed: int) -> None:
    """KIP-101, KIP-279: logs diverge and are truncated epoch by epoch, also empty epochs."""

    async def story(world: World) -> None:
        for _ in range(6):
            await asyncio.sleep(0.1 + 0.4 * world.rng.random())
            await world.until(lambda: world.record().leader >= 0)
            broker = world.leader()
            broker.kill()
            await asyncio.sleep(0.2)
            broker.start()
        await world.progress()

    tell(story, seed=seed)


def test_memory_logs_lose_what_was_not_synced() -> None:
    log = MemoryLog()
    for value in range(10):
        log.append_as_leader(encode_batch([value], -1, -1, 0), leader_epoch=1, now_ms=0)
        if value == 4:
            log.sync()
    log.lose_power(random.Random(1))
    assert 5 <= log.log_end_offset <= 10
    assert [entry.value for entry in log.entries] == list(range(log.log_end_offset))
