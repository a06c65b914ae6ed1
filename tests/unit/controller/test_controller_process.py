"""The controller as a process: what it prints, how it ends, how it refuses to start."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from ignored_interrupts import ignored_interrupts, ignores
from waiting import DEADLINE_S

SECRET = "a-secret-that-must-not-be-shown-anywhere"

MANIFEST = """\
apiVersion: fairlead.io/v1alpha1
kind: Topic
metadata: {name: orders}
spec: {partitions: 2}
---
apiVersion: v1
kind: Service
"""


class Launcher:
    """Starts controllers on one folder and ends those that still run."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.secret = directory / "secret"
        self.secret.write_text(SECRET + "\n")
        self.secret.chmod(0o600)
        self.processes: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "fairlead_controller"]
        command += ["--data", str(self.directory / "data"), "--port", "0", "--http-port", "0"]
        command += ["--cluster-secret-file", str(self.secret), *arguments]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.processes.append(process)
        return process

    def ready(self, process: "subprocess.Popen[str]") -> dict[str, str]:
        """Wait for the ready line; its fields."""
        assert process.stdout is not None
        words = process.stdout.readline().split()
        assert words[:2] == ["ready", "controller"]
        return dict(word.split("=", 1) for word in words[2:])


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[Launcher]:
    launcher = Launcher(tmp_path)
    yield launcher
    for process in launcher.processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


def refusal(process: "subprocess.Popen[str]") -> tuple[int, str]:
    _, errors = process.communicate(timeout=DEADLINE_S)
    return process.returncode, errors


def test_it_says_when_it_is_ready_and_stops_on_request(launcher: Launcher) -> None:
    for epoch in ("1", "2"):
        process = launcher.start()
        fields = launcher.ready(process)
        assert fields["epoch"] == epoch
        with urlopen(f"http://{fields['http']}/status", timeout=DEADLINE_S) as response:
            status = json.loads(response.read())
        assert status["controller"] == {"pid": process.pid, "epoch": int(epoch)}
        with urlopen(f"http://{fields['http']}/", timeout=DEADLINE_S) as response:
            assert b"/explain/TOPIC/PARTITION" in response.read()
        with urlopen(f"http://{fields['http']}/readyz", timeout=DEADLINE_S) as response:
            assert json.loads(response.read())["controllerEpoch"] == int(epoch)
        with urlopen(f"http://{fields['http']}/metrics", timeout=DEADLINE_S) as response:
            assert f"fairlead_controller_epoch {epoch}.0\n" in response.read().decode()
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 0, errors
        assert SECRET not in output + errors


def test_one_that_was_started_to_ignore_interrupts_goes_on_ignoring_them(
    launcher: Launcher,
) -> None:
    with ignored_interrupts():
        process = launcher.start()
    launcher.ready(process)
    assert ignores(process.pid, signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0


def test_a_killed_controller_leaves_nothing_in_the_way(launcher: Launcher) -> None:
    process = launcher.start()
    launcher.ready(process)
    process.kill()
    process.wait()
    assert launcher.ready(launcher.start())["epoch"] == "2"


def test_a_second_one_says_who_has_the_metadata(launcher: Launcher) -> None:
    first = launcher.start()
    launcher.ready(first)
    code, errors = refusal(launcher.start())
    assert code == 1
    assert f"in use by process {first.pid}" in errors


def test_a_taken_port_is_named(launcher: Launcher, tmp_path: Path) -> None:
    fields = launcher.ready(launcher.start())
    port = fields["session"].rsplit(":", 1)[1]
    code, errors = refusal(launcher.start("--data", str(tmp_path / "other"), "--port", port))
    assert code == 1
    assert port in errors
    assert "Traceback" not in errors


def test_settings_that_cannot_work_are_refused(launcher: Launcher) -> None:
    code, errors = refusal(launcher.start("--broker-session-timeout-ms", "10"))
    assert code == 2
    assert "broker.session.timeout.ms: 10 is below the minimum 500" in errors


def test_manifests_are_read_and_other_kinds_passed_over(launcher: Launcher) -> None:
    path = launcher.directory / "topics.yaml"
    path.write_text(MANIFEST)
    fields = launcher.ready(launcher.start("--topics", str(path)))
    with urlopen(f"http://{fields['http']}/status", timeout=DEADLINE_S) as response:
        assert json.loads(response.read())["declaredTopics"]["waiting"] == ["orders"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (MANIFEST.replace("partitions: 2", "partitions: none"), "Topic orders: spec.partitions"),
        (MANIFEST.replace("partitions: 2", "replicationFactor: 0"), "replicationFactor"),
        ("a: [", "topics.yaml"),
    ],
)
def test_wrong_manifests_are_explained(launcher: Launcher, content: str, message: str) -> None:
    path = launcher.directory / "topics.yaml"
    path.write_text(content)
    code, errors = refusal(launcher.start("--topics", str(path)))
    assert code == 2
    assert message in errors
    assert "Traceback" not in errors


def test_a_short_secret_is_refused(launcher: Launcher) -> None:
    launcher.secret.write_text("short")
    code, errors = refusal(launcher.start())
    assert code == 2
    assert "at least 16 bytes" in errors


def test_a_secret_that_everybody_may_read_is_refused(launcher: Launcher) -> None:
    launcher.secret.chmod(0o644)
    code, errors = refusal(launcher.start())
    assert code == 2
    assert f"{launcher.secret}: its mode is 0644" in errors


def test_help_explains_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fairlead_controller", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "--cluster-secret-file" in done.stdout
