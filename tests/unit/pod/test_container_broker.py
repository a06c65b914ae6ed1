"""The entry point of a broker's container, with the real broker where that is quick."""

import os
import subprocess
import sys
from pathlib import Path

from waiting import DEADLINE_S


def run(folder: Path, properties: str, **environment: str) -> subprocess.CompletedProcess[str]:
    config = folder / "pool.properties"
    config.write_text(properties)
    return subprocess.run(
        [sys.executable, "-m", "fairlead_pod.broker", "--config", str(config)],
        env={**os.environ, "TMPDIR": str(folder), "POD_NAME": "events-hot-2", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )


def test_a_placeholder_that_cannot_be_filled_ends_the_container(tmp_path: Path) -> None:
    done = run(tmp_path, "node.id=${BROKERID}\n")
    assert done.returncode == 2
    assert "pool.properties: line 1, node.id: there is no placeholder ${BROKERID}" in done.stderr


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fairlead_pod.broker", "--config", "/no/such/file"],
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 2
    assert "No such file or directory: '/no/such/file'" in done.stderr


def test_a_setting_that_is_wrong_ends_the_container_once(tmp_path: Path) -> None:
    done = run(tmp_path, "node.id=${BROKER_ID}\nlog.dir=/x\n", FAIRLEAD_ID_BASE="100")
    assert done.returncode == 2
    assert "supervisor ERROR: giving up: " in done.stderr
    assert "log.dirs" in done.stderr.partition("giving up: ")[2]
    assert done.stderr.count("broker started") == 1
    assert (tmp_path / "server.properties").read_text() == "node.id=102\nlog.dir=/x\n"


def test_lines_for_this_very_broker_come_on_top(tmp_path: Path) -> None:
    (tmp_path / "broker-2.properties").write_text("log.dir=${POD_NAME}\n")
    (tmp_path / "broker-3.properties").write_text("log.dir=/another\n")
    run(tmp_path, "node.id=${BROKER_ID}\nlog.dir=/x\n")
    expected = "node.id=2\nlog.dir=/x\nlog.dir=events-hot-2\n"
    assert (tmp_path / "server.properties").read_text() == expected
