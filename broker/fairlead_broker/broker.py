"""The broker as its handlers see it: the image, the partitions, and whom to ask.

Built by `main`, which also runs the shells around it (server, session, tasks, HTTP). Everything
here happens on the event loop, so there are no locks.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Protocol

from fairlead_broker.authorization import ANONYMOUS
from fairlead_broker.fetch_sessions.client_sessions import FetchSessions
from fairlead_broker.fetch_sessions.follower_sessions import FollowerSessions
from fairlead_broker.group.coordinator import GroupCoordinator
from fairlead_broker.limits import (
    FETCH_SESSION_EVICTION_MS,
    FETCH_SESSION_PARTITIONS_MAX,
    PARKED_FETCHES_MAX,
    PARKED_KEYS_MAX,
    PARKED_PRODUCES_MAX,
    WAITING_PRODUCE_BYTES_MAX,
)
from fairlead_broker.local_replicas import LocalReplicas, refusal_for
from fairlead_broker.measures.broker_metrics import BrokerMetrics
from fairlead_broker.metadata.departed_brokers import DepartedBrokers
from fairlead_broker.metadata.leader_doubts import LeaderDoubts
from fairlead_broker.metadata.reply_cache import MetadataCache
from fairlead_broker.quota.client_quotas import ClientQuotas
from fairlead_broker.replication.leader_epoch_check import LATEST_KNOWN_EPOCH, check_leader_epoch
from fairlead_broker.replication.purgatory import Purgatory
from fairlead_broker.replication_throttle import ReplicationThrottle
from fairlead_broker.security.denials import DenialLog
from fairlead_broker.security.image_credentials import ImageCredentials
from fairlead_broker.security.standard_authorizer import StandardAuthorizer
from fairlead_broker.session.awake_clock import AwakeClock
from fairlead_broker.session.deletion_confirmer import DeletionConfirmer
from fairlead_broker.session.producer_ids import ProducerIds
from fairlead_broker.session.replica_reporter import ReplicaReporter
from fairlead_broker.session.topic_creator import TopicCreator
from fairlead_broker.session.wake_check import WakeCheck
from fairlead_broker.transaction.coordinator import TransactionCoordinator
from fairlead_broker.transaction.waiting_produces import WaitingProduces
from fairlead_model.cluster import (
    AclChanged,
    ClusterImage,
    CredentialChanged,
    TopicChanged,
    TopicRemoved,
)
from fairlead_model.configs.cordoned_directories import CORDONED_LOG_DIRS
from fairlead_model.ids import CONSUMER_OFFSETS, NO_BROKER_EPOCH, TRANSACTION_STATE
from fairlead_wire.errors import ErrorCode, KafkaError
from fairlead_wire.primitives import NULL_UUID

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from fairlead_broker.clock import Clock
    from fairlead_broker.coordinator.runtime import CoordinatorRuntime
    from fairlead_broker.local_replicas import PartitionKey
    from fairlead_broker.log.directory.log_directories import LogDirectories
    from fairlead_broker.replication.isr import IsrProposal
    from fairlead_broker.replication.partition import Partition
    from fairlead_broker.security.standard_authorizer import Question
    from fairlead_broker.session.registered_broker import Controller
    from fairlead_broker.settings import Settings
    from fairlead_broker.transaction.ending import MarkerWriting
    from fairlead_broker.transaction.verification import TransactionVerification
    from fairlead_model.cluster import ClusterDelta, TopicImage
    from fairlead_model.configs.config_values import BrokerValues
    from fairlead_model.security.acl_index import AclDecision
    from fairlead_tls.followed_certificate import FollowedPeer
    from fairlead_wire.messages.envelope import EnvelopeRequest


class Cancellable(Protocol):
    """Something that can be cancelled."""

    def cancel(self) -> None: ...


class ForwardedHttp(Protocol):
    """Answers a request of an HTTP client that another broker forwards."""

    def __call__(
        self, envelope: EnvelopeRequest, respond: Callable[[bytes], None]
    ) -> Cancellable: ...


class Broker:
    """One broker process's state.

    `image` is replaced by `publish` alone. `controller`, `marker_writing` and `verification` are
    set once by `main`, because they need the broker first. `on_lack_of_room` is called with a
    partition whose disk is full, or with None if a replica could not be created because a disk is
    full.
    """

    controller: Controller
    marker_writing: MarkerWriting
    verification: TransactionVerification
    on_lack_of_room: Callable[[Partition | None], None] | None = None

    def __init__(
        self,
        *,
        settings: Settings,
        clock: Clock,
        log_directories: LogDirectories,
    ) -> None:
        self.settings, self.node_id, self.clock = settings, settings.node_id, clock
        self.log_directories = log_directories
        self.image, self._running_values = ClusterImage(), settings.values
        self._cordon()
        self.metrics = BrokerMetrics()
        self.fetch_purgatory = _build_purgatory(PARKED_FETCHES_MAX, tells_moves=True)
        self.produce_purgatory = _build_purgatory(PARKED_PRODUCES_MAX)
        self.fetch_sessions = FetchSessions(
            slots=settings.fetch_session_slots,
            partitions_max=FETCH_SESSION_PARTITIONS_MAX,
            eviction_ms=FETCH_SESSION_EVICTION_MS,
            chance=random.SystemRandom(),
        )
        self.follower_sessions = FollowerSessions(random.SystemRandom())
        self.replication_throttle = ReplicationThrottle(self)
        self.metadata_cache, self.leader_doubts = MetadataCache(), LeaderDoubts()
        self.departed_brokers = DepartedBrokers()
        self.topic_creator = TopicCreator(self)
        self.producer_ids = ProducerIds(self)
        self.deletion_confirmer = DeletionConfirmer(self)
        self.wake_check = WakeCheck(self)
        self.awake_clock: Clock = AwakeClock(clock, self.wake_check)
        self.group_coordinator = GroupCoordinator(self)
        self.transaction_coordinator = TransactionCoordinator(self)
        self.coordinators: dict[str, CoordinatorRuntime[Any, Any]] = {
            CONSUMER_OFFSETS: self.group_coordinator.runtime,
            TRANSACTION_STATE: self.transaction_coordinator.runtime,
        }
        """By internal topic: the coordinator for the partitions of it that this broker leads."""
        self.replicas = LocalReplicas(
            settings=settings,
            clock=clock,
            log_directories=log_directories,
            listener=self,
            traffic=self.metrics.traffic,
        )
        self.partitions = self.replicas.partitions
        self.reporter = ReplicaReporter(self)
        self.peer_certificate: FollowedPeer | None = None
        """This broker's certificate for connections to others; None: without TLS."""
        self.forwarded_http: ForwardedHttp | None = None
        """Answers forwarded requests of HTTP clients; None: this broker refuses them."""
        self.credentials = ImageCredentials()
        self.authorizer = self._build_authorizer()
        """None if every client may do everything."""
        self.client_quotas = ClientQuotas(settings.quota_windows, settings.controller_quota_burst_s)
        self.waiting_produces = WaitingProduces(bytes_max=WAITING_PRODUCE_BYTES_MAX)
        self.on_moved: Callable[[Sequence[Partition]], None] | None = None
        """Called once a turn with partitions that have advanced; the flusher, while it runs."""
        self.on_role: Callable[[Partition], None] | None = None
        """Called with each partition whose role has changed; the fetchers, while they run."""
        self.on_leaders_asked: Callable[[], None] | None = None
        """Called when a client asks for leaders; the fetchers, while they run."""
        self.on_published: Callable[[ClusterDelta, ClusterImage], None] | None = None
        """Called with each new image, after all else: requests between brokers use it."""
        self.on_proposal: Callable[[Partition, IsrProposal], None] | None = None
        """Called with what to ask of the controller; the proposer, while it runs."""
        self.on_altered: list[Callable[[], None]] = []
        """Called when `running_values` have changed."""
        self.answering: AbstractContextManager[None] = nullcontext()
        """Parked requests complete within it; it then sends their answers."""
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

    def running_values(self) -> BrokerValues:
        """Return the settings, with dynamic configs that have changed since the start."""
        return self._running_values

    def running_number(self, name: str) -> int:
        """Return the present number of a config."""
        value = self._running_values.value(name)
        if not isinstance(value, int):
            raise TypeError(f"{name} is not a whole number")
        return value

    def publish(self, delta: ClusterDelta, image: ClusterImage) -> None:
        """Act on a new image; the session calls this for each image, in order."""
        self.departed_brokers.publish(self.image, delta, image, self.clock.monotonic_ms())
        deleted = self._deleted_topics(delta, image)
        is_altered = image.broker_configs != self.image.broker_configs
        self.image = image
        if is_altered:
            self._running_values = self.settings.running_values(image)
            self.replicas.set_defaults(self._running_values)
            self._cordon()
        self._publish_security(delta, image)
        self.leader_doubts.settle(image)
        self.replicas.publish(delta, image)
        if deleted:
            self.group_coordinator.topics_deleted(deleted)
        if is_altered:
            for told in self.on_altered:
                told()
        if self.on_published is not None:
            self.on_published(delta, image)
        waiters, self._image_waiters = self._image_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _cordon(self) -> None:
        entries = self._running_values.value(CORDONED_LOG_DIRS)
        self.log_directories.cordon(entries if isinstance(entries, tuple) else ())

    def _build_authorizer(self) -> StandardAuthorizer | None:
        access = self.settings.access
        if not access.is_authorizing:
            return None
        authorizer = StandardAuthorizer(
            access.super_users, allows_without_rules=access.allows_without_rules
        )
        log = DenialLog(self.clock.monotonic_ms)

        def note(question: Question, decision: AclDecision) -> None:
            who = "anonymous" if question[0] == ANONYMOUS else "user"
            self.metrics.denials[who, question[3].name.lower()] += 1
            log.note(question, decision)

        authorizer.on_denied = note
        return authorizer

    def _publish_security(self, delta: ClusterDelta, image: ClusterImage) -> None:
        """Use the access rules, users and quotas of a new image before anything else uses it."""
        users = [change for change in delta.changes if isinstance(change, CredentialChanged)]
        self.credentials.publish(image.credentials, users)
        self.client_quotas.publish(image.client_quotas)
        authorizer = self.authorizer
        if authorizer is None:
            return
        rules = [change for change in delta.changes if isinstance(change, AclChanged)]
        if not authorizer.has_rules:
            authorizer.load(image.acls)
        elif rules:
            authorizer.change(rules)
        if rules:
            # Parked requests were allowed by the old rules: each checks its topics again.
            with self.answering:
                self.fetch_purgatory.check_all()

    def _deleted_topics(self, delta: ClusterDelta, image: ClusterImage) -> set[str]:
        """Names that this delta frees: those of topics that are being deleted or are gone."""
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
        """Return the name of a topic that is not being deleted."""
        return self.image.topic_name(topic_id)

    def partition_error(self, topic: str, index: int) -> ErrorCode:
        """Return why this broker can't serve a partition as its leader; NONE if it can."""
        return refusal_for(
            (topic, index),
            partitions=self.partitions,
            failed=self.replicas.failed,
            image=self.image,
        )

    def leading(
        self,
        key: PartitionKey,
        *,
        topic_id: bytes = NULL_UUID,
        current_leader_epoch: int = LATEST_KNOWN_EPOCH,
    ) -> Partition:
        """Return a partition that this broker leads, if topic id and leader epoch are those given.

        KafkaError with the code for the client (R5), NOT_LEADER_OR_FOLLOWER last, as in Kafka. An
        id or epoch that is not given is not compared.
        """
        partition = self.partitions.get(key)
        code = ErrorCode.NONE
        if partition is None or not partition.is_leader:
            code = self.partition_error(*key)
            if partition is None or code is not ErrorCode.NOT_LEADER_OR_FOLLOWER:
                raise KafkaError(code)
        if topic_id not in (NULL_UUID, partition.topic_id):
            raise KafkaError(ErrorCode.INCONSISTENT_TOPIC_ID)
        check_leader_epoch(current_leader_epoch, partition.leader_epoch)
        if code:
            raise KafkaError(code)
        return partition

    @property
    def may_be_replaced(self) -> bool:
        """Whether other brokers may lead what this broker leads, without this broker knowing it.

        This is so after the process stood still, while it goes on for a killed process, or while it
        hears no controller. The other leaders may then have records that its logs lack.
        """
        return self.wake_check.must_hold() or not self.controller.has_session

    def on_partition_advanced(self, partition: Partition) -> None:
        """Note a change that a parked request may wait for; checked once a turn."""
        if not self._advanced:
            asyncio.get_running_loop().call_soon(self._check_purgatories)
        self._advanced.append(partition)

    def on_partition_role(self, partition: Partition) -> None:
        """Note that `partition` now leads, follows or is gone."""
        coordinator = self.coordinators.get(partition.topic)
        if coordinator is not None:
            coordinator.on_role(partition)
        if self.on_role is not None:
            self.on_role(partition)

    def on_isr_proposal(self, partition: Partition, proposal: IsrProposal) -> None:
        """Have the controller asked to change the ISR of `partition`."""
        if self.on_proposal is not None:
            self.on_proposal(partition, proposal)

    def on_partition_offline(self, partition: Partition) -> None:
        """Stop serving `partition`, whose disk has failed; stop only writes if the disk is full.

        Who was at work on it may find out when it is no replica here any more: that is ignored.
        """
        if self.partitions.get((partition.topic, partition.index)) is not partition:
            return
        if not partition.log.is_offline:
            if self.on_lack_of_room is not None:
                self.on_lack_of_room(partition)
            return
        self.replicas.take_offline(partition)
        self.reporter.on_offline(partition)

    def on_unreadable(self, path: str, error: OSError) -> None:
        """Take a log offline because the disk cannot read one of its files.

        The client that asked for the file has lost its connection, and would lose it again. A
        follower would lose all partitions that it copies from this broker.
        """
        directory = path.rpartition("/")[0]
        for partition in self.partitions.values():
            log = partition.log
            if log.path == directory and any(each.path == path for each in log.segments):
                log.go_offline(error)
                partition.flushed()
                return

    def on_replica_unusable(self, topic: TopicImage, index: int) -> None:
        """Report a replica that could not be created or brought up to date."""
        self.reporter.on_unusable(topic.name, topic.topic_id, index)

    def on_replica_without_room(self) -> None:
        """Create replicas for which there was no room, once there is."""
        if self.on_lack_of_room is not None:
            self.on_lack_of_room(None)

    def on_recovery_wanted(self, partition: Partition) -> None:
        """Report that no broker is known to hold all of `partition`; the fullest log will lead."""
        self.reporter.on_recovery_wanted(partition)

    def _check_purgatories(self) -> None:
        advanced, self._advanced = self._advanced, []
        for partition in advanced:
            partition.is_advance_noted = False
        produces, fetches = self.produce_purgatory, self.fetch_purgatory
        keys = [(partition.topic, partition.index) for partition in advanced]
        with self.answering:
            # Produces first: a fetch that is answered now can then include what they completed.
            if produces.keys_count:
                produces.check(keys)
            for coordinator in self.coordinators.values():
                coordinator.advanced(advanced)
            self.follower_sessions.advanced(advanced)
            if fetches.keys_count:
                fetches.check(keys)
        if self.on_moved is not None:
            self.on_moved(advanced)

    def on_topic_deleted(self, topic_id: bytes) -> None:
        """Tell the controller that this broker holds nothing of a topic, if it waits for that."""
        header = self.image.deleting.get(topic_id)
        if header is not None and self.node_id in header.unconfirmed_deletions:
            self.deletion_confirmer.confirm(topic_id)

    def on_replica_removed(self, topic: TopicImage, index: int) -> None:
        """Tell the controller that nothing is left of a replica that it took from this broker."""
        leader_epoch = topic.partitions[index].leader_epoch
        self.deletion_confirmer.confirm_removal(topic.topic_id, index, leader_epoch)


def _build_purgatory(operations_max: int, *, tells_moves: bool = False) -> Purgatory:
    return Purgatory(
        operations_max=operations_max, keys_max=PARKED_KEYS_MAX, tells_moves=tells_moves
    )
