"""A taken port is answered with the same command at ports that are free, ready to paste."""

import shlex
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlead_cli.errors import CliError
from fairlead_cli.local import preflight
from fairlead_cli.local.layout import Ports
from fairlead_cli.local.plan import LaunchPlan
from fairlead_cli.local.preflight import advise_ports, refuse_taken_ports
from fairlead_cli.main import run
from fairlead_cli.up import find_words, up


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def pretend_taken(monkeypatch: pytest.MonkeyPatch, *taken: int) -> None:
    monkeypatch.setattr(preflight, "is_port_free", lambda _host, port: port not in taken)


def advice_for(plan: LaunchPlan) -> list[str]:
    """The words of the command that the refusal gives."""
    with pytest.raises(CliError) as refused:
        refuse_taken_ports(plan)
    assert refused.value.hint is not None
    return shlex.split(refused.value.hint.splitlines()[-1])


@pytest.mark.parametrize(
    ("taken", "expected"),
    [
        ((8081,), ["--http-port", "18080"]),
        ((9093,), ["--port", "19092"]),
        ((9092, 8080), ["--port", "19092", "--http-port", "18080"]),
        ((8080, 18081), ["--http-port", "28080"]),
    ],
)
def test_the_advice_repeats_what_was_said(
    taken: tuple[int, ...], expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_taken(monkeypatch, *taken)
    said = ("--data", "my data", "-f", "topics.yaml")
    plan = LaunchPlan(Path("/my data"), 3, Ports(9092, 8080), {}, (), said=said)
    assert advice_for(plan) == ["fairlead", "up", *said, *expected]


def test_ports_that_meet_and_ports_that_do_not_exist_are_moved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pretend_taken(monkeypatch)
    meeting = LaunchPlan(Path("/data"), 3, Ports(21_000, 21_100), {}, ())
    assert advice_for(meeting)[-4:] == ["--port", "21000", "--http-port", "31100"]
    too_high = LaunchPlan(Path("/data"), 1, Ports(65_500, 21_000), {}, ())
    assert advice_for(too_high)[-4:] == ["--port", "55500", "--http-port", "21000"]


def test_where_everything_is_taken_no_ports_are_invented(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "is_port_free", lambda _host, _port: False)
    plan = LaunchPlan(Path("/data"), 1, Ports(9092, 8080), {}, ())
    assert advise_ports(plan) == "Choose other ones with --port PORT and --http-port PORT."


def test_the_words_of_a_command_line_read_back() -> None:
    words = ["-f", "a b.yaml", "--brokers", "2", "--data", "x y", "--set", "a=1", "--detach"]
    context = up.make_context("up", [*words, "--port", "1234"])
    told = list(find_words(context))
    again = up.make_context("up", [*told, "--port", "1234"])
    assert again.params == context.params
    assert "1234" not in told


def test_up_says_it_with_the_data_directory(
    tmp_path: Path, taken_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "my data"
    assert run(["up", "--brokers", "1", "--data", str(data), "--port", str(taken_port)]) == 1
    told = capsys.readouterr().err
    assert f"port {taken_port} (Kafka, broker 0) is taken by pid" in told
    assert f"  fairlead up --brokers 1 --data '{data}'" in told


def test_an_address_of_another_machine_is_not_called_a_taken_port(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # TEST-NET-1 (RFC 5737): no machine has it.
    assert run(["up", "--host", "192.0.2.1", "--data", str(tmp_path / "data")]) == 1
    assert "this machine has no address 192.0.2.1" in capsys.readouterr().err
