"""A command goes to the cluster that it is given, and to no other one for want of a name."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from fairlead_cli.main import fairlead

VERBS = [["topic", "delete", "orders", "--yes"], ["status"], ["consume", "orders"]]


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
@pytest.mark.parametrize("option", ["--bootstrap", "--data"])
def test_an_empty_name_is_not_the_local_cluster_of_this_folder(
    verb: list[str], option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of a shell's variable that is not set, for one."""
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(fairlead, [*verb, option, ""])
    assert result.exit_code == 2
    assert f"Invalid value for '{option}': it is empty" in result.output


@pytest.mark.parametrize("variable", ["FAIRLEAD_BOOTSTRAP", "FAIRLEAD_DATA"])
def test_an_empty_variable_is_one_that_is_not_set(
    variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(fairlead, ["status"], env={variable: ""})
    assert "there is no local cluster in .fairlead" in str(result.exception)


def test_up_makes_no_cluster_of_the_present_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(fairlead, ["up", "--detach", "--data", ""])
    assert (result.exit_code, list(tmp_path.iterdir())) == (2, [])
