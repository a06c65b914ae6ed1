"""Each `*.txt` in this folder is a story that the product still tells word for word.

The first word of a file's name says who carries out its commands. After a change that is meant to
change what they print: `pytest tests/scenarios --rewrite`, and read the difference.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from transcripts import transcript
from transcripts.controller import ControllerTranscript
from transcripts.groups import GroupsTranscript
from transcripts.replication import ReplicationTranscript
from transcripts.transactions import TransactionsTranscript
from transcripts.transcript import Interpreter, TranscriptError, command

FOLDER = Path(__file__).parent
KINDS = {
    "controller": ControllerTranscript,
    "groups": GroupsTranscript,
    "replication": ReplicationTranscript,
    "transactions": TransactionsTranscript,
}
SCENARIOS = sorted(FOLDER.glob("*.txt"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path, request: pytest.FixtureRequest) -> None:
    interpreter = KINDS[path.stem.partition("_")[0]]()
    try:
        now = transcript.run(path, interpreter)
    finally:
        interpreter.close()
    if request.config.getoption("rewrite"):
        path.write_text(now)
    difference = transcript.difference(path, now)
    assert not difference, f"\n{difference}\nIf that is meant: pytest {path} --rewrite"


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_a_scenario_says_at_its_top_what_it_shows(path: Path) -> None:
    assert path.read_text().startswith("# ")


class Counter(Interpreter):
    """Counts, for the tests of transcripts themselves."""

    def __init__(self) -> None:
        super().__init__()
        self.value = 0

    @command
    def add(self, number: int, *, times: int = 1) -> None:
        """Add a number."""
        self.value += number * times
        self.say(f"{self.value}")

    @command
    def forget_all(self) -> None:
        """Begin anew."""
        self.value = 0


def test_a_transcript_that_holds_is_left_as_it_is(tmp_path: Path) -> None:
    text = (
        "# What it shows.\n\nadd 2\nadd 3 times=2\n----\n2\n8\n\n# More.\n\nforget-all\n----\nok\n"
    )
    path = tmp_path / "story.txt"
    path.write_text(text)
    assert transcript.run(path, Counter()) == text
    assert not transcript.difference(path, text)


def test_another_output_is_shown_with_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "story.txt"
    path.write_text("# What it shows.\n\nadd 2\n----\n3\n")
    now = transcript.run(path, Counter())
    assert now == "# What it shows.\n\nadd 2\n----\n2\n"
    assert "-3\n+2" in transcript.difference(path, now)


@pytest.mark.parametrize(
    ("step", "problem"),
    [
        ("ad 2\n----\n", r"no command 'ad'; did you mean 'add'\? There are: add, forget-all"),
        ("add two\n----\n", "number is a number, not 'two'"),
        ("add\n----\n", r"add lacks number: add number \[times=\]"),
        ("add 1 2\n----\n", r"add has no place for '2': add number \[times=\]"),
        ("add 1 time=2\n----\n", "add has no option 'time'"),
        ("add 1 times=2 times=3\n----\n", "add is given 'times' twice"),
        ("add '1\n----\n", "No closing quotation"),
        ("add 1\n", "a line '----' must end a step"),
        ("add 1\n\nadd 2\n----\n3\n", "a line '----' must end a step"),
    ],
)
def test_what_is_mistyped_is_said_with_file_and_line(
    tmp_path: Path, step: str, problem: str
) -> None:
    path = tmp_path / "story.txt"
    path.write_text(f"# What it shows.\n\n{step}")
    with pytest.raises(TranscriptError, match=rf"story\.txt:[34]: {problem}"):
        transcript.run(path, Counter())
