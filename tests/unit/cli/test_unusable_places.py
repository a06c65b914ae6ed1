"""A folder that may not be used, a process of somebody else: said, not thrown."""

import errno
import io
import json
import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from fairlead_cli.errors import CliError
from fairlead_cli.local.detached import PipeReporter
from fairlead_cli.local.process_table import identify
from fairlead_cli.main import run as run_command


@pytest.mark.parametrize("detach", [[], ["--detach"]], ids=["foreground", "detached"])
def test_a_path_through_a_file_is_refused(
    detach: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert run_command(["up", "--brokers", "1", "--data", f"{tmp_path}/file/d", *detach]) == 1
    told = capsys.readouterr().err
    assert f"error: cannot use the data directory {tmp_path}/file/d: Not a directory" in told
    assert "Choose another one with --data DIR." in told


@pytest.mark.parametrize("detach", [[], ["--detach"]], ids=["foreground", "detached"])
def test_a_copy_of_a_folder_starts_no_millions_of_brokers(
    detach: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Named by a date: the command made a list of as many, and nothing was heard of it."""
    for name in ("broker-0", "broker-20261129"):
        (tmp_path / name).mkdir()
    assert run_command(["up", "--data", str(tmp_path), *detach]) == 2
    told = capsys.readouterr().err
    assert f"{tmp_path}/broker-20261129 would be that of one of 20261130 brokers" in told
    assert sorted(each.name for each in tmp_path.iterdir()) == ["broker-0", "broker-20261129"]


def test_a_supervisor_that_ends_before_it_reads_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was taken for `| head`, which has what it wanted: exit code 0, and no cluster."""
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nexit 7\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    # More than a pipe holds, so that writing it waits until the other side has ended.
    manifest = tmp_path / ("m" * 200)
    manifest.write_text("")
    arguments = ["-f", str(manifest)] * 1_000
    assert run_command(["up", "--detach", "--data", f"{tmp_path}/d", *arguments]) == 1
    assert "the supervisor ended with exit code 7 before" in capsys.readouterr().err


@pytest.mark.parametrize("method", ["glob", "read_text"])
@pytest.mark.parametrize("detach", [[], ["--detach"]], ids=["foreground", "detached"])
def test_a_folder_that_may_not_be_read_is_refused(
    method: str,
    detach: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def forbid(path: Path, *_: object, **__: object) -> NoReturn:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, method, forbid)
    assert run_command(["up", "--data", f"{tmp_path}/d", *detach]) == 1
    told = capsys.readouterr().err
    assert f"error: cannot use the data directory {tmp_path}/d: Permission denied" in told
    assert "Choose another one with --data DIR." in told


@pytest.mark.parametrize(
    ("arguments", "exit_code"),
    [
        (["log", "dump", "{place}"], 1),
        (["log", "dump", "{place}", "--verify"], 1),
        (["topic", "list", "--client-config", "{settings}"], 2),
        (["drill", "--target", "broker:0", "--fault", "kill", "--report", "{place}"], 2),
        (["rebalance", "--execute", "{place}"], 2),
    ],
)
def test_what_is_in_a_folder_without_rights_is_said(
    arguments: list[str],
    exit_code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Logs and keys often belong to the user of a service."""
    place, settings = tmp_path / "private" / "file", tmp_path / "settings"
    settings.write_text(f"security.protocol=ssl\nssl.key.location={place}\n")
    look = Path.stat

    def forbid(path: Path, **named: bool) -> os.stat_result:
        if place.parent in path.parents:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return look(path, **named)

    monkeypatch.setattr(Path, "stat", forbid)
    words = [each.format(place=place, settings=settings) for each in arguments]
    assert run_command(words) == exit_code
    assert str(place) in capsys.readouterr().err


def test_a_process_of_another_user_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    own = identify(os.getpid())
    assert own is not None

    def forbid(_pid: int, _number: int) -> NoReturn:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "kill", forbid)
    with pytest.raises(CliError, match=f"pid {os.getpid()} belongs to ") as refused:
        own.send(signal.SIGTERM)
    assert refused.value.hint == "Run the command as the user who started the cluster."


class FullDisk(io.StringIO):
    """A log file that takes nothing more."""

    def write(self, _text: str) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_log_that_cannot_be_written_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    audience = io.StringIO()
    monkeypatch.setattr(sys, "stderr", FullDisk())
    PipeReporter(audience).warning("broker-0", "killed by SIGKILL")
    assert json.loads(audience.getvalue())["text"] == "killed by SIGKILL"
