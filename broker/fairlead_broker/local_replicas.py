"""Makes this broker's partitions what the cluster image says.

The session passes image and delta; from then on only the image is used. Each partition that a delta
names is compared with the image, and then led, followed, created or removed. So it does not matter
how often or in which order partitions are named. The work is cut into slices of one turn of the
loop, so that a broker that becomes leader of a thousand partitions, or deletes a thousand topics,
goes on answering.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Protocol

from fairlead_broker.limits import KEPT_CONFIGS_MAX, PARTITION_CHANGES_PER_TURN_MS
from fairlead_broker.log.full_disk import is_lack_of_room
from fairlead_broker.replication.partition import Partition
from fairlead_model.cluster import (
    BrokerChanged,
    ClusterImage,
    PartitionChanged,
    TopicChanged,
    TopicRemoved,
)
from fairlead_model.ids import NO_BROKER_EPOCH, NO_LEADER, ZERO_TOPIC_ID
from fairlead_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from fairlead_broker.clock import Clock
    from fairlead_broker.log.directory.log_directories import LogDirectories
    from fairlead_broker.log.log import Log
    from fairlead_broker.measures.traffic import Traffic
    from fairlead_broker.replication.isr import IsrProposal
    from fairlead_broker.settings import Settings
    from fairlead_model.cluster import ClusterDelta, TopicHeader, TopicImage
    from fairlead_model.configs.config_values import BrokerValues
    from fairlead_model.configs.log_config import LogConfig

logger = logging.getLogger(__name__)

PartitionKey = tuple[str, int]
NO_PARTITION_EPOCH = -1


class ReplicaListener(Protocol):
    """What is called when replicas of this broker change; the broker."""

    def on_partition_advanced(self, partition: Partition) -> None: ...
    def on_partition_role(self, partition: Partition) -> None: ...
    def on_partition_offline(self, partition: Partition) -> None: ...
    def on_replica_unusable(self, topic: TopicImage, index: int) -> None: ...
    def on_replica_without_room(self) -> None: ...
    def on_recovery_wanted(self, partition: Partition) -> None: ...
    def on_isr_proposal(self, partition: Partition, proposal: IsrProposal) -> None: ...
    def on_topic_deleted(self, topic_id: bytes) -> None: ...
    def on_replica_removed(self, topic: TopicImage, index: int) -> None: ...


class LocalReplicas:
    """`partitions` are those that this broker holds a replica of, by topic name and index.

    Invariant: each belongs to the topic id that its log was made for (R19). `unclaimed` are logs
    that were found at the start and not compared with an image yet. After the first image they are
    only logs that no partition could use.
    """

    def __init__(
        self,
        *,
        settings: Settings,
        clock: Clock,
        log_directories: LogDirectories,
        listener: ReplicaListener,
        traffic: Traffic,
    ) -> None:
        self.partitions: dict[PartitionKey, Partition] = {}
        self._by_topic: dict[bytes, dict[int, Partition]] = {}
        """The same, by topic id and index."""
        self.failed: dict[PartitionKey, str] = dict(log_directories.offline)
        """Replicas that could not be opened or created, or broke an invariant, and why."""
        self._unusable: dict[tuple[bytes, int], str] = {}
        """Those of `failed` that failed since the start: they are not tried again."""
        self.without_room: set[tuple[bytes, int]] = set()
        """Replicas that could not be created because the disk is full: they are tried again."""
        self._settings = settings
        self._clock = clock
        self._log_directories = log_directories
        self._listener = listener
        self._traffic = traffic
        self._unclaimed: dict[PartitionKey, Log] = {
            (log.topic, log.partition): log for log in log_directories.logs
        }
        self._perhaps_elsewhere: set[tuple[bytes, int]] = set()
        """Replicas without a log, while a log directory could not be opened: it may hold the
        log."""
        self._values = settings.values
        self._configs: dict[tuple[tuple[str, str], ...], tuple[LogConfig, list[str]]] = {}
        self.unreadable_configs: dict[str, list[str]] = {}
        """By topic, the configs (`name=value`) that this release cannot read."""
        self._image = ClusterImage()
        self._has_image = False
        self._resumed_epochs: dict[tuple[bytes, int], int] = {}
        """Leader epochs in which the process before this one held its replicas, if it goes on."""
        self._is_stopped = False
        self._queue: deque[Callable[[], None]] = deque()
        """Pending work in the order of the deltas: a name is freed before it is used again."""
        self._waiting: list[asyncio.Future[None]] = []
        self._is_pumping = False

    def publish(self, delta: ClusterDelta, image: ClusterImage) -> None:
        """Start acting on a new image; do as much as fits into this turn."""
        if self._is_stopped:
            return
        self._image = image
        if not self._has_image:
            self._has_image = True
            self._remove_unknown(image)
            if self._log_directories.has_unknown_logs:
                self._perhaps_elsewhere = {
                    (topic.topic_id, index)
                    for topic, index in image.replicas_of(self._node_id)
                    if (topic.name, index) not in self._unclaimed
                }
            for header in image.deleting.values():
                self._queue.append(partial(self._remove_topic, header))
            held = ((topic.topic_id, index) for topic, index in image.replicas_of(self._node_id))
            for topic_id, index in (*held, *self._removals(image)):
                self._queue.append(partial(self._bring_up_to_date, topic_id, index))
        else:
            self._queue_changes(delta, image)
        if not self._is_pumping:
            self._is_pumping = True
            self._pump()

    def go_on(self, image: ClusterImage) -> None:
        """Note that the next image is the one that the process before this one has acted on."""
        for topic, index in image.replicas_of(self._node_id):
            epoch = topic.partitions[index].leader_epoch
            self._resumed_epochs[topic.topic_id, index] = epoch

    def set_defaults(self, values: BrokerValues) -> None:
        """Use new values of this broker, which are the defaults of topics."""
        self._values = values
        self._configs.clear()
        for name in {topic for topic, _ in self.partitions}:
            topic = self._image.topic(name)
            if topic is not None:
                self._reconfigure(topic)

    def epochs_seen(self) -> list[list[object]]:
        """For a registration: what the controller's tables have to know of the replicas here.

        [topic id, name, [index, leader epoch, partition epoch, index, …]] for each topic. Before
        there is an image, a log has only its own leader epoch, and no partition epoch (-1).
        """
        topics: dict[bytes, list[object]] = {}
        numbers: dict[bytes, list[int]] = {}

        def add(topic_id: bytes, name: str, index: int, *epochs: int) -> None:
            if topic_id not in topics:
                topics[topic_id] = [topic_id, name, numbers.setdefault(topic_id, [])]
            numbers[topic_id] += (index, *epochs)

        for topic, index in self._image.replicas_of(self._node_id):
            record = topic.partitions[index]
            add(topic.topic_id, topic.name, index, record.leader_epoch, record.partition_epoch)
        for log in self._unclaimed.values():
            add(log.topic_id, log.topic, log.partition, log.last_leader_epoch, NO_PARTITION_EPOCH)
        return list(topics.values())

    async def settled(self) -> None:
        """Wait until everything published so far has been acted on."""
        if self._queue:
            waiter = asyncio.get_running_loop().create_future()
            self._waiting.append(waiter)
            await waiter

    def stop(self) -> None:
        """Leave the replicas as they are, because a thread is about to flush and close their logs.

        Pending changes come again with the image of the next start.
        """
        self._is_stopped = True
        self._queue.clear()

    @property
    def _node_id(self) -> int:
        return self._settings.node_id

    def _queue_changes(self, delta: ClusterDelta, image: ClusterImage) -> None:
        for change in delta.changes:
            if isinstance(change, PartitionChanged):
                self._queue.append(partial(self._bring_up_to_date, change.topic_id, change.index))
            elif isinstance(change, TopicRemoved):
                self._queue.append(partial(self._set_aside_topic, change.topic_id))
            elif isinstance(change, TopicChanged):
                topic = image.topic_by_id(change.header.topic_id)
                if topic is None:
                    self._queue.append(partial(self._remove_topic, change.header))
                else:
                    self._reconfigure(topic)
            elif isinstance(change, BrokerChanged):
                self._tell_leaders_of(change.registration.broker_id)

    def _pump(self) -> None:
        """Do what is queued until the turn's share of time is used up."""
        deadline_ms = self._clock.monotonic_ms() + PARTITION_CHANGES_PER_TURN_MS
        while self._queue:
            self._carry_out(self._queue.popleft())
            if self._queue and self._clock.monotonic_ms() >= deadline_ms:
                asyncio.get_running_loop().call_soon(self._pump)
                return
        self._is_pumping = False
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    def _carry_out(self, act: Callable[[], None]) -> None:
        """Carry out one change; a failure does not keep the others from being carried out."""
        try:
            act()
        except Exception:
            # A replica could not be given up, or a topic not be deleted: nothing is confirmed.
            logger.exception("replicas are left as they are: %r", act)

    def _bring_up_to_date(self, topic_id: bytes, index: int) -> None:
        """Make one partition what the image says, or give it up, even for defects."""
        topic = self._image.topic_by_id(topic_id)
        if topic is None or index >= len(topic.partitions):
            return  # Removed since it was queued; that removal has been acted on.
        key = (topic.name, index)
        try:
            partition = self._acted_on(topic, index)
            if partition is None:
                return
            self.failed.pop(key, None)
            self.without_room.discard((topic_id, index))
            self._listener.on_partition_role(partition)
        except OSError as error:
            self._note_failure(topic, index, error)
            return
        except Exception as error:
            logger.exception("replica %s-%d cannot be used", *key)
            self._give_up(topic, index, error)
            return
        if topic.partitions[index].awaits_recovery:
            self._listener.on_recovery_wanted(partition)

    def _acted_on(self, topic: TopicImage, index: int) -> Partition | None:
        """Return the partition, once it leads or follows as it should; None if it does neither."""
        registration = topic.partitions[index]
        if self._node_id not in registration.replicas:
            self._let_go(topic, index)
            return None
        partition = self._partition(topic, index)
        if partition.log.is_offline:
            self._listener.on_partition_offline(partition)
            return None
        if registration.leader != self._node_id:
            partition.follow(registration)
        elif partition.lead(registration, now_ms=self._clock.monotonic_ms()):
            logger.debug(
                "leading %s from offset %d in epoch %d",
                partition,
                partition.log_end_offset,
                partition.leader_epoch,
            )
        return partition

    def _removals(self, image: ClusterImage) -> list[tuple[bytes, int]]:
        """Return the partitions that were taken from this broker and wait for its confirmation."""
        return [
            (topic.topic_id, index)
            for topic in image.topics()
            for index, partition in enumerate(topic.partitions)
            if self._node_id in partition.unconfirmed_removals
        ]

    def _let_go(self, topic: TopicImage, index: int) -> None:
        """Delete a replica that the controller took from here; set aside one it does not name.

        A record without this broker is not enough, because the tables may have gone back in time
        (I16).
        """
        key = (topic.name, index)
        held = self.partitions.get(key)
        is_removed = self._node_id in topic.partitions[index].unconfirmed_removals
        if held is not None and held.topic_id == topic.topic_id:
            if not is_removed:
                self._set_aside(held)
                return
            self._remove(held)
        if not is_removed:
            return
        log = self._unclaimed.get(key)
        if log is not None and log.topic_id == topic.topic_id:
            del self._unclaimed[key]
            self._log_directories.delete_log(log, now_ms=self._clock.now_ms())
            logger.info("replica %s-%d is deleted", *key)
        elif held is None and self._log_directories.has_unknown_logs:
            return  # Its files may be in a directory that cannot be read.
        self._unusable.pop((topic.topic_id, index), None)
        self.without_room.discard((topic.topic_id, index))
        if key in self._log_directories.offline:
            return  # Its files are still there; the next start looks at them again.
        self.failed.pop(key, None)
        self._listener.on_replica_removed(topic, index)

    def make_those_without_room(self) -> None:
        """Try again to create the replicas for which there was no room."""
        waiting, self.without_room = self.without_room, set()
        for topic_id, index in sorted(waiting):
            self._carry_out(partial(self._bring_up_to_date, topic_id, index))

    def _note_failure(self, topic: TopicImage, index: int, error: OSError) -> None:
        if not is_lack_of_room(error):
            logger.error("replica %s-%d cannot be used", topic.name, index, exc_info=error)
            self._give_up(topic, index, error)
            return
        if not self.without_room:
            logger.error("%s-%d and perhaps others cannot be made: %s", topic.name, index, error)
        self.failed[topic.name, index] = str(error)
        self.without_room.add((topic.topic_id, index))
        self._listener.on_replica_without_room()

    def _give_up(self, topic: TopicImage, index: int, error: Exception) -> None:
        """Stop serving a replica until the next start, and tell the controller.

        Otherwise the controller would wait for ever for a replica that it has made leader, or that
        is in the in-sync set.
        """
        self.failed[topic.name, index] = self._unusable[topic.topic_id, index] = str(error)
        partition = self.partitions.get((topic.name, index))
        if partition is not None and partition.leader_id != NO_LEADER:
            partition.retire()
            self._listener.on_partition_role(partition)
        self._listener.on_replica_unusable(topic, index)

    def broker_epoch(self, broker_id: int) -> int:
        """Return the epoch of a broker's registration, -1 if it has none."""
        registration = self._image.brokers.get(broker_id)
        return NO_BROKER_EPOCH if registration is None else registration.broker_epoch

    def may_join(self, broker_id: int) -> bool:
        """Tell whether a broker is in service, so that it may be in sync."""
        return self._image.is_live(broker_id)

    def _tell_leaders_of(self, broker_id: int) -> None:
        """Tell leaders that a broker registered anew, was fenced or came back."""
        for topic, index in self._image.replicas_of(broker_id):
            partition = self.partitions.get((topic.name, index))
            if partition is not None and partition.is_leader:
                partition.brokers_changed()

    def take_offline(self, partition: Partition) -> None:
        """Take a replica offline because its disk has failed: it serves nothing any more."""
        key = (partition.topic, partition.index)
        self.failed[key] = str(partition.log.refusal)
        if partition.leader_id != NO_LEADER:
            partition.retire()
            self._listener.on_partition_role(partition)

    def _partition(self, topic: TopicImage, index: int) -> Partition:
        key = (topic.name, index)
        if (topic.topic_id, index) in self._unusable:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self._unusable[topic.topic_id, index])
        partition = self.partitions.get(key)
        if partition is not None and partition.topic_id == topic.topic_id:
            return partition
        if partition is not None:
            # The name has a new id: this log belongs to a topic that is gone (R19).
            self._set_aside(partition)
        if key in self._log_directories.offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self._log_directories.offline[key])
        if (topic.topic_id, index) in self._perhaps_elsewhere:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                "its log may be in a log directory that cannot be read",
            )
        log = self._unclaimed.get(key)
        config = self._config(topic)
        if log is None:
            log = self._log_directories.create_log(
                topic.name, index, topic.topic_id, config, now_ms=self._clock.now_ms()
            )
        else:
            log.reconfigure(config)
        partition = Partition(
            topic=topic.name,
            index=index,
            topic_id=topic.topic_id,
            log=log,
            broker_id=self._node_id,
            high_watermark=self._log_directories.high_watermark(*key),
            on_advanced=self._listener.on_partition_advanced,
            on_proposal=self._listener.on_isr_proposal,
            on_offline=self._listener.on_partition_offline,
            brokers=self,
            traffic=self._traffic.of(topic.name),
        )
        # Not earlier: a log that cannot be used is still deleted, or set aside, with its topic.
        self._unclaimed.pop(key, None)
        partition.resumed_epoch = self._resumed_epochs.pop((topic.topic_id, index), NO_LEADER)
        self.partitions[key] = partition
        self._by_topic.setdefault(topic.topic_id, {})[index] = partition
        return partition

    def _config(self, topic: TopicImage) -> LogConfig:
        """Return a topic's log settings.

        Topics with the same configs share them, because computing them takes 0.3 ms. What a newer
        release has set and this one cannot read takes no partition out of service.
        """
        overrides = tuple(sorted(topic.configs.items()))
        known = self._configs.get(overrides)
        if known is None:
            if len(self._configs) >= KEPT_CONFIGS_MAX:
                self._configs.clear()
            unreadable: list[str] = []
            config = self._settings.log_config(topic.configs, self._values, unreadable)
            known = self._configs[overrides] = config, unreadable
        self._note_unreadable(topic.name, known[1])
        return known[0]

    def _note_unreadable(self, topic: str, unreadable: list[str]) -> None:
        if not unreadable:
            self.unreadable_configs.pop(topic, None)
        elif self.unreadable_configs.get(topic) != unreadable:
            self.unreadable_configs[topic] = unreadable
            logger.error(
                "topic %s: this release cannot read %a, and goes by what else is set, or the"
                " default; where that could lose records, it keeps all of them",
                topic,
                ", ".join(unreadable),
            )

    def _reconfigure(self, topic: TopicImage) -> None:
        config = self._config(topic)
        for index in range(topic.header.partition_count):
            partition = self.partitions.get((topic.name, index))
            if partition is not None and partition.log.config != config:
                partition.log.reconfigure(config)

    def _remove_topic(self, header: TopicHeader) -> None:
        """Stop serving a topic that is being deleted, and remove its files."""
        topic_id = header.topic_id
        for held_id, index in [each for each in self._unusable if each[0] == topic_id]:
            del self._unusable[held_id, index]
            self.failed.pop((header.name, index), None)
        for partition in list(self._by_topic.get(topic_id, {}).values()):
            self._remove(partition)
        for log in [log for log in self._unclaimed.values() if log.topic_id == topic_id]:
            del self._unclaimed[log.topic, log.partition]
            self._log_directories.delete_log(log, now_ms=self._clock.now_ms())
        self._listener.on_topic_deleted(topic_id)

    def _remove(self, partition: Partition) -> None:
        self._forget(partition)
        self._log_directories.delete_log(partition.log, now_ms=self._clock.now_ms())
        logger.info("replica %s is deleted", partition)

    def _set_aside_topic(self, topic_id: bytes) -> None:
        """Set aside a topic that the image has forgotten and that was never deleted here."""
        for partition in list(self._by_topic.get(topic_id, {}).values()):
            self._set_aside(partition)
        for log in [log for log in self._unclaimed.values() if log.topic_id == topic_id]:
            del self._unclaimed[log.topic, log.partition]
            self._log_directories.set_aside(log)
            logger.warning("%s-%d is not wanted here any more: set aside", log.topic, log.partition)

    def _set_aside(self, partition: Partition) -> None:
        """Set aside a replica that the image does not have: its data stays under another name."""
        self._forget(partition)
        self._log_directories.set_aside(partition.log)
        logger.warning("replica %s is not wanted here any more: set aside", partition)

    def _forget(self, partition: Partition) -> None:
        """Stop serving a replica."""
        del self.partitions[partition.topic, partition.index]
        self.failed.pop((partition.topic, partition.index), None)
        of_topic = self._by_topic[partition.topic_id]
        del of_topic[partition.index]
        if not of_topic:
            del self._by_topic[partition.topic_id]
            self.unreadable_configs.pop(partition.topic, None)
        partition.retire()
        self._listener.on_partition_role(partition)

    def _remove_unknown(self, image: ClusterImage) -> None:
        """Set aside logs that no topic of the image owns: absence alone deletes nothing."""
        held: dict[bytes, set[int]] = {}
        for topic, index in image.replicas_of(self._node_id):
            held.setdefault(topic.topic_id, set()).add(index)
        for topic_id, index in self._removals(image):
            held.setdefault(topic_id, set()).add(index)
        for key, log in list(self._unclaimed.items()):
            if log.topic_id == ZERO_TOPIC_ID and is_empty(log):
                # The process was killed after it had created the log, and before it had named it.
                named = image.topic(key[0])
                if named is not None:
                    log.assign_topic_id(named.topic_id)
            is_known = log.partition in held.get(log.topic_id, ())
            if not is_known and log.topic_id not in image.deleting:
                del self._unclaimed[key]
                self._log_directories.set_aside(log)
                logger.warning("%s-%d is no replica of this broker: set aside", *key)


def is_empty(log: Log) -> bool:
    """Return whether a log has no record."""
    return log.log_start_offset == log.log_end_offset


def refusal_for(
    key: PartitionKey,
    *,
    partitions: Mapping[PartitionKey, Partition],
    failed: Iterable[PartitionKey],
    image: ClusterImage,
) -> ErrorCode:
    """Return the error for a client that uses a partition here; NONE if this broker leads it."""
    partition = partitions.get(key)
    if partition is not None and partition.is_leader:
        return ErrorCode.NONE
    if key in failed:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if partition is not None or image.partition(*key) is not None:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
