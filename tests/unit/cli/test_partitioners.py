"""Where records go, how fast, and which options of `produce` contradict each other."""

import sys
from pathlib import Path

import click
import pytest

from fairlead_cli.errors import CliError, InputError
from fairlead_cli.records.pace import Pace
from fairlead_cli.records.partitioner import Partitioner, build_partitioner
from fairlead_cli.sending_options import SendingOptions

OPTIONS = {
    "partition": None,
    "partitioner": None,
    "acks": "all",
    "idempotent": None,
    "compression": "none",
    "batch_size": None,
    "linger_ms": 5,
    "rate": None,
}


def build(name: str, partitions: int = 3, batch_bytes: int = 100) -> Partitioner:
    partitioner = build_partitioner(name, partitions, batch_bytes=batch_bytes)
    assert partitioner is not None
    return partitioner


def sending(**given: object) -> SendingOptions:
    return SendingOptions(**(OPTIONS | given))  # type: ignore[arg-type]


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module in the current folder."""
    name = "partitioners_of_a_user"
    (tmp_path / f"{name}.py").write_text(
        "def by_length(key, value, partitions): return len(value) % partitions\n"
        "def outside(key, value, partitions): return partitions\n"
        "def text(key, value, partitions): return '0'\n"
        "def broken(key, value, partitions): return {}['no']\n"
        "number = 1\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each != str(tmp_path)])
    monkeypatch.delitem(sys.modules, name, raising=False)
    return name


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "def by(key, value, partitions) return 0\n",
            r"SyntaxError: .*broken_partitioners\.py, line 1",
        ),
        ("limit = 1 / 0\n", "ZeroDivisionError: division by zero"),
        ("raise SystemExit('not for import')\n", "SystemExit: not for import"),
        ("import no_such_module_at_all\n", "No module named 'no_such_module_at_all'"),
    ],
)
def test_a_module_that_cannot_be_imported_is_said(
    text: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_partitioners.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with pytest.raises(InputError, match=f"cannot import broken_partitioners: {why}"):
        build("broken_partitioners:by")


@pytest.mark.parametrize("name", ["..above:by", ".beside:by", "a..b:c", "a b:c", "\0:c"])
def test_a_name_that_is_none_of_a_module_is_said(name: str) -> None:
    with pytest.raises(InputError, match="--partitioner: cannot import"):
        build(name)


def test_murmur2_is_left_to_the_client_library() -> None:
    assert build_partitioner("murmur2", 3, batch_bytes=1) is None


@pytest.mark.parametrize("name", ["round-robin", "sticky"])
def test_a_partition_without_a_leader_is_left_out_unless_none_has_one(name: str) -> None:
    for leaderless, expected in (({1}, {0, 2}), ({0, 1, 2}, {0, 1, 2})):
        choose = build_partitioner(name, 3, batch_bytes=1, leaderless=leaderless)
        assert choose is not None
        assert {choose(b"key", b"value") for _ in range(9)} == expected


def test_round_robin_takes_turns_whatever_the_key() -> None:
    choose = build("round-robin")
    assert [choose(b"same", b"v") for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]


def test_sticky_fills_a_batch_before_it_goes_on() -> None:
    choose = build("sticky", batch_bytes=30)
    chosen = [choose(b"k" * 5, b"v" * 5) for _ in range(9)]
    first = chosen[0]
    turns = [first, (first + 1) % 3, (first + 2) % 3]
    assert chosen == [turn for turn in turns for _ in range(3)]


def test_sticky_takes_nulls_and_one_partition() -> None:
    choose = build("sticky", partitions=1, batch_bytes=1)
    assert {choose(None, None), choose(None, b"value"), choose(b"key", None)} == {0}


def test_a_function_of_the_current_folder_chooses(own_module: str) -> None:
    choose = build(f"{own_module}:by_length")
    assert [choose(None, b"v" * length) for length in range(4)] == [0, 1, 2, 0]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("outside", "answered 3 for key b'k'"),
        ("text", "answered '0' for key b'k'"),
        ("broken", "failed for key b'k': KeyError: 'no'"),
    ],
)
def test_a_function_that_is_wrong_is_named(own_module: str, function: str, message: str) -> None:
    choose = build(f"{own_module}:{function}")
    with pytest.raises(CliError) as raised:
        choose(b"k", b"v")
    assert message in raised.value.message


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("murmur", "is not murmur2, round-robin, sticky or PACKAGE:FUNCTION"),
        (":f", "is not murmur2"),
        ("no_such_package_of_ours:f", "cannot import no_such_package_of_ours"),
        ("{module}:number", "has no function number"),
        ("{module}:missing", "has no function missing"),
    ],
)
def test_a_partitioner_that_is_not_there_is_wrong_usage(
    own_module: str, name: str, message: str
) -> None:
    with pytest.raises(InputError) as raised:
        build_partitioner(name.format(module=own_module), 3, batch_bytes=1)
    assert message in raised.value.message


def test_a_pace_is_even_and_starts_at_once() -> None:
    pace = Pace(10, now=100.0)
    assert [round(pace.take_delay(100.0), 6) for _ in range(3)] == [0.0, 0.1, 0.2]
    assert pace.take_delay(100.35) == 0.0


def test_a_source_that_stalled_is_made_up_for_by_one_second_at_most() -> None:
    pace = Pace(8, now=0.0)
    pace.take_delay(0.0)
    delays = [pace.take_delay(60.0) for _ in range(11)]
    assert delays == [0.0] * 9 + [0.125, 0.25]


def test_idempotence_comes_with_acks_all_unless_it_is_refused() -> None:
    assert sending().settings["enable.idempotence"] is True
    assert sending(acks="1").settings["enable.idempotence"] is False
    assert sending(idempotent=False).settings["enable.idempotence"] is False


@pytest.mark.parametrize("acks", ["0", "1"])
def test_idempotence_without_acks_all_is_wrong_usage(acks: str) -> None:
    with pytest.raises(
        click.UsageError, match=f"--idempotent needs --acks all: with --acks {acks}"
    ):
        sending(acks=acks, idempotent=True).check()


def test_two_that_choose_a_partition_are_wrong_usage() -> None:
    with pytest.raises(click.UsageError, match="only one can choose"):
        sending(partition=1, partitioner="sticky").check()


def test_bytes_alone_decide_when_a_batch_is_full() -> None:
    settings = sending(batch_size=65_536, linger_ms=50).settings
    assert (settings["batch.size"], settings["linger.ms"]) == (65_536, 50)
    assert settings["batch.num.messages"] >= 65_536
    assert "batch.size" not in sending().settings
