"""Two faults at once: no election is possible, because the store or the controllers are away, and a
broker's process is killed and restarted. The broker decides itself whether it resumes leadership.

Drawn separately from the other faults, as meddlers are, so that seeds without it stay the same.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from simulator.broker_host import BrokerHost
    from simulator.faults import Faults

FIRST_SEED_WITH_OUTAGES: Final = 500_000
"""From this one on every other seed has outages."""


class Outages:
    """More faults, for `Faults`."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._world = faults.world
        self.kinds: list[Callable[[], None]] = [self.kill_in_outage, self.reboot_in_outage]

    def weights(self) -> list[int]:
        """Return how often each happens in this seed."""
        rng = random.Random(self._world.seed)
        return [rng.choice((10, 30)), rng.choice((0, 6))] if self._world.has_outages else [0, 0]

    def kill_in_outage(self) -> None:
        """Kill one or two brokers, each perhaps more than once."""
        world = self._world
        duration_s = self._begin_outage()
        for broker in world.rng.sample(list(world.brokers.values()), world.rng.choice((1, 1, 2))):
            at_s = duration_s * 0.6 * world.rng.random()
            for _ in range(world.rng.choice((1, 1, 2, 3))):
                world.later(at_s, lambda broker=broker: self._kill(broker))  # type: ignore[misc]
                at_s += 0.1 + 2.5 * world.rng.random() ** 2

    def reboot_in_outage(self) -> None:
        """Cut a machine's power; its disk has roles that the broker must not resume."""
        world = self._world
        duration_s = self._begin_outage()
        broker = world.rng.choice(list(world.brokers.values()))

        def lose_power() -> None:
            if broker.is_running and not self._faults.is_over and world.may_lose(broker):
                broker.lose_power()
                world.later(0.3, broker.supervise)

        world.later(duration_s * 0.3 * world.rng.random(), lose_power)

    def _begin_outage(self) -> float:
        """Prevent decisions for a while, in one way or another; return for how long."""
        world, store = self._world, self._world.store
        duration_s = 2.0 + 6.0 * world.rng.random()
        match world.rng.choice(("away", "away", "doubtful", "slow", "controllers")):
            case "away":
                world.note("the store is away, for a broker to be killed")
                store.go_away()
                self._faults.last("outage", duration_s, store.come_back)
            case "doubtful":
                world.note("the store answers few writes, for a broker to be killed")
                store.unknown_chance = 0.8
                self._faults.last(
                    "outage", duration_s, lambda: setattr(store, "unknown_chance", 0.0)
                )
            case "slow":
                store.is_slow = True
                self._faults.last("outage", duration_s, lambda: setattr(store, "is_slow", False))
            case "controllers":
                for controller in world.controllers.values():
                    controller.kill()
                self._faults.last("outage", duration_s, lambda: None)
        return duration_s

    def _kill(self, broker: BrokerHost) -> None:
        if broker.is_running and not self._faults.is_over:
            broker.kill()
            self._world.later(0.05 + 0.5 * self._world.rng.random(), broker.supervise)
