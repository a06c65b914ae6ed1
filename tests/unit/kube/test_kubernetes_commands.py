"""Which commands of the end-to-end tests are run again, and what their waits take for an answer."""

from __future__ import annotations

from pathlib import Path

import kubernetes_commands
import pytest
from kubernetes_commands import CommandError, Kubectl, is_repeatable, run, wait_until

KUBECTL = """#!/bin/sh
printf '%s\\n' "$*" >> "$0.calls"
[ "$(wc -l < "$0.calls")" -gt "$FAILURES" ] && [ -z "$ANSWER" ] && exit 0
[ "$(wc -l < "$0.calls")" -gt "$FAILURES" ] && echo "$ANSWER" >&2 && exit 1
echo "$PROBLEM" >&2
exit 1
"""


class FakeKubectl:
    """Fails so many times, then succeeds; unless it has another answer."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._program = folder / "kubectl"
        self._program.write_text(KUBECTL)
        self._program.chmod(0o755)
        self._monkeypatch = monkeypatch
        monkeypatch.setenv("PATH", str(folder), prepend=":")
        self.fail(0, "")

    def fail(self, times: int, problem: str, answer: str = "") -> None:
        for name, value in (("FAILURES", str(times)), ("PROBLEM", problem), ("ANSWER", answer)):
            self._monkeypatch.setenv(name, value)
        self._log.write_text("")

    @property
    def _log(self) -> Path:
        return Path(f"{self._program}.calls")

    @property
    def calls(self) -> list[str]:
        return self._log.read_text().splitlines()


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeKubectl:
    monkeypatch.setattr(kubernetes_commands, "POLL_S", 0.01)
    return FakeKubectl(tmp_path, monkeypatch)


BUSY = (
    "Error from server: etcdserver: request timed out",
    'Get "https://127.0.0.1:6443/api": net/http: TLS handshake timeout',
    "Error from server (TooManyRequests): the server has received too many requests",
)


@pytest.mark.parametrize("problem", BUSY)
def test_a_busy_server_is_asked_again(fake: FakeKubectl, problem: str) -> None:
    fake.fail(2, problem)
    Kubectl("ns")("get", "pods")
    assert fake.calls == ["-n ns get pods"] * 3
    fake.fail(1, problem, answer="Error from server (NotFound): pods p not found")
    assert Kubectl("ns")("delete", "pod", "p") == "", "the first one has landed"


def test_an_answer_is_an_answer(fake: FakeKubectl) -> None:
    for problem in ("Error from server (NotFound): pods p not found", "denied the request: no"):
        fake.fail(1, problem)
        with pytest.raises(CommandError):
            Kubectl("ns")("delete", "pod", "p")
        assert len(fake.calls) == 1
    fake.fail(1, BUSY[0])
    assert Kubectl("ns").exec("client", "cat", "x", only_reads=True) == ""
    # What would happen twice is not tried twice.
    fake.fail(1, BUSY[0])
    with pytest.raises(CommandError):
        Kubectl("ns").exec("client", "fairlead", "produce", "t")
    assert len(fake.calls) == 1


def test_patience_ends(fake: FakeKubectl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes_commands, "PATIENCE_S", -1.0)
    fake.fail(1, BUSY[0])
    with pytest.raises(CommandError, match="etcdserver"):
        run("kubectl", "get", "pods")


@pytest.mark.parametrize(
    ("command", "is_so"),
    [
        ("kubectl -n ns patch topic t --type=merge -p {}", True),
        ("kubectl -n ns patch secret s --type=json -p []", False),
        ("kubectl annotate logcluster demo a=1", False),
        ("kubectl annotate logcluster demo a=1 --overwrite", True),
        ("kubectl create namespace ns", False),
        ("helm upgrade --install demo charts/x", True),
        ("helm uninstall demo", False),
        ("docker exec node true", False),
    ],
)
def test_only_what_may_come_twice_is_repeatable(command: str, is_so: bool) -> None:
    assert is_repeatable(command.split()) is is_so


def test_a_wait_has_time_enough_and_ends_before_its_command(
    fake: FakeKubectl, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[float] = []
    once = kubernetes_commands._run_once

    def noted(command: tuple[str, ...], stdin: str | None, timeout_s: float) -> str:
        limits.append(timeout_s)
        return once(command, stdin, timeout_s)

    monkeypatch.setattr(kubernetes_commands, "_run_once", noted)
    Kubectl("ns")("wait", "--for=delete", "pod/p")
    Kubectl("ns")("wait", "--for=delete", "pod/p", "--timeout=300s")
    first, second = fake.calls
    assert first.endswith(f"pod/p --timeout={kubernetes_commands.WAIT_TIMEOUT_S}s")
    assert second.endswith("--timeout=300s")
    assert limits[1] == 330.0


def test_a_status_may_lack_fields_for_a_while() -> None:
    statuses: list[dict[str, str]] = [{}, {}, {"leader": "b"}]
    nothing: dict[str, str] = {}
    wait_until(lambda: statuses.pop(0)["leader"] == "b", "a leader", 60)
    with pytest.raises(AssertionError, match=r"a leader: not within 0 s: KeyError\('leader'\)"):
        wait_until(lambda: bool(nothing["leader"]), "a leader", 0)
