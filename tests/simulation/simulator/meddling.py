"""What people do to a cluster without its knowledge: they label its tables, remove folders of
replicas, replace one of several disks, and allow unclean elections.

Drawn separately from the other faults, so that seeds without meddlers stay the same.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from simulator.opening import PLAIN

if TYPE_CHECKING:
    from collections.abc import Callable

    from simulator.faults import Faults

FIRST_SEED_WITH_MEDDLERS: Final = 300
"""From this one on every other seed has meddlers; mutants and old failures have lower seeds."""


class Meddlers:
    """More faults, for `Faults`."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._world = faults.world
        self.kinds: list[Callable[[], None]] = [
            self.touch_table,
            self.remove_folder,
            self.allow_unclean,
            self.replace_directory,
        ]

    def weights(self) -> list[int]:
        """Return how often each happens in this seed."""
        world = self._world
        rng = random.Random(world.seed)
        weights = [rng.choice((0, 4, 12)) for _ in range(3)] if world.has_meddlers else [0] * 3
        return [*weights, rng.choice((4, 12)) if world.has_several_disks else 0]

    def touch_table(self) -> None:
        """Label an object: its version changes, its content does not, without any controller."""
        store = self._world.store
        name = self._world.rng.choice(sorted(store.tables))
        self._world.note("somebody touches the table %s", name)
        store.touch(name)
        self._faults.last("touched", 0, lambda: None)

    def remove_folder(self) -> None:
        """Stop a broker cleanly, remove one of its folders, and start it."""
        world = self._world
        broker = world.rng.choice(list(world.brokers.values()))
        if not broker.is_running or broker.running is None:
            return
        broker.running.process.spawn(broker.running.stop())

        def remove_and_start() -> None:
            broker.kill()
            folders = broker.folders()
            if not broker.is_running and folders and world.may_lose(broker):
                broker.remove_folder(world.rng.choice(folders))
            broker.supervise()

        self._faults.last("folder removed", 0.5 + 2 * world.rng.random(), remove_and_start)

    def replace_directory(self) -> None:
        """End a broker, and restart it with one of its disks empty."""
        world = self._world
        broker = world.rng.choice(list(world.brokers.values()))
        if not broker.is_running or broker.running is None or not world.has_several_disks:
            return
        if world.rng.random() < 0.5:
            broker.running.process.spawn(broker.running.stop())

        def replace_and_start() -> None:
            broker.kill()
            if not broker.is_running and world.may_lose(broker):
                broker.replace_directory(world.rng.randrange(len(broker.disk.directory_ids)))
            broker.supervise()

        self._faults.last("directory replaced", 0.5 + 2 * world.rng.random(), replace_and_start)

    def allow_unclean(self) -> None:
        """Turn unclean elections of a topic on or off, and tell the observer."""
        world = self._world
        world.checker.truths[world.key(topic=PLAIN)].is_forgiven = True
        alteration = {
            "name": "unclean.leader.election.enable",
            "operation": 0,
            "value": world.rng.choice(("true", "true", "false")),
        }
        resource = {"resource_type": 2, "name": PLAIN, "alterations": [alteration]}
        body = {"resources": [resource], "validate_only": False, "incremental": True}
        world.tell_controller("alter_configs", body)
        self._faults.last("unclean", 0, lambda: None)
