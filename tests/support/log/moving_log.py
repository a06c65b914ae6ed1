"""A log that moves between two simulated disks, which are cut off at the same operation.

At the switch the copy has to be the log, byte for byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from log_batches import TOPIC_ID, append, batch, flush
from simulated_disk import PowerCut, SimulatedDisk

from fairlead_broker.log.directory.log_directories import LogDirectories
from fairlead_broker.log.directory.log_directory import LogDirectory
from fairlead_broker.log.files.file_names import (
    SEGMENT_SUFFIXES,
    SNAPSHOT_SUFFIX,
    offset_name,
)
from fairlead_broker.log.moving.move_plan import Step
from fairlead_model.configs.log_config import LogConfig

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairlead_broker.log.log import Log
    from fairlead_broker.log.moving.replica_move import ReplicaMove

KEY = ("t", 0)
CONFIG = LogConfig(
    segment_bytes=2_000, index_interval_bytes=400, file_delete_delay_ms=0, retention_bytes=4_000
)


class Shared:
    """Both disks count operations together, and are cut off at the same one."""

    def __init__(self) -> None:
        self.disks = [SimulatedDisk(), SimulatedDisk()]
        self.operations = 0
        self.cut_at = -1
        for disk in self.disks:
            disk.may_lose_directory_names = True
            disk._fail_if_told = self._count  # type: ignore[method-assign]

    def _count(self, operation: str) -> None:
        """Called within each operation of either disk, before it has any effect."""
        if operation == "pread":
            return
        self.operations += 1
        if self.operations == self.cut_at:
            raise PowerCut


class Story:
    """A broker with two disks, and what was promised of its log."""

    def __init__(self, disks: list[SimulatedDisk] | None = None) -> None:
        self.shared = Shared()
        if disks is not None:
            self.shared.disks = disks
        self.directories = start(self.shared.disks)
        self.directories.confirm_start(1)
        self.appended = 0
        self.flushed = 0
        self.start_offset = 0
        self.first_operation = 0
        self.marked_at = 0

    @property
    def log(self) -> Log:
        log = self.directories.log(*KEY)
        assert log is not None
        return log

    def create(self, config: LogConfig = CONFIG) -> None:
        self.directories.create_log(*KEY, TOPIC_ID, config, 0)
        self.sync()

    def append(self, count: int) -> None:
        for _ in range(count):
            self.appended += 1  # Noted first: a cut in the middle may keep it or not.
            append(self.log, batch(size=180, producer=(7, 0, self.log.log_end_offset)))

    def flush(self) -> None:
        if self.log.flush_state.is_held:
            return
        end = self.log.log_end_offset
        flush(self.log)
        self.flushed = max(self.flushed, min(end, self.log.recovery_point))

    def sync(self) -> None:
        for directory in self.directories.live:
            job = directory.begin_sync()
            if job is not None:
                job.run()

    def checkpoint(self) -> None:
        for directory in self.directories.live:
            directory.write_checkpoints()

    def move(self, to: int, between: Callable[[Story, Step], None] = lambda *_: None) -> list[Step]:
        """Ask for a move and carry it out; `between` is done after each step."""
        moves = self.directories.moves
        moves.ask(KEY, f"/{to}", failed={})
        return self.carry_out(moves.under_way[KEY], between)

    def carry_out(
        self, move: ReplicaMove, between: Callable[[Story, Step], None] = lambda *_: None
    ) -> list[Step]:
        steps: list[Step] = []
        while (step := move.next_step()) is not Step.END:
            assert len(steps) < 200, steps
            steps.append(step)
            before = files_of(move.log) if step is Step.SWITCH else {}
            job = move.begin(step)
            if before and move.is_switched:
                assert files_of(move.log) == before
            if job is not None:
                job.run()
                move.complete(step, job, 0)
            between(self, step)
        move.abandon()
        self.directories.moves.note_over(move)
        return steps


def files_of(log: Log) -> dict[str, bytes]:
    """The files of the segments of a log, and snapshots of producers."""
    disk = log.disk
    assert isinstance(disk, SimulatedDisk)
    prefix, bases = f"{log.path}/", {offset_name(base) for base in log.bases}
    names = {path.removeprefix(prefix): path for path in disk.names if path.startswith(prefix)}
    return {
        name: bytes(disk.names[path].content)
        for name, path in names.items()
        if name.endswith(SNAPSHOT_SUFFIX)
        or (name[:20] in bases and name[20:] in SEGMENT_SUFFIXES and disk.names[path].content)
    }


def start(disks: list[SimulatedDisk]) -> LogDirectories:
    directories = LogDirectories(
        [
            LogDirectory(f"/{number}", node_id=0, cluster_id="c", disk=disk, boot_id="b")
            for number, disk in enumerate(disks)
        ]
    )
    directories.load(0, config_for=lambda *_: CONFIG)
    return directories


def run_until_cut(scenario: Callable[[Story], None], cut_at: int = -1) -> Story:
    story = Story()
    story.create()
    first = story.first_operation = story.shared.operations
    story.shared.cut_at = first + cut_at if cut_at > 0 else -1
    try:
        scenario(story)
    except PowerCut:
        story.shared.cut_at = -1
    else:
        assert cut_at < 0, "the cut came too late"
    story.shared.operations -= first
    return story


def operations_of(scenario: Callable[[Story], None]) -> int:
    return run_until_cut(scenario).shared.operations
