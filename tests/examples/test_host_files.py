"""`examples/hosts`: settings that are taken, and units that systemd takes."""

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from needed_tools import need

from fairlead_broker.settings import build_settings
from fairlead_controller.zookeeper.properties import read_controller_properties
from fairlead_model.configs.property_files import read_properties
from fairlead_model.configs.setting_sources import merge_settings

FILES = Path(__file__).resolve().parents[2] / "examples" / "hosts"
UNITS = ("fairlead-broker.service", "fairlead-controller.service")
INSTALLED = "/opt/fairlead/bin/fairlead"
EXPOSURE_MAX = 2.0
"""systemd's own scale ends at 10, for a service without any hardening; up to 2 it says OK."""


def lines(unit: str) -> dict[str, str]:
    pairs = re.findall(r"^(\w+)=(.*)$", (FILES / unit).read_text(), re.MULTILINE)
    return dict(pairs)


def test_the_settings_of_a_broker_bind_only_what_they_name() -> None:
    file = read_properties((FILES / "server.properties").read_text())
    settings = build_settings(file=file, environment={}, assignments={})
    assert {listener.host for listener in settings.listeners} == {"10.0.0.1"}
    assert settings.zookeeper is not None
    assert settings.controller_sessions == (), "they are found in ZooKeeper"
    assert settings.default_replication_factor == 3


def test_the_settings_of_a_controller_agree_with_those_of_the_broker() -> None:
    file = read_properties((FILES / "controller.properties").read_text())
    merged = merge_settings(file=file, environment={}, assignments={})
    properties = read_controller_properties(merged)
    assert properties.host == "10.0.0.1"
    assert properties.http_host == "127.0.0.1"
    broker = read_properties((FILES / "server.properties").read_text())
    for name in ("zookeeper.connect", "fairlead.cluster.secret.file"):
        assert broker[name] == file[name]


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_starts_what_there_is_and_starts_it_again(unit: str) -> None:
    service = lines(unit)
    program, *arguments = shlex.split(service["ExecStart"])
    assert program == INSTALLED
    help_text = subprocess.run(
        [sys.executable, "-m", "fairlead_cli.main", arguments[0], "--help"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert arguments[1] in help_text
    assert service["Restart"] == "on-failure"
    assert service["RestartPreventExitStatus"] == "2"
    folder = read_properties((FILES / Path(arguments[2]).name).read_text())["log.dirs"]
    assert folder.removeprefix("/var/lib/") in service["StateDirectory"].split()


@pytest.mark.parametrize("unit", UNITS)
def test_systemd_takes_the_unit_and_calls_it_hardened(unit: str, tmp_path: Path) -> None:
    need("systemd-analyze")
    program = shutil.which("true") or "/bin/true"
    path = tmp_path / unit
    path.write_text((FILES / unit).read_text().replace(INSTALLED, program))
    verified = subprocess.run(
        ["systemd-analyze", "verify", str(path)], capture_output=True, text=True, check=False
    )
    assert (verified.returncode, verified.stderr) == (0, "")
    judged = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.search(r"Overall exposure level .*: ([\d.]+)", judged.stdout)
    assert found is not None, judged.stderr
    assert float(found[1]) <= EXPOSURE_MAX, judged.stdout
