"""Forecasts compared with results: in fifty states of a simulated cluster, brokers are killed."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from simulator.world import Options, World

from fairlead_controller.decisions.what_if import Forecast, forecast_loss, is_below

if TYPE_CHECKING:
    from fairlead_controller.controller import Controller

STATES_A_SEED = 5


def controller_of(world: World) -> Controller:
    controller = next(each for each in world.controllers.values() if each.is_running).controller
    assert controller is not None
    return controller


async def die(world: World, lost: list[int]) -> None:
    """Kill brokers at once; return when the controller has fenced them."""
    controller = controller_of(world)
    for broker_id in lost:
        world.brokers[broker_id].kill()
    await world.until(lambda: all(controller.committed.image.brokers[each].fenced for each in lost))


async def bring_back(world: World) -> None:
    for broker in world.brokers.values():
        if not broker.is_running:
            broker.start()
    await world.until(
        lambda: all(
            not partition.is_under_replicated
            for topic in controller_of(world).committed.image.topics()
            for partition in topic.partitions
        )
    )


def compare(world: World, forecast: Forecast) -> None:
    """Check that leaders, minimum and last copies are exactly as in the forecast."""
    image = controller_of(world).committed.image
    for each in forecast.partitions:
        topic = image.topic(each.topic)
        assert topic is not None
        record = topic.partitions[each.index]
        what = (each.topic, each.index, sorted(forecast.lost), each.before, record)
        assert record.leader == each.after.leader, what
        assert each.loses_leader == (each.before.has_leader and not record.has_leader), what
        falls_below = record.has_leader and is_below(record) and not is_below(each.before)
        assert each.falls_below_minimum == falls_below, what
        assert each.loses_last_copy == ({*record.isr, *record.elr} <= forecast.lost), what


@pytest.mark.parametrize("seed", range(10))
def test_what_was_foretold_happens(seed: int) -> None:
    kinds: set[str] = set()

    async def story(world: World) -> None:
        chance = random.Random(seed)
        for _ in range(STATES_A_SEED):
            await world.progress()
            ids = sorted(world.brokers)
            gone = chance.sample(ids, chance.choice((0, 0, 1, 1, 2)))
            for each in gone:
                await die(world, [each])
            live = [each for each in ids if each not in gone]
            lost = chance.sample(live, chance.randint(1, min(2, len(live))))
            forecast = forecast_loss(controller_of(world).committed, lost)
            await die(world, lost)
            compare(world, forecast)
            for partition in forecast.partitions:
                kinds.update(
                    name
                    for name in ("loses_leader", "falls_below_minimum", "loses_last_copy")
                    if getattr(partition, name)
                )
            await bring_back(world)

    options = Options(
        brokers=4, is_violent=False, is_compacting=False, has_transactions=False, script=story
    )
    World(seed, options).run()
    assert kinds
