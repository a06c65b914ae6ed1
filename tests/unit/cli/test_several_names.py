"""One wrong name among several: the others are shown, every wrong one is named."""

import pytest

from fairlead_cli.errors import CliError, ExitCode, InputError
from fairlead_cli.several_names import find_each, report_missing


def find(name: str) -> str:
    if name.startswith("no-"):
        raise CliError(f"topic '{name}' does not exist", hint="See:  fairlead topic list")
    return name.upper()


def test_the_others_are_found_once_each_in_order() -> None:
    found, errors = find_each(["b", "no-1", "a", "b", "no-2"], find)
    assert found == ["B", "A"]
    assert [error.message for error in errors] == [
        "topic 'no-1' does not exist",
        "topic 'no-2' does not exist",
    ]


def test_every_error_is_said_and_the_worst_decides(capsys: pytest.CaptureFixture[str]) -> None:
    assert report_missing([]) == ExitCode.OK
    assert report_missing([CliError("one", hint="do this"), CliError("two")]) == ExitCode.FAILED
    assert capsys.readouterr() == ("", "error: one\ndo this\nerror: two\n")
    assert report_missing([CliError("one"), InputError("two")]) == ExitCode.USAGE
