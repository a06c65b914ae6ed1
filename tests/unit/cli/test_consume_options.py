"""Options of `consume` that need each other, and signals that only ask."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest
from click.testing import CliRunner
from waiting import DEADLINE_S

from fairlead_cli.client.connection import build_group_consumer
from fairlead_cli.client.stop_signals import StopSignals
from fairlead_cli.consume import GroupOptions
from fairlead_cli.main import fairlead


@pytest.fixture(autouse=True)
def default_handler() -> Iterator[None]:
    """Ctrl-C means to this process what it does by default, whatever was imported before."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a", "--instance-id", "x"], "--instance-id needs --group"),
        (["a", "--assignor", "range"], "--assignor needs --group"),
        (["a", "--commit", "never"], "--commit needs --group"),
        (["a", "-g", ""], "it is empty"),
        (["a", "-g", "g", "--instance-id", ""], "it is empty"),
        (["a", "-g", "g", "--partition", "1"], "the group decides who reads what"),
        (["a", "-g", "g", "--from", "17"], "fairlead group reset g"),
        (["a", "-g", "g", "--from", "2h"], "fairlead group reset g"),
        (["a", "b", "--partition", "1"], "a single topic"),
        (["a", "--group-protocol", "consumer"], "--group-protocol needs --group"),
        (["a", "-g", "g", "--assignor", "uniform"], "cooperative-sticky, range, roundrobin"),
        (
            ["a", "-g", "g", "--group-protocol", "consumer", "--assignor", "roundrobin"],
            "consumer protocol, which has uniform, range",
        ),
        (["a", "-g", "g", "--assignor", "mine"], "'mine' is not one of"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_makes_no_sense_is_wrong_usage(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(fairlead, ["consume", *arguments, "--data", "none"])
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("protocol", "assignor", "settings"),
    [
        (None, None, {"partition.assignment.strategy": "cooperative-sticky"}),
        ("classic", "range", {"partition.assignment.strategy": "range"}),
        ("consumer", None, {"group.protocol": "consumer"}),
        ("consumer", "range", {"group.protocol": "consumer", "group.remote.assignor": "range"}),
    ],
)
def test_each_protocol_has_its_own_settings(
    protocol: str | None, assignor: str | None, settings: dict[str, str]
) -> None:
    options = GroupOptions("g", assignor, protocol, None, None)
    assert options.protocol_settings() == settings
    # librdkafka refuses settings that do not go together.
    build_group_consumer("127.0.0.1:1", {"group.id": "g", **settings}).close()


def test_ctrl_c_is_remembered_and_ends_the_block_as_it_would() -> None:
    seen = []
    with pytest.raises(KeyboardInterrupt), StopSignals() as signals:
        seen.append(signals.is_stopped())
        os.kill(os.getpid(), signal.SIGINT)
        seen.append(signals.is_stopped())
    assert seen == [False, True]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_second_ctrl_c_does_not_wait() -> None:
    finished = False
    with pytest.raises(KeyboardInterrupt), StopSignals():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        finished = True
    assert not finished


def test_sigterm_ends_the_process_as_a_signal_would() -> None:
    code = (
        "import os, signal\n"
        "from fairlead_cli.client.stop_signals import StopSignals\n"
        "with StopSignals() as signals:\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    print('finished', signals.is_stopped(), flush=True)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert (result.returncode, result.stdout) == (-signal.SIGTERM, "finished True\n")


def run_code(code: str) -> tuple[int, str]:
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    return result.returncode, result.stdout


def test_what_is_open_is_ended_before_sigterm_ends_the_process() -> None:
    code = (
        "import os, signal\n"
        "from fairlead_cli.client.stop_signals import ends_as_interrupts\n"
        "with ends_as_interrupts():\n"
        "    try:\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "    finally:\n"
        "        print('aborted', flush=True)\n"
    )
    assert run_code(code) == (-signal.SIGTERM, "aborted\n")


def test_a_signal_that_is_ignored_interrupts_nothing() -> None:
    code = (
        "import os, signal\n"
        "from fairlead_cli.client.stop_signals import ends_as_interrupts\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "with ends_as_interrupts():\n"
        "    os.kill(os.getpid(), signal.SIGHUP)\n"
        "    print('goes on', flush=True)\n"
    )
    assert run_code(code) == (0, "goes on\n")


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_that_is_ignored_stops_no_reader(number: str) -> None:
    """As `nohup` has it, and `&` in a script."""
    code = (
        "import os, signal\n"
        "from fairlead_cli.client.stop_signals import StopSignals\n"
        f"signal.signal(signal.{number}, signal.SIG_IGN)\n"
        "with StopSignals() as signals:\n"
        f"    os.kill(os.getpid(), signal.{number})\n"
        "    print(signals.is_stopped(), flush=True)\n"
    )
    assert run_code(code) == (0, "False\n")


HANG_UP_TWICE = (
    "import os, signal\n"
    "signal.signal(signal.SIGHUP, signal.SIG_DFL)\n"
    "def hang_up():\n"
    "    for _ in range(2):\n"
    "        os.kill(os.getpid(), signal.SIGHUP)\n"
)


def test_a_terminal_that_closes_lets_a_reader_commit() -> None:
    """It sends SIGHUP twice, by its shell and by the kernel, and takes no words any more."""
    code = (
        f"{HANG_UP_TWICE}"
        "from fairlead_cli.client.stop_signals import StopSignals\n"
        "os.dup2(os.open('/dev/full', os.O_WRONLY), 2)\n"
        "with StopSignals() as signals:\n"
        "    hang_up()\n"
        "    print('committed', signals.is_stopped(), flush=True)\n"
    )
    assert run_code(code) == (-signal.SIGHUP, "committed True\n")


def test_a_terminal_that_closes_lets_a_transaction_be_aborted() -> None:
    code = (
        f"{HANG_UP_TWICE}"
        "from fairlead_cli.client.stop_signals import ends_as_interrupts\n"
        "with ends_as_interrupts():\n"
        "    try:\n"
        "        os.kill(os.getpid(), signal.SIGHUP)\n"
        "    finally:\n"
        "        hang_up()\n"
        "        print('aborted', flush=True)\n"
    )
    assert run_code(code) == (-signal.SIGHUP, "aborted\n")


def test_an_error_in_the_block_is_not_hidden_by_a_signal() -> None:
    with pytest.raises(ValueError, match="first"), StopSignals():
        os.kill(os.getpid(), signal.SIGINT)
        raise ValueError("first")
