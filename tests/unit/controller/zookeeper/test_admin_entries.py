"""What tools write under `/admin` is read, or found unreadable."""

import pytest

from fairlead_controller.zookeeper.admin_requests import _read_partitions, _read_targets

READABLE = b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1]}]}'


def test_entries_of_kafkas_tools_are_read() -> None:
    assert _read_partitions(READABLE) == [{"topic": "t", "index": 0}]
    assert _read_targets(READABLE) == [{"topic": "t", "index": 0, "replicas": [1]}]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"partitions":5}',
        b'{"partitions":[{"topic":"t"}]}',
        b'{"partitions":[{"topic":"t","partition":"x","replicas":[1]}]}',
        b'{"partitions":[{"topic":"t","partition":1e999,"replicas":[1]}]}',
        b'{"partitions":[{"topic":"t","partition":Infinity,"replicas":[1]}]}',
        b'{"partitions":[{"topic":"t","partition":NaN,"replicas":[1]}]}',
    ],
)
def test_what_cannot_be_read_ends_nobody(data: bytes) -> None:
    """An error here ended the reign of each controller, and the entry stayed for the next one."""
    assert _read_partitions(data) is None
    assert _read_targets(data) is None


def test_a_replica_without_bound_cannot_be_read() -> None:
    assert _read_targets(READABLE.replace(b"[1]", b"[1e999]")) is None
