"""The flights example as a reader runs it: load once, verify with three clients."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from local_cluster import ROOT, TOPICS, Cli, take_cluster_ports

FLIGHTS = ROOT / "examples" / "flights"
TIMEOUT_S = 200.0
ROWS = {"flights": 336_776, "weather": 26_115, "planes": 3_322, "airports": 1_458, "airlines": 16}
CLIENTS = ("confluent-kafka", "kafka-python", "aiokafka")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    command = Cli(tmp_path_factory.mktemp("flights") / "data", *take_cluster_ports())
    started = command.up("-f", str(TOPICS))
    assert started.code == 0, started
    yield command
    command.close()


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(FLIGHTS / script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


@pytest.fixture(scope="module")
def bootstrap(cluster: Cli) -> str:
    """The address, once everything is loaded."""
    address = f"127.0.0.1:{cluster.port}"
    loaded = run("load.py", "--bootstrap", address)
    assert loaded.returncode == 0, loaded
    assert "367,687 records in" in loaded.stdout
    return address


@pytest.mark.slow
def test_three_clients_read_back_what_was_loaded(bootstrap: str) -> None:
    verified = run("verify.py", "--bootstrap", bootstrap)
    assert verified.returncode == 0, verified.stdout + verified.stderr
    lines = [line.split() for line in verified.stdout.splitlines()]
    assert len(lines) == len(ROWS) * len(CLIENTS)
    for table, client, count, *_, verdict in lines:
        assert client in CLIENTS
        assert int(count.replace(",", "")) == ROWS[table]
        assert verdict == "ok"
    # One checksum a table, whoever reads it.
    assert len({(line[0], line[5]) for line in lines}) == len(ROWS)


def test_a_second_load_is_refused_and_can_be_asked_for(bootstrap: str) -> None:
    again = run("load.py", "--bootstrap", bootstrap, "--tables", "airlines")
    assert again.returncode == 1
    assert "Topic airlines already holds records. Start over with --replace." in again.stderr
    replaced = run("load.py", "--bootstrap", bootstrap, "--tables", "airlines", "--replace")
    assert replaced.returncode == 0, replaced
    verified = run("verify.py", "--bootstrap", bootstrap, "--tables", "airlines")
    assert verified.returncode == 0, verified.stdout + verified.stderr


def test_the_command_loads_the_same_table_from_csv(
    cluster: Cli, bootstrap: str, tmp_path: Path
) -> None:
    """`fairlead produce --input csv` writes byte for byte what load.py writes."""
    table = tmp_path / "planes.csv"
    table.write_text(run("dataset.py", "planes").stdout)
    cluster.ok("topic", "create", "planes-csv", "--partitions", "3")
    cluster.ok(
        *("produce", "planes-csv", "--input", "csv", str(table), "--key-field", "tailnum"),
        *("--numbers", "--null-marker", "NA"),
    )
    by_command, by_script = (
        sorted(cluster.ok("consume", topic, "--keys", "--until-end").out.splitlines())
        for topic in ("planes-csv", "planes")
    )
    assert len(by_command) == ROWS["planes"]
    assert by_command == by_script


def test_the_check_notices_loss_doubles_changes_and_disorder() -> None:
    """A check that cannot fail proves nothing."""
    code = """
from dataset import Fingerprint
def taken(*values):
    fingerprint = Fingerprint()
    for value in values:
        fingerprint.add(b"UA", value)
    return fingerprint
right = taken(b"1", b"2", b"3")
assert right.differences(taken(b"1", b"2", b"3")) == []
for wrong in (taken(b"1", b"2"), taken(b"1", b"2", b"3", b"3"), taken(b"1", b"2", b"4"),
              taken(b"2", b"1", b"3"), taken(b"12", b"", b"3"), Fingerprint()):
    assert right.differences(wrong), wrong
"""
    checked = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(FLIGHTS)},
        timeout=30,
        capture_output=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr


def test_without_a_cluster_it_says_how_to_start_one() -> None:
    refused = run("load.py", "--bootstrap", "127.0.0.1:1")
    assert refused.returncode == 1
    assert refused.stderr.strip().endswith("Start one:  fairlead up --detach")
    assert "Traceback" not in refused.stderr
