"""Tables in terminals of any width: cells are folded or lines run over, nothing is left out."""

import pytest
from rich.text import Text

from fairlead_cli import output
from fairlead_cli.main import run
from fairlead_cli.output import print_table

COLUMNS = ("topic", "partitions", "replicas", "under-replicated", "offline")
ROWS = [("__consumer_offsets", "50", "3", "0", "0"), ("orders", "6", "3", "12", "1")]


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "PIPE_COLUMNS", 40)


@pytest.mark.usefixtures("narrow")
def test_a_table_wider_than_the_terminal_keeps_every_cell(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_table(COLUMNS, ROWS, right=COLUMNS[1:])
    head, _rule, first, second = (line.split() for line in filled_lines(capsys))
    assert head == list(COLUMNS)
    assert first == list(ROWS[0])
    assert second == list(ROWS[1])


@pytest.mark.usefixtures("narrow")
def test_long_text_is_folded_where_that_helps(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "meaning"), [(Text("retention.ms"), "how long records stay " * 4)])
    lines = filled_lines(capsys)
    assert max(map(len, lines)) <= 40
    assert lines[2].startswith(" retention.ms ")
    assert " ".join(lines[2:]).split()[1:] == ("how long records stay " * 4).split()


def test_a_pipe_is_wide_enough_for_long_lines(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "meaning"), [("n", "how long records stay " * 4)])
    assert len(filled_lines(capsys)) == 3


def test_no_color_holds_for_everything(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert run(["config", "list", "retention.ms"]) == 0
    assert "\x1b[3" not in capsys.readouterr().out


def filled_lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line for line in capsys.readouterr().out.splitlines() if line.strip()]
