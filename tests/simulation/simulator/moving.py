"""Partitions that are reassigned, cancelled, and drained from brokers during all other faults.

Drawn separately from the other faults, as meddlers are, so that seeds without moves stay the same.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

from fairlead_model.configs.broker_configs import BROKER_DRAIN, BROKER_FENCE
from fairlead_model.configs.cordoned_directories import CORDONED_LOG_DIRS, EVERY_DIRECTORY
from fairlead_model.session.calls import AlterOperation, Method, ResourceType

if TYPE_CHECKING:
    from collections.abc import Callable

    from simulator.checker import PartitionKey, Record
    from simulator.faults import Faults

FIRST_SEED_WITH_MOVES: Final = 300
"""From this one on every third seed has moves."""
BROKERS: Final = 4
"""With three replicas of a partition, one broker is free as a target."""

COPY_S: Final = 0.06
ASKED_AGAIN_S: Final = 1.0
ASKED_TO_FENCE: Final = "asked to fence"


class Movers:
    """More faults, for `Faults`."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._world = faults.world
        self.kinds: list[Callable[[], None]] = [
            self.move,
            self.cancel_move,
            self.drain,
            self.undrain,
            self.unregister,
            self.cordon,
            self.uncordon,
            self.fence,
            self.unfence,
        ]

    def weights(self) -> list[int]:
        """Return how often each happens in this seed."""
        rng = random.Random(self._world.seed)
        shares = ((30, 60, 120), (0, 10, 30), (0, 8, 20), (6, 15))
        weights = [rng.choice(share) if self._world.has_moves else 0 for share in shares]
        return [*weights, 0, 0, 0, 0, 0]  # The last ones happen only if a test names them.

    def move(self) -> None:
        """Reassign one or two partitions, sometimes with another order, or number."""
        partitions = self._partitions()
        count = min(len(partitions), self._world.rng.choice((1, 1, 2)))
        chosen = self._world.rng.sample(partitions, count)
        targets: dict[PartitionKey, list[int] | None] = {
            key: self._target(record) for key, record in chosen
        }
        self._ask(targets)
        if self._world.rng.random() < 0.4:
            # During the copy, which is short here.
            self._world.later(
                COPY_S * self._world.rng.random(), lambda: self._ask(dict.fromkeys(targets))
            )
        self._faults.last("moved", 0, lambda: None)

    def cancel_move(self) -> None:
        """Cancel moves that run or wait; or try to cancel one that does not exist."""
        partitions = self._partitions()
        moving = [each for each in partitions if each[1].is_moving]
        key, _ = self._world.rng.choice(moving or partitions)
        self._ask({key: None})
        self._faults.last("move cancelled", 0, lambda: None)

    def drain(self) -> None:
        self._order_drain("true", self._world.rng.choice(list(self._world.brokers)))
        self._faults.last("drained", 0, lambda: None)

    def undrain(self) -> None:
        drained = sorted(self._world.checker.moves.drained)
        if drained:
            self._order_drain(None, self._world.rng.choice(drained))
            self._faults.last("undrained", 0, lambda: None)

    def unregister(self) -> None:
        """Ask to unregister a broker, empty or not, in service or not."""
        moves = self._world.checker.moves
        broker_id = self._world.rng.choice(sorted(moves.drained) or list(self._world.brokers))
        moves.given_up.add(broker_id)
        self._world.note("broker %d is said to be gone", broker_id)
        self._world.tell_controller(Method.UNREGISTER_BROKER, {"broker_id": broker_id})
        self._faults.last("unregistered", 0, lambda: None)

    def cordon(self) -> None:
        """Cordon a broker's log directories."""
        broker_id = self._world.rng.choice(list(self._world.brokers))
        self._configure(broker_id, CORDONED_LOG_DIRS, EVERY_DIRECTORY)
        self._faults.last("cordoned", 0, lambda: None)

    def uncordon(self) -> None:
        cordoned = sorted(self._world.checker.moves.to_cordon)
        if cordoned:
            self._configure(self._world.rng.choice(cordoned), CORDONED_LOG_DIRS, None)
            self._faults.last("uncordoned", 0, lambda: None)

    def fence(self) -> None:
        """Fence a broker by order, which is refused if partitions need it."""
        broker_id = self._world.rng.choice(list(self._world.brokers))
        self._configure(broker_id, BROKER_FENCE, "its disk is odd")
        self._faults.last(ASKED_TO_FENCE, 0, lambda: None)

    def unfence(self) -> None:
        fenced = sorted(self._world.checker.fences.ordered)
        if fenced:
            self._configure(self._world.rng.choice(fenced), BROKER_FENCE, None)
            self._faults.last("unfenced", 0, lambda: None)

    def end_fences(self) -> None:
        """Unfence all brokers, repeatedly: an order may still be under way."""
        if ASKED_TO_FENCE not in self._faults.counts:
            return
        for broker_id in sorted(self._world.checker.fences.ordered):
            self._configure(broker_id, BROKER_FENCE, None)
        self._world.later(ASKED_AGAIN_S, self.end_fences)

    def _partitions(self) -> list[tuple[PartitionKey, Record]]:
        checker = self._world.checker
        return [
            (key, truth.record)
            for key, truth in sorted(checker.truths.items())
            if truth.record is not None and checker.topics.is_live(key[0])
        ]

    def _target(self, record: Record) -> list[int]:
        """Return target brokers, enough if one of them loses its data."""
        rng = self._world.rng
        count = len(record.original) + rng.choice((0, 0, 0, 1, -1))
        smallest = max(2, record.min_insync_replicas)
        brokers = list(self._world.brokers)
        return rng.sample(brokers, min(max(count, smallest), len(brokers)))

    def _ask(self, targets: dict[PartitionKey, list[int] | None]) -> None:
        headers = self._world.checker.topics.headers
        asked = [
            {"topic": headers[topic_id].name, "index": index, "replicas": replicas}
            for (topic_id, index), replicas in targets.items()
        ]
        for each in asked:
            self._world.note("move %s", each)
        body: dict[str, Any] = {"partitions": asked, "allow_replication_factor_change": True}
        self._world.tell_controller(Method.ALTER_PARTITION_REASSIGNMENTS, body)

    def _order_drain(self, value: str | None, broker_id: int) -> None:
        self._configure(broker_id, BROKER_DRAIN, value)

    def _configure(self, broker_id: int, name: str, value: str | None) -> None:
        self._world.note("%s of broker %d: %s", name, broker_id, value)
        operation = AlterOperation.DELETE if value is None else AlterOperation.SET
        alteration = {"name": name, "operation": operation, "value": value}
        resource = {
            "resource_type": ResourceType.BROKER,
            "name": str(broker_id),
            "alterations": [alteration],
        }
        body = {"resources": [resource], "validate_only": False, "incremental": True}
        self._world.tell_controller(Method.ALTER_CONFIGS, body)
