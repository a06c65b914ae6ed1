"""Tells the controller what it can't see of this broker's replicas.

A replica whose disk has failed leads nothing here from that moment on; the controller then moves
its leader and takes it out of the in-sync replicas, durably and as unclean where an fsync failed.
Which replicas lack room for records, all of them each time: another one leads, if it can. And how
far the log of a replica goes, for partitions of which no replica is known to hold every
acknowledged record. Both are repeated until they get through.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final

from fairlead_broker.limits import FULL_REPLICAS_PER_REPORT_MAX, REPLICAS_PER_REPORT_MAX
from fairlead_model.session.calls import (
    LocatedPartition,
    LogEnd,
    Method,
    ReportLogsCall,
    ReportOfflineCall,
)
from fairlead_wire.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fairlead_broker.replication.partition import Partition
    from fairlead_broker.session.registered_broker import RegisteredBroker

logger = logging.getLogger(__name__)

CALL_TIMEOUT_MS: Final = 2_000
RETRY_DELAY_S: Final = 0.2
LOG_ENDS_REPEAT_S: Final = 1.0
"""Log ends are reported again this often while they are needed: there may be a new controller."""


class ReplicaReporter:
    """Reports replicas to the controller.

    `_offline` has those to report, by topic id and index; `_awaited` are partitions whose log ends
    are wanted.
    """

    def __init__(self, broker: RegisteredBroker) -> None:
        self._broker = broker
        self._offline: dict[tuple[bytes, int], Partition | None] = {}
        self._awaited: dict[Partition, None] = {}
        self._full: list[LocatedPartition] = []
        self._is_full_untold = False
        self._task: asyncio.Task[None] | None = None
        self._full_task: asyncio.Task[None] | None = None
        self._log_ends_task: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """Tell nothing any more."""
        for task in (self._task, self._full_task, self._log_ends_task):
            if task is not None:
                task.cancel()

    def on_offline(self, partition: Partition) -> None:
        """Report a replica that the disk has failed; repeated calls do no harm."""
        self._note(partition.topic, partition.topic_id, partition.index, partition)

    def on_unusable(self, topic: str, topic_id: bytes, index: int) -> None:
        """Report a replica without a usable log; nothing was ever written to it."""
        self._note(topic, topic_id, index, None)

    def tell_full(self, replicas: Iterable[tuple[bytes, int]]) -> None:
        """Report all replicas here that lack room, or that none does any more."""
        self._full = [
            {"topic_id": topic_id, "index": index} for topic_id, index in sorted(replicas)
        ]
        self._is_full_untold = True
        if self._full_task is None or self._full_task.done():
            self._full_task = asyncio.get_running_loop().create_task(self._report_full())

    def _note(self, topic: str, topic_id: bytes, index: int, partition: Partition | None) -> None:
        record = self._broker.image.partition(topic, index)
        node_id = self._broker.node_id
        if record is None or (record.leader != node_id and node_id not in record.isr):
            return
        self._offline[topic_id, index] = partition
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._report_offline())

    def on_recovery_wanted(self, partition: Partition) -> None:
        """Report the end of this log: the fullest one will lead `partition`."""
        self._awaited[partition] = None
        if self._log_ends_task is None or self._log_ends_task.done():
            self._log_ends_task = asyncio.get_running_loop().create_task(self._report_log_ends())

    async def _report_offline(self) -> None:
        while self._offline:
            # All failures of this turn of the loop are sent together, a failed fsync first.
            await asyncio.sleep(0)
            unclean = [key for key, each in self._offline.items() if _has_failed_flush(each)]
            batch = (unclean or list(self._offline))[:REPLICAS_PER_REPORT_MAX]
            body = ReportOfflineCall(
                broker_epoch=self._broker.broker_epoch,
                partitions=[{"topic_id": topic_id, "index": index} for topic_id, index in batch],
                is_unclean=bool(unclean),
            )
            if await self._call(Method.REPORT_OFFLINE, dict(body)):
                for key in batch:
                    self._offline.pop(key, None)
            else:
                await asyncio.sleep(RETRY_DELAY_S)

    async def _report_full(self) -> None:
        while self._is_full_untold:
            self._is_full_untold = False
            full, size = self._full, FULL_REPLICAS_PER_REPORT_MAX
            for first in range(0, max(len(full), 1), size):
                body = ReportOfflineCall(
                    broker_epoch=self._broker.broker_epoch,
                    partitions=full[first : first + size],
                    is_unclean=False,
                    lacks_room=True,
                )
                if first:
                    body["after"] = full[first - 1]
                if first + size < len(full):
                    body["until"] = full[first + size - 1]
                if not await self._call(Method.REPORT_OFFLINE, dict(body)):
                    self._is_full_untold = True
                    await asyncio.sleep(RETRY_DELAY_S)
                if self._is_full_untold:
                    break

    async def _report_log_ends(self) -> None:
        while self._awaited:
            ends = [end for partition in list(self._awaited) if (end := self._log_end(partition))]
            for first in range(0, len(ends), REPLICAS_PER_REPORT_MAX):
                part = ends[first : first + REPLICAS_PER_REPORT_MAX]
                body = ReportLogsCall(broker_epoch=self._broker.broker_epoch, partitions=part)
                await self._call(Method.REPORT_LOGS, dict(body))
            await asyncio.sleep(LOG_ENDS_REPEAT_S)

    def _log_end(self, partition: Partition) -> LogEnd | None:
        """Return what to report of a log; None if there is nothing, or none waits for it."""
        record = self._broker.image.partition(partition.topic, partition.index)
        if record is None or not record.awaits_recovery or partition.log.is_offline:
            self._awaited.pop(partition, None)
            return None
        if partition.leader_epoch != record.leader_epoch:
            return None  # It may still follow, or lead, as the record before had it.
        return {
            "topic_id": partition.topic_id,
            "index": partition.index,
            "leader_epoch": record.leader_epoch,
            "last_epoch": partition.log.last_leader_epoch,
            "log_end_offset": partition.log_end_offset,
        }

    async def _call(self, method: Method, body: dict[str, Any]) -> bool:
        try:
            await self._broker.controller.call(method, body, timeout_ms=CALL_TIMEOUT_MS)
        except KafkaError as error:
            logger.warning("%s is told to the controller later: %s", method, error.message or error)
            return False
        return True


def _has_failed_flush(partition: Partition | None) -> bool:
    """Tell whether a replica may have lost what it acknowledged."""
    return partition is not None and partition.log.flush_state.failed_flush is not None
