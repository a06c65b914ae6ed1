"""`kubectl fairlead drill`: what its options make of a file, and what it prints."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from fake_api_server import FakeApiServer
from waiting import until

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


Status = dict[str, object]


@pytest.fixture(scope="module")
def api() -> Iterator[tuple[asyncio.AbstractEventLoop, FakeApiServer]]:
    """An API server in memory, which answers while a command runs its own loop."""
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
    yield loop, server
    asyncio.run_coroutine_threadsafe(server.stop(), loop).result(30)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(30)
    loop.close()


@pytest.fixture(scope="module")
def kubeconfig(
    api: tuple[asyncio.AbstractEventLoop, FakeApiServer], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    path = tmp_path_factory.mktemp("kube") / "config"
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "namespace": "ns"}}],
        "clusters": [{"name": "c", "cluster": {"server": api[1].url}}],
    }
    path.write_text(json.dumps(config))
    return path


@pytest.fixture
def operator(
    api: tuple[asyncio.AbstractEventLoop, FakeApiServer],
) -> Callable[[str, Status], None]:
    """Give a drill its status once it is made."""
    loop, server = api
    path = FAILOVER_DRILL.path("ns")

    async def answer(name: str, status: Status) -> None:
        made = await until(lambda: server.objects[path].get(name))
        await server._store(path, made | {"status": status}, made)

    def begin(name: str, status: Status) -> None:
        asyncio.run_coroutine_threadsafe(answer(name, status), loop)

    return begin


def written(tmp_path: Path, **spec: object) -> str:
    path = tmp_path / "drill.yaml"
    path.write_text(json.dumps(DRILL | {"spec": DRILL["spec"] | spec}))  # type: ignore[operator]
    return str(path)


def test_how_often_a_drill_of_a_file_runs_the_file_says(
    tmp_path: Path, kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["drill", "-f", written(tmp_path), "--runs", "3", "--no-wait", "--name", "often"]
    assert run([*line, "--kubeconfig", str(kubeconfig)]) == 2
    assert "--runs cannot be used with -f: set it in the file" in capsys.readouterr().err


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


@pytest.mark.parametrize(
    ("spec", "status", "code", "said"),
    [
        ({}, {"phase": "Pending", "nextRunAt": "2030-01-07T09:00:00Z"}, 0, "2030-01-07T09:00:00Z"),
        ({"suspend": True}, {"phase": "Pending"}, 0, "goes on once it is false"),
        ({}, {"phase": "Refused"}, 1, "REFUSED"),
    ],
    ids=["waits", "suspended", "refused"],
)
def test_a_drill_with_a_schedule_is_followed_until_it_is_told_when_it_is_due(
    spec: Status,
    status: Status,
    code: int,
    said: str,
    tmp_path: Path,
    kubeconfig: Path,
    operator: Callable[[str, Status], None],
) -> None:
    name = f"weekly-{code}-{len(status)}"
    suspended = {
        "type": "Complete",
        "status": "False",
        "reason": "Suspended",
        "message": "spec.suspend is true: the schedule goes on once it is false",
    }
    operator(name, status | ({"conditions": [suspended]} if spec else {}))
    given = written(tmp_path, schedule="0 9 * * 1", **spec)
    line = ["drill", "-f", given, "--name", name, "--kubeconfig", str(kubeconfig)]
    line += ["--timeout-s", "30"]
    done = CliRunner().invoke(plugin, line, catch_exceptions=False, standalone_mode=False)
    assert done.return_value == code, done.output
    assert said in done.output
