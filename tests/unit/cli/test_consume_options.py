"""Options of `consume` that need each other, and signals that only ask."""

import os
import signal
import subprocess
import sys

import pytest
from click.testing import CliRunner

from fairlead_cli.client.stop_signals import StopSignals
from fairlead_cli.main import fairlead


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
        (["a", "-g", "g", "--assignor", "mine"], "'mine' is not one of"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_makes_no_sense_is_wrong_usage(arguments: list[str], message: str) -> None:
    result = CliRunner().invoke(fairlead, ["consume", *arguments, "--data", "none"])
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


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
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False
    )
    assert (result.returncode, result.stdout) == (-signal.SIGTERM, "finished True\n")


def test_an_error_in_the_block_is_not_hidden_by_a_signal() -> None:
    with pytest.raises(ValueError, match="first"), StopSignals():
        os.kill(os.getpid(), signal.SIGINT)
        raise ValueError("first")
