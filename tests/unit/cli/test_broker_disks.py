"""What `fairlead broker disks` makes of a broker's answers."""

from __future__ import annotations

import pytest

from fairlead_cli.broker.disks import directory_rows, not_there, parse_replica, show
from fairlead_cli.errors import CliError, InputError
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

HELD = DescribeLogDirsPartition(partition_size=500, partition_index=0)
FUTURE = DescribeLogDirsPartition(
    partition_size=200, partition_index=0, offset_lag=30, is_future_key=True
)


def answer(*directories: tuple[str, list[DescribeLogDirsPartition]]) -> DescribeLogDirsResponse:
    return DescribeLogDirsResponse(
        results=[
            DescribeLogDirsResult(
                log_dir=path,
                topics=[DescribeLogDirsTopic("a:b", partitions)],
                total_bytes=10_000,
                usable_bytes=4_000,
            )
            for path, partitions in directories
        ]
    )


def test_a_replica_is_named_by_topic_and_partition() -> None:
    assert parse_replica("orders:12") == ("orders", 12)
    for text in ("orders", "orders:", ":1", "orders:-1", "orders:x", "orders:2147483648"):
        with pytest.raises(InputError, match="TOPIC:PARTITION"):
            parse_replica(text)


def test_what_moves_is_told_apart_from_what_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    reply = answer(("/one", [HELD]), ("/two", [FUTURE]))
    rows = directory_rows(reply)
    assert [(row["replicas"], row["bytes"]) for row in rows] == [(1, 500), (0, 200)]
    assert rows[1]["moving"] == [{"topic": "a:b", "partition": 0, "bytes": 200, "offsetLag": 30}]
    show(rows)
    assert "a:b:0 moves to /two: 30 offsets are missing." in capsys.readouterr().out


def test_a_move_is_waited_for_until_it_is_there_or_given_up() -> None:
    wanted = [("a:b", 0)]
    assert not_there(answer(("/one", [HELD]), ("/two", [FUTURE])), wanted, "/two") == ["a:b:0"]
    assert not_there(answer(("/one", []), ("/two", [HELD])), wanted, "/two") == []
    with pytest.raises(CliError, match="does not move any more"):
        not_there(answer(("/one", [HELD]), ("/two", [])), wanted, "/two")


def test_a_failed_directory_says_so() -> None:
    failed = DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir="/one")
    (row,) = directory_rows(DescribeLogDirsResponse(results=[failed]))
    assert "STORAGE" in row["error"]


def test_a_cordoned_directory_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    reply = answer(("/one", [HELD]), ("/two", []))
    reply.results[0].is_cordoned = True
    rows = directory_rows(reply)
    assert [row["cordoned"] for row in rows] == [True, False]
    show(rows)
    lines = capsys.readouterr().out.splitlines()
    assert ["cordoned" in line for line in lines if "/" in line] == [True, False]
