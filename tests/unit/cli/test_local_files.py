"""cluster.json, the process table, output tails, and the lines of the live log."""

import errno
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest

from fairlead_cli.errors import CliError
from fairlead_cli.local.cluster_file import (
    ClusterFile,
    ProcessEntry,
    read_cluster_file,
    write_cluster_file,
)
from fairlead_cli.local.layout import Layout, Ports
from fairlead_cli.local.live_log import TerminalReporter, format_ready
from fairlead_cli.local.output_tail import OutputTail, merge_lines
from fairlead_cli.local.plan import LaunchPlan, decode_plan, encode_plan
from fairlead_cli.local.process_table import (
    ProcessId,
    find_port_holder,
    identify,
    is_port_free,
    read_command_line,
)
from fairlead_cli.up import choose_broker_count, choose_ports


def build_cluster() -> ClusterFile:
    return ClusterFile(
        data="/data",
        port=9092,
        http_port=8080,
        supervisor_pid=None,
        supervisor_start_time=None,
        controller=ProcessEntry("controller", "127.0.0.1", 9191, 8170),
        brokers=[
            ProcessEntry(
                "broker-0",
                "127.0.0.1",
                9092,
                8080,
                id=0,
                pid=7,
                start_time=9,
                rest="http://127.0.0.1:8180",
            )
        ],
    )


def test_a_cluster_file_reads_back(tmp_path: Path) -> None:
    path = tmp_path / "cluster.json"
    write_cluster_file(path, build_cluster())
    assert read_cluster_file(path) == build_cluster()
    assert [entry.name for entry in tmp_path.iterdir()] == ["cluster.json"]


def test_no_cluster_file_is_no_cluster(tmp_path: Path) -> None:
    assert read_cluster_file(tmp_path / "none" / "cluster.json") is None


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"version": 99}', '{"version": 1}'])
def test_a_file_that_is_something_else_is_said(tmp_path: Path, text: str) -> None:
    path = tmp_path / "cluster.json"
    path.write_text(text)
    with pytest.raises(CliError, match="is not a cluster file"):
        read_cluster_file(path)


def test_a_reused_pid_is_another_process() -> None:
    own = identify(os.getpid())
    assert own is not None
    assert own.is_alive
    impostor = ProcessId(own.pid, own.start_time + 1)
    assert not impostor.is_alive
    assert not impostor.send(signal.SIGTERM)


def test_a_zombie_counts_as_dead() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert identify(process.pid) is None
    process.wait()


def test_the_wait_for_a_processor_is_seen() -> None:
    """Two that never rest share one processor: each waits while the other runs."""
    assert ProcessId(os.getpid(), 0).waited_s >= 0.0
    processor = {min(os.sched_getaffinity(0))}
    spinners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        for spinner in spinners:
            os.sched_setaffinity(spinner.pid, processor)
        started = identify(spinners[0].pid)
        assert started is not None
        before, deadline = started.waited_s, time.monotonic() + 20
        while started.waited_s < before + 0.1:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()
    assert started.waited_s == 0.0


def test_the_holder_of_a_port_is_found(free_port: int) -> None:
    port = free_port
    # As servers bind: connections of another one that had the port may still be fading.
    with socket.create_server(("127.0.0.1", port)):
        assert not is_port_free("127.0.0.1", port)
        assert find_port_holder(port) == os.getpid()
        assert read_command_line(os.getpid())
    assert is_port_free("127.0.0.1", port)
    assert find_port_holder(port) is None


def test_a_tail_gives_whole_lines_and_only_new_ones(tmp_path: Path) -> None:
    path = tmp_path / "out.log"
    path.write_text("old\n")
    tail = OutputTail("p", path)
    tail.skip_to_end()
    assert list(tail.read_lines()) == []
    with path.open("a") as file:
        file.write("one\ntw")
    assert list(tail.read_lines()) == ["one"]
    with path.open("a") as file:
        file.write("o\n")
    assert list(tail.read_lines()) == ["two"]


def test_tails_are_merged_by_time(tmp_path: Path) -> None:
    first, second = tmp_path / "a.log", tmp_path / "b.log"
    first.write_text(
        "2026-01-01 00:00:01,500 one\n  its traceback\n2026-01-01 00:00:03,000 three\n"
    )
    second.write_text("2026-01-01 00:00:02,000 two\n")
    merged = merge_lines([OutputTail("a", first), OutputTail("b", second)])
    assert [line.split()[-1] for _, line in merged] == ["one", "traceback", "two", "three"]
    assert [name for name, _ in merged] == ["a", "a", "b", "a"]


def test_a_tail_follows_a_rotated_file(tmp_path: Path) -> None:
    path = tmp_path / "out.log"
    path.write_text("a long first file\n")
    tail = OutputTail("p", path)
    list(tail.read_lines())
    path.write_text("new\n")
    assert list(tail.read_lines()) == ["new"]


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("2026-11-21 05:00:00,123 INFO fairlead_broker.log: rolled", "rolled"),
        ("2026-11-21 05:00:00,123 broker 0 WARNING fairlead_broker.net: slow", "slow"),
        ("2026-11-21 05:00:00,123 controller INFO fairlead_controller: elected", "elected"),
        ("2026-11-21 05:00:00 DEBUG fairlead_broker.net: chatter", None),
        ("ready node.id=0 kafka=127.0.0.1:9092", None),
        ("Traceback (most recent call last):", "Traceback (most recent call last):"),
    ],
)
def test_the_live_log_shows_what_is_notable(
    line: str, shown: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    TerminalReporter("").output([("broker-0", line)])
    text = click.unstyle(capsys.readouterr().out)
    if shown is None:
        assert text == ""
    else:
        assert re.fullmatch(rf"\d\d:\d\d:\d\d broker-0 +{re.escape(shown)}\n", text)


def test_the_ready_block_has_addresses_and_first_steps() -> None:
    text = click.unstyle(format_ready(build_cluster(), 0.8, " --data /data"))
    assert "Fairlead is up: 1 broker and a controller, ready in 0.8 s." in text
    assert "127.0.0.1:9092" in text
    assert "http://127.0.0.1:8170" in text
    assert "fairlead consume hello --data /data" in text
    # The ports of the table answer 404 to it.
    assert "curl -s http://127.0.0.1:8180/v3/clusters" in text


def test_a_plan_survives_the_pipe(tmp_path: Path) -> None:
    plan = LaunchPlan(tmp_path, 3, Ports(1, 2), {"a": "b=c"}, (tmp_path / "t.yaml",))
    assert decode_plan(encode_plan(plan)) == plan


def test_as_many_brokers_start_as_the_data_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layout = Layout(tmp_path)
    assert choose_broker_count(layout, None) == 3
    for broker_id in range(5):
        layout.broker_directory(broker_id).mkdir()
    assert choose_broker_count(layout, None) == 5
    assert choose_broker_count(layout, 2) == 2
    assert "partitions of brokers 2 to 4 have no leader" in capsys.readouterr().err


def test_a_folder_is_served_where_it_was_served_last(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    new = choose_ports(layout, None, None, None, is_secure=False)
    assert (new.host, new.first_kafka, new.first_http) == ("127.0.0.1", 9092, 8080)
    controller = ProcessEntry("controller", "::1", 19_191, 18_090)
    last = ClusterFile(str(tmp_path), 19_092, 18_000, None, None, controller, state="stopped")
    write_cluster_file(layout.cluster_file, last)
    again = choose_ports(layout, None, None, None, is_secure=True)
    assert again == Ports(19_092, 18_000, is_secure=True, host="::1")
    moved = choose_ports(layout, 9092, None, "127.0.0.1", is_secure=False)
    assert moved == Ports(9092, 18_000, host="127.0.0.1")


def test_a_default_port_is_said_where_the_folder_was_served_at_another_one() -> None:
    plan = LaunchPlan(Path("/data"), 1, Ports(19_092, 8080), {}, ())
    assert plan.command(Ports(9092, 8080)) == "fairlead up --port 9092"


def test_an_output_file_that_cannot_be_read_now_is_read_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was removed in between, or descriptors have run out: the supervisor goes on."""
    path = tmp_path / "p.log"
    path.write_text("a line\n")
    tail = OutputTail("p", path)

    def refuse(*_: object, **__: object) -> object:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", refuse)
        assert list(tail.read_lines()) == []
    assert list(tail.read_lines()) == ["a line"]
