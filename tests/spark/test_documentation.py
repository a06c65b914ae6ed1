"""The Python blocks of docs/spark.md and the small examples, run as they are written."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from spark_source import Source, Topics, numbers

PROJECT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"<!-- tested: python -->\n```python\n(.*?)```", re.DOTALL)
EXAMPLE_TIMEOUT_S = 120


def test_every_block_runs(
    source: Source, topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    topics.fill(topics.create("orders"), 0, 100)
    topics.create("rows")
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall((PROJECT / "docs" / "spark.md").read_text())
    assert len(blocks) == 5
    names: dict[str, Any] = {}
    for block in blocks:
        exec(block.replace("localhost:9092", topics.bootstrap), names)
    printed = capsys.readouterr().out
    assert "55\n" in printed, "offsets 5 to 49 of one partition and 0 to 9 of the other"
    assert "100\n" in printed
    assert source.read(subscribe="rows").count() == 10


def test_the_examples_run(source: Source, topics: Topics, tmp_path: Path) -> None:
    topics.fill(topics.create("first"), 0, 60)
    topics.create("second")
    folder = PROJECT / "examples" / "spark"
    for copied in (60, 0):
        arguments = [topics.bootstrap, "first", "second", str(tmp_path / "checkpoint")]
        done = subprocess.run(
            [sys.executable, str(folder / "copy_topic.py"), *arguments],
            check=True,
            capture_output=True,
            text=True,
            timeout=EXAMPLE_TIMEOUT_S,
        )
        assert f"copied {copied} records" in done.stdout
    assert numbers(source.read(subscribe="second")) == list(range(60))
    done = subprocess.run(
        [sys.executable, str(folder / "read_batch.py"), topics.bootstrap, "first"],
        check=True,
        capture_output=True,
        text=True,
        timeout=EXAMPLE_TIMEOUT_S,
    )
    assert done.stdout.count("|   30|") == 2
