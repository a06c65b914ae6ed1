"""`config list`, and the page that it writes."""

import json
from pathlib import Path

import pytest

from fairlead_cli.errors import ExitCode
from fairlead_cli.main import run
from fairlead_model.configs.config_values import BROKER_CONFIGS, TOPIC_CONFIGS

ROOT = Path(__file__).resolve().parents[3]


def test_every_setting_is_listed_with_type_default_and_meaning(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["config", "list", "-o", "json"]) == ExitCode.OK
    rows = json.loads(capsys.readouterr().out)
    assert len(rows) == len(BROKER_CONFIGS) + len(TOPIC_CONFIGS)
    assert all(row["type"] and row["doc"] and "default" in row for row in rows)


def test_a_word_picks_by_name_and_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "list", "retention", "--scope", "topic"]) == ExitCode.OK
    out = capsys.readouterr().out
    assert "retention.ms" in out
    assert "604800000" in out
    assert "Broker settings" not in out


def test_a_word_that_nothing_has_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "list", "xyzzy"]) == ExitCode.FAILED
    assert "no setting has 'xyzzy'" in capsys.readouterr().err
    assert run(["config", "list", "retenton.ms", "-o", "json"]) == ExitCode.FAILED
    printed = capsys.readouterr()
    assert json.loads(printed.out) == []
    assert "Did you mean 'retention.ms'?" in printed.err


def test_the_page_of_settings_is_current(capsys: pytest.CaptureFixture[str]) -> None:
    run(["config", "list", "-o", "markdown"])
    page = (ROOT / "docs/settings.md").read_text()
    assert page == capsys.readouterr().out, "fairlead config list -o markdown > docs/settings.md"


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("log.retenton.hours=3", "did you mean log.retention.hours"),
        ("num.partitions=0", "num.partitions: 0 is below the minimum 1"),
        ("num.partitions=few", "num.partitions: 'few' is not a whole number"),
        ("node.id=7", "`fairlead up` sets this one itself"),
        ("num.partitions", "is not KEY=VALUE"),
    ],
)
def test_a_wrong_setting_starts_nothing(
    assignment: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    assert run(["up", "--set", assignment, "--data", str(data)]) == ExitCode.USAGE
    assert message in capsys.readouterr().err
    assert not data.exists()
