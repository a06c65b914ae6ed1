"""The broker as its handlers see it: the image, the partitions, and whom to ask.

Built by `main`, which also runs the shells around it (server, session, tasks, HTTP). Everything
here happens on the event loop, so there are no locks.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import nullcontext
from typing import TYPE_CHECKING

from fairlead_broker.deletion_confirmer import DeletionConfirmer
from fairlead_broker.departed_brokers import DepartedBrokers
from fairlead_broker.group.coordinator import GroupCoordinator
from fairlead_broker.handlers.fetch_sessions import FetchSessions
from fairlead_broker.handlers.follower_sessions import FollowerSessions
from fairlead_broker.leader_doubts import LeaderDoubts
from fairlead_broker.limits import (
    FETCH_SESSION_EVICTION_MS,
    FETCH_SESSION_PARTITIONS_MAX,
    PARKED_FETCHES_MAX,
    PARKED_KEYS_MAX,
    PARKED_PRODUCES_MAX,
)
from fairlead_broker.local_replicas import LocalReplicas, refusal_for
from fairlead_broker.metadata_cache import MetadataCache
from fairlead_broker.metrics import BrokerMetrics
from fairlead_broker.producer_ids import ProducerIds
from fairlead_broker.replica_reporter import ReplicaReporter
from fairlead_broker.replication.purgatory import Purgatory
from fairlead_broker.topic_creator import TopicCreator
from fairlead_broker.wake_check import WakeCheck
from fairlead_model.cluster import ClusterImage, TopicChanged, TopicRemoved
from fairlead_model.ids import CONSUMER_OFFSETS, NO_BROKER_EPOCH
from fairlead_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from typing import Any, Protocol

    from fairlead_broker.clock import Clock
    from fairlead_broker.log.log_directory import LogDirectory
    from fairlead_broker.replication.isr import IsrProposal
    from fairlead_broker.replication.partition import Partition
    from fairlead_broker.settings import Settings
    from fairlead_model.cluster import ClusterDelta, TopicImage

    class Controller(Protocol):
        """Who decides; the session implements it."""

        @property
        def longest_stop_ms(self) -> int:
            """After a longer stop of this process, another broker may lead what it leads."""
            ...

        async def call(
            self, method: str, body: dict[str, Any], *, timeout_ms: int
        ) -> dict[str, Any]: ...


class Broker:
    """One broker process's state.

    `image` is replaced by `publish` alone. `controller` is set once by `main`, because the session
    needs the broker's `publish` first.
    """

    controller: Controller

    def __init__(
        self,
        *,
        settings: Settings,
        clock: Clock,
        log_directory: LogDirectory,
    ) -> None:
        self.settings = settings
        self.node_id = settings.node_id
        self.clock = clock
        self.log_directory = log_directory
        self.image = ClusterImage()
        self.metrics = BrokerMetrics()
        self.fetch_purgatory = Purgatory(
            operations_max=PARKED_FETCHES_MAX, keys_max=PARKED_KEYS_MAX
        )
        self.produce_purgatory = Purgatory(
            operations_max=PARKED_PRODUCES_MAX, keys_max=PARKED_KEYS_MAX
        )
        self.fetch_sessions = FetchSessions(
            slots=settings.fetch_session_slots,
            partitions_max=FETCH_SESSION_PARTITIONS_MAX,
            eviction_ms=FETCH_SESSION_EVICTION_MS,
            chance=random.SystemRandom(),
        )
        self.follower_sessions = FollowerSessions(random.SystemRandom())
        self.metadata_cache = MetadataCache()
        self.leader_doubts = LeaderDoubts()
        self.departed_brokers = DepartedBrokers()
        self.topic_creator = TopicCreator(self)
        self.producer_ids = ProducerIds(self)
        self.deletion_confirmer = DeletionConfirmer(self)
        self.group_coordinator = GroupCoordinator(self)
        self.replicas = LocalReplicas(
            settings=settings,
            clock=clock,
            log_directory=log_directory,
            listener=self,
            traffic=self.metrics.traffic,
        )
        self.partitions = self.replicas.partitions
        self.reporter = ReplicaReporter(self)
        self.wake_check = WakeCheck(self)
        self.on_moved: Callable[[Sequence[Partition]], None] | None = None
        """Told once a turn which partitions have moved; the flusher, while it runs."""
        self.on_role: Callable[[Partition], None] | None = None
        """Told of each partition whose role has changed; the fetchers, while they run."""
        self.on_leaders_asked: Callable[[], None] | None = None
        """Told that somebody wants to know who leads; the fetchers, while they run."""
        self.on_proposal: Callable[[Partition, IsrProposal], None] | None = None
        """Told what to ask the controller for; the proposer, while it runs."""
        self.answering: AbstractContextManager[None] = nullcontext()
        """Parked requests are let go within it; what sends their answers, while the server runs."""
        self._advanced: list[Partition] = []
        self._image_waiters: list[asyncio.Future[None]] = []

    @property
    def cluster_id(self) -> str:
        return self.image.cluster_id

    @property
    def broker_epoch(self) -> int:
        """Epoch of this process start, -1 before the image says so."""
        registration = self.image.brokers.get(self.node_id)
        return NO_BROKER_EPOCH if registration is None else registration.broker_epoch

    def publish(self, delta: ClusterDelta, image: ClusterImage) -> None:
        """Take over a new image; the session calls this for each one, in order."""
        self.departed_brokers.publish(self.image, delta, image, self.clock.monotonic_ms())
        deleted = self._deleted_topics(delta, image)
        self.image = image
        self.leader_doubts.settle(image)
        self.replicas.publish(delta, image)
        if deleted:
            self.group_coordinator.topics_deleted(deleted)
        waiters, self._image_waiters = self._image_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _deleted_topics(self, delta: ClusterDelta, image: ClusterImage) -> set[str]:
        """Names that this delta frees: of topics that are being deleted, or were forgotten."""
        deleted = set()
        for change in delta.changes:
            if isinstance(change, TopicRemoved):
                topic_id: bytes = change.topic_id
            elif isinstance(change, TopicChanged):
                topic_id = change.header.topic_id
            else:
                continue
            name = self.image.topic_name(topic_id)
            if name is not None and image.topic_by_id(topic_id) is None:
                deleted.add(name)
        return deleted

    async def image_changed(self) -> None:
        """Wait for the next `publish`."""
        waiter = asyncio.get_running_loop().create_future()
        self._image_waiters.append(waiter)
        await waiter

    def topic_name(self, topic_id: bytes) -> str | None:
        """The name of a topic that is not being deleted."""
        return self.image.topic_name(topic_id)

    def partition_error(self, topic: str, index: int) -> ErrorCode:
        """Why this broker can't serve a partition as its leader; NONE if it can."""
        return refusal_for(
            (topic, index),
            partitions=self.partitions,
            failed=self.replicas.failed,
            image=self.image,
        )

    def leading(self, topic: str, index: int) -> Partition:
        """A partition that this broker leads; KafkaError with the right code otherwise."""
        partition = self.partitions.get((topic, index))
        if partition is None or not partition.is_leader:
            raise KafkaError(self.partition_error(topic, index))
        return partition

    def on_partition_advanced(self, partition: Partition) -> None:
        """Something that a parked request may wait for has moved; looked at once a turn."""
        if not self._advanced:
            asyncio.get_running_loop().call_soon(self._check_purgatories)
        self._advanced.append(partition)

    def on_partition_role(self, partition: Partition) -> None:
        """`partition` leads, follows or is gone now."""
        if partition.topic == CONSUMER_OFFSETS:
            self.group_coordinator.on_role(partition)
        if self.on_role is not None:
            self.on_role(partition)

    def on_isr_proposal(self, partition: Partition, proposal: IsrProposal) -> None:
        """The controller has to be asked to change the ISR of `partition`."""
        if self.on_proposal is not None:
            self.on_proposal(partition, proposal)

    def on_partition_offline(self, partition: Partition) -> None:
        """The disk has failed the log of `partition`: it serves nothing any more."""
        self.replicas.take_offline(partition)
        self.reporter.on_offline(partition)

    def on_replica_unusable(self, topic: TopicImage, index: int) -> None:
        """A replica that the image has here could not be made or brought up to date."""
        self.reporter.on_unusable(topic.name, topic.topic_id, index)

    def on_recovery_wanted(self, partition: Partition) -> None:
        """Nobody is known to hold all of `partition`; the fullest log will lead."""
        self.reporter.on_recovery_wanted(partition)

    def _check_purgatories(self) -> None:
        advanced, self._advanced = self._advanced, []
        for partition in advanced:
            partition.is_advance_noted = False
        keys = [(partition.topic, partition.index) for partition in advanced]
        with self.answering:
            # Produces first: a fetch that is answered now may as well carry what they completed.
            self.produce_purgatory.check(keys)
            self.group_coordinator.advanced(advanced)
            self.follower_sessions.advanced(advanced)
            self.fetch_purgatory.check(keys)
        if self.on_moved is not None:
            self.on_moved(advanced)

    def on_topic_deleted(self, topic_id: bytes) -> None:
        """Nothing of a topic is held here any more: say so if the controller waits for it."""
        header = self.image.deleting.get(topic_id)
        if header is not None and self.node_id in header.unconfirmed_deletions:
            self.deletion_confirmer.confirm(topic_id)
