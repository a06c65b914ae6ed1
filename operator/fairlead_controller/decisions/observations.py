"""What brokers have reported of their replicas, and which leaders are not the preferred ones.

Nothing of it is durable: brokers report again to the next controller, and to this one after each
start of theirs. A report counts only while the broker start that made it is the registered one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from fairlead_controller.decisions.leader_election import NO_FACTS, LogFacts
from fairlead_model.broker import BrokerRegistration
from fairlead_model.cluster import (
    BrokerChanged,
    BrokerRemoved,
    Change,
    ClusterImage,
    PartitionChanged,
    TopicChanged,
    TopicState,
)
from fairlead_model.ids import BrokerEpoch, BrokerId, LeaderEpoch
from fairlead_model.partition import PartitionRegistration
from fairlead_model.sharded_map import ShardedMap

PartitionKey: TypeAlias = tuple[bytes, int]
"""Topic id and index."""


@dataclass(frozen=True, slots=True)
class ReplicasOffline:
    """A broker cannot use some of its replicas until it is restarted, or has deleted them."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    replicas: frozenset[PartitionKey]


@dataclass(frozen=True, slots=True)
class ReplicasFull:
    """All the replicas of a broker that take no records for want of room, until it says else."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    replicas: frozenset[PartitionKey]


@dataclass(frozen=True, slots=True)
class ReportedLog:
    """The end of a log, and the partition record that the report was made for."""

    broker_epoch: BrokerEpoch
    leader_epoch: LeaderEpoch
    facts: LogFacts


@dataclass(frozen=True, slots=True)
class LogsReported:
    """A broker has reported how far some of its logs of leaderless partitions go."""

    broker_id: BrokerId
    logs: Mapping[PartitionKey, ReportedLog]


@dataclass(frozen=True, slots=True)
class Observations:
    """All observations. Immutable; the cost of `updated` depends on what the changes name."""

    offline: Mapping[BrokerId, frozenset[PartitionKey]] = field(default_factory=dict)
    logs: ShardedMap[PartitionKey, Mapping[BrokerId, ReportedLog]] = field(
        default_factory=ShardedMap
    )
    misplaced: ShardedMap[PartitionKey, bool] = field(default_factory=ShardedMap)
    """Partitions whose leader is not the first of their assignment."""
    epochs: Mapping[BrokerId, BrokerEpoch] = field(default_factory=dict)
    """The broker start that each broker's entries in `offline` and `full` belong to."""
    full: Mapping[BrokerId, frozenset[PartitionKey]] = field(default_factory=dict)
    """Replicas that serve readers and take no records: their disk is full."""

    def offline_replicas(self, topic_id: bytes, index: int) -> list[BrokerId]:
        """Return the brokers that cannot use their replica of a partition."""
        if not self.offline:
            return []
        key = (topic_id, index)
        return [broker_id for broker_id, replicas in self.offline.items() if key in replicas]

    def full_replicas(self, topic_id: bytes, index: int) -> frozenset[BrokerId]:
        """Return the brokers that have no room for records of a partition."""
        if not self.full:
            return frozenset()
        key = (topic_id, index)
        return frozenset(broker_id for broker_id, held in self.full.items() if key in held)

    def log_facts(
        self,
        topic_id: bytes,
        index: int,
        partition: PartitionRegistration,
        brokers: Mapping[BrokerId, BrokerRegistration],
    ) -> Mapping[BrokerId, LogFacts]:
        """Return the reports that were made for the present record of a partition."""
        reports = self.logs.get((topic_id, index))
        if not reports:
            return NO_FACTS
        return {
            broker_id: report.facts
            for broker_id, report in reports.items()
            if broker_id in brokers
            and report.broker_epoch == brokers[broker_id].broker_epoch
            and report.leader_epoch == partition.leader_epoch
        }

    def updated(
        self,
        image: ClusterImage,
        changes: Iterable[Change | ReplicasOffline | ReplicasFull | LogsReported],
    ) -> "Observations":
        """Return the observations after changes that led to an image and reports, in order."""
        edits = _Edits(self, image)
        for change in changes:
            if isinstance(change, ReplicasOffline | ReplicasFull | LogsReported):
                edits.take(change)
            else:
                edits.note(change)
        return edits.build()


class _Edits:
    def __init__(self, before: Observations, image: ClusterImage) -> None:
        self._before = before
        self._image = image
        self._offline = before.offline
        self._full = before.full
        self._epochs = before.epochs
        self._logs: dict[PartitionKey, Mapping[BrokerId, ReportedLog] | None] = {}
        self._misplaced: dict[PartitionKey, bool | None] = {}

    def note(self, change: Change) -> None:
        if isinstance(change, PartitionChanged):
            self._note_partition((change.topic_id, change.index), change.partition)
        elif isinstance(change, BrokerChanged):
            self._note_broker(change.registration)
        elif isinstance(change, BrokerRemoved):
            self._forget_broker(change.broker_id)
        elif isinstance(change, TopicChanged) and change.header.state is TopicState.DELETING:
            topic = self._image.topics_by_id.get(change.header.topic_id)
            for index in range(len(topic.partitions) if topic else 0):
                key = (change.header.topic_id, index)
                self._misplaced[key] = self._logs[key] = None

    def _note_partition(self, key: PartitionKey, partition: PartitionRegistration) -> None:
        is_misplaced = partition.has_leader and partition.leader != partition.preferred_leader
        # While a store is loaded, partitions are seen after the deletion of their topic.
        is_misplaced = is_misplaced and self._image.topic_by_id(key[0]) is not None
        if is_misplaced != (key in self._before.misplaced) or key in self._misplaced:
            self._misplaced[key] = True if is_misplaced else None
        if partition.has_leader and (key in self._before.logs or key in self._logs):
            self._logs[key] = None
        for broker_id, replicas in self._offline.items():
            holders = (*partition.replicas, *partition.unconfirmed_removals)
            if key in replicas and broker_id not in holders:
                # It was moved away, and its broker has deleted it: another one may come.
                self._offline = {**self._offline, broker_id: replicas - {key}}

    def _note_broker(self, registration: BrokerRegistration) -> None:
        broker_id = registration.broker_id
        if self._epochs.get(broker_id, registration.broker_epoch) != registration.broker_epoch:
            self._forget_broker(broker_id)

    def _forget_broker(self, broker_id: BrokerId) -> None:
        self._offline = _without(self._offline, broker_id)
        self._full = _without(self._full, broker_id)
        self._epochs = {other: epoch for other, epoch in self._epochs.items() if other != broker_id}

    def take(self, report: ReplicasOffline | ReplicasFull | LogsReported) -> None:
        if isinstance(report, ReplicasOffline):
            held = self._offline.get(report.broker_id, frozenset())
            self._offline = {**self._offline, report.broker_id: held | report.replicas}
            self._epochs = {**self._epochs, report.broker_id: report.broker_epoch}
            return
        if isinstance(report, ReplicasFull):
            self._full = _without(self._full, report.broker_id)
            if report.replicas:
                self._full = {**self._full, report.broker_id: report.replicas}
                self._epochs = {**self._epochs, report.broker_id: report.broker_epoch}
            return
        for key, log in report.logs.items():
            known = self._logs.get(key) or self._before.logs.get(key) or {}
            self._logs[key] = {**known, report.broker_id: log}

    def build(self) -> Observations:
        return replace(
            self._before,
            offline=self._offline,
            full=self._full,
            epochs=self._epochs,
            logs=self._before.logs.edited(self._logs),
            misplaced=self._before.misplaced.edited(self._misplaced),
        )


def _without(
    held: Mapping[BrokerId, frozenset[PartitionKey]], broker_id: BrokerId
) -> Mapping[BrokerId, frozenset[PartitionKey]]:
    return {other: keys for other, keys in held.items() if other != broker_id}
