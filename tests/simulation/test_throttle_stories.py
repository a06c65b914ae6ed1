"""Replication stays within its throttled rates: real brokers fetch in virtual time.

`ReplicationThrottle` limits the leader's replies and the follower's fetches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from simulator.opening import SAFE
from simulator.records import RECORD_SIZE
from simulator.world import Options, World

from fairlead_broker.replication_throttle import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    REASSIGNMENT_RATE,
)
from fairlead_model.session.calls import AlterOperation, Method, ResourceType

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from simulator.broker_host import BrokerHost

RECORDS = 300
SLICE = 20
"""Maximum of records in an answer of the simulation."""
PER_SECOND = 120
"""Records a second of the throttled rate, some three times those that clients write."""


def alter(world: World, kind: ResourceType, name: str, **configs: str) -> None:
    alterations = [
        {"name": key.replace("_", "."), "operation": AlterOperation.SET, "value": value}
        for key, value in configs.items()
    ]
    resource = {"resource_type": kind, "name": name, "alterations": alterations}
    body = {"resources": [resource], "validate_only": False, "incremental": True}
    world.tell_controller(Method.ALTER_CONFIGS, body)


async def hold_back(world: World, name: str, rate: int, listed: str = "") -> None:
    """Set a rate in bytes a second, and its list of replicas; wait until all brokers know."""
    alter(world, ResourceType.BROKER, "", **{name: str(rate)})
    if listed:
        alter(world, ResourceType.TOPIC, SAFE, **{listed: "*"})

    def is_known(broker: BrokerHost) -> bool:
        assert broker.running is not None
        running = broker.running.broker
        topic = running.image.topic(SAFE)
        assert topic is not None
        is_listed = not listed or topic.configs.get(listed) == "*"
        return is_listed and running.running_values().value(name) == rate

    await world.until(lambda: all(map(is_known, world.brokers.values())))


async def begin_to_move(world: World) -> BrokerHost:
    """Replace a follower of the first partition; return the broker that takes its place."""
    record = world.record()
    leaving = next(each for each in record.replicas if each != record.leader)
    (coming,) = world.brokers.keys() - set(record.replicas)
    target = [coming if each == leaving else each for each in record.replicas]
    asked = {"topic": SAFE, "index": 0, "replicas": target}
    body = {"partitions": [asked], "allow_replication_factor_change": False}
    world.tell_controller(Method.ALTER_PARTITION_REASSIGNMENTS, body)
    await world.until(lambda: coming in world.record().replicas)
    return world.brokers[coming]


async def wait_until_moved(world: World, limit_s: float) -> float:
    """Return the seconds until the move is complete."""
    began_s = world.loop.time()
    await world.until(lambda: not world.record().is_moving, limit_s)
    return world.loop.time() - began_s


def play(story: Callable[[World], Awaitable[None]]) -> None:
    options = Options(
        brokers=4,
        script=story,
        is_violent=False,
        is_compacting=False,
        has_transactions=False,
        has_meddlers=False,
        has_moves=True,
    )
    world = World(1, options)
    world.produce_rate, world.retention_chance = 12.0, 0.0
    world.run()


THROTTLES = pytest.mark.parametrize(
    ("rate", "listed"),
    [(REASSIGNMENT_RATE, ""), (LEADER_RATE, LEADER_REPLICAS), (FOLLOWER_RATE, FOLLOWER_REPLICAS)],
)


@THROTTLES
def test_a_copy_takes_as_long_as_its_rate_says(rate: str, listed: str) -> None:
    async def story(world: World) -> None:
        await world.until(lambda: world.committed() >= RECORDS, 60)
        await hold_back(world, rate, PER_SECOND * RECORD_SIZE, listed)
        records = world.committed()
        await begin_to_move(world)
        took_s = await wait_until_moved(world, 60)
        # The burst, the first answer and the last ones are not throttled.
        assert took_s > (records - 4 * SLICE) / PER_SECOND
        # Records that are written meanwhile are copied, too.
        assert took_s < 3 * records / PER_SECOND

    play(story)


@THROTTLES
def test_a_rate_that_is_raised_holds_at_once(rate: str, listed: str) -> None:
    async def story(world: World) -> None:
        await world.until(lambda: world.committed() >= RECORDS, 60)
        await hold_back(world, rate, 1, listed)
        coming = await begin_to_move(world)
        await world.until(lambda: (log := coming.log(world.key())) and log.log_end_offset > 0)
        before_s = world.loop.time()
        await world.until(lambda: world.loop.time() > before_s + 5)
        log = coming.log(world.key())
        assert log is not None
        assert log.log_end_offset <= 4 * SLICE, "it is held back"
        assert world.record().is_moving
        await hold_back(world, rate, 1 << 30, listed)
        assert await wait_until_moved(world, 60) < 2

    play(story)


def test_replicas_in_sync_are_not_held_back() -> None:
    async def story(world: World) -> None:
        await world.progress()
        await hold_back(world, LEADER_RATE, 1, LEADER_REPLICAS)
        await hold_back(world, FOLLOWER_RATE, 1, FOLLOWER_REPLICAS)
        began_s = world.loop.time()
        await world.progress(count=60)
        assert world.loop.time() - began_s < 60 / 12 * 2
        assert set(world.record().isr) == set(world.record().replicas)

    play(story)


def test_what_nobody_holds_back_is_copied_at_once() -> None:
    async def story(world: World) -> None:
        await world.until(lambda: world.committed() >= RECORDS, 60)
        await begin_to_move(world)
        assert await wait_until_moved(world, 60) < 2

    play(story)
