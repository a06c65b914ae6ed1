"""One broker process: the real session and replication around logs in memory.

What is simulated here is the shell that `fairlead_broker` has in `broker_process` and its tasks and
handlers, in the same order of steps; every decision is taken by the real `ControllerSession`,
`LocalReplicas`, `Partition`, `DeletionConfirmer`, `IsrProposals` and `WakeGuard`.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from simulator import rpc
from simulator.compaction import Compaction
from simulator.control_plane import SECRET
from simulator.leader_service import LeaderService
from simulator.log_shelf import LogShelf, SimSettings
from simulator.replica_fetcher import ReplicaFetchers
from simulator.retention import Retention
from simulator.virtual_loop import Process

from fairlead_broker.deletion_confirmer import DeletionConfirmer
from fairlead_broker.local_replicas import LocalReplicas
from fairlead_broker.replication.isr_proposals import IsrProposals
from fairlead_broker.replication.leader_state import Refusal
from fairlead_broker.replication.wake_guard import WakeGuard
from fairlead_broker.session.controller_session import ControllerSession
from fairlead_broker.session.link import SessionRefusedError
from fairlead_broker.traffic import Traffic
from fairlead_model.broker import BrokerRegistration, Endpoint
from fairlead_model.calls import Method
from fairlead_model.cluster import ClusterImage
from fairlead_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from simulator.broker_host import BrokerHost
    from simulator.checker import PartitionKey
    from simulator.world import World

    from fairlead_broker.replication.isr import IsrProposal
    from fairlead_broker.replication.isr_proposals import SentProposal
    from fairlead_broker.replication.partition import Partition
    from fairlead_model.cluster import ClusterDelta

MAX_LAG_MS = 1500
TICK_S = 0.5
CALL_TIMEOUT_MS = 3000


class BrokerProcess:
    """From start to end of one process. `disk` outlives it."""

    def __init__(self, world: World, host: BrokerHost) -> None:
        self.world = world
        self.host = host
        self.disk = host.disk
        self.broker_id = host.broker_id
        self.process = Process(world.loop, host.name)
        self.image = ClusterImage()
        self.is_confirmed = False
        self.is_stopping = False
        self.partitions: dict[PartitionKey, Partition] = {}
        self.session = self._make_session()
        self.proposals: IsrProposals[Partition] = IsrProposals(batch_max=100)
        self.guard = WakeGuard(
            gap_max_ms=self.session.longest_stop_ms,
            monotonic_ms=world.loop.now_ms(),
            wall_ms=self.wall_clock_ms(),
        )
        self.replicas = LocalReplicas(
            settings=cast("Any", SimSettings(host.broker_id, world)),
            clock=cast("Any", self),
            log_directory=cast("Any", LogShelf(host)),
            listener=self,
            traffic=Traffic(),
        )
        self.controller = self.session
        """As `DeletionConfirmer` knows it."""
        self.deletions = DeletionConfirmer(cast("Any", self))
        self.fetchers = ReplicaFetchers(self)
        self.leading = LeaderService(self)
        self.retention = Retention(self)
        self.compaction = Compaction(self)
        self._advanced: list[Partition] = []
        self._reported: set[PartitionKey] = set()

    def start(self) -> None:
        self.process.spawn(self._run())
        rpc.serve(self.world.network, self.process, self.leading.handle)

    def now_ms(self) -> int:
        return self.world.loop.now_ms()

    monotonic_ms = now_ms

    def wall_clock_ms(self) -> int:
        return self.world.wall_clock_ms() + self.host.clock_skew_ms

    def _make_session(self) -> ControllerSession:
        """What the disk says of the start before; the controller judges it."""
        disk, host = self.disk, self.host
        has_marker = disk.clean_marker is not None
        registration = BrokerRegistration(
            self.broker_id,
            endpoints=(Endpoint("INTERNAL", host.name, 9192, is_internal=True),),
            host_name=host.name,
            directory_id=disk.directory_id,
            start_id=disk.start_id,
            boot_id=host.boot_id,
            is_clean=has_marker,
            previous_broker_epoch=disk.clean_marker
            if disk.clean_marker is not None
            else disk.registered_epoch,
            # Recovery finds whole logs after a power loss too: it is the boot id that tells.
            is_recovered_whole=not disk.has_lost_pages,
            min_insync_replicas=host.min_insync_replicas,
        )
        return ControllerSession(
            [f"ws://{name}" for name in self.world.controllers],
            SECRET,
            registration,
            self.publish,
            cluster_id=disk.cluster_id,
            is_ready=False,
            unclean=[(topic, index) for (_, index), topic in sorted(disk.removed.items())],
        )

    async def _run(self) -> None:
        await self.session.start()
        try:
            await self.session.wait_registered(10_000)
        except SessionRefusedError as error:
            self.world.note("%s is refused: %s", self.host.name, error.message)
            self.process.loop.call_soon(self.host.exited, context=self.world.network.context)
            self.world.later(1.0, self.host.supervise)
            return
        self.world.checker.on_registered(self.host, self.disk.start_id)
        # Before the first append: from here on a crash must find no marker of a clean stop.
        self.disk.cluster_id = self.session.cluster_id
        self.disk.registered_epoch = self.session.broker_epoch
        self.disk.clean_marker = None
        self.disk.start_id = ""
        self.disk.has_lost_pages = False
        self.disk.removed.clear()
        self.is_confirmed = True
        for log in self.disk.logs.values():
            log.confirm(self.session.broker_epoch)
        self.world.note("%s is registered: epoch %d", self.host.name, self.session.broker_epoch)
        self.session.set_ready()
        self.fetchers.refresh()
        self._tick()

    async def stop(self) -> None:
        """SIGTERM: leaders move, logs are flushed, the marker comes last."""
        epoch = self.session.broker_epoch
        self.is_stopping = True
        with suppress(KafkaError):
            await self.session.call(Method.CONTROLLED_SHUTDOWN, {}, timeout_ms=1000)
        if not self.is_confirmed:
            self.process.loop.call_soon(self.host.exited, context=self.world.network.context)
            return
        self.sync()
        self._checkpoint()
        for partition in self.partitions.values():
            partition.retire()
        self.fetchers.stop()
        self.replicas.stop()
        self.deletions.stop()
        await self.session.stop()
        if not self.disk.is_failing:
            for log in self.disk.logs.values():
                log.stop(epoch)
            self.disk.clean_marker = epoch
        self.world.note("%s has stopped cleanly", self.host.name)
        self.process.loop.call_soon(self.host.exited, context=self.world.network.context)

    # What the controller says.

    def publish(self, delta: ClusterDelta, image: ClusterImage) -> None:
        self.image = image
        self.world.checker.on_controller_epoch(
            f"{self.host.name}/{self.host.starts}", self.session.controller_epoch
        )
        self.replicas.publish(delta, image)
        self.fetchers.refresh()

    # What becomes of replicas (`ReplicaListener`).

    def on_partition_role(self, partition: Partition) -> None:
        key = (partition.topic_id, partition.index)
        if self.replicas.partitions.get((partition.topic, partition.index)) is not partition:
            self.partitions.pop(key, None)
            return
        self.partitions[key] = partition
        if partition.is_leader:
            self.world.trace(
                "%d leads %s epoch %d", self.broker_id, partition, partition.leader_epoch
            )
            self.world.checker.on_leading(self.broker_id, partition)

    def on_recovery_wanted(self, partition: Partition) -> None:
        """Nobody is known to hold everything: say how far this log goes."""
        self.process.spawn(self._send_log_end(partition, partition.leader_epoch))

    def on_topic_deleted(self, topic_id: bytes) -> None:
        self.deletions.confirm(topic_id)

    # What partitions say.

    def on_partition_advanced(self, partition: Partition) -> None:
        if not self._advanced:
            self.process.call_soon(self._check_advanced)
        self._advanced.append(partition)
        self.world.checker.on_high_watermark(self.broker_id, partition)

    def _check_advanced(self) -> None:
        advanced, self._advanced = self._advanced, []
        for partition in advanced:
            partition.is_advance_noted = False
            self.world.checker.on_high_watermark(self.broker_id, partition)
        for partition in advanced:
            if partition.log.is_offline:
                self.on_partition_offline(partition)
            self.leading.check(partition)

    def on_isr_proposal(self, partition: Partition, proposal: IsrProposal) -> None:
        self.proposals.add(partition, proposal)
        self.process.call_soon(self._send_proposals)

    def _send_proposals(self) -> None:
        batch = self.proposals.take(self.now_ms())
        if batch:
            self.process.spawn(self._propose(batch))

    async def _propose(self, batch: list[SentProposal[Partition]]) -> None:
        body = {
            "broker_epoch": self.session.broker_epoch,
            "partitions": [
                {
                    "topic_id": partition.topic_id,
                    "index": partition.index,
                    "leader_epoch": proposal.leader_epoch,
                    "partition_epoch": proposal.partition_epoch,
                    "isr": [list(member) for member in proposal.isr],
                }
                for partition, proposal in batch
            ],
        }
        repeated: list[SentProposal[Partition]] = []
        try:
            reply = await self.session.call(
                Method.ALTER_PARTITION, body, timeout_ms=CALL_TIMEOUT_MS
            )
        except KafkaError as error:
            answers = [{"error_code": int(error.code)}] * len(batch)
        else:
            answers = reply["partitions"]
        for sent, answer in zip(batch, answers, strict=True):
            code = ErrorCode(answer["error_code"])
            if code is ErrorCode.NONE:
                sent.partition.proposal_accepted(
                    sent.proposal,
                    answer["isr"],
                    leader_epoch=answer["leader_epoch"],
                    partition_epoch=answer["partition_epoch"],
                    now_ms=self.now_ms(),
                )
            elif sent.partition.proposal_refused(sent.proposal, code) is Refusal.RETRIED:
                repeated.append(sent)
        self.proposals.settle(repeated, self.now_ms())
        self._send_proposals()

    def on_partition_offline(self, partition: Partition) -> None:
        """The disk failed: nothing is served from this log any more, and the controller hears."""
        if partition.is_leader or partition.follower is not None:
            partition.retire()
        key = (partition.topic_id, partition.index)
        if key in self._reported:
            return
        self._reported.add(key)
        self.process.spawn(self._call_until_done(Method.REPORT_OFFLINE, partition))

    async def _call_until_done(self, method: Method, partition: Partition) -> None:
        body = {
            "broker_epoch": self.session.broker_epoch,
            "partitions": [{"topic_id": partition.topic_id, "index": partition.index}],
            "is_unclean": True,
        }
        while True:
            try:
                await self.session.call(method, body, timeout_ms=CALL_TIMEOUT_MS)
                self._reported.discard((partition.topic_id, partition.index))
                return
            except KafkaError as error:
                if error.code is not ErrorCode.REQUEST_TIMED_OUT:
                    return
                await asyncio.sleep(0.2)

    async def _send_log_end(self, partition: Partition, leader_epoch: int) -> None:
        end = {
            "topic_id": partition.topic_id,
            "index": partition.index,
            "leader_epoch": leader_epoch,
            "last_epoch": partition.log.last_leader_epoch,
            "log_end_offset": partition.log.log_end_offset,
        }
        while partition.leader_epoch == leader_epoch and partition.leader_id < 0:
            body = {"broker_epoch": self.session.broker_epoch, "partitions": [end]}
            with suppress(KafkaError):
                await self.session.call(Method.REPORT_LOGS, body, timeout_ms=CALL_TIMEOUT_MS)
            await asyncio.sleep(1.0)

    # What time does.

    def _tick(self) -> None:
        now_ms = self.now_ms()
        self.note_time()
        for partition in self.partitions.values():
            partition.tick(now_ms, MAX_LAG_MS)
        self._send_proposals()
        if self.world.rng.random() < 0.3:
            self.sync()
        self.retention.apply()
        self.compaction.maybe_begin()
        self._checkpoint()
        self.process.call_later(TICK_S * (0.8 + 0.4 * self.world.rng.random()), self._tick)

    def sync(self) -> None:
        """fsync everything; a disk that fails takes its logs offline."""
        if not self.disk.is_failing:
            self.disk.deleted.clear()
        for log in self.disk.logs.values():
            if self.disk.is_failing:
                log.is_offline = True
                log.refusal = "the disk failed"
            else:
                log.sync()
        for partition in list(self.partitions.values()):
            if partition.log.is_offline and not self.is_stopping:
                self.on_partition_offline(partition)

    def note_time(self) -> None:
        """Has the process been stopped? Then ask whether it still leads (`WakeGuard`)."""
        self.guard.gap_max_ms = self.session.longest_stop_ms
        is_gap = self.guard.note_time(monotonic_ms=self.now_ms(), wall_ms=self.wall_clock_ms())
        if is_gap:
            self.world.note("%s notices a gap", self.host.name)
            self.process.spawn(self._confirm(self.guard.question))

    async def _confirm(self, question: int) -> None:
        body = {"broker_epoch": self.session.broker_epoch, "partitions": []}
        with suppress(KafkaError):
            await self.session.call(Method.ALTER_PARTITION, body, timeout_ms=1000)
            if self.guard.confirmed(question):
                self.leading.check_all()

    def _checkpoint(self) -> None:
        for key, partition in self.partitions.items():
            self.disk.high_watermarks[key] = partition.high_watermark
        if self.world.rng.random() < 0.3 and not self.disk.is_failing:
            for log in self.disk.logs.values():
                log.checkpoint()
