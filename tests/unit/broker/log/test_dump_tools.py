"""Dumps of every file, on good, damaged and random bytes."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from log_batches import TOPIC_ID, append, as_leader_sent, batch, record_batch

from fairlead_broker.log.directory.log_directory import LogDirectory
from fairlead_broker.tools.dump import (
    Dump,
    FileKind,
    UnknownFileError,
    dumpable_files,
    open_dump,
    partition_directories,
)
from fairlead_broker.tools.verify import verify_partition, verify_segment
from fairlead_model.configs.log_config import LogConfig
from fairlead_model.ids import topic_id_text
from fairlead_wire.compression import Codec
from fairlead_wire.records import Record

CONFIG = LogConfig(segment_bytes=2_000, index_interval_bytes=300)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory that was stopped cleanly: 30 batches of one record, then one of three."""
    path = tmp_path_factory.mktemp("data")
    directory = LogDirectory(str(path), node_id=0, cluster_id="c", boot_id="b")
    directory.load(0, config_for=lambda topic, partition: CONFIG)
    directory.confirm_start(1)
    log = directory.create_log("t", 0, TOPIC_ID, CONFIG, 0)
    append(log, *(batch(timestamp=100 + at, producer=(5, 1, at)) for at in range(30)), epoch=3)
    records = [Record(at, 1_000 + at, b"k", b"v", (("h", b"x"),)) for at in range(3)]
    append(log, record_batch(*records, codec=Codec.ZSTD), epoch=4)
    directory.create_log("t", 1, TOPIC_ID, CONFIG, 0)
    assert directory.close(clean=True, broker_epoch=9)
    return path


def rows(path: Path, **options: bool) -> tuple[list[dict[str, object]], Dump]:
    dump = open_dump(path, **options)
    return [dict(zip(dump.columns, row, strict=True)) for row in dump.rows], dump


def test_batches(data: Path) -> None:
    found, dump = rows(data / "t-0" / f"{22:020}.log")
    assert dump.kind is FileKind.LOG
    assert dump.problems == []
    assert [row["base_offset"] for row in found] == list(range(22, 31))
    assert found[0] | {"crc": 0} == {
        "position": 0,
        "size": 180,
        "base_offset": 22,
        "last_offset": 22,
        "records": 1,
        "leader_epoch": 3,
        "codec": "none",
        "timestamp_type": "CREATE_TIME",
        "base_timestamp": 122,
        "max_timestamp": 122,
        "producer_id": 5,
        "producer_epoch": 1,
        "base_sequence": 22,
        "last_sequence": 22,
        "transactional": False,
        "control": False,
        "crc": 0,
        "crc_valid": True,
    }
    assert found[-1]["codec"] == "zstd"


def test_records(data: Path) -> None:
    found, dump = rows(data / "t-0" / f"{22:020}.log", records=True)
    assert dump.kind is FileKind.RECORDS
    assert found[-1] == {
        "offset": 32,
        "timestamp": 1_002,
        "key": b"k",
        "value": b"v",
        "headers": (("h", b"x"),),
    }
    assert dump.problems == []
    assert [row["offset"] for row in found] == list(range(22, 33))


def test_records_that_cannot_be_read(tmp_path: Path) -> None:
    directory = LogDirectory(str(tmp_path), node_id=0, cluster_id="c", boot_id="b")
    directory.load(0, config_for=lambda topic, partition: CONFIG)
    directory.confirm_start(1)
    log = directory.create_log("t", 0, TOPIC_ID, CONFIG, 0)
    log.append_as_follower(as_leader_sent(0), now_ms=0)
    append(log, batch())
    assert directory.close(clean=True, broker_epoch=9)
    found, dump = rows(tmp_path / "t-0" / f"{0:020}.log", records=True)
    assert ([row["offset"] for row in found], len(dump.problems)) == ([1], 1)


def test_small_files(data: Path) -> None:
    folder = data / "t-0"
    assert rows(folder / "leader-epoch-checkpoint")[0][0] == {
        "leader_epoch": 3,
        "start_offset": 0,
    }
    assert rows(folder / "partition.metadata")[0] == [
        {"name": "topic_id", "value": topic_id_text(TOPIC_ID)}
    ]
    (producer,) = rows(folder / f"{33:020}.snapshot")[0]
    assert (producer["producer_id"], producer["last_sequence"]) == (5, 29)
    assert rows(data / "recovery-point-offset-checkpoint")[0][0] == {
        "topic": "t",
        "partition": 0,
        "offset": 33,
    }
    assert {"name": "brokerEpoch", "value": 9} in rows(data / ".kafka_cleanshutdown")[0]
    assert {"name": "node.id", "value": "0"} in rows(data / "meta.properties")[0]


def test_indexes_have_absolute_offsets(data: Path) -> None:
    folder = data / "t-0"
    assert rows(folder / f"{11:020}.index")[0][0] == {"offset": 13, "position": 360}
    assert rows(folder / f"{11:020}.timeindex")[0][0] == {"timestamp": 113, "offset": 13}


def test_finding_files(data: Path) -> None:
    assert [path.name for path in partition_directories(data)] == ["t-0", "t-1"]
    assert partition_directories(data / "t-0") == [data / "t-0"]
    assert len(dumpable_files(data)) == 6
    with pytest.raises(UnknownFileError):
        open_dump(data / ".lock")


def test_a_good_partition_verifies(data: Path) -> None:
    assert list(verify_partition(data / "t-0")) == []
    assert list(verify_partition(data / "t-1")) == []


@pytest.mark.parametrize(
    ("name", "position", "content", "claim"),
    [
        (f"{11:020}.log", 400, b"?", "the CRC does not match"),
        (f"{11:020}.log", 187, b"\xff", "offset"),
        (f"{11:020}.log", 180 + 12, b"\0\0\0\1", "leader epoch 1 after 3"),
        (f"{11:020}.log", 180 + 8, b"\x7f", "are left"),
        (f"{11:020}.index", 4, b"\0\0\0\7", "no batch starts at position 7"),
        (f"{11:020}.index", 0, b"\0\0\0\1", "ends with offset 13, not 12"),
        (f"{11:020}.timeindex", 7, b"\1", "the largest timestamp up to offset 13 is 113"),
        (f"{33:020}.snapshot", 20, b"\xff", "CRC"),
        ("leader-epoch-checkpoint", 0, b"x", "no checkpoint"),
        ("leader-epoch-checkpoint", 0, b"7", "format version 7"),
    ],
)
def test_damage_is_found(
    data: Path, tmp_path: Path, name: str, position: int, content: bytes, claim: str
) -> None:
    folder = tmp_path / "t-0"
    folder.mkdir()
    for path in (data / "t-0").iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    with (folder / name).open("r+b") as file:
        file.seek(position)
        file.write(content)
    assert any(claim in finding.problem for finding in verify_partition(folder)), list(
        verify_partition(folder)
    )


@pytest.mark.parametrize(
    "name",
    [
        f"{0:020}.log",
        f"{0:020}.index",
        f"{0:020}.timeindex",
        f"{0:020}.txnindex",
        f"{0:020}.snapshot",
        "leader-epoch-checkpoint",
        "partition.metadata",
        "meta.properties",
        "replication-offset-checkpoint",
        ".kafka_cleanshutdown",
        "fairlead-start.json",
        "fairlead-failed-flush",
    ],
)
@given(content=st.binary(max_size=400), data_bytes=st.data())
@settings(
    max_examples=40,
    deadline=None,
    # How long examples take says more about the machine, here as elsewhere.
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_any_bytes_are_dumped_without_an_error(
    data: Path, tmp_path: Path, name: str, content: bytes, data_bytes: st.DataObject
) -> None:
    if name.endswith(".log") and data_bytes.draw(st.booleans()):
        whole = bytearray((data / "t-0" / name).read_bytes())
        at = data_bytes.draw(st.integers(0, len(whole) - 1))
        whole[at : at + len(content)] = content
        content = bytes(whole)
    path = tmp_path / name
    path.write_bytes(content)
    for options in ({}, {"records": True}):
        list(open_dump(path, **options).rows)
    if name.endswith(".log"):
        list(verify_segment(path))
