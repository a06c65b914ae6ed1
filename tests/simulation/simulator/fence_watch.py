"""The observer of brokers that are fenced by order (I19)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from fairlead_controller.decisions.tables.lines import CONFIGS_PREFIX
from fairlead_model.cluster import BrokerConfigsChanged, PartitionChanged, TopicRemoved
from fairlead_model.configs.broker_configs import BROKER_FENCE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from simulator.checker import Checker, PartitionKey

    from fairlead_controller.stores.metadata_store import TableWrite
    from fairlead_model.cluster import Change
    from fairlead_model.partition import PartitionRegistration


class FenceWatch:
    """`ordered` are the brokers that are fenced by order in the store."""

    def __init__(self, checker: Checker) -> None:
        self._checker = checker
        self.ordered: set[int] = set()
        self._ordered: dict[int, set[int]] = {}
        """By controller epoch: the orders that this controller knows."""
        self._published: dict[int, dict[PartitionKey, PartitionRegistration]] = {}
        """By controller epoch: what it has published of each partition."""

    def on_written(self, write: TableWrite) -> None:
        """Follow the orders in the store."""
        for key, line in write.lines.items():
            name = key.removeprefix(CONFIGS_PREFIX)
            if key.startswith(CONFIGS_PREFIX) and name:
                _include(self.ordered, name, {} if line is None else json.loads(line))

    def on_reign(self, controller_epoch: int) -> None:
        """Note that a controller has loaded all that was written."""
        self._ordered[controller_epoch] = set(self.ordered)
        self._published[controller_epoch] = {}

    def on_published(self, controller_epoch: int, changes: Iterable[Change]) -> None:
        """Check changes one by one, and after all: an order comes with its effects."""
        ordered, known = self._ordered[controller_epoch], self._published[controller_epoch]
        left: dict[PartitionKey, PartitionRegistration] = {}
        for change in changes:
            if isinstance(change, BrokerConfigsChanged) and change.broker:
                was_ordered = set(ordered)
                _include(ordered, change.broker, change.configs)
                for key, partition in known.items():
                    if (ordered - was_ordered).intersection(partition.isr):
                        left[key] = partition
            elif isinstance(change, PartitionChanged):
                key = change.topic_id, change.index
                known[key] = change.partition
                if key in left:
                    self._check_harm(left.pop(key), change.partition)
            elif isinstance(change, TopicRemoved):
                for key in [key for key in known if key[0] == change.topic_id]:
                    del known[key]
        for partition in known.values():
            serving = ordered.intersection((partition.leader, *partition.isr))
            if serving:
                self._checker.fail("I19: %s, fenced by order, serve %s", serving, partition)

    def _check_harm(self, before: PartitionRegistration, after: PartitionRegistration) -> None:
        """Check that an accepted order leaves enough replicas in sync, and a leader."""
        if after.leader not in after.isr or len(after.isr) < after.effective_min_isr:
            self._checker.fail("I19: an order to fence was taken: %s became %s", before, after)


def _include(brokers: set[int], name: str, configs: Mapping[str, str]) -> None:
    if configs.get(BROKER_FENCE, "").strip():
        brokers.add(int(name))
    else:
        brokers.discard(int(name))
