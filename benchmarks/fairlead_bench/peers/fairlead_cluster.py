"""Fairlead as a cluster: a controller process and a process for each broker, default settings."""

import re
import secrets
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from fairlead_bench.peers.cluster import BROKERS, Child, stop_all
from fairlead_bench.peers.own_ports import take_ports

INTERNAL_TOPICS: Final = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
}
"""Kafka's defaults; in Fairlead the defaults are one replica, for single brokers."""
FENCED: Final = re.compile(r": broker \d+ is fenced: (?!it said that it stops)")


class FairleadCluster:
    """Brokers 0, 1, 2 … in `data`, with their own ports."""

    name = "fairlead"

    def __init__(
        self, data: Path, settings: dict[str, str] | None = None, *, brokers: int = BROKERS
    ) -> None:
        self.data = data
        self._settings = dict(settings or {})
        self._more_listeners: dict[str, int] = {}
        self._session_port, self.status_port, *ports = take_ports(2 + 3 * brokers)
        self.ports = ports[:brokers]
        self._internal_ports = ports[brokers : 2 * brokers]
        self.http_ports = ports[2 * brokers :]
        self.controller = Child(data / "controller.out")
        self.brokers = [Child(data / f"broker-{index}.out") for index in range(brokers)]

    def add_listeners(self, ports: Mapping[str, int]) -> None:
        """Let broker 0 listen at more ports, from its first start on; `settings` describe them."""
        self._more_listeners |= ports

    def add_tls_listener(self, port: int, keystore: Path) -> None:
        """Let broker 0 listen with TLS at one more port; `keystore` is PEM. Before the start."""
        self.add_listeners({"ENCRYPTED": port})
        self._settings |= {
            "listener.security.protocol.map": "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT,ENCRYPTED:SSL",
            "ssl.keystore.location": str(keystore),
            "ssl.enabled.protocols": "TLSv1.3",
            # As in Kafka: Fairlead's default accepts 200 clients a second after a burst.
            "max.connection.creation.rate": str(2**31 - 1),
        }

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    @property
    def pids(self) -> list[int]:
        running = [child for child in (*self.brokers, self.controller) if child.is_started]
        return [child.pid for child in running]

    def broker_id(self, index: int) -> int:
        return index

    def controller_index(self) -> int | None:
        return None

    def log_directory_of(self, index: int) -> Path:
        return self.data / f"broker-{index}"

    @property
    def _secret_file(self) -> Path:
        return self.data / "secret"

    def _settings_file(self, index: int) -> Path:
        return self.data / f"broker-{index}.properties"

    def prepare(self) -> None:
        """Write the settings and the secret of brokers and controller."""
        self.data.mkdir(parents=True, exist_ok=True)
        if not self._secret_file.exists():
            self._secret_file.write_text(secrets.token_urlsafe(32))
            self._secret_file.chmod(0o600)
        for index, (port, internal_port) in enumerate(
            zip(self.ports, self._internal_ports, strict=True)
        ):
            self.log_directory_of(index).mkdir(exist_ok=True)
            addresses = f"CLIENT://127.0.0.1:{port},INTERNAL://127.0.0.1:{internal_port}"
            for name, more_port in self._more_listeners.items():
                addresses += f",{name}://127.0.0.1:{more_port}"
            settings = {
                "node.id": str(index),
                "log.dirs": str(self.log_directory_of(index)),
                "listeners": addresses,
                "advertised.listeners": addresses,
                "fairlead.http.listener": f"127.0.0.1:{self.http_ports[index]}",
                "fairlead.controller.sessions": f"ws://127.0.0.1:{self._session_port}",
                "fairlead.cluster.secret.file": str(self._secret_file),
                **self._settings,
            }
            lines = [f"{name}={value}\n" for name, value in settings.items()]
            self._settings_file(index).write_text("".join(lines))

    def start(self) -> None:
        self.prepare()
        self.start_controller()
        for index in range(len(self.brokers)):
            self.start_broker(index)

    def start_controller(self) -> None:
        self.controller.start(
            [
                *(sys.executable, "-m", "fairlead_controller"),
                *("--data", str(self.data / "controller"), "--host", "127.0.0.1"),
                *("--port", str(self._session_port), "--http-port", str(self.status_port)),
                *("--cluster-secret-file", str(self._secret_file)),
            ]
        )

    def start_broker(self, index: int = 0) -> None:
        """Start one broker, with a running controller: after `stop_broker` or `kill_broker`."""
        configuration = str(self._settings_file(index))
        self.brokers[index].start(
            [sys.executable, "-m", "fairlead_broker", "--config", configuration]
        )

    def stop_broker(self, index: int = 0) -> None:
        """Send SIGTERM and wait for the end: the broker's leaders move first."""
        stop_all([self.brokers[index]])

    def kill_broker(self, index: int = 0) -> None:
        self.brokers[index].kill()

    def stop(self) -> None:
        """Stop the brokers first, so that they can tell a live controller."""
        stop_all(self.brokers)
        stop_all([self.controller])

    def failure(self) -> str | None:
        if not self.controller.is_started:
            return "not started"
        failures = [child.failure() for child in (self.controller, *self.brokers)]
        return next((failure for failure in failures if failure), None)

    def fencings(self) -> list[str]:
        return self.controller.lines(FENCED)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()
