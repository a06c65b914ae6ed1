"""Where `log dump` looks: a partition, a broker's logs, or those of every broker of a cluster."""

from pathlib import Path

import pytest

from fairlead_cli.errors import ExitCode
from fairlead_cli.main import run

SEGMENT = f"{0:020}.log"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A local cluster of two brokers with a partition each, both empty."""
    (tmp_path / "cluster.json").write_text("{}")
    for broker_id in range(2):
        folder = tmp_path / f"broker-{broker_id}" / "orders-0"
        folder.mkdir(parents=True)
        for suffix in (".log", ".index", ".timeindex"):
            (folder / SEGMENT).with_suffix(suffix).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("place", "segments"),
    [
        ("", "2 segments"),
        ("broker-1", "1 segment"),
        ("broker-0/orders-0", "1 segment"),
        (f"broker-0/orders-0/{SEGMENT}", "1 segment"),
    ],
)
def test_everything_below_is_verified(
    place: str, segments: str, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["log", "dump", str(data / place), "--verify"]) == ExitCode.OK
    assert capsys.readouterr().err == f"Nothing wrong in {segments}.\n"


def test_damage_in_any_broker_is_found(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damaged = data / "broker-1" / "orders-0" / SEGMENT
    damaged.write_bytes(b"no batch" * 20)
    assert run(["log", "dump", str(data), "--verify"]) == ExitCode.FAILED
    assert str(damaged) in capsys.readouterr().out


@pytest.mark.parametrize("option", [["--verify"], []])
def test_nothing_at_all_is_no_good_news(
    option: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["log", "dump", str(tmp_path), *option]) == ExitCode.FAILED
    assert f"there are no segments in {tmp_path}" in capsys.readouterr().err
