"""The two clients of Node.js that are written in JavaScript do an application's work.

Each speaks the protocol by itself; one of them sends AddPartitionsToTxn in the versions that are
meant for brokers, which Kafka takes from clients, too.
"""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

PARTITIONS = 4
DEADLINE_S = 120


def work(program: Path, bootstrap: str, topic: str) -> dict[str, Any]:
    """Return what the program says that it saw."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(60)
    done = subprocess.run(
        ["node", str(program), bootstrap, topic],
        check=False,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


def each_partition(offset: int) -> list[list[int]]:
    return [[partition, offset] for partition in range(PARTITIONS)]


def test_kafkajs(bootstrap: str, node_programs: Path) -> None:
    assert work(node_programs / "work_kafkajs.mjs", bootstrap, "kafkajs") == {
        "records": 80,
        "committed": each_partition(20),
        "committedInTransaction": 7,
        "read_uncommitted": 40,
        "read_committed": 0,
    }


def test_platformatic_kafka(bootstrap: str, node_programs: Path) -> None:
    of_group = {"records": 160, "committed": each_partition(40)}
    assert work(node_programs / "work_platformatic.mjs", bootstrap, "platformatic") == {
        "classic": of_group,
        "consumer": of_group,
        "committedInTransaction": 1,
        "read_uncommitted": 40,
        "read_committed": 0,
    }
