"""What errors tell a user to paste reaches the cluster that the failed command was about."""

import errno
import os
import shlex
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click
import pytest

from fairlead_cli.advice import cluster_arguments, data_arguments
from fairlead_cli.client import access
from fairlead_cli.client.connection import build_error, build_unknown_topic_error
from fairlead_cli.data_directory import DATA_DEFAULT
from fairlead_cli.drill.run import in_context_of
from fairlead_cli.errors import CliError, ExitCode
from fairlead_cli.local.cluster_file import ClusterFile, ProcessEntry, write_cluster_file
from fairlead_cli.local.control import wait_until_replaced
from fairlead_cli.local.layout import Layout
from fairlead_cli.local.preflight import build_unusable_error
from fairlead_cli.local.process_table import ProcessId, identify
from fairlead_cli.local.up_command import up_command
from fairlead_cli.main import run
from fairlead_cli.options import bootstrap_option, data_option


def find_arguments(*arguments: str) -> str:
    """What a verb with both options would append to a command."""
    found = []

    @click.command()
    @data_option
    @bootstrap_option
    def verb(data: Path, bootstrap: str | None) -> None:
        del data, bootstrap
        found.append(cluster_arguments())

    verb.main(list(arguments), standalone_mode=False)
    (answer,) = found
    return answer


def test_the_cluster_of_the_command_line_is_named_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FAIRLEAD_DATA", raising=False)
    monkeypatch.delenv("FAIRLEAD_BOOTSTRAP", raising=False)
    assert find_arguments() == ""
    assert find_arguments("--data", "/tmp/a b") == " --data '/tmp/a b'"
    assert find_arguments("--bootstrap", "host:1", "--data", "x") == " --bootstrap host:1"
    assert cluster_arguments() == ""


def test_the_file_to_log_in_with_is_named_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(access, "_settings", {})
    monkeypatch.setattr(access, "_files", [])
    file = tmp_path / "my settings"
    file.write_text("security.protocol=plaintext\n")
    answer = find_arguments("--bootstrap", "host:1", "--client-config", str(file))
    assert shlex.split(answer) == ["--bootstrap", "host:1", "--client-config", str(file)]


def test_a_path_with_spaces_can_be_pasted() -> None:
    assert data_arguments(DATA_DEFAULT) == ""
    assert shlex.split(data_arguments(Path("/tmp/it's here"))) == ["--data", "/tmp/it's here"]


def build_cluster(data: Path, port: int = 9092, http_port: int = 8080) -> ClusterFile:
    controller = ProcessEntry(name="controller", host="127.0.0.1", port=1, http_port=2)
    return ClusterFile(str(data), port, http_port, None, None, controller)


def test_up_is_told_with_the_proxy_of_the_last_run(tmp_path: Path) -> None:
    cluster = build_cluster(tmp_path)
    assert up_command(DATA_DEFAULT, cluster) == "fairlead up"
    cluster.proxy = ProcessEntry(name="proxy", host="127.0.0.1", port=1, http_port=2)
    assert up_command(Path("d"), cluster) == "fairlead up --data d --fault-proxy"


@pytest.mark.parametrize(
    "verb",
    [["status"], ["topic", "list"], ["broker", "list"], ["consume", "t"], ["group", "list"]],
    ids=" ".join,
)
def test_a_stopped_cluster_is_started_by_the_command_that_is_told(
    verb: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "my data"
    data.mkdir()
    write_cluster_file(data / "cluster.json", build_cluster(data, 19092, 18080))
    assert run([*verb, "--data", str(data)]) == 1
    expected = f"  fairlead up --data '{data}'\n"
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize("verb", [["broker", "list"], ["topic", "list"], ["status"]], ids=" ".join)
def test_a_directory_without_a_cluster_is_quoted(
    verb: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*verb, "--data", f"{tmp_path}/a b"]) == 1
    assert f"\n  fairlead up --data '{tmp_path}/a b'\n" in capsys.readouterr().err


def test_hints_name_the_topic_that_they_are_about() -> None:
    class TooLarge:
        def name(self) -> str:
            return "MSG_SIZE_TOO_LARGE"

        def str(self) -> str:
            return "too large"

    hint = build_error("it failed", TooLarge(), name="my topic").hint
    assert hint is not None
    assert "  fairlead topic alter 'my topic' --config max.message.bytes=10485760" in hint


def test_nobody_waits_for_a_broker_that_nobody_starts_again(tmp_path: Path) -> None:
    cluster = build_cluster(tmp_path)
    cluster.brokers.append(ProcessEntry(name="broker-0", host="127.0.0.1", port=1, http_port=2))
    write_cluster_file(tmp_path / "cluster.json", cluster)
    with pytest.raises(CliError, match="broker-0 was not started again: the cluster has been"):
        wait_until_replaced(tmp_path, "broker-0", ProcessId(1, 1), timeout_s=3600)


def test_a_cluster_whose_brokers_restart_is_not_told_to_be_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = identify(os.getpid())
    assert own is not None
    cluster = build_cluster(tmp_path)
    cluster.supervisor_pid, cluster.supervisor_start_time = own.pid, own.start_time
    cluster.state = "running"
    cluster.brokers.append(
        ProcessEntry(name="broker-0", host="127.0.0.1", port=1, http_port=2, state="restarting")
    )
    write_cluster_file(tmp_path / "cluster.json", cluster)
    assert run(["topic", "list", "--data", str(tmp_path)]) == 1
    told = capsys.readouterr().err
    assert "no broker of the local cluster" in told
    assert "broker-0 is restarting" in told
    assert f"{tmp_path}/logs/broker-0.log" in told
    assert "fairlead up" not in told


@pytest.mark.parametrize(
    ("number", "advice"),
    [(errno.ENOSPC, "  df -h '/a b'"), (errno.EROFS, "Choose another one with --data DIR.")],
)
def test_a_full_disk_is_not_left_for_another(number: int, advice: str) -> None:
    error = build_unusable_error(Layout(Path("/a b")), OSError(number, os.strerror(number)))
    assert error.hint is not None
    assert error.hint.endswith(advice)


def test_a_thread_of_a_drill_knows_the_cluster_of_the_command_line() -> None:
    command = click.Command("drill", params=[])
    context = click.Context(command)
    context.params = {"data": Path("/a b")}
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(in_context_of(context, cluster_arguments)).result() == " --data '/a b'"
        assert pool.submit(in_context_of(None, cluster_arguments)).result() == ""


def test_a_topic_is_only_to_be_created_where_it_is_wanted() -> None:
    wanted = build_unknown_topic_error("ordrs", ["orders"])
    assert wanted.hint == (
        "Did you mean 'orders'?\nCreate it:\n  fairlead topic create ordrs\n"
        "See what there is:\n  fairlead topic list"
    )
    unwanted = build_unknown_topic_error("x", ["orders"], is_wanted=False)
    assert unwanted.hint == "See what there is:\n  fairlead topic list"


def test_a_file_that_is_not_there_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["produce", "orders", "/nonexistent/file", "--data", "/none"]) == ExitCode.USAGE
    assert "cannot read /nonexistent/file: No such file" in capsys.readouterr().err


def test_a_cluster_that_serves_on_without_its_supervisor_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], free_port: int
) -> None:
    """This process stands in for all of it: it lives, and serves nothing."""
    own = identify(os.getpid())
    assert own is not None
    process: dict[str, Any] = {"pid": own.pid, "start_time": own.start_time, "state": "running"}
    cluster = build_cluster(tmp_path, 19092, 18080)
    cluster.state = "running"
    cluster.controller = ProcessEntry("controller", "127.0.0.1", 1, 2, **process)
    cluster.brokers.append(ProcessEntry("broker-0", "127.0.0.1", free_port, 2, id=0, **process))
    write_cluster_file(tmp_path / "cluster.json", cluster)
    # Nor does a broker answer.
    assert run(["status", "--data", str(tmp_path)]) == ExitCode.FAILED
    told = capsys.readouterr().err
    assert "Its supervisor was killed: nothing is started again." in told
    assert f"  fairlead down --data {tmp_path}\n  fairlead up --data {tmp_path}\n" in told
