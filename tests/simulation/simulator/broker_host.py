"""A broker's machine: its disk, its power, and the processes that start and end on it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from simulated_disk import SimulatedDisk
from simulator.broker_process import BrokerProcess
from simulator.compaction import KEYED
from simulator.disk_log import DiskLog, KeyedLog, LogFiles
from simulator.memory_log import CONFIG, MemoryLog

from fairlead_model.metadata_seen import NOTHING_SEEN, MetadataSeen

if TYPE_CHECKING:
    from simulator.checker import PartitionKey
    from simulator.disk_log import AnyLog
    from simulator.world import World

    from fairlead_model.configs.log_config import LogConfig


DIRECTORIES: Final = 2


@dataclass(slots=True)
class Disk:
    """A data directory; `fairlead_broker.log.directory.identity` explains its parts."""

    directory_id: str
    cluster_id: str = ""
    logs: dict[PartitionKey, AnyLog] = field(default_factory=dict)
    high_watermarks: dict[PartitionKey, int] = field(default_factory=dict)
    deleted: list[AnyLog] = field(default_factory=list)
    """Deleted since the last fsync of the directory: a power cut may restore them."""
    clean_marker: int | None = None
    """Broker epoch of the start that stopped cleanly."""
    start_id: str = ""
    """Of a start whose registration has no answer yet."""
    registered_epoch: int = -1
    """Broker epoch of the last start whose registration was answered."""
    is_failing: bool = False
    """Writes and fsyncs fail, and the kernel has dropped the unwritten data."""
    is_full: bool = False
    """Nothing more can be written, and all earlier data is there."""
    metadata_seen: MetadataSeen = NOTHING_SEEN
    removed: dict[PartitionKey, str] = field(default_factory=dict)
    """Replicas whose folders are gone, by topic name: the checkpoints name them, until the
    controller knows."""
    roles: SimulatedDisk = field(default_factory=SimulatedDisk)
    """The role of each partition in the process: a file of its own."""
    unreported: set[PartitionKey] = field(default_factory=set)
    """Those of `removed` that vanished with their whole log directory: no checkpoint names them."""
    directory_ids: list[str] = field(default_factory=list)
    """One for each log directory, if the broker has several."""
    has_lost_pages: bool = False
    """`syncfs` will report this to the next start."""


class Start(NamedTuple):
    """What a registration says of its process. A start without an answer leaves its start id to
    the next; an outage of the machine or of the disk in between changes the other fields."""

    start_id: str
    boot_id: str
    is_whole: bool


class BrokerHost:
    """One broker id.

    `losses` counts how often data was lost here, `wounds` how often it might have been: in both
    cases the replicas do not count until they have caught up.
    """

    def __init__(self, world: World, broker_id: int) -> None:
        self.world = world
        self.broker_id = broker_id
        self.name = f"broker-{broker_id}"
        self.boot = 0
        self.min_insync_replicas = 1
        """The setting of its next start."""
        self.losses = 0
        self.losses_known = 0
        self.hurts_at_start: dict[Start, tuple[int, int]] = {}
        """Start → losses and wounds before it, which its registration has to report."""
        self.wounds = 0
        self.wounds_known = 0
        self.starts = 0
        self.disk = self._new_disk()
        self.running: BrokerProcess | None = None
        self.clock_skew_ms = 0

    @property
    def boot_id(self) -> str:
        return f"boot-{self.broker_id}-{self.boot}"

    @property
    def is_running(self) -> bool:
        return self.running is not None and self.running.process.is_alive

    @property
    def is_lossy(self) -> bool:
        """True from a loss of data until a registration that reports it is durable."""
        return self.losses > self.losses_known

    @property
    def is_wounded(self) -> bool:
        """True until a registration after the last wound is durable."""
        return self.wounds > self.wounds_known

    def log(self, key: PartitionKey) -> AnyLog | None:
        return self.disk.logs.get(key)

    def make_log(self, key: PartitionKey, topic: str, config: LogConfig = CONFIG) -> AnyLog:
        topic_id, index = key
        if config is not CONFIG:
            log = self._make_disk_log(key, topic, config)
            log.is_failing = self.disk.is_failing
            log.is_full = self.disk.is_full
            return log
        memory_log = self.disk.logs[key] = MemoryLog(topic, index, topic_id)
        memory_log.is_failing = self.disk.is_failing
        memory_log.is_full = self.disk.is_full
        memory_log.on_changed = lambda log, end: self.world.checker.on_log_changed(key, log, end)
        memory_log.on_start = lambda log: self.world.checker.on_log_start(self.broker_id, key, log)
        return memory_log

    def _make_disk_log(self, key: PartitionKey, topic: str, config: LogConfig) -> DiskLog:
        topic_id, index = key
        kind = KeyedLog if topic == KEYED else DiskLog
        files = LogFiles(self.broker_id, topic, index, len(self.disk.logs), kind)
        log = self.disk.logs[key] = files.create(topic_id, config, self.world.wall_clock_ms())
        files.on_changed = lambda log, end: self.world.checker.on_log_changed(key, log, end)
        files.on_start = lambda log: self.world.checker.on_log_start(self.broker_id, key, log)
        if self.running is not None and self.running.is_confirmed:
            log.confirm(self.running.session.broker_epoch)
        return log

    @property
    def last_start(self) -> Start:
        """Identifies the start whose registration has no answer yet."""
        return Start(self.disk.start_id, self.boot_id, not self.disk.has_lost_pages)

    def owns_up(self, start: Start) -> bool:
        """Tell whether the registration of a start has to report a loss that is not known yet."""
        return self.hurts_at_start.get(start, (0, 0))[0] > self.losses_known

    def on_registered_durably(self, start: Start) -> None:
        losses, wounds = self.hurts_at_start.get(start, (0, 0))
        self.losses_known = max(self.losses_known, losses)
        self.wounds_known = max(self.wounds_known, wounds)

    def start(self) -> None:
        """Start a broker process on whatever the disk holds."""
        self.starts += 1
        if not self.disk.start_id:
            self.disk.start_id = f"start-{self.broker_id}-{self.starts}"
        if self.disk.is_full:
            # A broker cannot start on a full disk: somebody has freed some room.
            self.empty_disk()
        hurts = (self.losses, self.wounds)
        self.hurts_at_start[self.last_start] = hurts
        self.world.network.light(self.name)
        for key, log in self.disk.logs.items():
            found = log.opened(self.world.wall_clock_ms())
            if found is not log:
                self.disk.logs[key] = found
                self.world.checker.on_log_changed(key, found, 0)
        self.running = BrokerProcess(self.world, self)
        self.running.start()

    def supervise(self) -> None:
        """Restart a process that has ended by itself."""
        if not self.is_running:
            self.start()

    def kill(self) -> None:
        """Send SIGKILL: the page cache survives."""
        if self.running is not None and self.is_running:
            self.world.note("%s is killed", self.name)
            self._end(dark=False)
            for log in self.disk.logs.values():
                log.reopen()
            if self.disk.is_failing:
                self._drop_pages()

    def lose_power(self) -> None:
        """Cut the machine's power: what was not fsynced is lost, or part of it."""
        self.world.note("%s loses power", self.name)
        self._end(dark=True)
        self.boot += 1
        self._count_loss()
        self.disk.is_failing = self.disk.has_lost_pages = False
        self._undo_deletions()
        self._lose_what_is_not_durable()

    def _undo_deletions(self) -> None:
        """Restore old names whose change was not fsynced, unless something else has them now."""
        deleted, self.disk.deleted = self.disk.deleted, []
        names = {(log.topic, log.partition) for log in self.disk.logs.values()}
        for log in deleted:
            if (log.topic, log.partition) not in names and self.world.rng.random() < 0.5:
                log.is_ghost = True
                names.add((log.topic, log.partition))
                self.disk.logs[(log.topic_id, log.partition)] = log

    def fail_disk(self) -> None:
        """Let writes fail from now on; what was not fsynced is gone, though the process still has
        it in the page cache."""
        self.world.note("the disk of %s fails", self.name)
        self._count_loss()
        self.disk.is_failing = True
        for log in self.disk.logs.values():
            log.is_failing = True

    def fill_disk(self) -> None:
        """Leave no room for records from now on."""
        self.world.note("the disk of %s is full", self.name)
        self._set_full(True)

    def empty_disk(self) -> None:
        """Free the room again."""
        self.world.note("the disk of %s has room", self.name)
        self._set_full(False)

    def _set_full(self, is_full: bool) -> None:
        self.disk.is_full = is_full
        for log in self.disk.logs.values():
            log.is_full = is_full

    def _count_loss(self) -> None:
        self.wounds += 1
        if not self.disk.is_failing and not all(log.is_durable for log in self.disk.logs.values()):
            self.losses += 1

    def _drop_pages(self) -> None:
        self.disk.is_failing = False
        self.disk.has_lost_pages = True
        self._lose_what_is_not_durable()

    def _lose_what_is_not_durable(self) -> None:
        for key, log in sorted(self.disk.logs.items()):
            found = log.lose_power(self.world.rng, self.world.wall_clock_ms())
            self.disk.logs[key] = found
            self.world.checker.on_log_changed(key, found, 0)

    def lose_disk(self) -> None:
        """End the process, and restart it on an empty disk."""
        self.world.note("%s loses its disk", self.name)
        self._end(dark=False)
        self.losses += 1
        self.wounds += 1
        for key, log in sorted(self.disk.logs.items()):
            self.world.checker.on_log_changed(key, log, 0)
        self.disk = self._new_disk()

    def folders(self) -> list[PartitionKey]:
        """Return replicas in the checkpoints, while no registration waits for its answer."""
        disk = self.disk
        return [] if disk.start_id else sorted(disk.logs.keys() & disk.high_watermarks.keys())

    def remove_folder(self, key: PartitionKey) -> None:
        """Remove a replica's folder; everything else stays as the process left it."""
        log = self.disk.logs.pop(key)
        self.world.note("%s loses its folder of %s-%d", self.name, log.topic, log.partition)
        self.wounds += 1
        self.disk.removed[key] = log.topic
        self.world.checker.on_log_changed(key, log, 0)

    def replace_directory(self, number: int) -> None:
        """Empty one of several log directories; the others stay as they were."""
        self.world.note("%s has another log directory %d", self.name, number)
        disk = self.disk
        self.wounds += 1
        disk.directory_ids[number] = f"disk-{self.broker_id}-{number}-{self.wounds}"
        disk.start_id = ""
        for key, log in sorted(disk.logs.items()):
            if directory_of(key, len(disk.directory_ids)) == number:
                del disk.logs[key]
                disk.high_watermarks.pop(key, None)
                disk.removed[key] = log.topic
                disk.unreported.add(key)
                self.world.checker.on_log_changed(key, log, 0)

    def exited(self) -> None:
        """Note that the process has ended by itself."""
        self._end(dark=False)
        if self.disk.is_failing:
            self._drop_pages()

    def pause(self) -> None:
        if self.running is not None and self.is_running:
            self.world.note("%s is stopped", self.name)
            self.world.wakes.on_stopped(self)
            self.running.process.pause()

    def resume(self) -> None:
        if self.running is not None and self.is_running:
            self.world.note("%s goes on", self.name)
            self.world.wakes.on_woken(self)
            self.running.process.resume()

    def _end(self, *, dark: bool) -> None:
        if self.running is not None:
            self.running.process.end()
            self.world.network.end_process(self.running.process, dark=dark)
            for log in self.disk.logs.values():
                log.ended()

    def _new_disk(self) -> Disk:
        directory_id = f"disk-{self.broker_id}-{self.losses}"
        if not self.world.has_several_disks:
            return Disk(directory_id)
        return Disk("", directory_ids=[f"{directory_id}-{number}" for number in range(DIRECTORIES)])


def directory_of(key: PartitionKey, directories: int) -> int:
    """Return the number of the log directory that a partition is in."""
    topic_id, index = key
    return (topic_id[-1] + index) % directories
