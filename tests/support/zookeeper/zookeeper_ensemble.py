"""A real ZooKeeper ensemble of three servers on this machine, for tests.

The fixtures `zookeeper` (one ensemble for a whole run) and `zookeeper_chroot` (whole again, and a
chroot of its own for each test) are in `tests/conftest.py`.

    ensemble.connect_string("/a")     all three servers, for kazoo or a setting
    ensemble.leader.pause()           SIGSTOP of ZooKeeper's leader; `resume`
    ensemble.servers[0].kill()        SIGKILL; `start` brings it back with its data
    ensemble.stop() ; ensemble.start()   end all servers, and start them again

A tick is 500 ms: sessions may have 1 s or more, and an ephemeral znode is deleted some 2 s after
the death of its owner.
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import uuid
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from kazoo.client import KazooClient
from needed_tools import missing, need
from standing_still import stand_still
from waiting import wait_until

from fairlead_bench.peers.kafka_distribution import KafkaUnavailableError
from fairlead_bench.peers.own_ports import take_ports
from fairlead_bench.peers.zookeeper_server import MAIN_CLASS, ensure_server

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

HOST: Final = "127.0.0.1"
SERVERS: Final = 3
TICK_MS: Final = 500
SERVES: Final = frozenset({"leader", "follower", "standalone"})
READY_S: Final = 60.0
JAVA_OPTIONS: Final = ("-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class ZooKeeperServer:
    """One server; it keeps its ports and its data when it is started again."""

    def __init__(
        self, number: int, directory: Path, ports: Sequence[int], classpath: Sequence[Path]
    ) -> None:
        self.number = number
        self.directory = directory
        self.client_port, self.quorum_port, self.election_port = ports
        self._classpath = classpath
        self._process: subprocess.Popen[bytes] | None = None
        self._is_paused = False
        self._options: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        return f"{HOST}:{self.client_port}"

    @property
    def log(self) -> Path:
        return self.directory / "server.log"

    @property
    def data(self) -> Path:
        """Return the folder of its log and snapshots."""
        return self.directory / "data"

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None and not self._is_paused

    def lay_out(self, peers: Sequence[ZooKeeperServer], settings: Mapping[str, str]) -> None:
        """Write its files; in `settings` properties of the JVM are named `java.…`."""
        self.data.mkdir(parents=True, exist_ok=True)
        (self.data / "myid").write_text(f"{self.number}\n")
        lines = {
            "dataDir": str(self.data),
            "clientPort": str(self.client_port),
            "clientPortAddress": HOST,
            "tickTime": str(TICK_MS),
            "initLimit": "20",
            "syncLimit": "4",
            "minSessionTimeout": "1000",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "*",
            "maxClientCnxns": "0",
            **{
                f"server.{peer.number}": f"{HOST}:{peer.quorum_port}:{peer.election_port}"
                for peer in peers
            },
            **{name: text for name, text in settings.items() if not name.startswith("java.")},
        }
        text = "".join(f"{name}={value}\n" for name, value in lines.items())
        (self.directory / "zoo.cfg").write_text(text)
        self._options = tuple(
            f"-D{name.removeprefix('java.')}={text}"
            for name, text in settings.items()
            if name.startswith("java.")
        )

    def start(self) -> None:
        """Begin; `ZooKeeperEnsemble.wait_whole` waits until it serves."""
        if self._process is not None and self._process.poll() is None:
            self.resume()
            return
        java = shutil.which("java") or "java"
        command = [java, *JAVA_OPTIONS, *self._options, "-cp", ":".join(map(str, self._classpath))]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, MAIN_CLASS, str(self.directory / "zoo.cfg")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
            )

    def kill(self) -> None:
        """SIGKILL, if it runs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = None
        self._is_paused = False

    def pause(self) -> None:
        """Send SIGSTOP: its connections stay open, without any answer."""
        assert self._process is not None, "not started"
        stand_still(self._process.pid)
        self._is_paused = True

    def resume(self) -> None:
        """SIGCONT."""
        if self._is_paused:
            self._signal(signal.SIGCONT)
            self._is_paused = False

    def ask(self, word: str) -> str:
        """Return the answer to a four-letter word; empty if there is none."""
        with suppress(OSError), socket.create_connection((HOST, self.client_port), 1) as asking:
            asking.settimeout(1)
            asking.sendall(word.encode())
            answer = b""
            while chunk := asking.recv(65536):
                answer += chunk
            return answer.decode(errors="replace")
        return ""

    @property
    def mode(self) -> str:
        """Return leader, follower, standalone, read-only, or empty while it does not serve."""
        if not self.is_running:
            return ""
        for line in self.ask("srvr").splitlines():
            if line.startswith("Mode: "):
                return line.removeprefix("Mode: ")
        return ""

    def last_words(self) -> str:
        if not self.log.exists():
            return ""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-20:])

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None, "not started"
        self._process.send_signal(number)


class CurrentClient(KazooClient):
    """Asks its server to catch up before each read, so that it sees writes of other sessions.

    Otherwise a server may answer without the last writes that other servers have acknowledged.
    """

    def get(self, path: str, watch: Any = None) -> Any:
        """Return the value and the statistics of a znode."""
        self.sync(path)
        return super().get(path, watch)

    def exists(self, path: str, watch: Any = None) -> Any:
        """Return the statistics of a znode, None if there is none."""
        self.sync(path)
        return super().exists(path, watch)

    def get_children(self, path: str, watch: Any = None, include_data: bool = False) -> Any:
        """Return the names below a znode."""
        self.sync(path)
        return super().get_children(path, watch, include_data)


class ZooKeeperEnsemble:
    """Three servers, or as many as asked for, in one folder."""

    def __init__(
        self,
        directory: Path,
        *,
        servers: int = SERVERS,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """`settings` are lines of zoo.cfg, and properties of the JVM under `java.…`."""
        classpath = ensure_server()
        self.servers = [
            ZooKeeperServer(number, directory / f"server-{number}", take_ports(3), classpath)
            for number in range(1, servers + 1)
        ]
        for server in self.servers:
            server.lay_out(self.servers, settings or {})

    def start(self) -> None:
        """Start servers that do not run, and wait until all serve."""
        self.begin()
        self.wait_whole()

    def begin(self) -> None:
        """Start servers that do not run."""
        for server in self.servers:
            server.start()

    def wait_whole(self) -> None:
        """Wait until every server serves, under one leader."""

        def is_whole() -> bool:
            modes = [server.mode for server in self.servers]
            is_led = "leader" in modes or modes == ["standalone"]
            return is_led and all(mode in SERVES for mode in modes)

        wait_until(is_whole, self._told, deadline_s=READY_S)

    def stop(self) -> None:
        """End all servers at once; their data stays."""
        for server in self.servers:
            server.kill()

    def pause(self) -> None:
        """SIGSTOP of all servers."""
        for server in self.servers:
            server.pause()

    def resume(self) -> None:
        """SIGCONT of all servers."""
        for server in self.servers:
            server.resume()

    @property
    def leader(self) -> ZooKeeperServer:
        """Wait for a server that leads, and return it."""
        return wait_until(
            lambda: next((each for each in self.servers if each.mode == "leader"), None),
            self._told,
            deadline_s=READY_S,
        )

    @property
    def followers(self) -> list[ZooKeeperServer]:
        """Wait until all servers but the leader follow, and return them."""
        return wait_until(self._find_followers, self._told, deadline_s=READY_S)

    def _find_followers(self) -> list[ZooKeeperServer]:
        found = [each for each in self.servers if each.mode == "follower"]
        return found if len(found) == len(self.servers) - 1 else []

    def connect_string(self, chroot: str = "") -> str:
        """Return the addresses that a client connects to."""
        return ",".join(server.address for server in self.servers) + chroot

    def make_chroot(self) -> str:
        """Create an empty znode with a new path, and return the path."""
        chroot = f"/test-{uuid.uuid4().hex}"
        with self.client() as client:
            client.create(chroot)
        return chroot

    @contextmanager
    def client(self, chroot: str = "") -> Iterator[KazooClient]:
        """Connect a kazoo client whose reads see all earlier writes."""
        client = CurrentClient(self.connect_string(chroot), timeout=10.0)
        client.start(timeout=30)
        try:
            yield client
        finally:
            client.stop()
            client.close()

    def _told(self) -> str:
        modes = ", ".join(f"{each.number}: {each.mode or 'away'}" for each in self.servers)
        words = "\n".join(each.last_words() for each in self.servers if not each.mode)
        return f"the ensemble does not serve ({modes})\n{words}"


@contextmanager
def running_ensemble(
    directory: Path, *, servers: int = SERVERS, settings: Mapping[str, str] | None = None
) -> Iterator[ZooKeeperEnsemble]:
    """Run an ensemble that serves; skip the test if that is impossible here."""
    need("java")
    try:
        ensemble = ZooKeeperEnsemble(directory, servers=servers, settings=settings)
    except KafkaUnavailableError as error:
        missing(str(error))
    try:
        ensemble.start()
        yield ensemble
    finally:
        ensemble.stop()
