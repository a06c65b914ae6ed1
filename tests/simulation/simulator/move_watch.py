"""The observer of replicas that are added and removed (I15 to I18)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from fairlead_controller.decisions.tables.lines import BROKER_PREFIX, CONFIGS_PREFIX, build_broker
from fairlead_model.cluster import (
    BrokerChanged,
    BrokerConfigsChanged,
    BrokerRemoved,
    PartitionChanged,
)
from fairlead_model.configs.broker_configs import BROKER_DRAIN
from fairlead_model.configs.cordoned_directories import CORDONED_LOG_DIRS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from simulator.broker_host import BrokerHost
    from simulator.checker import Checker, PartitionKey, Record

    from fairlead_controller.stores.metadata_store import TableWrite
    from fairlead_model.cluster import Change
    from fairlead_model.partition import PartitionRegistration


class MoveWatch:
    """`drained` are the brokers that the store wants emptied.

    The log directories of brokers in `cordoned` take no new replicas; those of brokers in
    `to_cordon` shall not.
    """

    def __init__(self, checker: Checker) -> None:
        self._checker = checker
        self.drained: set[int] = set()
        self.cordoned: set[int] = set()
        self.to_cordon: set[int] = set()
        self.given_up: set[int] = set()
        """Brokers that were unregistered on request: nobody waits for their deletions."""
        self.forgotten = 0
        """Brokers that were unregistered."""
        self.finished = 0
        """Reassignments that have finished."""
        self.cancelled = 0
        self.deleted = 0
        """Replicas whose data was deleted because they had moved away."""
        self._cordoned: dict[int, set[int]] = {}
        self._drained: dict[int, set[int]] = {}
        """By controller epoch: the drained brokers that this controller knows."""
        self._replicas: dict[tuple[int, PartitionKey], set[int]] = {}
        self._published: dict[tuple[int, PartitionKey], PartitionRegistration] = {}

    def on_written(self, write: TableWrite) -> None:
        """Follow the orders to drain, and the cordons."""
        for key, line in write.lines.items():
            if key.startswith(BROKER_PREFIX):
                broker_id = int(key.removeprefix(BROKER_PREFIX))
                is_cordoned = line is not None and build_broker(json.loads(line)).is_cordoned
                _include(self.cordoned, broker_id, is_in=is_cordoned)
            name = key.removeprefix(CONFIGS_PREFIX)
            if not key.startswith(CONFIGS_PREFIX) or not name:
                continue
            configs = {} if line is None else json.loads(line)
            _include(self.drained, int(name), is_in=_is_drained(configs))
            _include(self.to_cordon, int(name), is_in=bool(configs.get(CORDONED_LOG_DIRS)))

    def on_reign(self, controller_epoch: int) -> None:
        """Note that a controller has loaded all that was written."""
        self._drained[controller_epoch] = set(self.drained)
        self._cordoned[controller_epoch] = set(self.cordoned)
        for key, truth in self._checker.truths.items():
            if truth.record is not None:
                self._replicas[controller_epoch, key] = set(truth.record.replicas)

    def on_published(self, controller_epoch: int, changes: Iterable[Change]) -> None:
        """Check changes one by one: the store may have several of them in one write."""
        drained, cordoned = self._drained[controller_epoch], self._cordoned[controller_epoch]
        for change in changes:
            if isinstance(change, BrokerConfigsChanged) and change.broker:
                _include(drained, int(change.broker), is_in=_is_drained(change.configs))
            elif isinstance(change, BrokerChanged):
                known = change.registration
                _include(cordoned, known.broker_id, is_in=known.is_cordoned)
            elif isinstance(change, BrokerRemoved):
                cordoned.discard(change.broker_id)
                self._check_forgotten(controller_epoch, change.broker_id)
            elif isinstance(change, PartitionChanged):
                at = (controller_epoch, (change.topic_id, change.index))
                replicas = set(change.partition.replicas)
                added = (replicas - self._replicas.get(at, set())) & (drained | cordoned)
                if added:
                    self._checker.fail("I17: %s, closed, get %s", added, change.partition)
                before = self._published.get(at)
                if before is not None:
                    self._check_step(before, change.partition)
                self._published[at] = change.partition
                self._replicas[at] = replicas

    def _check_forgotten(self, controller_epoch: int, broker_id: int) -> None:
        """Check I18: by this controller's changes, no partition is on that broker."""
        self.forgotten += 1
        for (epoch, key), replicas in self._replicas.items():
            is_live = self._checker.topics.is_live(key[0])
            if epoch == controller_epoch and is_live and broker_id in replicas:
                self._checker.fail("I18: broker %d is forgotten and has %s", broker_id, key)

    def _check_step(self, before: PartitionRegistration, after: PartitionRegistration) -> None:
        """Check I15: a new replica counts once in sync; the others can acknowledge and lead."""
        self.finished += before.is_being_reassigned and after.replicas == before.target_replicas
        self.cancelled += before.is_being_reassigned and after.replicas == before.original_replicas
        come = set(before.adding_replicas) & set(after.replicas) - set(after.adding_replicas)
        if not come <= set(after.isr):
            self._checker.fail("I15: %s were added before they were in sync: %s", come, after)
        lost = set(before.replicas) - set(after.replicas)
        if not lost & {before.leader, *before.isr, *before.elr}:
            return
        enough = min(before.min_insync_replicas, len(after.replicas), len(before.isr))
        if after.leader not in after.isr or len(after.isr) < enough:
            self._checker.fail("I15: %s were taken away too early: %s", lost, after)

    def on_record(self, key: PartitionKey, old: Record | None, record: Record) -> None:
        """Follow a durable registration."""
        if old is None:
            return
        confirmed = set(old.unconfirmed) - {*record.unconfirmed, *record.replicas}
        for broker_id in confirmed - self.given_up:
            log = self._checker.world.brokers[broker_id].log(key)
            if log is not None and not log.is_ghost:
                self._checker.fail("I16: %d said it let go and holds %s", broker_id, record)

    def on_data_deleted(self, host: BrokerHost, key: PartitionKey) -> None:
        """Check I16: the broker has read that its replica is removed, and nobody counts on it.

        The registration may name it again by then, as one to be added: it begins again.
        """
        self.deleted += 1
        assert host.running is not None
        known = host.running.broker.image.topic_by_id(key[0])
        record = None if known is None else known.partitions[key[1]]
        if record is None or host.broker_id not in record.unconfirmed_removals:
            self._checker.fail("I16: %s deleted a replica that was not taken away", host.name)
        truth = self._checker.truths[key].record
        if truth is not None and (
            host.broker_id in (*truth.isr, *truth.elr)
            or host.broker_id in set(truth.replicas) - set(truth.adding)
        ):
            self._checker.fail("I16: %s deleted its replica of %s", host.name, truth)

    def on_data_set_aside(self, host: BrokerHost, record: Record) -> None:
        """Check I16: removed data is deleted, and does not get in the way of new data."""
        is_told = not self._checker.is_confirmed and host.broker_id not in self.given_up
        if host.broker_id not in record.replicas and is_told:
            self._checker.fail("I16: %s was not told that it lost %s", host.name, record)

    def unsettled(self) -> str | None:
        """Return moves that run, or should have finished by now."""
        if self.cordoned != self.to_cordon:
            return f"{self.cordoned} are cordoned, and {self.to_cordon} should be"
        free = self._checker.world.brokers.keys() - self.drained - self.cordoned
        for truth in self._checker.truths.values():
            record = truth.record
            if record is None:
                continue
            if record.is_moving or record.unconfirmed:
                return f"it still moves: {record}"
            leaving = self.drained.intersection(record.replicas)
            if leaving and len(free.difference(record.replicas)) >= len(leaving):
                return f"{sorted(leaving)} are not empty: {record}"
        return None


def _include(brokers: set[int], broker_id: int, *, is_in: bool) -> None:
    if is_in:
        brokers.add(broker_id)
    else:
        brokers.discard(broker_id)


def _is_drained(configs: Mapping[str, str]) -> bool:
    return configs.get(BROKER_DRAIN) == "true"
