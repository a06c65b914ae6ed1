"""Which Kafka node is the active controller is read from DescribeQuorum, written by hand."""

import struct
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[3]
if str(PROJECT / "benchmarks") not in sys.path:
    sys.path.insert(0, str(PROJECT / "benchmarks"))

from fairlead_bench.loads.wire_bytes import QUORUM_TOPIC, quorum_leader  # noqa: E402


def reply(*, error: int = 0, partition_error: int = 0, leader: int = 2) -> bytes:
    """A DescribeQuorum v0 reply up to the leader, as KIP-595 defines it, and what follows."""
    topic = bytes([len(QUORUM_TOPIC) + 1]) + QUORUM_TOPIC
    partition = struct.pack(">ihi", 0, partition_error, leader)
    return bytes(5) + struct.pack(">h", error) + b"\x02" + topic + b"\x02" + partition + bytes(20)


def test_the_leader_is_read_behind_the_topic() -> None:
    assert quorum_leader(reply(leader=3)) == 3


@pytest.mark.parametrize(
    "answer",
    [
        reply(error=41),
        reply(partition_error=6, leader=3),
        reply(leader=-1),
        bytes(5) + struct.pack(">h", 0) + b"\x01\x00",
    ],
)
def test_nobody_leads_where_the_reply_says_so(answer: bytes) -> None:
    assert quorum_leader(answer) is None
