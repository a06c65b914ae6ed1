"""Metrics of the disks with the logs: their room, and how many of them have failed."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Final

from fairlead_broker.measures.exposition import label_set

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairlead_broker.log.directory.log_directories import LogDirectories
    from fairlead_broker.measures.exposition import Exposition

DISK_WAIT_S: Final = 2.0
"""How long a scrape waits for the file systems; a disk that hangs must not hide other metrics.

A busy disk or machine takes longer than a moment, and a rebalance would not know the room of this
broker. Those who ask wait longer: the operator for 5 s, Prometheus by default for 10 s.
"""


class DiskMeter:
    """Asks file systems in threads; each has one question at a time, however long that takes."""

    def __init__(self) -> None:
        self.asked: dict[str, asyncio.Future[tuple[int, int]]] = {}
        """Questions without an answer, by log directory."""

    async def measure(self, directories: LogDirectories) -> dict[str, tuple[int, int]]:
        """Return size and available bytes by log directory, for disks that answer in time."""
        loop = asyncio.get_running_loop()
        for directory in directories.live:
            if directory.path not in self.asked:
                self.asked[directory.path] = loop.run_in_executor(
                    None, measure_disk, directory.path
                )
        # Other callers may wait for the same answers meanwhile: the first to wake removes them.
        waiting = dict(self.asked)
        await asyncio.wait(waiting.values(), timeout=DISK_WAIT_S)
        answered = {path: asked for path, asked in waiting.items() if asked.done()}
        for path, asked in answered.items():
            if self.asked.get(path) is asked:
                del self.asked[path]
        return {
            path: asked.result()
            for path, asked in answered.items()
            if asked.exception() is None and path not in directories.failures
        }


def expose_disks(
    out: Exposition, directories: LogDirectories, capacities: Mapping[str, tuple[int, int]]
) -> None:
    """Add size and free bytes of file systems with logs; no samples while they are not known.

    Samples have the label `log_dir` if there are several log directories.
    """
    has_several = len(directories.paths) > 1
    for name, meaning, position in (
        ("fairlead_disk_size_bytes", "Size of the file system with the logs.", 0),
        ("fairlead_disk_available_bytes", "Bytes of it that may still be written.", 1),
    ):
        samples = [
            (label_set(log_dir=path) if has_several else "", capacity[position])
            for path, capacity in sorted(capacities.items())
        ]
        out.family(name, "gauge", meaning, samples)
    out.one(
        "fairlead_replica_moves",
        "gauge",
        "Replicas that are to move to another log directory of this broker.",
        sum(1 for move in directories.moves if not move.is_switched),
    )
    out.one(
        "kafka_log_logmanager_offlinelogdirectorycount",
        "gauge",
        "Log directories that have failed, and whose replicas are offline.",
        len(directories.failures),
    )
    out.family(
        "kafka_log_logmanager_logdirectoryoffline",
        "gauge",
        "1 for a log directory that has failed, 0 for one that is in use.",
        [
            (label_set(log_dir=path), int(path in directories.failures))
            for path in directories.paths
        ],
    )
    out.one(
        "kafka_log_logmanager_cordonedlogdirectorycount",
        "gauge",
        "Log directories that get no new replicas.",
        len(directories.cordoned),
    )
    out.family(
        "kafka_log_logmanager_logdirectorycordoned",
        "gauge",
        "1 for a log directory that gets no new replicas, 0 for another one.",
        [
            (label_set(log_dir=path), int(path in directories.cordoned))
            for path in directories.paths
        ],
    )


def measure_disk(path: str) -> tuple[int, int]:
    """Return size and available bytes. For a thread, because a bad disk may block it."""
    found = os.statvfs(path)
    return found.f_frsize * found.f_blocks, found.f_frsize * found.f_bavail
