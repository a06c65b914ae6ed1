"""Recovery whose child processes die: tried again, within bounds, and in bounded memory."""

import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from log_batches import TOPIC_ID, all_headers, append, batch
from present import present

from fairlead_broker.disk import RealDisk
from fairlead_broker.log.batches.batch_scan import SCAN_CHUNK_BYTES
from fairlead_broker.log.directory.load_report import LoadReport
from fairlead_broker.log.directory.log_directory import LogDirectory
from fairlead_broker.log.files.text_files import NewerFormatError
from fairlead_broker.log.recovery import pool as recovery_pool
from fairlead_broker.log.recovery.log_recovery import RecoveryReport, recover_log
from fairlead_broker.log.recovery.pool import RecoveryPool, RecoveryProgress
from fairlead_broker.log.recovery.start import RecoveryOrder
from fairlead_model.configs.log_config import LogConfig

CONFIG = LogConfig(max_message_bytes=8 << 20)


def start(
    path: Path,
    *,
    recovery_workers: int = 2,
    on_progress: Callable[[RecoveryProgress], None] = lambda _: None,
) -> tuple[LogDirectory, LoadReport]:
    directory = LogDirectory.open(str(path), node_id=0, cluster_id="c")
    report = directory.load(
        0,
        config_for=lambda topic, partition: CONFIG,
        recovery_workers=recovery_workers,
        on_progress=on_progress,
    )
    directory.confirm_start(1)
    return directory, report


@pytest.fixture
def dirty(tmp_path: Path) -> Path:
    """A directory with three logs that need recovery."""
    directory, _ = start(tmp_path)
    for partition in range(3):
        log = directory.create_log("t", partition, TOPIC_ID, CONFIG, 0)
        append(log, *(batch() for _ in range(partition + 1)))
    directory.close(clean=False)
    return tmp_path


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """In children, without pauses between attempts; what was slept."""
    slept: list[float] = []
    monkeypatch.setattr(recovery_pool, "IN_PROCESS_BYTES", 0)
    monkeypatch.setattr(recovery_pool, "sleep", slept.append)
    return slept


def dying_interpreter(tmp_path: Path, deaths: int) -> str:
    """Kills itself, the first `deaths` times, when it has got an order."""
    program = tmp_path.parent / f"{tmp_path.name}-python"
    counter = tmp_path.parent / f"{tmp_path.name}-deaths"
    program.write_text(
        "#!/bin/sh\n"
        f'if [ "$(cat {counter} 2>/dev/null | wc -c)" -lt {deaths} ]; then\n'
        f"  printf x >> {counter}; read order; kill -9 $$\n"
        "fi\n"
        f'exec {sys.executable} "$@"\n'
    )
    program.chmod(0o755)
    return str(program)


def test_a_child_that_meets_a_newer_file_ends_the_start(dirty: Path, pauses: list[float]) -> None:
    """R30, also of logs that are too large to be recovered in the process itself."""
    newer = dirty / "t-1" / "leader-epoch-checkpoint"
    newer.write_text("1\n0\n")
    with pytest.raises(NewerFormatError, match="has format version 1"):
        start(dirty)
    assert newer.read_text() == "1\n0\n"
    assert pauses == [], "it is not tried again"


@pytest.mark.parametrize("workers", [1, 2])
def test_logs_whose_child_was_killed_are_recovered_by_another(
    dirty: Path,
    pauses: list[float],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    workers: int,
) -> None:
    monkeypatch.setattr(sys, "executable", dying_interpreter(dirty, 2))
    seen: list[RecoveryProgress] = []
    directory, report = start(dirty, recovery_workers=workers, on_progress=seen.append)
    assert report.offline == {}
    assert [present(directory.log("t", at)).log_end_offset for at in range(3)] == [1, 2, 3]
    assert report.recovery_processes_lost == 2
    assert "was killed, for its memory as a rule" in caplog.text
    assert (seen[-1].logs_done, seen[-1].bytes_done) == (3, seen[-1].bytes_total)
    directory.close(clean=True)


def test_a_child_that_dies_each_time_leaves_its_log_offline_and_says_so(
    dirty: Path,
    pauses: list[float],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(sys, "executable", dying_interpreter(dirty, 10_000))
    _, report = start(dirty)
    assert len(report.offline) == 3
    assert "4 times; give it more memory" in report.offline["t", 0]
    # Longer each time: 1, 4 and 15 seconds.
    assert pauses == [1.0] * 20
    assert "begins again in 15 seconds" in caplog.text
    # Two at once, then each log by itself, three times.
    assert report.recovery_processes_lost == 2 + 3 * 3


def test_a_machine_without_room_for_processes_is_asked_again(
    dirty: Path,
    pauses: list[float],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    refusals = [1, 1]
    popen = subprocess.Popen

    def refuse_twice(command: list[str], *, stdin: int, stdout: int) -> subprocess.Popen[bytes]:
        if refusals:
            refusals.pop()
            raise BlockingIOError("Resource temporarily unavailable")
        return popen(command, stdin=stdin, stdout=stdout)

    monkeypatch.setattr(subprocess, "Popen", refuse_twice)
    directory, report = start(dirty, recovery_workers=1)
    assert report.offline == {}
    assert "could not be started" in caplog.text
    directory.close(clean=True)


def test_a_stop_is_heard_between_attempts(
    dirty: Path, pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")

    class StoppedError(Exception):
        pass

    def stop_when_pausing(_: RecoveryProgress) -> None:
        if pauses:
            raise StoppedError

    orders = [RecoveryOrder(str(dirty / "t-0"), 0, 0, 4096)]
    pool = RecoveryPool(
        RealDisk(), orders, bytes_total=1, workers_max=1, on_progress=stop_when_pausing
    )
    with pytest.raises(StoppedError):
        pool.run(0)
    assert pauses == [1.0]


class FrugalDisk(RealDisk):
    """Remembers the most that was asked for at once."""

    largest = 0

    def pread(self, fd: int, size: int, position: int, /) -> bytes:
        self.largest = max(self.largest, size)
        return super().pread(fd, size, position)


def recovered(path: Path) -> RecoveryReport:
    disk = FrugalDisk()
    report = recover_log(disk, RecoveryOrder(str(path), 0, 0, 4096), now_ms=0)
    assert disk.largest <= SCAN_CHUNK_BYTES
    return report


def test_recovery_takes_no_more_memory_for_larger_batches(dirty: Path) -> None:
    directory, _ = start(dirty)
    log = present(directory.log("t", 0))
    append(log, batch(size=5 << 20), batch(), batch(size=SCAN_CHUNK_BYTES), batch(size=3 << 20))
    before = all_headers(log)
    directory.close(clean=False)
    report = recovered(dirty / "t-0")
    assert (report.log_end_offset, report.truncated_bytes) == (5, 0)
    directory, _ = start(dirty)
    assert all_headers(present(directory.log("t", 0))) == before
    directory.close(clean=True)


@pytest.mark.parametrize("place", [100, 3 << 20, (5 << 20) - 1])
def test_a_flipped_bit_in_a_large_batch_is_found(dirty: Path, place: int) -> None:
    path = dirty / "t-1" / f"{0:020d}.log"
    content = bytearray(path.read_bytes() + bytes(batch(size=5 << 20)))
    struct.pack_into(">q", content, 360, 2)
    content[360 + place] ^= 4
    path.write_bytes(content)
    report = recovered(dirty / "t-1")
    assert (report.log_end_offset, report.truncated_bytes) == (2, 5 << 20)
    assert "CRC" in report.reason


def test_a_damaged_length_does_not_bring_the_rest_of_the_file_into_memory(dirty: Path) -> None:
    path = dirty / "t-2" / f"{0:020d}.log"
    content = bytearray(path.read_bytes() + bytes(6 << 20))
    struct.pack_into(">i", content, 180 + 8, 6 << 20)
    path.write_bytes(content)
    assert recovered(dirty / "t-2").log_end_offset == 1
