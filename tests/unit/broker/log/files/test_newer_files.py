"""What a newer release has written is refused with a sentence, and never taken for damage."""

from collections.abc import Callable
from pathlib import Path

import pytest
from log_batches import append, batch

from fairlead_broker.log.directory.log_directory import LogDirectory
from fairlead_broker.log.files.text_files import (
    CorruptFileError,
    NewerFormatError,
    decode_epoch_checkpoint,
    decode_meta_properties,
    decode_offset_checkpoint,
    decode_partition_metadata,
)
from fairlead_model.configs.log_config import LogConfig
from fairlead_model.release import RELEASE


@pytest.mark.parametrize(
    ("decode", "newer"),
    [
        (decode_offset_checkpoint, b"1\n1\nt 0 5 more\n"),
        (decode_epoch_checkpoint, b"1\n1\n0 0 more\n"),
        (decode_partition_metadata, b"version: 1\ntopic: x\n"),
        (decode_meta_properties, b"version=2\nnode=0\n"),
    ],
)
def test_a_newer_file_is_not_a_damaged_one(decode: Callable[[bytes], object], newer: bytes) -> None:
    """R30."""
    with pytest.raises(NewerFormatError, match=rf"this release, {RELEASE}, reads \d: run the rel"):
        decode(newer)
    damaged = newer.replace(b"version", b"Version").replace(b"1\n", b"x\n", 1)
    with pytest.raises(CorruptFileError):
        decode(damaged)


def start(path: Path) -> LogDirectory:
    directory = LogDirectory.open(str(path), node_id=0)
    try:
        directory.load(0, config_for=lambda *_: LogConfig())
    except BaseException:
        directory.close(clean=False, broker_epoch=1)
        raise
    return directory


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    """A data directory with a replica, stopped cleanly."""
    directory = start(tmp_path)
    directory.confirm_start(1)
    log = directory.create_log("t", 0, b"t" * 16, LogConfig(), 0)
    append(log, batch())
    directory.close(clean=True, broker_epoch=1)
    return tmp_path


def test_the_directory_says_which_release_reads_it(disk: Path) -> None:
    properties = disk / "meta.properties"
    written = properties.read_text()
    assert f"fairlead.release={RELEASE}\n" in written
    newer = written.replace("version=1", "version=2").replace(f"release={RELEASE}", "release=9.1")
    properties.write_text(newer)
    with pytest.raises(NewerFormatError, match=r"version 2, .* run release 9\.1, or a later one"):
        start(disk)
    assert properties.read_text() == newer


@pytest.mark.parametrize("name", ["partition.metadata", "leader-epoch-checkpoint"])
def test_no_replica_is_derived_anew_from_newer_files(disk: Path, name: str) -> None:
    newer = "version: 1\n" if name == "partition.metadata" else "1\n0\n"
    (disk / "t-0" / name).write_text(newer)
    with pytest.raises(NewerFormatError):
        start(disk)
    assert (disk / "t-0" / name).read_text() == newer
