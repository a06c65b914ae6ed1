"""The files of a local cluster, and the ports of its processes.

DIR/cluster.json     the present processes: pids, ports, state (rewritten on every change)
DIR/supervisor.lock  locked (flock) by the supervisor while it lives
DIR/secret           the secret with which brokers and controller authenticate each other
DIR/tls/             certificates of a secure cluster, and its authority's key
DIR/clients/         how clients log in to a secure cluster
DIR/config/          a settings file for each process, written by `up`
DIR/controller/      the controller's metadata store, or its memory of the one in ZooKeeper
DIR/store            the address of the metadata in ZooKeeper, if it is not in files
DIR/broker-<i>/      the log directory of broker i
DIR/logs/            the output of each process
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fairlead_model.host_address import join_address

if TYPE_CHECKING:
    from pathlib import Path

HOST = "127.0.0.1"
INTERNAL_PORT_SHIFT = 100
TLS_PORT_SHIFT = 50
SESSION_PORT_SHIFT = 99
CONTROLLER_HTTP_PORT_SHIFT = 90
PROXY_HTTP_PORT_SHIFT = 91
# With a fault proxy, the processes listen at these ports, and the proxy at their usual ports.
HIDDEN_SESSION_PORT_SHIFT = 149
HIDDEN_KAFKA_PORT_SHIFT = 150
HIDDEN_INTERNAL_PORT_SHIFT = 200
REST_PORT_SHIFT = 100
PORT_MAX = 65535
# With more, broker ports (P+i) would overlap the ports for TLS (P+50+i), and these the
# controller's session (P+99).
BROKERS_MAX = 40


@dataclass(frozen=True, slots=True)
class BrokerPorts:
    """All ports of one broker."""

    kafka: int
    internal: int
    http: int
    rest: int


@dataclass(frozen=True, slots=True)
class Ports:
    """All ports of a local cluster, computed from two numbers."""

    first_kafka: int
    first_http: int
    is_secure: bool = False
    """Whether clients connect over TLS only."""
    host: str = HOST
    """The address of all ports."""

    def at(self, port: int) -> str:
        """Return `HOST:PORT` for one of these ports."""
        return join_address(self.host, port)

    @property
    def session(self) -> int:
        """Port of the controller's sessions with brokers."""
        return self.first_kafka + SESSION_PORT_SHIFT

    @property
    def controller_http(self) -> int:
        """Port of the controller's health and status."""
        return self.first_http + CONTROLLER_HTTP_PORT_SHIFT

    @property
    def proxy_http(self) -> int:
        """Port at which the fault proxy takes commands."""
        return self.first_http + PROXY_HTTP_PORT_SHIFT

    @property
    def hidden_session(self) -> int:
        """Port of the controller's sessions behind a fault proxy."""
        return self.first_kafka + HIDDEN_SESSION_PORT_SHIFT

    def hidden(self, broker_id: int) -> BrokerPorts:
        """Return the ports of a broker behind a fault proxy."""
        return BrokerPorts(
            kafka=self.first_kafka + HIDDEN_KAFKA_PORT_SHIFT + broker_id,
            internal=self.first_kafka + HIDDEN_INTERNAL_PORT_SHIFT + broker_id,
            http=self.first_http + broker_id,
            rest=self.first_http + REST_PORT_SHIFT + broker_id,
        )

    def of_broker(self, broker_id: int) -> BrokerPorts:
        """Return the ports of broker `broker_id`."""
        return BrokerPorts(
            kafka=self.first_kafka + (TLS_PORT_SHIFT if self.is_secure else 0) + broker_id,
            internal=self.first_kafka + INTERNAL_PORT_SHIFT + broker_id,
            http=self.first_http + broker_id,
            rest=self.first_http + REST_PORT_SHIFT + broker_id,
        )

    def purposes(self, brokers: int, *, fault_proxy: bool = False) -> list[tuple[int, str]]:
        """Return every port with its purpose, the most familiar ones first."""
        purposes = []
        for broker_id in range(brokers):
            ports = self.of_broker(broker_id)
            kafka = "Kafka over TLS" if self.is_secure else "Kafka"
            purposes += [
                (ports.kafka, f"{kafka}, broker {broker_id}"),
                (ports.internal, f"internal listener, broker {broker_id}"),
                (ports.http, f"HTTP, broker {broker_id}"),
                (ports.rest, f"HTTP API, broker {broker_id}"),
            ]
        purposes.append((self.session, "controller session"))
        purposes.append((self.controller_http, "HTTP, controller"))
        if fault_proxy:
            purposes.append((self.proxy_http, "HTTP, fault proxy"))
            purposes.append((self.hidden_session, "controller session behind the fault proxy"))
            for broker_id in range(brokers):
                hidden = self.hidden(broker_id)
                where = f"broker {broker_id} behind the fault proxy"
                purposes += [(hidden.kafka, f"Kafka, {where}")]
                purposes += [(hidden.internal, f"internal listener, {where}")]
        return purposes


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths inside the data directory."""

    root: Path

    @property
    def cluster_file(self) -> Path:
        return self.root / "cluster.json"

    @property
    def lock_file(self) -> Path:
        return self.root / "supervisor.lock"

    @property
    def secret_file(self) -> Path:
        return self.root / "secret"

    @property
    def tls_directory(self) -> Path:
        return self.root / "tls"

    @property
    def ca_certificate(self) -> Path:
        return self.tls_directory / "ca.crt"

    @property
    def ca_key(self) -> Path:
        return self.tls_directory / "ca.key"

    def broker_certificate(self, broker_id: int) -> Path:
        return self.tls_directory / f"broker-{broker_id}.pem"

    @property
    def controller_certificate(self) -> Path:
        return self.tls_directory / "controller.pem"

    @property
    def clients_directory(self) -> Path:
        return self.root / "clients"

    @property
    def controller_directory(self) -> Path:
        return self.root / "controller"

    @property
    def store_file(self) -> Path:
        return self.root / "store"

    @property
    def controller_config(self) -> Path:
        return self.config_directory / "controller.properties"

    @property
    def config_directory(self) -> Path:
        return self.root / "config"

    @property
    def log_directory(self) -> Path:
        return self.root / "logs"

    def broker_directory(self, broker_id: int) -> Path:
        return self.root / f"broker-{broker_id}"

    def broker_config(self, broker_id: int) -> Path:
        return self.config_directory / f"broker-{broker_id}.properties"

    def output_file(self, name: str) -> Path:
        """Return the file for the output of process `name`; restarts append to it."""
        return self.log_directory / f"{name}.log"

    def known_brokers(self) -> list[int]:
        """Return the ids of the brokers that ever had data here."""
        suffixes = [path.name.removeprefix("broker-") for path in self.root.glob("broker-*")]
        return sorted(int(suffix) for suffix in suffixes if suffix.isdecimal())
