"""The Python blocks of docs/spark.md and the small examples, run as they are written."""

import re
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
from marked_transactions import wait_until_marked
from spark_source import Source, Topics, numbers

PROJECT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"<!-- tested: spark -->\n```python\n(.*?)```", re.DOTALL)


def test_every_block_runs(source: Source, topics: Topics, tmp_path: Path, capsys: Any) -> None:
    topics.fill(topics.create("orders"), 0, 100)
    wait_until_marked(topics.bootstrap)
    for name in ("rows", "rows-done", "rows-nightly"):
        topics.create(name)
    blocks = BLOCK.findall((PROJECT / "docs" / "spark.md").read_text())
    assert len(blocks) == 8
    names: dict[str, Any] = {}
    for block in blocks:
        # Paths are the JVM's, which stands where the tests were started.
        here = block.replace('"orders-rows"', repr(str(tmp_path / "rows")))
        here = here.replace('"orders-checkpoint"', repr(str(tmp_path / "checkpoint")))
        here = here.replace('"rows-checkpoint"', repr(str(tmp_path / "exactly-once")))
        exec(here.replace("localhost:9092", topics.bootstrap), names)
    printed = capsys.readouterr().out
    assert "55\n" in printed, "offsets 5 to 49 of one partition and 0 to 9 of the other"
    assert "100\n" in printed
    for name in ("rows", "rows-done", "rows-nightly"):
        committed = {"subscribe": name, "kafka.isolation.level": "read_committed"}
        assert source.read(**committed).count() == 10


def test_the_examples_run(
    source: Source, topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """In the session of the tests, which they find and are kept from stopping."""
    topics.fill(topics.create("first"), 0, 60)
    topics.create("second")
    monkeypatch.setattr(type(source.spark), "stop", lambda _: None)

    def run(name: str, *arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", [name, topics.bootstrap, *arguments])
        runpy.run_path(str(PROJECT / "examples" / "spark" / name), run_name="__main__")
        return str(capsys.readouterr().out)

    for copied in (60, 0):
        printed = run("copy_topic.py", "first", "second", str(tmp_path / "checkpoint"))
        assert f"copied {copied} records" in printed
    assert numbers(source.read(subscribe="second")) == list(range(60))
    assert run("read_batch.py", "first").count("|   30|") == 2
