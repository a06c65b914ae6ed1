"""The kopf process is asked to stop, whatever it is doing: it ends soon, and by itself."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psutil
import pytest
import yaml
from aiohttp import web
from fake_admin import FakeAdmin, FakeAdminServer
from fake_api_server import FakeApiServer
from processor_wait import Stopwatch
from waiting import DEADLINE_S, wait_until

from fairlead_bench.peers.own_ports import take_ports
from fairlead_controller.kubernetes.acting_lock import lock_path
from fairlead_operator import stop_signals
from fairlead_operator.stop_signals import end_tasks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

STOP_S_MAX = 4.0
"""kopf by itself takes more than five seconds; ours takes well under one."""
GROUP, VERSION = "fairlead.io", "v1alpha1"
LOG_CLUSTERS = f"/apis/{GROUP}/{VERSION}/namespaces/shop/logclusters"


class Discovered(FakeApiServer):
    """One that says which kinds it knows, as kopf asks; in a loop and thread of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.watched: Counter[str] = Counter()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Discovered:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self.start(), self._loop).result(DEADLINE_S)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self.stop(), self._loop).result(DEADLINE_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE_S)
        self._loop.close()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        version = {"groupVersion": f"{GROUP}/{VERSION}", "version": VERSION}
        kinds = [
            {"name": kind.lower() + "s", "kind": kind, "singularName": kind.lower()}
            | {"namespaced": True, "verbs": ["get", "list", "watch", "patch"]}
            for kind in ("LogCluster", "BrokerPool")
        ]
        known: dict[str, Any] = {
            "/api": {"versions": []},
            "/apis": {
                "groups": [{"name": GROUP, "versions": [version], "preferredVersion": version}]
            },
            f"/apis/{GROUP}/{VERSION}": {"resources": kinds},
        }
        if request.path in known:
            return web.json_response(known[request.path])
        return await super()._handle(request)

    async def _watch(self, request: web.Request, path: str) -> web.StreamResponse:
        self.watched[path] += 1
        return await super()._watch(request, path)


class Process:
    """A kopf process; its controller is a fake on a unix socket."""

    def __init__(self, folder: Path, api: str, namespaces: str = "shop") -> None:
        self.admin = FakeAdmin(clusters=["shop/demo"])
        self.socket, self._log = folder / "controller.sock", folder / "operator.log"
        (port,) = take_ports(1)
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(_kubeconfig(api))
        self._environment = os.environ | {
            "KUBECONFIG": str(kubeconfig),
            "POD_NAME": "fairlead-operator-0",
            "POD_NAMESPACE": "fairlead-system",
            "FAIRLEAD_WATCH_NAMESPACE": namespaces,
            "FAIRLEAD_CONTROLLER_SOCKET": str(self.socket),
            "FAIRLEAD_OPERATOR_HTTP_PORT": str(port),
        }

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[bytes]]:
        with FakeAdminServer(self.admin, self.socket), self._log.open("w") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "fairlead_operator"],
                env=self._environment,
                stdout=out,
                stderr=out,
            )
            try:
                yield process
            finally:
                process.kill()
                process.wait()

    def until_logged(self, text: str) -> None:
        wait_until(lambda: text in self.log, lambda: f"{text!r} in\n{self.log}")

    @property
    def log(self) -> str:
        return self._log.read_text()

    def stop(self, process: subprocess.Popen[bytes], number: int = signal.SIGTERM) -> None:
        """Ask it to stop, and see it end in good order."""
        watch, left_out_s = Stopwatch(process.pid), 0.0
        began = time.monotonic()
        process.send_signal(number)
        # Who has ended says no more how long it waited for a processor.
        while process.poll() is None and time.monotonic() < began + 60:
            left_out_s = max(left_out_s, watch.left_out_s())
            time.sleep(0.02)
        took_s = time.monotonic() - began - left_out_s
        assert process.poll() == 0, self.log
        assert took_s < STOP_S_MAX, f"{took_s:.1f} s\n{self.log}"
        assert "ending: asked to stop" in self.log
        for trouble in ("Traceback", "does not end", "never retrieved"):
            assert trouble not in self.log, self.log


def _kubeconfig(server: str) -> str:
    return yaml.safe_dump(
        {
            "current-context": "fake",
            "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake"}}],
            "clusters": [{"name": "fake", "cluster": {"server": server}}],
            "users": [{"name": "fake", "user": {"token": "fake"}}],
        }
    )


@contextmanager
def silent_server() -> Iterator[str]:
    """The address of one that takes connections, and never says anything."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_while_it_acts(tmp_path: Path, number: int) -> None:
    with Discovered() as api:
        operator = Process(tmp_path, api.url)
        with operator.running() as process:
            # Our informer's, and kopf's.
            wait_until(lambda: api.watched[LOG_CLUSTERS] >= 2, lambda: operator.log)
            operator.stop(process, number)


def test_while_it_stands_by(tmp_path: Path) -> None:
    with silent_server() as api:
        operator = Process(tmp_path, api)
        operator.admin.is_active = False
        with operator.running() as process:
            operator.until_logged("standing by")
            operator.stop(process)


def test_while_the_process_before_still_acts(tmp_path: Path) -> None:
    with silent_server() as api:
        operator = Process(tmp_path, api)
        path = lock_path(operator.socket)
        with path.open("w") as held, operator.running() as process:
            fcntl.flock(held, fcntl.LOCK_EX)
            operator.until_logged("standing by")
            wait_until(lambda: _has_open(process.pid, path), lambda: operator.log)
            operator.stop(process)


@pytest.mark.parametrize("namespaces", ["shop", "shop,bank"])
def test_while_the_api_server_is_silent(tmp_path: Path, namespaces: str) -> None:
    with silent_server() as api:
        operator = Process(tmp_path, api, namespaces)
        with operator.running() as process:
            operator.until_logged("active as")
            operator.stop(process)


def _has_open(pid: int, path: Path) -> bool:
    return str(path) in [each.path for each in psutil.Process(pid).open_files()]


def test_a_task_that_does_not_end_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(stop_signals, "STOP_S", 0.05)
    let_go = asyncio.Event()

    async def stubborn() -> None:
        while not let_go.is_set():
            try:
                await let_go.wait()
            except asyncio.CancelledError:
                continue

    async def story() -> None:
        tasks = [
            asyncio.create_task(stubborn(), name="the stubborn one"),
            asyncio.create_task(asyncio.sleep(60), name="another"),
        ]
        await asyncio.sleep(0)
        assert not await end_tasks(tasks)
        let_go.set()
        assert await end_tasks(tasks)

    asyncio.run(story())
    (record,) = caplog.records
    assert "the stubborn one does not end" in record.getMessage()
    assert "await let_go.wait()" in record.getMessage()
