"""One broker process: the real broker, its handlers and its tasks, around simulated edges.

`Broker`, the session, the handlers of Produce, Fetch and ListOffsets, the fetchers, the proposer
and the wake check are real. Simulated are the process's start and stop, its sockets, its log
directory and its clock, and housekeeping and flushing, which happen at random times here.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, cast

from simulator import rpc
from simulator.compaction import Compaction
from simulator.control_plane import SECRET
from simulator.disk_log import DiskLog
from simulator.leader_service import LeaderService
from simulator.log_shelf import LogShelf, SimSettings, rack_of
from simulator.replica_link import HELLO, FollowerConnection
from simulator.retention import Retention
from simulator.virtual_loop import Process

from fairlead_broker.broker import Broker
from fairlead_broker.broker_process import GO_ON_AFTER_S
from fairlead_broker.log.directory.joint_start import joint_id
from fairlead_broker.log.flush_state import AWAITS_CHECKPOINT
from fairlead_broker.net.expiry import ExpiryTimer
from fairlead_broker.session import resumption
from fairlead_broker.session.controller_session import ControllerSession
from fairlead_broker.session.link import SessionRefusedError
from fairlead_broker.session.role_journal import RoleJournal, roles_in
from fairlead_broker.tasks.isr_proposer import IsrProposer
from fairlead_broker.tasks.marker_writer import MarkerWriter
from fairlead_broker.tasks.replica_fetchers import ReplicaFetchers
from fairlead_broker.tasks.room_watch import RoomWatch
from fairlead_broker.tasks.transaction_expiry import TransactionExpiry
from fairlead_broker.tasks.transaction_verifier import TransactionVerifier
from fairlead_model.broker import BrokerRegistration, Endpoint
from fairlead_model.ids import NO_BROKER_EPOCH
from fairlead_model.session.calls import Method
from fairlead_wire.errors import KafkaError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Coroutine

    from simulator.broker_host import BrokerHost
    from simulator.checker import PartitionKey
    from simulator.network import End
    from simulator.world import World

    from fairlead_broker.replication.partition import Partition
    from fairlead_model.cluster import ClusterDelta, ClusterImage

TICK_S: Final = 0.5
CHECKPOINT_S: Final = 0.05


class WatchedBroker(Broker):
    """Reports changes of partitions to the observer."""

    process: BrokerProcess

    def on_partition_role(self, partition: Partition) -> None:
        self.process.on_role(partition)
        super().on_partition_role(partition)

    def on_partition_advanced(self, partition: Partition) -> None:
        super().on_partition_advanced(partition)
        self.process.world.checker.on_high_watermark(self.node_id, partition)

    def _check_purgatories(self) -> None:
        for partition in self._advanced:
            self.process.world.checker.on_high_watermark(self.node_id, partition)
        super()._check_purgatories()


class BrokerProcess:
    """One process from start to end. `disk` outlives it."""

    def __init__(self, world: World, host: BrokerHost) -> None:
        self.world = world
        self.host = host
        self.disk = host.disk
        self.broker_id = host.broker_id
        self.process = Process(world.loop, host.name)
        self.is_confirmed = False
        self.is_stopping = False
        self.partitions: dict[PartitionKey, Partition] = {}
        self.journal = RoleJournal(self.disk.roles, "/roles")
        self._roles = roles_in(self.journal.take())
        self.session = self._make_session()
        self.broker = WatchedBroker(
            settings=cast("Any", SimSettings(host.broker_id, world)),
            clock=self,
            log_directories=cast("Any", LogShelf(host)),
        )
        self.broker.process = self
        self.broker.controller = self.session
        self.marker_writer = MarkerWriter(self.broker, SECRET)
        self.verifier = TransactionVerifier(self.broker, SECRET)
        self.broker.marker_writing = self.marker_writer
        self.broker.verification = self.verifier
        self.broker.on_published = self._on_published
        self.leading = LeaderService(self)
        self.retention = Retention(self)
        self.compaction = Compaction(self)
        self._tasks: list[asyncio.Task[Any]] = []
        self._waiting: list[End] = []
        """Followers whose connections wait because this start was not registered yet."""

    def start(self) -> None:
        self.process.spawn(self._run())
        self.world.network.listen(self.process, self._accept)

    def _accept(self, end: End) -> None:
        def receive(message: Any) -> None:
            if message is not HELLO:
                self.leading.handle(rpc.Request(end, message))
            elif self.is_confirmed:
                FollowerConnection(self.broker, end)
            else:
                self._waiting.append(end)

        end.on_message = receive

    def monotonic_ms(self) -> int:
        return self.world.loop.now_ms()

    def now_ms(self) -> int:
        return self.world.wall_clock_ms() + self.host.clock_skew_ms

    def _make_session(self) -> ControllerSession:
        """Build a session with what the disk says of the last start; the controller judges it."""
        disk, host = self.disk, self.host
        has_marker = disk.clean_marker is not None
        endpoints = [Endpoint("INTERNAL", host.name, 9192, is_internal=True)]
        rack = rack_of(self.broker_id) if self.world.options.reads_followers else None
        if rack is not None:
            endpoints.append(Endpoint("CLIENT", host.name, 9092))
        registration = BrokerRegistration(
            self.broker_id,
            endpoints=tuple(endpoints),
            rack=rack,
            host_name=host.name,
            directory_id=disk.directory_id or joint_id(disk.directory_ids),
            directory_ids=tuple(disk.directory_ids),
            start_id=disk.start_id,
            boot_id=host.boot_id,
            is_clean=has_marker,
            previous_broker_epoch=disk.clean_marker
            if disk.clean_marker is not None
            else disk.registered_epoch,
            # Recovery finds whole logs even after a power cut: only the boot id shows that.
            is_recovered_whole=not disk.has_lost_pages,
            min_insync_replicas=host.min_insync_replicas,
        )
        self._registration = registration
        return ControllerSession(
            [f"ws://{name}" for name in self.world.controllers],
            SECRET,
            registration,
            self._publish,
            cluster_id=disk.cluster_id,
            is_ready=False,
            unclean=[
                (topic, key[1])
                for key, topic in sorted(disk.removed.items())
                if key not in disk.unreported
            ],
            replicas_seen=self._epochs_seen,
            metadata_seen=disk.metadata_seen,
            journal=self.journal,
            is_cordoned=lambda: self.broker.log_directories.is_cordoned,
        )

    def _epochs_seen(self) -> list[list[object]]:
        return self.broker.replicas.epochs_seen()

    async def _run(self) -> None:
        await self.session.start()
        await self._maybe_go_on()
        try:
            await self.session.wait_registered(10_000)
        except SessionRefusedError as error:
            self.world.note("%s is refused: %s", self.host.name, error.message)
            self.process.loop.call_soon(self.host.exited, context=self.world.network.context)
            self.world.later(1.0, self.host.supervise)
            return
        if not self.is_confirmed:
            self._confirm()
            self._begin_service()

    def _confirm(self) -> None:
        """Do what `LogDirectory.confirm_start` does: a controller knows this start."""
        self.world.checker.on_registered(self.host)
        # Before the first append: after a crash there must be no marker of a clean stop.
        self.disk.cluster_id = self.session.cluster_id
        self.disk.registered_epoch = self.session.broker_epoch
        self.disk.clean_marker = None
        self.disk.start_id = ""
        self.disk.has_lost_pages = False
        self.disk.removed.clear()
        self.disk.unreported.clear()
        self.is_confirmed = True
        for log in self.disk.logs.values():
            log.confirm(self.session.broker_epoch)
        self.world.note("%s is registered: epoch %d", self.host.name, self.session.broker_epoch)

    def _begin_service(self) -> None:
        self.session.set_ready()
        self._start_replicating()
        self._tick()

    async def _maybe_go_on(self) -> None:
        """Do what the product's `BrokerProcess._join_cluster` does."""
        roles = self._roles
        if roles is None:
            return
        held = set(self.disk.logs)
        problem = resumption.resumption_problem(roles, self._registration, held)
        if problem is not None or self.disk.removed:
            return
        try:
            self.journal.put_back()
        except OSError:
            return  # A controller has answered already, and its image replaces this state.
        with suppress(TimeoutError, SessionRefusedError):
            await self.session.wait_registered(GO_ON_AFTER_S)
        if self.session.broker_epoch != NO_BROKER_EPOCH or self.is_stopping:
            return
        epoch = roles.broker_epoch(self.broker_id)
        self.world.note("%s goes on as epoch %d", self.host.name, epoch)
        self.world.resumptions += 1
        self.is_confirmed = True
        for log in self.disk.logs.values():
            log.confirm(epoch)
        self.broker.replicas.go_on(roles.image)
        self.session.go_on(roles)
        self.broker.wake_check.go_on()
        self._begin_service()

    def _start_replicating(self) -> None:
        """Do what `Background.start_replicating` does."""
        broker = self.broker
        self.proposer = IsrProposer(broker)
        broker.on_proposal = self.proposer.propose
        self.room_watch = RoomWatch(broker, on_resumed=self._on_resumed)
        broker.on_lack_of_room = self.room_watch.note
        self.fetchers = ReplicaFetchers(broker, SECRET, on_truncated=self._on_truncated)
        ExpiryTimer(self.world.loop, self, [broker.fetch_purgatory, broker.produce_purgatory])
        for work in (self.proposer.run(), broker.wake_check.run()):
            self._spawn(work)
        self.fetchers.start()
        waiting, self._waiting = self._waiting, []
        for end in waiting:
            FollowerConnection(broker, end)

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        self._tasks.append(self.process.spawn(work))

    def _on_truncated(self) -> None:
        """Make a truncation durable before anything is appended after it."""
        self.process.call_later(self.world.rng.random() * CHECKPOINT_S, self._checkpoint_cut_logs)

    def _on_resumed(self) -> None:
        """Durably remove what a full disk has refused, before anything is appended there."""
        self._on_truncated()

    def _checkpoint_cut_logs(self) -> None:
        for log in self.disk.logs.values():
            is_cut = isinstance(log, DiskLog) and log.refusal is not None
            if is_cut or log.refusal == AWAITS_CHECKPOINT:
                log.checkpoint()

    async def stop(self) -> None:
        """Handle SIGTERM: leaders move, logs are flushed, the marker comes last."""
        self.is_stopping = True
        with suppress(KafkaError):
            await self.session.call(Method.CONTROLLED_SHUTDOWN, {}, timeout_ms=1000)
        if not self.is_confirmed:
            self.process.loop.call_soon(self.host.exited, context=self.world.network.context)
            return
        self.sync()
        self._checkpoint()
        self._note_metadata()
        broker = self.broker
        broker.on_published = None
        self.marker_writer.stop()
        self.verifier.stop()
        for partition in self.partitions.values():
            partition.retire()
        broker.replicas.stop()
        broker.on_lack_of_room = None
        await self.room_watch.stop()
        await self.fetchers.stop()
        for task in self._tasks:
            task.cancel()
        broker.wake_check.stop()
        broker.reporter.stop()
        broker.deletion_confirmer.stop()
        await self.session.stop()
        self.journal.close()
        # Only now: a broker that was stopped before it was registered may be registered by now.
        epoch = self.session.broker_epoch
        if not self.disk.is_failing:
            for log in self.disk.logs.values():
                log.stop(epoch)
            self.disk.clean_marker = epoch
        self.world.note("%s has stopped cleanly", self.host.name)
        self.process.loop.call_soon(self.host.exited, context=self.world.network.context)

    def _publish(self, delta: ClusterDelta, image: ClusterImage) -> None:
        self.world.checker.on_controller_epoch(
            f"{self.host.name}/{self.host.starts}", self.session.controller_epoch
        )
        if self.is_confirmed and self.session.broker_epoch != self.disk.registered_epoch:
            self._confirm()
        self.broker.publish(delta, image)

    def _on_published(self, delta: ClusterDelta, image: ClusterImage) -> None:
        """Do what `Background` does."""
        self.marker_writer.publish(delta, image)
        self.verifier.publish(image)

    def on_role(self, partition: Partition) -> None:
        """Handle that `partition` now leads, follows or is gone."""
        key = (partition.topic_id, partition.index)
        if self.broker.partitions.get((partition.topic, partition.index)) is not partition:
            self.partitions.pop(key, None)
            return
        self.partitions[key] = partition
        if partition.is_leader:
            self.world.trace(
                "%d leads %s epoch %d", self.broker_id, partition, partition.leader_epoch
            )
            self.world.checker.on_leading(self.broker_id, partition)

    def _tick(self) -> None:
        self._spawn(self.proposer.tick())
        if self.world.rng.random() < 0.3:
            self.sync()
        transactions = self.world.transactions
        if transactions is not None and transactions.rng.random() < transactions.sweep_chance:
            self._spawn(TransactionExpiry(self.broker).abort_timed_out())
        self.retention.apply()
        self.compaction.maybe_begin()
        self._checkpoint()
        self._note_metadata()
        self._spawn(self.session.maybe_rewrite_journal())
        self.process.call_later(TICK_S * (0.8 + 0.4 * self.world.rng.random()), self._tick)

    def sync(self) -> None:
        """fsync everything; a disk that fails takes its logs offline."""
        if not self.disk.is_failing:
            self.disk.deleted.clear()
        for log in self.disk.logs.values():
            log.sync()
        for partition in list(self.partitions.values()):
            if partition.log.is_offline and not self.is_stopping:
                self.broker.on_partition_offline(partition)

    def _note_metadata(self) -> None:
        """Do what `LogDirectory.note_metadata` does, durably."""
        self.disk.metadata_seen = max(self.disk.metadata_seen, self.session.metadata_seen)

    def _checkpoint(self) -> None:
        for key, partition in self.partitions.items():
            self.disk.high_watermarks[key] = partition.high_watermark
        if self.world.rng.random() < 0.3 and not self.disk.is_failing:
            for log in self.disk.logs.values():
                log.checkpoint()
