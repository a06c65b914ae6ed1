"""The command line itself: verbs, help, exit codes, and what a user mistake looks like."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from waiting import DEADLINE_S

from fairlead_cli.acl import VERBS as ACL_VERBS
from fairlead_cli.broker import VERBS as BROKER_VERBS
from fairlead_cli.command_line import refuse_undecodable
from fairlead_cli.errors import ExitCode, InputError
from fairlead_cli.group import VERBS as GROUP_VERBS
from fairlead_cli.kubectl.main import run as run_plugin
from fairlead_cli.main import VERBS, fairlead, run
from fairlead_cli.quota import VERBS as QUOTA_VERBS
from fairlead_cli.topic import VERBS as TOPIC_VERBS
from fairlead_cli.user import VERBS as USER_VERBS

PROJECT = Path(__file__).resolve().parents[3]
HEAVY = ("confluent_kafka", "rich", "asyncio", "aiohttp", "yaml", "fairlead_model")

COMMAND_LINES = [
    [],
    *[[name] for name in VERBS],
    *[["topic", name] for name in TOPIC_VERBS],
    *[["acl", name] for name in ACL_VERBS],
    *[["quota", name] for name in QUOTA_VERBS],
    *[["user", name] for name in USER_VERBS],
    *[["group", name] for name in GROUP_VERBS],
    *[["broker", name] for name in BROKER_VERBS],
    ["config", "list"],
    ["metadata", "export"],
    ["metadata", "restore"],
    ["spark", "run"],
]
EXAMPLE_FILE = re.compile(r"\bexamples/[\w./-]+")


@pytest.mark.parametrize("arguments", COMMAND_LINES, ids=lambda a: " ".join(a) or "fairlead")
def test_every_help_has_examples(arguments: list[str]) -> None:
    result = CliRunner().invoke(fairlead, [*arguments, "--help"])
    assert result.exit_code == 0, result.output
    assert "Examples:" in result.output
    assert "fairlead " in result.output
    assert all((PROJECT / path).is_file() for path in EXAMPLE_FILE.findall(result.output))


def test_help_imports_nothing_heavy() -> None:
    """Start-up time as a claim that no slow machine can make false."""
    code = (
        "import sys; from fairlead_cli.main import run; run(['--help']);"
        f"print(sorted(name for name in {HEAVY!r} if name in sys.modules))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE_S, check=True
    )
    assert result.stdout.splitlines()[-1] == "[]"


def test_summaries_of_the_table_match_the_commands() -> None:
    context = click.Context(fairlead)
    for name in VERBS:
        command = fairlead.get_command(context, name)
        assert command is not None
        assert command.name == name


def test_a_broker_runs_with_a_file_and_its_verbs_take_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["broker"]) == ExitCode.USAGE
    assert "--config FILE" in capsys.readouterr().err
    assert run(["broker", "--config", "server.properties", "list"]) == ExitCode.USAGE
    assert "'list' is about brokers of a local cluster" in capsys.readouterr().err
    assert run(["broker", "--config", "/nowhere/at/all"]) == ExitCode.USAGE
    assert "No such file" in capsys.readouterr().err


def test_a_misspelt_verb_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tpoic"]) == ExitCode.USAGE
    assert "Did you mean 'topic'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "nearest"),
    [
        (["group", "descrbe"], "describe"),
        (["topic", "creat"], "create"),
        (["broker", "puase"], "pause"),
        (["log", "dmup"], "dump"),
        (["metadata", "exprot"], "export"),
        (["config", "lsit"], "list"),
        (["spark", "rnu"], "run"),
    ],
    ids=" ".join,
)
def test_a_misspelt_verb_of_a_group_names_the_nearest(
    arguments: list[str], nearest: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == ExitCode.USAGE
    assert f"Did you mean '{nearest}'?" in capsys.readouterr().err


def test_a_verb_like_no_other_names_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["group", "zzz"]) == ExitCode.USAGE
    assert "There are: list, describe, reset, delete, import, export." in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments", [["group", "list", "--lagg"], ["topic", "create", "t", "--partition", "3"]]
)
def test_a_misspelt_option_names_the_nearest(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == ExitCode.USAGE
    assert "Did you mean" in capsys.readouterr().err


def test_wrong_usage_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["consume"]) == ExitCode.USAGE
    assert "Missing argument 'TOPIC..." in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["status"],
        ["down"],
        ["topic", "list"],
        ["group", "list"],
        ["consume", "orders", "--group", "billing"],
        ["produce", "orders"],
        ["consume", "orders"],
    ],
    ids=" ".join,
)
def test_without_a_cluster_it_says_how_to_start_one(
    arguments: list[str], tmp_path: object, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*arguments, "--data", f"{tmp_path}/none"]) == ExitCode.FAILED
    captured = capsys.readouterr()
    assert captured.out == ""
    assert f"{tmp_path}/none" in captured.err
    assert "--data" in captured.err
    assert "Traceback" not in captured.err


def test_an_address_where_nobody_listens_fails_at_once(
    capsys: pytest.CaptureFixture[str], free_port: int
) -> None:
    assert run(["topic", "list", "--bootstrap", f"127.0.0.1:{free_port}"]) == ExitCode.FAILED
    assert f"no broker answers at 127.0.0.1:{free_port}" in capsys.readouterr().err


@pytest.mark.parametrize("address", ["host:", "host:0", "host:99999", ":9092", "host:port", ","])
def test_an_address_that_is_none_is_wrong_usage(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["topic", "list", "--bootstrap", address]) == ExitCode.USAGE
    assert "--bootstrap" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["topic", "create", "t", "--partitions", "100001"],
        ["topic", "create", "t", "--replication-factor", "70000"],
        ["topic", "alter", "t", "--partitions", "99999999999"],
        ["broker", "unregister", "99999999999"],
        ["broker", "disks", "1", "--to", "/disk"],
        ["broker", "disks", "1", "--move", "t:99999999999", "--to", "/disk"],
        ["broker", "disks", "1", "--drain", "/disk", "--wait", "--timeout", "-1"],
        ["broker", "drain", "1", "--wait", "--timeout-s", "nan"],
        ["broker", "restart", "1", "--timeout-s", "inf"],
        ["produce", "t", "--rate", "nan"],
        ["features", "downgrade", "group.version=70000"],
        ["txn", "list", "--producer-id", "99999999999999999999"],
        ["txn", "list", "--longer-than", "99999999999999d"],
    ],
    ids=" ".join,
)
def test_a_number_that_nobody_can_send_is_wrong_usage(
    arguments: list[str], tmp_path: object, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*arguments, "--data", f"{tmp_path}/none"]) == ExitCode.USAGE
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "arguments",
    [["topic", "create", "a\udcff"], ["group", "describe", "a\udcff"], ["log", "dump", "a\udcff"]],
)
def test_an_argument_that_is_no_text_is_wrong_usage(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == ExitCode.USAGE
    assert r"the argument 'a\xff' is not UTF-8 text" in capsys.readouterr().err


def test_a_terminal_that_lacks_a_character_is_shown_its_number() -> None:
    """As in a locale of ISO 8859-1."""
    told = subprocess.run(
        [sys.executable, "-m", "fairlead_cli.main", "up", "--help"],
        env=os.environ | {"PYTHONIOENCODING": "latin-1"},
        capture_output=True,
        check=True,
    )
    assert b"HOST:PORT[,HOST:PORT\\u2026]" in told.stdout
    code = (
        "from fairlead_cli.output import print_json; print_json(['\u30b0', '\U0001f600', '\xe9'])"
    )
    for encoding in ("latin-1", "utf-8", "ascii"):
        printed = subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONIOENCODING": encoding},
            capture_output=True,
            check=True,
        ).stdout
        assert json.loads(printed.decode(encoding)) == ["\u30b0", "\U0001f600", "\xe9"]


def test_a_file_may_have_a_name_that_is_no_text(tmp_path: Path) -> None:
    file = tmp_path / "a\udcff"
    with pytest.raises(InputError):
        refuse_undecodable(["log", "dump", str(file)])
    file.touch()
    refuse_undecodable(["log", "dump", str(file), f"--data={file}"])


@pytest.mark.parametrize(
    "options",
    [["--key-separator", ""], ["--numbers"], ["--input", "jsonl", "--numbers"]],
    ids=" ".join,
)
def test_an_option_of_produce_that_would_do_nothing_is_refused(
    options: list[str], tmp_path: Path
) -> None:
    arguments = ["produce", "t", *options, "--data", f"{tmp_path}/none"]
    assert run(arguments) == ExitCode.USAGE


def test_a_report_that_cannot_be_written_stops_a_drill_before_it_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = str(tmp_path / "none" / "day.md")
    options = ["--fault", "kill", "--report", report, "--data", str(tmp_path)]
    assert run(["drill", "--target", "broker:1", *options]) == ExitCode.USAGE
    assert f"there is no folder {tmp_path}/none" in capsys.readouterr().err


def test_a_bundle_with_nothing_in_it_is_a_failure(
    tmp_path: Path, free_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    kubeconfig, bundle = tmp_path / "config", tmp_path / "bundle.tar.gz"
    document = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{free_port}"}}],
        "users": [{"name": "u", "user": {}}],
    }
    kubeconfig.write_text(json.dumps(document))
    options = ["--file", str(bundle), "--kubeconfig", str(kubeconfig)]
    assert run_plugin(["report", *options]) == ExitCode.FAILED
    assert f"cannot connect to 127.0.0.1:{free_port}: Connection refused" in capsys.readouterr().err
    assert not bundle.exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["consume", "t", "--group"],
        ["group", "describe"],
        ["txn", "describe"],
        ["produce", "t", "--transactional-id"],
        ["broker", "fence", "1", "--reason"],
    ],
    ids=" ".join,
)
def test_a_name_that_no_request_has_room_for_is_wrong_usage(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*arguments, "ü" * 20_000, "--data", f"{tmp_path}/none"]) == ExitCode.USAGE
    assert "at most 32767" in capsys.readouterr().err


def test_settings_without_a_file_do_not_run_a_broker(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["broker", "--set", "log.retention.hours=1"]) == ExitCode.USAGE
    assert "name a file of settings with --config FILE" in capsys.readouterr().err


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == ExitCode.OK
    assert capsys.readouterr().out.startswith("fairlead ")


def test_a_reader_that_goes_away_is_no_error() -> None:
    """`fairlead config list | head -1` under pipefail."""
    command = f"set -o pipefail; {sys.executable} -m fairlead_cli.main config list | head -1"
    result = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert (result.returncode, result.stderr) == (0, "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(shell: str) -> None:
    result = CliRunner().invoke(fairlead, ["completion", shell])
    assert result.exit_code == 0
    assert "_FAIRLEAD_COMPLETE" in result.output
    # Of a description with commas fish would show what is before the first.
    assert 'string split ","' not in result.output


@pytest.mark.parametrize(
    ("line", "proposals"),
    [
        ("fairlead completion ", "bash zsh fish"),
        ("kubectl-fairlead topic ", "describe"),
        ("kubectl-fairlead drill --fault R", "RollingRestart"),
    ],
)
def test_a_shell_that_evaluates_the_script_completes(line: str, proposals: str) -> None:
    program, *words = line.split(" ")
    function = f"_{program.replace('-', '_')}_completion"
    script = f"""
        eval "$({program} completion bash)"
        COMP_WORDS=({program} {" ".join(word or '""' for word in words)})
        COMP_CWORD={len(words)}
        {function} {program}
        echo "${{COMPREPLY[@]}}"
    """
    beside = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script],
        env=os.environ | {"PATH": beside},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout.strip(), done.stderr) == (proposals, "")


@pytest.mark.parametrize(
    ("words", "proposals"),
    [
        (["drill", "--fault", "R"], ["RollingRestart", ":4"]),
        (["drill", "--file", ""], [":0"]),  # kubectl lets the shell propose files
        (["drill", "--file", "a"], [":0"]),
    ],
)
def test_kubectl_is_told_what_completes(words: list[str], proposals: list[str]) -> None:
    command = Path(sys.executable).with_name("kubectl_complete-fairlead")
    done = subprocess.run([command, *words], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == proposals


def test_completion_knows_verbs_and_values() -> None:
    environment = {"_FAIRLEAD_COMPLETE": "bash_complete", "COMP_CWORD": "1"}
    result = CliRunner().invoke(
        fairlead,
        prog_name="fairlead",
        env=environment | {"COMP_WORDS": "fairlead co"},
        standalone_mode=True,
    )
    assert [line.split(",")[1] for line in result.output.split()] == [
        "controller",
        "consume",
        "config",
        "completion",
    ]


def test_completion_after_a_misspelt_verb_is_empty() -> None:
    """Not an error in the middle of a line that somebody is still typing."""
    environment = {"_FAIRLEAD_COMPLETE": "bash_complete", "COMP_CWORD": "2"}
    result = CliRunner().invoke(
        fairlead,
        prog_name="fairlead",
        env=environment | {"COMP_WORDS": "fairlead gruop de"},
        standalone_mode=True,
    )
    assert (result.exit_code, result.output.strip()) == (0, "")


def test_the_page_of_the_command_has_all_verbs() -> None:
    page = (PROJECT / "docs" / "cli.md").read_text()
    groups = {
        "topic": TOPIC_VERBS,
        "broker": BROKER_VERBS,
        "group": GROUP_VERBS,
        "acl": ACL_VERBS,
        "user": USER_VERBS,
        "quota": QUOTA_VERBS,
    }
    named = set()
    for code in re.findall(r"`([^`\n]+)`", page):
        first, *rest = code.split()
        # `group list|describe` names both.
        named |= {first, *(f"{first} {verb}" for verb in (rest or [""])[0].split("|"))}
    wanted = {f"{name} {verb}" for name, verbs in groups.items() for verb in verbs}
    assert VERBS.keys() | wanted <= named
