"""What is said of producers beside a compaction was measured beside one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, cast

import pytest

from fairlead_bench.loads.load_process import Sample
from fairlead_bench.report.results import Results
from fairlead_bench.scenarios.compaction import QUICK, SUBJECT, CompactionBench

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairlead_bench.peers.fairlead_peer import FairleadPeer


class Broker:
    """Tells of a compaction that is over, or not, once the load has run."""

    bootstrap = "127.0.0.1:1"
    broker_pid = os.getpid()

    def __init__(self, running: list[float]) -> None:
        self._running = running

    def metric(self, name: str) -> float:
        return self._running.pop(0) if name == "fairlead_cleaner_running" else 1e6


def skip(*_: object) -> None:
    """Do nothing in the place of a step that only prepares."""


def latency(*_: object) -> Sample:
    return Sample(1.0, 1.0, 1.0, 0.1, 1.0, {"p99": 1.0})


@pytest.mark.parametrize(("running", "counted"), [([1, 1], 1), ([1, 0], 0)])
def test_a_p99_beside_no_compaction_is_left_out(
    running: list[float],
    counted: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    steps: dict[str, Callable[..., object]] = dict.fromkeys(
        ("_create", "_fill", "_let_compact"), skip
    )
    for name, step in {**steps, "_latency": latency}.items():
        monkeypatch.setattr(CompactionBench, name, step)
    results = Results()
    CompactionBench(cast("FairleadPeer", Broker(running)), QUICK).measure(results)
    for metric in ("compaction_p99", "compaction_p99_ratio"):
        assert len(results.values[SUBJECT, metric]) == counted
    assert len(results.values[SUBJECT, "compaction_throughput"]) == 1
    said = capsys.readouterr()
    # Standard output is that of `-o json`.
    assert said.out == ""
    assert ("over before the load" in said.err) == (not counted)
