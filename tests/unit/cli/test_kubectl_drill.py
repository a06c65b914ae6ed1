"""`kubectl fairlead drill`: what its options make of a file, and what it prints."""

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from fake_api_server import FakeApiServer

from fairlead_cli.kubectl.drill import drill
from fairlead_cli.kubectl.main import plugin, run
from fairlead_kube.client import KubeClient
from fairlead_kube.credentials import Credentials
from fairlead_kube.kinds import FAILOVER_DRILL

DRILL = {
    "apiVersion": "fairlead.io/v1alpha1",
    "kind": "FailoverDrill",
    "metadata": {"name": "weekly"},
    "spec": {"clusterName": "c", "target": {"type": "Leader"}, "fault": {"type": "Kill"}},
}
STATUS = {"phase": "Finished", "acknowledged": 7}


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Of an API server in memory, which answers while a command runs its own loop."""
    loop, server = asyncio.new_event_loop(), FakeApiServer()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def prepare() -> None:
        await server.start()
        client = KubeClient(
            Credentials(server.url, None), request_timeout_s=10.0, connect_timeout_s=5.0
        )
        await client.create(FAILOVER_DRILL, "ns", DRILL | {"status": STATUS})
        await client.close()

    asyncio.run_coroutine_threadsafe(prepare(), loop).result(30)
    path = tmp_path_factory.mktemp("kube") / "config"
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "namespace": "ns"}}],
        "clusters": [{"name": "c", "cluster": {"server": server.url}}],
    }
    path.write_text(json.dumps(config))
    yield path
    asyncio.run_coroutine_threadsafe(server.stop(), loop).result(30)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(30)
    loop.close()


def written(tmp_path: Path, **spec: object) -> str:
    path = tmp_path / "drill.yaml"
    path.write_text(json.dumps(DRILL | {"spec": DRILL["spec"] | spec}))  # type: ignore[operator]
    return str(path)


def test_how_often_a_drill_of_a_file_runs_the_file_says(
    tmp_path: Path, kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["drill", "-f", written(tmp_path), "--runs", "3", "--no-wait", "--name", "often"]
    assert run([*line, "--kubeconfig", str(kubeconfig)]) == 2
    assert "--runs cannot be used with -f: the file says it" in capsys.readouterr().err


@pytest.mark.parametrize("limits", [None, {}, {"recoveryMs": 9, "lost": 5}])
def test_a_limit_of_the_command_line_replaces_that_of_a_file(
    limits: object, tmp_path: Path, kubeconfig: Path
) -> None:
    given = written(tmp_path, limits=limits)
    line = [*("-f", given, "--limit-ms", "500", "--no-wait", "-o", "json", "--name")]
    line += [f"limit-{len(str(limits))}", "--kubeconfig", str(kubeconfig)]
    done = CliRunner().invoke(plugin, ["drill", *line], catch_exceptions=False)
    made = json.loads(done.stdout)["spec"]["limits"]
    assert made == (limits or {}) | {"recoveryMs": 500}  # type: ignore[operator]


def test_limits_that_are_none_are_named(
    tmp_path: Path, kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["drill", "-f", written(tmp_path, limits="5 s"), "--limit-ms", "5", "--no-wait"]
    assert run([*line, "--kubeconfig", str(kubeconfig)]) == 2
    assert "limits" in capsys.readouterr().err


def test_what_is_known_of_a_drill_is_json_where_json_is_asked_for(kubeconfig: Path) -> None:
    access = ["--report", "weekly", "--kubeconfig", str(kubeconfig)]
    told = CliRunner().invoke(drill, [*access, "-o", "json"], catch_exceptions=False)
    assert json.loads(told.stdout) == {"name": "weekly", "spec": DRILL["spec"], "status": STATUS}
    told = CliRunner().invoke(drill, access, catch_exceptions=False)
    assert told.stdout.startswith("# Game day: weekly")
