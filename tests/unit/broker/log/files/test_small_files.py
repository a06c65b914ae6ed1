"""Small files that are larger than any of ours, or hold no offset: damaged, as others that are."""

import os
from pathlib import Path

import pytest
from log_batches import TOPIC_ID, append, batch
from present import present

from fairlead_broker.limits import SMALL_FILE_BYTES_MAX
from fairlead_broker.log.directory.identity import ForeignDirectoryError
from fairlead_broker.log.directory.load_report import LoadReport
from fairlead_broker.log.directory.log_directory import LogDirectory
from fairlead_model.configs.log_config import LogConfig

CONFIG = LogConfig(segment_bytes=2_000, index_interval_bytes=300)
CHECKPOINTS = (
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
    "fairlead-tombstone-checkpoint",
)


def start(path: Path) -> tuple[LogDirectory, LoadReport]:
    directory = LogDirectory.open(str(path), node_id=0, cluster_id="c")
    report = directory.load(0, config_for=lambda topic, partition: CONFIG)
    directory.confirm_start(1)
    return directory, report


def stopped(path: Path, *, clean: bool) -> None:
    directory, _ = start(path)
    log = directory.create_log("t", 0, TOPIC_ID, CONFIG, 0)
    append(log, *(batch() for _ in range(30)), epoch=4)
    assert directory.close(clean=clean) is clean


def make_too_large(path: Path) -> None:
    path.touch()
    os.truncate(path, SMALL_FILE_BYTES_MAX + 1)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    "name",
    [
        *CHECKPOINTS,
        "t-0/leader-epoch-checkpoint",
        "t-0/partition.metadata",
        "t-0/fairlead-failed-flush",
        "t-0/fairlead-start-before-cut",
    ],
)
def test_a_file_that_is_too_large_costs_no_records(tmp_path: Path, name: str, clean: bool) -> None:
    stopped(tmp_path, clean=clean)
    make_too_large(tmp_path / name)
    directory, report = start(tmp_path)
    assert not report.offline
    log = present(directory.log("t", 0))
    assert log.log_end_offset == 30
    assert log.last_leader_epoch == 4
    assert directory.close(clean=True)


@pytest.mark.parametrize("name", ["fairlead-failed-flush", "fairlead-start-before-cut"])
def test_a_number_of_thousands_of_digits_is_no_offset(tmp_path: Path, name: str) -> None:
    stopped(tmp_path, clean=True)
    (tmp_path / "t-0" / name).write_bytes(b"1" * 5_000)
    directory, report = start(tmp_path)
    assert not report.offline
    assert present(directory.log("t", 0)).log_end_offset == 30
    assert directory.close(clean=True)


def test_properties_that_are_too_large_are_nobodys(tmp_path: Path) -> None:
    stopped(tmp_path, clean=True)
    make_too_large(tmp_path / "meta.properties")
    with pytest.raises(ForeignDirectoryError, match=r"meta\.properties is unreadable: .* larger"):
        start(tmp_path)
