"""`produce`: which partition, how fast, in which batches."""

import os
import pty
import subprocess
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

import pytest
from local_cluster import Cli

from fairlead_wire.murmur2 import partition_for_key

RECORDS = 90


def send(cluster: Cli, topic: str, *options: str) -> list[dict[str, object]]:
    """Ninety records with thirty keys; what was written, in the order of each partition."""
    cluster.ok("topic", "create", topic, "--partitions", "3")
    lines = "".join(f"key-{number % 30}:{number}\n" for number in range(RECORDS))
    cluster.ok("produce", topic, "--key-separator", ":", *options, stdin=lines)
    read = cluster.ok("consume", topic, "--until-end", "-o", "json")
    records: list[dict[str, object]] = read.json_lines
    assert sorted(int(str(record["value"])) for record in records) == list(range(RECORDS))
    return records


def test_round_robin_spreads_evenly_and_ignores_keys(cluster: Cli) -> None:
    records = send(cluster, "turns", "--partitioner", "round-robin")
    assert Counter(record["partition"] for record in records) == {0: 30, 1: 30, 2: 30}
    assert all(int(str(r["value"])) % 3 == r["partition"] for r in records)


def test_sticky_goes_on_when_a_batch_is_full(cluster: Cli) -> None:
    records = send(cluster, "sticky", "--partitioner", "sticky", "--batch-size", "100")
    partitions = {int(str(record["value"])): record["partition"] for record in records}
    order = [partitions[number] for number in range(RECORDS)]
    changes = sum(a != b for a, b in pairwise(order))
    assert 3 <= changes <= 10


def test_murmur2_is_where_java_clients_send_it(cluster: Cli) -> None:
    options = ("--partitioner", "murmur2", "--linger-ms", "0", "--no-idempotent")
    for record in send(cluster, "hashed", *options):
        assert record["partition"] == partition_for_key(str(record["key"]).encode(), 3)


def test_a_function_of_the_users_chooses(cluster: Cli, tmp_path: Path) -> None:
    (tmp_path / "my_keys.py").write_text(
        "def last_digit(key: bytes, value: bytes, partitions: int) -> int:\n"
        "    return key[-1] % partitions\n"
        "def nowhere(key: bytes, value: bytes, partitions: int) -> int:\n"
        "    return partitions\n"
    )
    cluster.ok("topic", "create", "own", "--partitions", "3")

    def produce(function: str) -> subprocess.CompletedProcess[bytes]:
        command = cluster.command("produce", "own", "--key-separator", ":")
        return subprocess.run(
            [*command, "--partitioner", f"my_keys:{function}"],
            input=b"k1:a\nk2:b\nk3:c\n",
            cwd=tmp_path,
            capture_output=True,
            timeout=60,
            check=False,
        )

    assert produce("last_digit").returncode == 0
    records = cluster.ok("consume", "own", "--until-end", "-o", "json").json_lines
    assert {r["key"]: r["partition"] for r in records} == {"k1": 1, "k2": 2, "k3": 0}
    failed = produce("nowhere")
    assert failed.returncode == 1
    assert b"answered 3 for key b'k1'" in failed.stderr
    assert b"0 records written" in failed.stderr


def test_a_rate_is_kept(cluster: Cli) -> None:
    cluster.ok("topic", "create", "paced")
    options = ("--rate", "50", "--acks", "1", "-o", "json")
    summary = cluster.ok("produce", "paced", *options, stdin="x\n" * 101).json
    assert summary["records"] == 101
    # The first goes at once, so that 101 take two seconds at least; a busy machine takes longer.
    assert summary["seconds"] >= 1.95


def read_all(screen: BinaryIO) -> str:
    """Return what a terminal was told until its other end has closed."""
    told = b""
    with suppress(OSError):
        while part := screen.read(4096):
            told += part
    return told.decode()


@pytest.mark.parametrize("source", ["pipe", "file"])
def test_progress_is_shown_on_a_terminal(cluster: Cli, tmp_path: Path, source: str) -> None:
    cluster("topic", "create", "watched", "--if-not-exists")
    lines = tmp_path / "lines.txt"
    lines.write_text("x\n" * 500)
    file = [str(lines)] if source == "file" else []
    ours, theirs = pty.openpty()
    with ThreadPoolExecutor(1) as pool, os.fdopen(ours, "rb", buffering=0) as screen:
        # All the time: a terminal keeps 4 KiB, and progress on a busy machine may be longer.
        reading = pool.submit(read_all, screen)
        try:
            done = subprocess.run(
                cluster.command("produce", "watched", *file),
                input=lines.read_bytes(),
                stdout=subprocess.DEVNULL,
                stderr=theirs,
                timeout=60,
                check=False,
            )
        finally:
            os.close(theirs)
        shown = reading.result(60)
    assert done.returncode == 0, shown
    assert "500 records" in shown
    assert "Traceback" not in shown


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--acks", "0", "--idempotent"], "--idempotent needs --acks all"),
        (["--partition", "0", "--partitioner", "sticky"], "only one can choose"),
        (["--partitioner", "murmur3"], "is not murmur2, round-robin, sticky"),
        (["--partitioner", "no_such_module:f"], "cannot import no_such_module"),
        (["--rate", "0"], "--rate"),
        (["--batch-size", "0"], "--batch-size"),
        (["--linger-ms", "90000"], "--linger-ms"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_is_wrong_usage(cluster: Cli, options: list[str], message: str) -> None:
    cluster("topic", "create", "untouched", "--if-not-exists")
    refused = cluster("produce", "untouched", *options, stdin="x\n")
    assert refused.code == 2
    assert message in " ".join(refused.err.split())
    assert cluster.ok("consume", "untouched", "--until-end").out == ""
