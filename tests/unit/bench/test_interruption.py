"""How a run that is ended from outside ends."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from fairlead_bench import main
from fairlead_bench.interruption import INTERRUPTED, run_interruptibly
from fairlead_bench.loads.failover_client import ClientFailedError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def _handler() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def test_clients_that_ctrl_c_has_ended_are_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    def measure() -> int:
        try:
            raise KeyboardInterrupt
        finally:
            raise ClientFailedError("librdkafka: exit code -2: Traceback …")

    assert run_interruptibly(measure) == INTERRUPTED
    said = "ended before it was done: its processes were stopped\n"
    assert capsys.readouterr().err == said


def test_an_error_of_a_load_is_one() -> None:
    def measure() -> int:
        raise ClientFailedError("librdkafka ended")

    with pytest.raises(ClientFailedError):
        run_interruptibly(measure)


def test_a_run_that_ends_by_itself_has_its_own_exit_code() -> None:
    assert run_interruptibly(lambda: 7) == 7


def test_an_interrupted_run_of_make_bench_is_not_called_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(_run: main.Run) -> None:
        try:
            raise KeyboardInterrupt
        finally:
            raise ClientFailedError("librdkafka: exit code -2")

    monkeypatch.setattr(main, "RESULTS_FOLDER", tmp_path / "results")
    monkeypatch.setattr(main.Run, "measure", interrupt)
    given = ["--peers", "fairlead", "--data", str(tmp_path / "data")]
    assert run_interruptibly(lambda: main.main(given)) == INTERRUPTED
    assert "no results are written" not in capsys.readouterr().err
