"""Tables in terminals of any width: cells are folded or lines run over, nothing is left out."""

import subprocess
import sys

import pytest
from rich.text import Text

from fairlead_cli import output
from fairlead_cli.command_line import print_error
from fairlead_cli.errors import CliError
from fairlead_cli.main import run
from fairlead_cli.output import note_if_interrupted, print_table
from fairlead_cli.spark.job_progress import job_progress
from fairlead_cli.status import print_status

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


@pytest.mark.parametrize("name", ["[red]", "[bold]a[/bold]", "[/]", "[/a]", "team:key:b", "a[1]"])
def test_names_are_shown_as_they_are_and_no_markup(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Groups, clients and transactional ids may have any name."""
    print_table(("group", "lag"), [(name, "[0]")], right=("lag",))
    assert filled_lines(capsys)[-1].split() == [name, "[0]"]


def test_a_pipe_is_wide_enough_for_long_lines(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "meaning"), [("n", "how long records stay " * 4)])
    assert len(filled_lines(capsys)) == 3


def test_the_status_of_three_brokers_fits_a_terminal_of_eighty_columns(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_status(
        {
            "state": "running",
            "data": "/data",
            "bootstrap": "",
            "topics": [],
            "brokers": [
                {
                    "id": number,
                    "state": "running",
                    "pid": 12345,
                    "host": "127.0.0.1",
                    "port": 19092 + number,
                    "restarts": 1,
                    "leaders": 271,
                    "inSync": 271,
                    "replicas": 271,
                }
                for number in range(3)
            ],
            "controller": {
                "state": "running",
                "pid": 1,
                "host": "127.0.0.1",
                "port": 19191,
                "restarts": 0,
            },
        }
    )
    assert max(map(len, filled_lines(capsys))) <= 80


REDIRECTIONS = [
    ("config list >&-", 0, ""),
    ("config list > /dev/full", 1, "error: cannot write the output: No space left on device\n"),
    ("--version > /dev/full", 1, "error: cannot write the output: No space left on device\n"),
    ("config list 2>&- | head -1", 0, ""),
    ("produce t --data /none <&- >&-", 1, "error: there is no local cluster in /none\n"),
]


@pytest.mark.parametrize(("arguments", "code", "told"), REDIRECTIONS, ids=str)
def test_streams_that_are_closed_or_full_leave_no_traceback(
    arguments: str, code: int, told: str
) -> None:
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {sys.executable} -m fairlead_cli.main {arguments}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in done.stderr
    assert done.returncode == code
    assert done.stderr.startswith(told)
    assert bool(done.stderr) == bool(told)


def test_no_color_holds_for_everything(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert run(["config", "list", "retention.ms"]) == 0
    assert "\x1b[3" not in capsys.readouterr().out


def filled_lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line for line in capsys.readouterr().out.splitlines() if line.strip()]


def test_ctrl_c_says_what_it_does_not_end(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt), note_if_interrupted("The drain goes on."):
        raise KeyboardInterrupt
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "The drain goes on.\n")
    with note_if_interrupted("The drain goes on."):
        pass
    assert capsys.readouterr().err == ""


def test_a_log_gets_no_bar_of_a_job(capsys: pytest.CaptureFixture[str]) -> None:
    with job_progress("late-flights", is_shown=True) as show:
        show([{"batchId": 1, "rowsPerSecond": 10, "lag": 5}])
    captured = capsys.readouterr()
    assert captured.out + captured.err == ""


def test_a_name_in_a_table_cannot_rewrite_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["group"], [["\x1b]0;title\x07\x9b2J"]])
    assert r"\x1b]0;title\x07\x9b2J" in capsys.readouterr().out


def test_a_name_in_an_error_cannot_rewrite_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Client ids stand in a refusal, and the name of another group as the nearest one."""
    hint = "  client \x1b]0;title\x07\nStop it."
    print_error(CliError("group 'g\x1b[2J' has members", hint=hint))
    told = capsys.readouterr().err
    assert r"group 'g\x1b[2J' has members" in told
    assert "  client \\x1b]0;title\\x07\nStop it.\n" in told
