"""All background work of a broker: started together, stopped together."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from fairlead_broker.log.files import reserve
from fairlead_broker.tasks.checkpoints import CheckpointWriter
from fairlead_broker.tasks.cleaner import Cleaner
from fairlead_broker.tasks.disk_check import DiskCheck
from fairlead_broker.tasks.flusher import Flusher
from fairlead_broker.tasks.housekeeping import (
    DELETION_INTERVAL_MS,
    FIRST_RETENTION_DELAY_MS,
    FLOW_INTERVAL_MS,
    OFFLINE_INTERVAL_MS,
    PRODUCER_BOUND_INTERVAL_MS,
    PRODUCER_EXPIRY_INTERVAL_MS,
    Housekeeping,
)
from fairlead_broker.tasks.isr_proposer import IsrProposer
from fairlead_broker.tasks.loop_lag import LoopLagMeter
from fairlead_broker.tasks.marker_writer import MarkerWriter
from fairlead_broker.tasks.metadata_recorder import MetadataRecorder
from fairlead_broker.tasks.offset_expiry import OffsetExpiry
from fairlead_broker.tasks.periodic import Interval, run_periodically
from fairlead_broker.tasks.replica_fetchers import ReplicaFetchers
from fairlead_broker.tasks.replica_mover import ReplicaMover
from fairlead_broker.tasks.room_watch import RoomWatch
from fairlead_broker.tasks.transaction_expiry import TransactionExpiry
from fairlead_broker.tasks.transaction_verifier import TransactionVerifier

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from concurrent.futures import Executor

    from fairlead_broker.broker import Broker
    from fairlead_model.cluster import ClusterDelta, ClusterImage
    from fairlead_model.metadata_seen import MetadataSeen

logger = logging.getLogger(__name__)

METADATA_RECORD_INTERVAL_MS: Final = 1_000
"""Age that the note on disk of how far the metadata has come may have."""
JOURNAL_INTERVAL_MS: Final = 10_000
ISR_TICK_MS_MIN: Final = 50
ISR_TICK_MS_MAX: Final = 5_000


class Background:
    """Owns the tasks; the executor is the caller's."""

    def __init__(self, broker: Broker, executor: Executor, cluster_secret: bytes) -> None:
        self._disk_check = DiskCheck(broker, executor)
        self.flusher = Flusher(
            broker,
            executor,
            on_offline=self._disk_check.on_offline,
            on_disk_error=self._disk_check.look_at,
        )
        self._broker = broker
        self._housekeeping = Housekeeping(broker, executor)
        self._checkpoints = CheckpointWriter(
            broker, executor, on_disk_error=self._disk_check.look_at
        )
        self._room_watch = RoomWatch(broker, on_resumed=self._on_room)
        self._executor = executor
        self.metadata_recorder = MetadataRecorder(broker.log_directories, executor)
        self._cleaner = Cleaner(broker, executor)
        self._proposer = IsrProposer(broker)
        self._fetchers = ReplicaFetchers(
            broker, cluster_secret, on_truncated=self._checkpoints.write_soon
        )
        self._mover = ReplicaMover(broker, on_disk_error=self._disk_check.look_at)
        self._moving: asyncio.Task[None] | None = None
        self._marker_writer = MarkerWriter(broker, cluster_secret)
        self._verifier = TransactionVerifier(broker, cluster_secret)
        broker.marker_writing = self._marker_writer
        broker.verification = self._verifier
        broker.on_published = self._publish
        self._loop_lag = LoopLagMeter(broker.metrics)
        self._tasks: list[asyncio.Task[None]] = []

    def start_replicating(
        self,
        metadata_seen: Callable[[], MetadataSeen],
        *,
        keep_journal: Callable[[], Awaitable[None]],
    ) -> None:
        """Begin what makes this broker a replica: before it serves, once it is registered.

        `metadata_seen` tells how far the metadata has come by now, `keep_journal` keeps the journal
        of this broker's roles short.
        """
        broker = self._broker
        broker.on_proposal = self._proposer.propose
        broker.on_lack_of_room = self._room_watch.note
        self._tasks.append(asyncio.create_task(self._proposer.run(), name="ISR proposals"))
        lag_ms = broker.settings.replica_lag_time_max_ms
        self._every(
            "ISR ticker",
            self._proposer.tick,
            max(min(lag_ms // 2, ISR_TICK_MS_MAX), ISR_TICK_MS_MIN),
        )
        self._tasks.append(asyncio.create_task(broker.wake_check.run(), name="wake check"))
        self._every(
            "metadata record",
            lambda: self.metadata_recorder.note(metadata_seen()),
            METADATA_RECORD_INTERVAL_MS,
            first_delay_ms=0,
        )
        self._every("role journal", keep_journal, JOURNAL_INTERVAL_MS)
        self._room_watch.begin()
        self._fetchers.start()

    def start(self) -> None:
        """Begin; what was appended before is looked at too."""
        settings = self._broker.settings
        self._broker.on_moved = self.flusher.note
        self.flusher.note(list(self._broker.partitions.values()))
        self._tasks.append(asyncio.create_task(self.flusher.run(), name="flusher"))
        self._every(
            "retention",
            self._housekeeping.apply_retention,
            lambda: self._broker.running_number("log.retention.check.interval.ms"),
            first_delay_ms=FIRST_RETENTION_DELAY_MS,
        )
        self._every("deletion", self._housekeeping.unlink_deleted, DELETION_INTERVAL_MS)
        self._every("offline logs", self._housekeeping.report_offline, OFFLINE_INTERVAL_MS)
        self._every(
            "producer expiry", self._housekeeping.expire_producers, PRODUCER_EXPIRY_INTERVAL_MS
        )
        self._every(
            "producer bound", self._housekeeping.bound_producers, PRODUCER_BOUND_INTERVAL_MS
        )
        self._every("flows", self._housekeeping.sample_flows, FLOW_INTERVAL_MS)
        self._every(
            "offset expiry",
            OffsetExpiry(self._broker).remove_expired,
            settings.offsets_retention_check_interval_ms,
        )
        transactions = TransactionExpiry(self._broker)
        self._every(
            "transaction time-outs",
            transactions.abort_timed_out,
            settings.transaction_timeout_check_interval_ms,
        )
        self._every(
            "transactional id expiry",
            transactions.remove_expired,
            settings.transactional_id_expiration_check_interval_ms,
        )
        self._every(
            "checkpoints",
            self._checkpoints.write,
            min(
                settings.high_watermark_checkpoint_interval_ms,
                settings.recovery_point_checkpoint_interval_ms,
                settings.log_start_checkpoint_interval_ms,
            ),
        )
        if settings.cleaner_enable:
            self._every(
                "compaction",
                self._cleaner.clean_all,
                lambda: self._broker.running_number("log.cleaner.backoff.ms"),
            )
        if len(settings.log_directories) > 1:
            self._moving = asyncio.create_task(self._mover.run(), name="replica mover")
        self._loop_lag.start()

    async def stop(self) -> None:
        """Cancel all; flushes that threads have begun are finished by `flusher.flush_all`."""
        self._loop_lag.stop()
        self._broker.on_published = None
        self._broker.on_altered.clear()
        self._marker_writer.stop()
        self._verifier.stop()
        if self._moving is not None:
            self._mover.stop()
            await self._moving
        await self._fetchers.stop()
        self._broker.wake_check.stop()
        self._broker.on_lack_of_room = None
        await self._room_watch.stop()
        self._broker.reporter.stop()
        self._broker.on_proposal = None
        self._broker.on_moved = None
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        await self._checkpoints.finished()
        await self._disk_check.finished()

    def _on_room(self) -> None:
        self._checkpoints.write_soon()
        for directory in self._broker.log_directories.live:
            self._executor.submit(reserve.keep, directory.path)

    def _publish(self, delta: ClusterDelta, image: ClusterImage) -> None:
        self._marker_writer.publish(delta, image)
        self._verifier.publish(image)

    def _every(
        self,
        name: str,
        round_of_work: Callable[[], Awaitable[None]],
        interval_ms: int | Callable[[], int],
        *,
        first_delay_ms: int | None = None,
    ) -> None:
        interval = Interval(interval_ms if callable(interval_ms) else lambda: interval_ms)
        if callable(interval_ms):
            self._broker.on_altered.append(interval.changed)
        coroutine = run_periodically(
            name,
            round_of_work,
            interval=interval,
            first_delay_ms=first_delay_ms,
            metrics=self._broker.metrics,
        )
        self._tasks.append(asyncio.create_task(coroutine, name=name))
