"""What a run says of missing tools, and what becomes of the tests that need them."""

import os
import subprocess
import sys
from pathlib import Path

import needed_tools
import pytest
from needed_tools import TOOLS, describe_missing, is_promised, need

from fairlead_bench.peers import spark_connector, zookeeper_server
from fairlead_bench.peers.kafka_distribution import POM, read_version

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def no_tools(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(needed_tools, "CACHE", tmp_path)
    monkeypatch.delenv("CI", raising=False)


@pytest.mark.usefixtures("no_tools")
def test_each_missing_tool_is_named_with_what_it_costs_and_how_to_get_it() -> None:
    lines = describe_missing()
    assert len(lines) == len(TOOLS) == 9
    for line, tool in zip(lines, TOOLS.values(), strict=True):
        assert line.startswith(f"skips for want of {tool.name}: ")
        assert line.endswith(tool.how_to_get)


@pytest.mark.usefixtures("no_tools")
@pytest.mark.parametrize("name", TOOLS)
def test_a_test_is_skipped_for_a_developer_and_fails_where_tools_are_promised(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(pytest.skip.Exception, match=f"{name} is not installed: "):
        need(name)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="CI is set"):
        need(name)
    assert all(line.startswith("FAILS for want of") for line in describe_missing())


def test_what_maven_has_fetched_needs_it_no_more(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(needed_tools, "CACHE", tmp_path)
    (tmp_path / "spark-connector").mkdir()
    (tmp_path / zookeeper_server.FOLDER).mkdir()
    kafka = tmp_path / f"kafka-{read_version(POM)}"
    for folder in ("libs", "streams", "connect"):
        (kafka / folder).mkdir(parents=True)
    assert not TOOLS["maven"].is_there()
    for jar in spark_connector.JARS:
        (tmp_path / "spark-connector" / jar.file_name).touch()
    for jar in zookeeper_server.JARS:
        (tmp_path / zookeeper_server.FOLDER / jar.file_name).touch()
    assert TOOLS["maven"].is_there()


@pytest.mark.parametrize(
    ("value", "promised"),
    [(None, False), ("", False), ("false", False), ("true", True), ("1", True)],
)
def test_ci_is_what_promises(value: str | None, promised: bool) -> None:
    assert is_promised({} if value is None else {"CI": value}) is promised


@pytest.mark.parametrize("workers", [(), ("--numprocesses", "1", "--dist", "loadfile")])
def test_a_run_says_it_once_and_at_its_start(workers: tuple[str, ...], tmp_path: Path) -> None:
    """Through the configuration of the project, as `make test` does."""
    arguments = ["-p", "no:cacheprovider", *workers, "tests/unit/wire/test_wire_murmur2.py"]
    environment = os.environ | {"PATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments],
        cwd=ROOT,
        env={name: value for name, value in environment.items() if name not in XDIST | {"CI"}},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("skips for want of kcat: ") == 1
    head, _, _ = done.stdout.partition("collected" if not workers else "workers [")
    assert "skips for want of helm: the charts. Get it: https://helm.sh" in head
    assert "the whole: make proofs" in head


XDIST = {"PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_XDIST_TESTRUNUID"}
