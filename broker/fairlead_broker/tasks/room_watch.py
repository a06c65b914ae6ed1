"""Waits until a full disk has room again, and has its logs take records then.

If one log found no room, and almost nothing is free, all logs of its directory stop taking records
at once, so that all leaders move together instead of one by one. The controller gets the replicas
that lack room, and gets them again from time to time, because a new controller does not know them.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from typing import TYPE_CHECKING, Final

from fairlead_broker.limits import LOG_DIRECTORY_ROOM_BYTES
from fairlead_broker.log import full_disk

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairlead_broker.broker import Broker
    from fairlead_broker.log.directory.log_directory import LogDirectory
    from fairlead_broker.replication.partition import Partition

logger = logging.getLogger(__name__)

LOOK_S: Final = 1.0
LOOKS_BETWEEN_REPORTS: Final = 5


class RoomWatch:
    """`_wanted` says of each directory that is full how many bytes must be free.

    That is more than were free when an append found too few: else it would soon find too few again.
    """

    def __init__(self, broker: Broker, *, on_resumed: Callable[[], None]) -> None:
        """`on_resumed`: logs take records once the next checkpoint is written."""
        self._broker = broker
        self._on_resumed = on_resumed
        self._wanted: dict[LogDirectory, int] = {}
        self._told: set[tuple[bytes, int]] = set()
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Let directories take no records whose disk was full when this broker started."""
        for directory in self._broker.log_directories.live:
            if directory.is_full:
                self._watch(directory)
        if self._wanted:
            self._tell()
            self._ensure_running()

    def note(self, partition: Partition | None) -> None:
        """Note a partition whose log lacks room; repeated calls do no harm.

        None for replicas that could not be made: then no directory had room for one.
        """
        directories = self._broker.log_directories
        if partition is None:
            found = directories.live
        elif (partition.topic_id, partition.index) in self._told:
            return
        else:
            found = [directories.home(partition.log)]
        for directory in found:
            if directory not in self._wanted:
                self._watch(directory)
        self._tell()
        self._ensure_running()

    def _ensure_running(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run(), name="room watch")

    def _watch(self, directory: LogDirectory) -> None:
        try:
            free = directory.disk.bytes_free(directory.path)
        except OSError as error:
            # The other logs find out by themselves.
            logger.critical("%s has no room for some record: %s", directory.path, error)
            self._wanted[directory] = LOG_DIRECTORY_ROOM_BYTES
            return
        self._wanted[directory] = free + LOG_DIRECTORY_ROOM_BYTES
        logger.critical("%s has no room for records: %d bytes are free", directory.path, free)
        if free < LOG_DIRECTORY_ROOM_BYTES:
            directory.is_full = True
            _run_out(directory)

    async def stop(self) -> None:
        """Wait for room no longer."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        looks = 0
        while self._wanted:
            await asyncio.sleep(LOOK_S)
            looks += 1
            wanted = dict(self._wanted)
            try:
                is_changed = self._look()
            except Exception:
                # What was not done yet is done with the next look.
                self._wanted = wanted
                self._broker.metrics.task_failures += 1
                logger.exception("looking for room failed")
                continue
            if is_changed or looks % LOOKS_BETWEEN_REPORTS == 0:
                self._tell()

    def _look(self) -> bool:
        """Have logs take records where there is room now; tell whether any may.

        There is room for one, too, that has moved here from a full directory.
        """
        is_changed = False
        live = self._broker.log_directories.live
        self._wanted = {each: wanted for each, wanted in self._wanted.items() if each in live}
        for directory in live:
            wanted = self._wanted.get(directory)
            lacking = [log for log in directory.logs if log.lacks_room]
            if wanted is None and not lacking:
                continue
            try:
                free = directory.disk.bytes_free(directory.path)
            except OSError as error:
                # There may be room in others.
                logger.warning("cannot tell whether %s has room: %s", directory.path, error)
                continue
            if wanted is not None:
                if free < wanted:
                    continue
                del self._wanted[directory]
                directory.is_full = False
            still = [log for log in lacking if not full_disk.take_records_again(log)]
            if still:
                self._wanted[directory] = free + LOG_DIRECTORY_ROOM_BYTES
            else:
                logger.warning("%s has room: %d bytes are free", directory.path, free)
            is_changed = True
        if is_changed:
            self._broker.replicas.make_those_without_room()
            self._on_resumed()
            if self._broker.on_moved is not None:
                # The flusher writes what had to wait, and reports whose disk has failed meanwhile.
                self._broker.on_moved(list(self._broker.partitions.values()))
        return is_changed

    def _tell(self) -> None:
        self._told = {
            (each.topic_id, each.index)
            for each in self._broker.partitions.values()
            if each.log.lacks_room
        } | self._broker.replicas.without_room
        self._broker.reporter.tell_full(self._told)


def _run_out(directory: LogDirectory) -> None:
    """Let all logs of a directory take no records, but those that take none for another reason."""
    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), directory.path)
    for log in directory.logs:
        if log.refusal is None:
            full_disk.run_out(log, error)
