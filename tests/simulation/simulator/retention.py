"""What advances log starts: retention and DeleteRecords on leaders, which followers adopt.

`fairlead_broker/tasks/housekeeping` does this by the clock; here it happens at random times. A
world draws how often. What a producer may still send again is kept, because a leader that knows
nothing of a producer any more accepts whatever it sends, as in Kafka.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from simulator.disk_log import DiskLog, KeyedLog

from fairlead_wire.errors import KafkaError

if TYPE_CHECKING:
    from simulator.broker_process import BrokerProcess

    from fairlead_broker.replication.partition import Partition


class Retention:
    """The housekeeping of one broker process."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._world = broker.world

    def apply(self) -> None:
        """Do one round over all partitions, each with some probability."""
        chance, rng = self._world.retention_chance, self._world.rng
        if not chance or self._broker.disk.is_failing:
            return
        for partition in list(self._broker.partitions.values()):
            if rng.random() >= chance or partition.log.is_offline:
                continue
            log: Any = partition.log
            if isinstance(log, DiskLog):
                self._forget_on_disk(partition, log)
            elif partition.is_leader:
                self._forget(partition)
            else:
                log.drop_below(min(log.log_start_offset, partition.high_watermark))

    def _forget_on_disk(self, partition: Partition, log: DiskLog) -> None:
        """Do DeleteRecords, or delete the segments below the start."""
        rng, now_ms = self._world.rng, self._broker.now_ms()
        if log.refusal is not None or not log.config.deletes_by_retention:
            return
        if not partition.is_leader:
            log.delete_segments_below_start(now_ms, partition.high_watermark)
            return
        end = log.deletable_end(partition.high_watermark)
        if not isinstance(log, KeyedLog):
            # DeleteRecords may go up to the high watermark, but then lost records are not noticed.
            end = min(end, partition.last_stable_offset)
        if end > log.log_start_offset and rng.random() < 0.5:
            target = rng.randint(log.log_start_offset, end)
            self._world.checker.on_forgetting(partition, target)
            partition.delete_records(target)
        elif log.delete_expired_segments(now_ms, partition.last_stable_offset):
            partition.start_moved()

    def _forget(self, partition: Partition) -> None:
        rng, log = self._world.rng, partition.log
        memory: Any = log
        if log.log_end_offset > partition.high_watermark and rng.random() < 0.2:
            with suppress(KafkaError):
                partition.delete_records(partition.high_watermark + 1)
                self._world.checker.fail("%s let go of what is not committed", partition)
        end = memory.deletable_end(partition.high_watermark)
        if end <= log.log_start_offset:
            return
        target = rng.randint(log.log_start_offset, end)
        if rng.random() < 0.5:
            # DeleteRecords: a later round deletes the segments.
            self._world.checker.on_forgetting(partition, target)
            partition.delete_records(target)
            return
        target = max(memory.batch_start(target), log.log_start_offset)
        self._world.checker.on_forgetting(partition, target)
        memory.drop_below(target)
        partition.start_moved()
