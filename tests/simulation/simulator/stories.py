"""Stories of several tests: their situations are too rare to occur by chance."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from simulator.opening import PLAIN
from simulator.records import NO_PRODUCER, encode_batch

from fairlead_broker.replication.acks import ALL_IN_SYNC

if TYPE_CHECKING:
    from simulator.world import World


def _is_out(world: World, broker_id: int) -> bool:
    return broker_id not in world.record().isr


async def power_fails_before_the_answer(world: World) -> None:
    """A broker registers as clean, by its page cache, and never gets the answer. Then the machine
    loses power, and the next start finds the start id of the one before."""
    await world.progress()
    last = world.leader()
    for follower in world.followers():
        follower.kill()
        await world.until(partial(_is_out, world, follower.broker_id))
    last.kill()
    await world.until(lambda: world.record().leader == -1)
    await world.until(lambda: any(each.is_running for each in world.controllers.values()))
    for controller in world.controllers:
        world.network.cut(controller, last.name)
    last.start()
    while not world.has_registered(last):
        # Only what the broker needs for the handshake.
        for controller in world.controllers:
            world.network.heal(controller, last.name)
            world.network.cut(controller, last.name)
        await asyncio.sleep(0.0005)
    world.may_lose(last)
    last.lose_power()
    for controller in world.controllers:
        world.network.heal(controller, last.name)
    last.start()
    await asyncio.sleep(3)
    for broker in world.brokers.values():
        if not broker.is_running:
            broker.start()
    await world.progress()


async def an_old_question_comes_late(world: World) -> None:
    """A follower sends a fetch, loses its disk and starts again; only then the fetch arrives, and
    names what the follower had."""
    await world.progress(count=20)
    leader, follower = world.leader(), world.followers()[0]
    for producer in world.producers:
        producer.process.pause()
    await asyncio.sleep(1.0)
    # The follower's fetch reaches its leader only when the follower has come back empty.
    world.network.cut(follower.name, leader.name)
    running = leader.running
    assert running is not None
    running.partitions[world.key()].append_as_leader(
        encode_batch([world.next_value(world.key())], NO_PRODUCER, -1, -1),
        required_acks=ALL_IN_SYNC,
        now_ms=0,
    )
    await asyncio.sleep(1.0)
    follower.lose_disk()
    await world.until(lambda: follower.broker_id not in world.record().isr)
    follower.start()
    await world.until(lambda: world.is_in_service(follower))
    world.network.heal(follower.name, leader.name)
    await asyncio.sleep(2)
    for producer in world.producers:
        producer.process.resume()
    await world.progress()


async def a_second_controller_begins(world: World) -> None:
    """The first one goes on until it writes; brokers that lose it for a moment find it again."""
    await world.progress()
    first = next(each for each in world.controllers.values() if each.is_running)
    second = next(each for each in world.controllers.values() if not each.is_running)
    second.start()
    await world.until(lambda: second.controller is not None)
    await asyncio.sleep(0.3)
    assert first.process is not None
    world.network.reset(first.process)
    await asyncio.sleep(3)
    await world.progress()


async def only_a_deposed_controller_is_heard(world: World) -> None:
    """While the first controller is suspended, another takes over and moves leaders. Then the first
    resumes, and is the only one that brokers reach: its deltas are old."""
    await world.progress()
    first = next(each for each in world.controllers.values() if each.is_running)
    second = next(each for each in world.controllers.values() if not each.is_running)
    assert first.process is not None
    first.process.pause()
    second.start()
    await world.until(lambda: second.controller is not None)
    leader = world.leader()
    leader.pause()
    await world.until(lambda: world.record().leader not in (-1, leader.broker_id))
    leader.resume()
    await world.until(lambda: leader.broker_id in world.record().isr)
    await world.progress()
    for broker in world.brokers.values():
        world.network.cut(second.name, broker.name)
        world.network.cut(broker.name, second.name)
    world.network.reset(first.process)
    first.process.resume()
    await asyncio.sleep(5)
    world.network.heal_all()
    await world.progress()


async def the_minimum_falls_while_a_disk_is_lost(world: World) -> None:
    """A follower loses its disk together with the controller, and the next controller does not know
    yet. The minimum falls to one, and the leader dies: the last in-sync replica has lost all."""
    world.change_min_insync("2")
    await world.until(lambda: world.record(topic=PLAIN).min_insync_replicas == 2)
    await world.progress(topic=PLAIN)
    leader, follower = world.leader(topic=PLAIN), world.followers(topic=PLAIN)[0]
    if leader.broker_id > follower.broker_id:
        # Both will be missed at once, and the one with the lower id is fenced first.
        leader.kill()
        await world.until(lambda: world.leader(topic=PLAIN) is follower)
        leader.start()
        leader, follower = follower, leader
        await world.until(lambda: follower.broker_id in world.record(topic=PLAIN).isr)
        await world.progress(topic=PLAIN)
    assert world.may_lose(follower)
    for controller in world.controllers.values():
        controller.kill()
    follower.lose_disk()
    while world.record(topic=PLAIN).min_insync_replicas != 1:
        # Until the next one is active and a broker has found it.
        world.change_min_insync("1")
        await asyncio.sleep(0.05)
    leader.kill()
    await world.until(lambda: world.record(topic=PLAIN).leader == -1)
    assert world.record(topic=PLAIN).isr == (follower.broker_id,)
    follower.start()
    await world.until(lambda: world.is_in_service(follower))
    leader.start()
    await world.progress(topic=PLAIN)
    assert world.leader(topic=PLAIN) is leader
