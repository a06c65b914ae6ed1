"""Stories that more than one test tells: what they need is too rare to come up by chance."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulator.world import World


async def power_fails_before_the_answer(world: World) -> None:
    """A broker registers, clean as far as the page cache goes, and never hears the answer. Then
    the machine loses power, and the next start finds the start id of the one before."""
    await world.progress()
    last = world.leader()
    for follower in world.followers():
        follower.kill()
        await world.until(lambda one=follower: one.broker_id not in world.record().isr)
    last.kill()
    await world.until(lambda: world.record().leader == -1)
    await world.until(lambda: any(each.is_running for each in world.controllers.values()))
    for controller in world.controllers:
        world.network.cut(controller, last.name)
    last.start()
    while not world.has_registered(last):
        # What it needs to get through the handshake, and nothing more.
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
    """A follower asks its leader, loses its disk and starts again; only then the question arrives,
    and says what the follower had."""
    await world.progress(count=20)
    leader, follower = world.leader(), world.followers()[0]
    for producer in world.producers:
        producer.process.pause()
    await asyncio.sleep(1.0)
    # The follower has asked, and its leader hears it only when it has come back empty.
    world.network.cut(follower.name, leader.name)
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
    """While the first controller stands still, another takes over and moves leaders. Then the first
    goes on, and is the only one that brokers reach: what it has to tell is old."""
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
