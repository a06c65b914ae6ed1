"""What TAB proposes without a cluster: brokers of a cluster file, names of settings."""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from fairlead_cli.local.cluster_file import ClusterFile, ProcessEntry, write_cluster_file
from fairlead_cli.local.layout import Layout
from fairlead_cli.main import fairlead


def propose(line: str) -> list[str]:
    """As bash asks; the last word of the line is the one that is not finished."""
    words = line.split(" ")
    environment = {
        "_FAIRLEAD_COMPLETE": "bash_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    result = CliRunner().invoke(fairlead, prog_name="fairlead", env=environment)
    assert result.exit_code == 0, result.output
    return [each.partition(",")[2] for each in result.output.split()]


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    brokers = [
        ProcessEntry(name=f"broker-{id}", host="127.0.0.1", port=1, http_port=2, id=id)
        for id in (0, 1, 12)
    ]
    controller = ProcessEntry(name="controller", host="127.0.0.1", port=3, http_port=4)
    file = ClusterFile(str(tmp_path), 1, 2, None, None, controller, brokers)
    write_cluster_file(Layout(tmp_path).cluster_file, file)
    return tmp_path


@pytest.mark.parametrize("verb", ["restart", "kill", "pause", "resume"])
def test_brokers_come_from_the_cluster_file(verb: str, cluster: Path) -> None:
    """Not from the brokers: one that is paused is the one to be resumed."""
    assert propose(f"fairlead broker {verb} --data {cluster} ") == ["0", "1", "12"]
    assert propose(f"fairlead broker {verb} --data {cluster} 1") == ["1", "12"]


def test_without_a_cluster_no_broker_is_proposed(tmp_path: Path) -> None:
    assert propose(f"fairlead broker pause --data {tmp_path} ") == []
    Layout(tmp_path).cluster_file.write_text("not JSON")
    assert propose(f"fairlead broker pause --data {tmp_path} ") == []


@pytest.mark.parametrize(
    ("line", "proposed"),
    [
        ("fairlead topic create t --config retention.", ["retention.bytes=", "retention.ms="]),
        ("fairlead topic alter t --config retention.m", ["retention.ms="]),
        ("fairlead topic alter t --delete-config retention.m", ["retention.ms"]),
        ("fairlead up --set log.retention.h", ["log.retention.hours="]),
        ("fairlead topic create t --config retention.ms=1", []),
    ],
)
def test_settings_are_proposed_by_name(line: str, proposed: list[str]) -> None:
    assert propose(line) == proposed


@pytest.mark.parametrize("verb", ["describe", "delete", "alter", "elect"])
def test_topics_complete_nothing_where_no_cluster_answers(verb: str, tmp_path: Path) -> None:
    assert "FAIRLEAD_BOOTSTRAP" not in os.environ
    assert propose(f"fairlead topic {verb} --data {tmp_path} o") == []
