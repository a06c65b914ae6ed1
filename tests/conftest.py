"""A live cluster for tests: a controller and brokers as child processes on ports of their own.

`live_cluster` is one broker, shared by the tests of a module. `make_cluster(brokers=3,
settings={...})` makes others, and lets a test stop, kill and restart single brokers.
"""

from __future__ import annotations

import functools
import gc
import os
import select
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cpu_report import CpuReport
from hypothesis import HealthCheck, settings
from needed_tools import describe_missing
from processor_wait import waited_s
from proofs import describe_left
from side_by_side import (
    COMPUTING,
    COMPUTING_TIMEOUT_S,
    SideBySide,
    lower_priority_where_computing,
)

from fairlead_bench.peers.own_ports import take_ports

GC_THRESHOLDS = (200_000, 1, 1)
"""For 30 MB more a fifth of the simulation's time: of 700 new objects most are still in use."""

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from object_store import ObjectStoreServer
    from xdist.remote import Producer
    from zookeeper_ensemble import ZooKeeperEnsemble

# Behind `&` in a script they would be started to ignore it: commands that tests end by Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

KAFKA_PYTHON_WARNING = "ignore:(read|open)_text is deprecated:DeprecationWarning"
"""kafka-python reads its schemas by a function that Python 3.11 calls deprecated."""
READY_DEADLINE_S = 60.0
STOP_DEADLINE_S = 60.0
PATIENT_MS = 60_000
"""A session that outlasts each silence of a broker that gets no processor on a busy machine."""


TESTS = Path(__file__).parent


def read_places(name: str) -> tuple[Path, ...]:
    """Files and folders that a list names. `make test` gives pytest the same list as arguments, so
    that it need not look at all the others."""
    return tuple(TESTS.parent / line for line in (TESTS / name).read_text().splitlines())


ALONE = read_places("alone.txt")
"""What runs after the others, one by one."""
LONG = read_places("long.txt")
"""What `make test` leaves to `make test-all` and to continuous integration."""


@functools.cache
def markers_of(path: Path) -> tuple[str, ...]:
    """Once for each file: comparing paths for each test would be a sixth of the collection."""
    lists = {"alone": ALONE, "long": LONG}
    return tuple(
        marker
        for marker, places in lists.items()
        if any(path.is_relative_to(place) for place in places)
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("filterwarnings", KAFKA_PYTHON_WARNING)
    config.pluginmanager.register(CpuReport(), "cpu-report")
    lower_priority_where_computing()
    # A shell that starts a run in the background has it ignore Ctrl-C, and so would its children.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # How long an example takes says more about the machine than about what is tested.
    slow = [HealthCheck.too_slow]
    settings.register_profile("patient", settings(), deadline=None, suppress_health_check=slow)
    settings.load_profile("patient")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without looking for garbage: thousands of tests are made, and all of them stay.

    Nobody looks at them again for it later either, which each full search would.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
        gc.set_threshold(*GC_THRESHOLDS)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="write what transcripts (tests/scenarios) print now into their files",
    )


def pytest_report_header(config: pytest.Config) -> list[str]:
    said = describe_missing() + describe_left()
    if "not long" in config.option.markexpr:
        said.append("leaves out what runs long on real processes (tests/long.txt): make test-all")
    return said


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> SideBySide | None:
    return SideBySide(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(COMPUTING) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(COMPUTING_TIMEOUT_S))
        for marker in markers_of(item.path):
            item.add_marker(marker)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Keep the test's name in a file while it runs: a run that hangs and is ended has no summary.

    The folder is `FAIRLEAD_TESTS_UNDER_WAY`; each process has one file there.
    """
    folder = os.environ.get("FAIRLEAD_TESTS_UNDER_WAY")
    if folder is None:
        return (yield)
    note = Path(folder, str(os.getpid()))
    note.write_text(f"{item.nodeid}\n")
    try:
        return (yield)
    finally:
        note.unlink()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    """Collect what closes its sockets only as garbage while this test's own filter ignores that.

    Later, any other test of this process would fail with the warning.
    """
    try:
        return (yield)
    finally:
        filters = [each for mark in item.iter_markers("filterwarnings") for each in mark.args]
        if any(each.startswith("ignore") and "ResourceWarning" in each for each in filters):
            gc.collect()


class NotReadyError(Exception):
    """A process ended, or said nothing, before it was ready; the text holds its last words."""


class LiveProcess:
    """A child that says `ready name=value ...` on its standard output."""

    def __init__(self, command: list[str], log: Path) -> None:
        self.command = command
        self.log = log
        self.ready: dict[str, str] = {}
        self.waited_s = 0.0
        """While it started: for a processor that others had."""
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self.process is not None, "not started"
        return self.process.pid

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        """Start and wait for the ready line."""
        self.begin()
        self.wait_ready()

    def begin(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=os.environ | {"PYTHONSAFEPATH": "1"},
            )

    def wait_ready(self) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        output = self.process.stdout
        deadline = time.monotonic() + READY_DEADLINE_S
        line = b""
        while not line.endswith(b"\n"):
            left = deadline - time.monotonic()
            readable, _, _ = select.select([output], [], [], max(left, 0))
            chunk = os.read(output.fileno(), 4096) if readable else b""
            if not chunk:
                self.kill()
                raise NotReadyError(f"{' '.join(self.command)}:\n{self.last_words()}")
            line += chunk
        self.waited_s = waited_s(self.pid)
        self.ready = dict(word.split("=", 1) for word in line.decode().split() if "=" in word)

    def stop(self) -> int:
        """SIGTERM; the exit code. Killed if it takes too long, which fails the test."""
        assert self.process is not None
        self.process.terminate()
        try:
            return self.process.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        finally:
            self._close()

    def kill(self) -> None:
        """SIGKILL, if it still runs."""
        if self.process is not None:
            if self.process.poll() is None:
                os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self._close()

    def last_words(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-20:])

    def _close(self) -> None:
        if self.process is not None and self.process.stdout is not None:
            self.process.stdout.close()


class LiveBroker(LiveProcess):
    """A broker; it keeps its ports when it is started again."""

    def __init__(
        self, cluster: LiveCluster, node_id: int, settings: dict[str, str], *, rest: list[str]
    ) -> None:
        self.node_id = node_id
        self.data = cluster.directory / f"broker-{node_id}"
        self._rest = rest
        client, internal, http = take_ports(3)
        self._settings = {
            "node.id": str(node_id),
            "log.dirs": str(self.data),
            "listeners": f"CLIENT://127.0.0.1:{client},INTERNAL://127.0.0.1:{internal}",
            "fairlead.http.listener": f"127.0.0.1:{http}",
            "fairlead.controller.sessions": f"ws://{cluster.controller.ready['session']}",
            "fairlead.cluster.secret.file": str(cluster.secret),
            **settings,
        }
        super().__init__([], cluster.directory / f"broker-{node_id}.log")

    @property
    def address(self) -> str:
        return self.ready["kafka"]

    @property
    def http_port(self) -> int:
        return int(self.ready["http"])

    @property
    def rest_url(self) -> str:
        is_tls = self._settings["fairlead.rest.listener"].startswith("https://")
        return f"{'https' if is_tls else 'http'}://{self.ready['rest']}"

    @property
    def started_in_ms(self) -> float:
        """How long its start took, without what others took it from the processors."""
        return int(self.ready["after_ms"]) - 1000 * self.waited_s

    def begin(self) -> None:
        chosen = [f"--set={name}={value}" for name, value in self._settings.items()]
        self.command = [sys.executable, "-m", "fairlead_broker", *chosen, *self._rest]
        super().begin()

    def get(self, path: str) -> tuple[int, str]:
        """Status and body of an HTTP request to the broker."""
        url = f"http://127.0.0.1:{self.http_port}{path}"
        try:
            with urllib.request.urlopen(url, timeout=60) as reply:
                return reply.status, reply.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()


class LiveCluster:
    """One controller and its brokers, in one folder."""

    def __init__(
        self, directory: Path, *, brokers: int, settings: dict[str, str], is_patient: bool = False
    ) -> None:
        """If it `is_patient`, the controller gives up no broker because it is silent.

        A killed broker is given up as soon as ever: its port refuses connections.
        """
        self.directory = directory
        self.secret = directory / "secret"
        self.secret.write_text("a secret of tests only")
        self.secret.chmod(0o600)
        session = (f"--broker-session-timeout-ms={PATIENT_MS}",) if is_patient else ()
        self.controller = LiveProcess(
            [
                *(sys.executable, "-m", "fairlead_controller"),
                *("--data", str(directory / "controller"), "--host", "127.0.0.1"),
                *("--port", "0", "--http-port", "0"),
                *("--cluster-secret-file", str(self.secret)),
                *session,
            ],
            directory / "controller.log",
        )
        self.brokers: list[LiveBroker] = []
        self._count = brokers
        self._settings = settings

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.address for broker in self.brokers)

    def start(self) -> None:
        self.controller.start()
        for node_id in range(self._count):
            self.brokers.append(self.make_broker(node_id))
        for broker in self.brokers:
            broker.begin()
        for broker in self.brokers:
            broker.wait_ready()

    @property
    def pids(self) -> list[int]:
        return [each.pid for each in (self.controller, *self.brokers) if each.is_running]

    def fencings(self, node_id: int) -> list[str]:
        """What the controller has noted of a broker that it gave up."""
        lines = self.controller.log.read_text(errors="replace").splitlines()
        return [line for line in lines if f": broker {node_id} is fenced: " in line]

    def make_broker(self, node_id: int, *rest: str, **settings: str) -> LiveBroker:
        """A broker that isn't started; `rest` are further arguments."""
        return LiveBroker(self, node_id, {**self._settings, **settings}, rest=list(rest))

    def kill(self) -> None:
        for process in [*self.brokers, self.controller]:
            process.kill()


@pytest.fixture
def counted_hangups() -> Iterator[None]:
    """SIGHUP ends processes as usual, also where the tests were started with `nohup`."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def make_cluster(tmp_path: Path) -> Iterator[Callable[..., LiveCluster]]:
    """Clusters for one test, killed at its end."""
    made: list[LiveCluster] = []

    def make(
        *, brokers: int = 1, settings: dict[str, str] | None = None, is_patient: bool = False
    ) -> LiveCluster:
        directory = tmp_path / f"cluster-{len(made)}"
        directory.mkdir()
        cluster = LiveCluster(
            directory, brokers=brokers, settings=settings or {}, is_patient=is_patient
        )
        made.append(cluster)
        cluster.start()
        return cluster

    yield make
    for cluster in made:
        cluster.kill()


@pytest.fixture(scope="module")
def live_settings() -> dict[str, str]:
    """Settings of `live_cluster` that are not the defaults, for modules that say so."""
    return {}


@pytest.fixture(scope="module")
def live_cluster(
    tmp_path_factory: pytest.TempPathFactory, live_settings: dict[str, str]
) -> Iterator[LiveCluster]:
    """One broker for all tests of a module."""
    cluster = LiveCluster(tmp_path_factory.mktemp("cluster"), brokers=1, settings=live_settings)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.kill()


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperEnsemble]:
    """Three ZooKeeper servers for the whole run; `zookeeper_chroot` mends what a test broke."""
    # Few runs need it, and none should pay for the import of kazoo.
    from zookeeper_ensemble import running_ensemble

    with running_ensemble(tmp_path_factory.mktemp("zookeeper")) as ensemble:
        yield ensemble


@pytest.fixture
def zookeeper_chroot(zookeeper: ZooKeeperEnsemble) -> Iterator[str]:
    """An empty chroot of this test's own, in an ensemble that is whole before and after."""
    zookeeper.start()
    yield zookeeper.make_chroot()
    zookeeper.start()


@pytest.fixture(scope="session")
def object_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStoreServer]:
    """A server of the S3 API for the whole run; each test makes buckets of its own."""
    from object_store import running_object_store

    with running_object_store(tmp_path_factory.mktemp("object-store")) as server:
        yield server


@pytest.fixture
def aws(object_store: ObjectStoreServer, monkeypatch: pytest.MonkeyPatch) -> ObjectStoreServer:
    """The same, and the commands of this process ask it."""
    for name in [each for each in os.environ if each.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in object_store.environment.items():
        monkeypatch.setenv(name, value)
    return object_store


@pytest.fixture(scope="module")
def rest_settings() -> dict[str, str]:
    """Settings of `rest_cluster` besides its own, for modules that say so."""
    return {}


@pytest.fixture(scope="module")
def rest_cluster(
    tmp_path_factory: pytest.TempPathFactory, rest_settings: dict[str, str]
) -> Iterator[LiveCluster]:
    """Three brokers with the HTTP API, for all tests of a module."""
    settings = {
        "fairlead.rest.listener": "127.0.0.1:0",
        "default.replication.factor": "3",
        "offsets.topic.num.partitions": "3",
        "offsets.topic.replication.factor": "3",
        "group.initial.rebalance.delay.ms": "0",
        **rest_settings,
    }
    cluster = LiveCluster(
        tmp_path_factory.mktemp("rest"), brokers=3, settings=settings, is_patient=True
    )
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.kill()
