"""What nobody can measure is refused before anything runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from fairlead_bench import main
from fairlead_bench.loads.load_process import LoadFailedError
from fairlead_bench.scenarios import scale

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from pathlib import Path


@pytest.mark.parametrize(
    ("parse", "arguments", "said"),
    [
        (main.parse_arguments, ["--only", "consume,latncy"], "'latncy' is none of produce_1k"),
        (main.parse_arguments, ["--only", ""], "'' is none of produce_1k"),
        (main.parse_arguments, ["--peers", "Kafka"], "'Kafka' is none of fairlead, kafka"),
        (main.parse_arguments, ["--repetitions", "0"], "'0' is no whole number from 1 on"),
        (main.parse_arguments, ["--runs", "-3"], "'-3' is no whole number from 1 on"),
        (scale.parse_arguments, ["--peers", "farilead"], "'farilead' is none of fairlead, kafka"),
        (scale.parse_arguments, ["--partitions", "10:on"], "'10:on' is no number of partitions"),
        (scale.parse_arguments, ["--partitions", "0"], "'0' is no number of partitions"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    parse: Callable[[list[str] | None], argparse.Namespace],
    arguments: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit, match="2"):
        parse(arguments)
    assert said in capsys.readouterr().err


def test_what_can_be_measured_is_taken() -> None:
    found = main.parse_arguments(["--only", "fetch,tls", "--peers", "kafka", "--runs", "3"])
    assert (found.only, found.peers, found.runs) == (["fetch", "tls"], ["kafka"], 3)
    assert main.parse_arguments([]).peers == ["fairlead", "kafka"]
    grown = scale.parse_arguments(["--partitions", "1000:one,20"])
    assert (grown.partitions, grown.peers) == (["1000:one", "20"], ["fairlead"])


def test_nothing_is_written_where_nothing_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(main, "RESULTS_FOLDER", tmp_path / "results")
    monkeypatch.setattr(main, "ensure_kafka", lambda: None)
    given = ["--only", "compaction", "--peers", "kafka", "--quick", "--data", str(tmp_path)]
    assert main.main(given) == 2
    assert "nothing was measured" in capsys.readouterr().err
    assert list((tmp_path / "results").iterdir()) == []


def test_a_load_that_failed_is_told_in_a_line_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_run: main.Run) -> None:
        raise LoadFailedError("rdkafka_load ended without a result")

    monkeypatch.setattr(main, "RESULTS_FOLDER", tmp_path / "results")
    monkeypatch.setattr(main.Run, "measure", fail)
    assert main.main(["--peers", "fairlead", "--data", str(tmp_path / "data")]) == 1
    said = "no results are written: rdkafka_load ended without a result\n"
    assert capsys.readouterr().err == said
    assert list((tmp_path / "results").iterdir()) == list((tmp_path / "data").iterdir()) == []
