"""A broker is killed while no election is possible: when it resumes leadership, and when not."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from simulator.records import NO_PRODUCER, encode_batch

from fairlead_broker.replication.acks import ALL_IN_SYNC
from fairlead_broker.replication.isr import PendingExpandIsr

if TYPE_CHECKING:
    from simulator.broker_host import BrokerHost
    from simulator.world import World

    from fairlead_broker.replication.partition import Partition

GAP_S: Final = 2.0
"""How long acks=all may wait for a process that is back after a tenth of a second."""
BACK_AFTER_S: Final = 0.1


async def a_leader_is_killed_twice(world: World) -> None:
    """The others continue with it, in the same leader epoch, before the store is back."""
    await world.progress()
    epoch = world.record().leader_epoch
    world.store.go_away()
    leader = world.leader()
    await asyncio.sleep(0.5)
    await _kill_for_a_moment(leader)
    await _commits_within(world, leader, GAP_S)
    assert world.record().leader_epoch == epoch
    await _kill_for_a_moment(leader)
    await asyncio.sleep(1.0)
    assert world.resumptions == 2
    await world.progress()
    world.store.come_back()
    await world.until(lambda: world.record().leader_epoch > epoch)
    await world.until(lambda: leader.broker_id in world.record().isr)
    await world.progress()


async def a_follower_is_killed(world: World) -> None:
    """The store still has it in sync, and acks=all needs it."""
    await world.progress()
    world.store.go_away()
    await asyncio.sleep(0.5)
    await _kill_for_a_moment(world.followers()[0])
    await _commits_within(world, world.leader(), GAP_S)
    world.store.come_back()
    await asyncio.sleep(3)
    await world.progress()


async def a_fencing_in_doubt_lands_later(world: World) -> None:
    """The write that fences it is sent with an unknown outcome, and it goes on meanwhile.

    Then the write lands, or is repeated: it learns of its successor, and follows.
    """
    await world.progress()
    epoch = world.record().leader_epoch
    leader = world.leader()
    world.store.unknown_chance = 1.0
    world.store.go_away()
    await _kill_for_a_moment(leader)
    await _commits_within(world, leader, GAP_S)
    world.store.is_away = False
    await asyncio.sleep(0.05)
    world.store.come_back()
    await asyncio.sleep(4)
    world.store.unknown_chance = 0.0
    await world.until(lambda: world.record().leader_epoch > epoch)
    await world.until(lambda: leader.broker_id in world.record().isr)
    await world.progress()


async def only_the_leader_is_cut_off(world: World) -> None:
    """The store works, and has another leader: the old one is deposed, and acknowledges nothing."""
    await world.progress()
    leader = world.leader()
    world.isolate(leader, from_=list(world.controllers))
    await _kill_for_a_moment(leader)
    await world.until(lambda: world.record().leader not in (-1, leader.broker_id))
    await world.progress()
    await asyncio.sleep(2)
    for controller in world.controllers:
        world.network.heal(leader.name, controller)
        world.network.heal(controller, leader.name)
    await world.until(lambda: leader.broker_id in world.record().isr)
    await world.progress()


async def a_machine_loses_power(world: World) -> None:
    """Unflushed data is gone: it must not resume its earlier roles."""
    await world.progress(count=20)
    leader = world.leader()
    assert world.may_lose(leader)
    world.store.go_away()
    leader.lose_power()
    await asyncio.sleep(BACK_AFTER_S)
    leader.start()
    await _end(world)


async def a_disk_has_lost_pages(world: World) -> None:
    """The machine goes on, but the process's writes were never stored."""
    await world.progress(count=20)
    leader = world.leader()
    assert world.may_lose(leader)
    world.store.go_away()
    leader.fail_disk()
    await _kill_for_a_moment(leader)
    await _end(world)


async def a_replica_has_been_let_in_unheard(world: World) -> None:
    """A leader's last proposal is accepted, and it is killed before it learns that."""
    await world.progress()
    leader, (returning, other) = world.leader(), world.followers()
    returning.kill()
    await world.until(lambda: returning.broker_id not in world.record().isr)
    await world.progress()
    returning.start()
    await world.until_at_once(lambda: _asks_for(world, leader, returning))
    for controller in world.controllers:
        world.network.cut(controller, leader.name)
    await world.until_at_once(lambda: returning.broker_id in world.record().isr)
    world.store.go_away()
    returning.pause()
    await _kill_for_a_moment(leader)
    await asyncio.sleep(3)
    assert other.is_running
    returning.resume()
    await _end(world)


async def followers_are_late(world: World) -> None:
    """The leader is back, alone: it cannot know how much is committed, and consumers ask."""
    await world.progress(count=20)
    world.store.go_away()
    leader = world.leader()
    for follower in world.followers():
        follower.pause()
    await _kill_for_a_moment(leader)
    await asyncio.sleep(1.2)
    for follower in world.followers():
        follower.resume()
    await _end(world)


async def _end(world: World) -> None:
    await asyncio.sleep(3)
    world.network.heal_all()
    world.store.come_back()
    await asyncio.sleep(3)
    await world.progress()


async def _kill_for_a_moment(host: BrokerHost) -> None:
    host.kill()
    await asyncio.sleep(BACK_AFTER_S)
    host.start()


async def _commits_within(world: World, leader: BrokerHost, seconds: float) -> None:
    """Wait until a leader leads and new records are committed, whatever clients do."""
    limit_s = world.loop.time() + seconds

    def partition() -> Partition | None:
        found = None if leader.running is None else leader.running.partitions.get(world.key())
        return None if found is None or not found.is_leader else found

    await world.until(partition, limit_s=seconds)
    leading = partition()
    assert leading is not None
    value = world.next_value(world.key())
    leading.append_as_leader(
        encode_batch([value], NO_PRODUCER, -1, -1), required_acks=ALL_IN_SYNC, now_ms=0
    )
    end = leading.log_end_offset
    left_s = limit_s - world.loop.time()
    await world.until(lambda: leading.high_watermark >= end, limit_s=left_s)


def _asks_for(world: World, leader: BrokerHost, joining: BrokerHost) -> bool:
    """Tell whether a leader is about to propose that a replica joins."""
    assert leader.running is not None
    partition = leader.running.partitions.get(world.key())
    state = None if partition is None or partition.leader is None else partition.leader.isr_state
    return isinstance(state, PendingExpandIsr) and state.joining == joining.broker_id
