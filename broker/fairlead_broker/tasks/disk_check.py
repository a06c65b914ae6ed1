"""Asks, when a log fails, whether its disk failed with it.

One log may fail alone (a bad sector, a file in the way). If the disk takes no write at all, the
other logs on it have failed, too: they go offline at once, instead of one by one at their next
append. Those in other log directories go on. A disk that only lacks room has not failed
(`room_watch`).
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from fairlead_broker.log.full_disk import is_lack_of_room

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from fairlead_broker.broker import Broker
    from fairlead_broker.log.directory.log_directory import LogDirectory
    from fairlead_broker.replication.partition import Partition

logger = logging.getLogger(__name__)


class DiskCheck:
    """`_known` are replicas whose failure has been looked into; one probe at a time.

    `_suspects` are the directories that are still to be probed.
    """

    def __init__(self, broker: Broker, executor: Executor) -> None:
        self._broker = broker
        self._executor = executor
        self._known: set[tuple[bytes, int]] = set()
        self._suspects: dict[LogDirectory, None] = {}
        self._task: asyncio.Task[None] | None = None

    def on_offline(self, partition: Partition) -> None:
        """Note that a replica's log is offline; repeated calls do no harm."""
        identity = (partition.topic_id, partition.index)
        if identity in self._known:
            return
        self._known.add(identity)
        logger.error("replica %s is offline: %s", partition, partition.log.refusal)
        self.look_at(self._broker.log_directories.home(partition.log).path)

    def look_at(self, path: str) -> None:
        """Probe a directory: something that it should have done went wrong."""
        for directory in self._broker.log_directories.live:
            if directory.path == path:
                self._suspects[directory] = None
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._probe_all())

    async def finished(self) -> None:
        """Wait for a probe that is under way."""
        if self._task is not None:
            await self._task

    async def _probe_all(self) -> None:
        while self._suspects:
            await self._probe(self._suspects.popitem()[0])

    async def _probe(self, directory: LogDirectory) -> None:
        error = await asyncio.get_running_loop().run_in_executor(self._executor, directory.probe)
        directories = self._broker.log_directories
        if error is None or directory.path in directories.failures or is_lack_of_room(error):
            return
        logger.critical("the disk of %s takes no writes: %s", directory.path, error)
        partitions = [
            partition
            for partition in self._broker.partitions.values()
            if not partition.log.is_offline and directories.home(partition.log) is directory
        ]
        directories.fail(directory, error)
        for partition in partitions:
            if not partition.log.is_offline:
                partition.log.go_offline(error)
            self._known.add((partition.topic_id, partition.index))
            partition.flushed()
