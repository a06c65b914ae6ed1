"""The parameters of `fairlead up`, as a value that is also sent to a detached supervisor."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict, dataclass
from pathlib import Path

from fairlead_cli.local.layout import BrokerPorts, Layout, Ports
from fairlead_cli.local.log_directories import LOG_DIRS, build_log_directories
from fairlead_cli.local.secure_files import ADMIN
from fairlead_model.security.client_texts import escape_utf8_property
from fairlead_tls.protocol_map import PROTOCOL_MAP

BROKERS_DEFAULT = 3
REPLICATION_FACTOR_DEFAULT = 3
REPLICATION_FACTOR_SETTING = "default.replication.factor"
KAFKA_PORT_DEFAULT = 9092
HTTP_PORT_DEFAULT = 8080
ZOOKEEPER_SCHEME = "zookeeper://"
# This is no broker's id.
CONTROLLER_ID = "10000"


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """Checked arguments.

    `settings` are settings of all brokers, with Kafka's names. Brokers get them as arguments, which
    take precedence over the environment.
    """

    data: Path
    brokers: int
    ports: Ports
    settings: dict[str, str]
    manifests: tuple[Path, ...]
    fault_proxy: bool = False
    store: str | None = None
    """Address of the metadata in ZooKeeper; None: in files."""
    log_directories: tuple[str, ...] = ()
    """Folders in which each broker has a folder for logs; none: in the data directory."""
    said: tuple[str, ...] = ()
    """The user's arguments of `fairlead up`, without ports: for advice."""

    def command(self, ports: Ports) -> str:
        """Return the user's `fairlead up …` with these ports."""
        words = ["fairlead", "up", *self.said]
        # If the plan has another port, the data may have been used there: name the default, too.
        if {ports.first_kafka, self.ports.first_kafka} != {KAFKA_PORT_DEFAULT}:
            words += ["--port", str(ports.first_kafka)]
        if {ports.first_http, self.ports.first_http} != {HTTP_PORT_DEFAULT}:
            words += ["--http-port", str(ports.first_http)]
        return shlex.join(words)

    @property
    def layout(self) -> Layout:
        """The data directory."""
        return Layout(self.data)

    @property
    def replication_factor(self) -> int:
        """Default for topics: as many replicas as are useful with this number of brokers."""
        return min(REPLICATION_FACTOR_DEFAULT, self.brokers)

    def broker_settings(self, broker_id: int) -> dict[str, str]:
        """Return a broker's properties file: settings that `up` derives, and its defaults."""
        ports = self.ports.of_broker(broker_id)
        bound = self.ports.hidden(broker_id) if self.fault_proxy else ports
        # A broker also finds controllers in ZooKeeper, past a proxy that should cut it off.
        is_announced = self.store is not None and not self.fault_proxy
        return {
            "node.id": str(broker_id),
            LOG_DIRS: ",".join(
                map(str, build_log_directories(self.layout, self.log_directories, broker_id))
            ),
            "listeners": self.build_listeners(bound),
            "advertised.listeners": self.build_listeners(ports),
            "fairlead.http.listener": self.ports.at(ports.http),
            **self.access_settings(broker_id),
            "fairlead.controller.sessions": self.session_url,
            "fairlead.cluster.secret.file": str(self.layout.secret_file),
            **({"zookeeper.connect": self.zookeeper_connect} if is_announced else {}),
            REPLICATION_FACTOR_SETTING: str(self.replication_factor),
            "offsets.topic.replication.factor": str(self.replication_factor),
            "transaction.state.log.replication.factor": str(self.replication_factor),
            # A local group has few members, and a user who tries it out should not wait.
            "group.initial.rebalance.delay.ms": "0",
        }

    def build_listeners(self, ports: BrokerPorts) -> str:
        """Return the value of `listeners`."""
        return f"CLIENT://{self.ports.at(ports.kafka)},INTERNAL://{self.ports.at(ports.internal)}"

    def access_settings(self, broker_id: int) -> dict[str, str]:
        """Return the settings for clients' authentication and authorization."""
        rest = self.ports.at(self.ports.of_broker(broker_id).rest)
        if not self.ports.is_secure:
            return {"fairlead.rest.listener": rest}
        return {
            "fairlead.rest.listener": f"https://{rest}",
            "fairlead.rest.authentication": "BASIC",
            PROTOCOL_MAP: "CLIENT:SASL_SSL,INTERNAL:SSL,CONTROLLER:SSL",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512,SCRAM-SHA-256",
            "ssl.keystore.location": str(self.layout.broker_certificate(broker_id)),
            **self.peer_settings("internal", self.layout.broker_certificate(broker_id)),
            **self.peer_settings("controller", self.layout.broker_certificate(broker_id)),
            "super.users": f"User:{ADMIN}",
        }

    def peer_settings(self, listener: str, certificate: Path) -> dict[str, str]:
        """Return the TLS settings of a process for a listener of brokers or controllers."""
        return {
            f"listener.name.{listener}.ssl.keystore.location": str(certificate),
            f"listener.name.{listener}.ssl.truststore.location": str(self.layout.ca_certificate),
        }

    def controller_tls_settings(self) -> dict[str, str]:
        """Return the TLS settings of the controller; none for a cluster that is not secure."""
        if not self.ports.is_secure:
            return {}
        return {
            PROTOCOL_MAP: "CONTROLLER:SSL",
            **self.peer_settings("controller", self.layout.controller_certificate),
        }

    @property
    def session_url(self) -> str:
        """Address at which brokers connect to the controller."""
        return f"{'wss' if self.ports.is_secure else 'ws'}://{self.ports.at(self.ports.session)}"

    @property
    def bootstrap(self) -> str:
        """The value for a Kafka client's bootstrap.servers."""
        ports = (self.ports.of_broker(broker_id).kafka for broker_id in range(self.brokers))
        return ",".join(self.ports.at(port) for port in ports)

    @property
    def zookeeper_connect(self) -> str:
        """The value of `zookeeper.connect`; for plans with a store in ZooKeeper."""
        return (self.store or "").removeprefix(ZOOKEEPER_SCHEME)

    def controller_settings(self) -> dict[str, str]:
        """Return the properties of a controller with its metadata in ZooKeeper."""
        session = self.ports.hidden_session if self.fault_proxy else self.ports.session
        return {
            "node.id": CONTROLLER_ID,
            "log.dirs": str(self.layout.controller_directory),
            "listeners": f"CONTROLLER://{self.ports.at(session)}",
            "fairlead.http.listener": self.ports.at(self.ports.controller_http),
            "fairlead.cluster.secret.file": str(self.layout.secret_file),
            "zookeeper.connect": self.zookeeper_connect,
            **self.controller_tls_settings(),
        }


# Settings that `up` derives itself; other values would separate the processes of the cluster.
OWN_SETTINGS = frozenset(
    {
        "node.id",
        "broker.id",
        "zookeeper.connect",
        LOG_DIRS,
        "listeners",
        "advertised.listeners",
        "fairlead.http.listener",
        "fairlead.rest.listener",
        "fairlead.rest.advertised.listener",
        "fairlead.controller.sessions",
        "fairlead.cluster.secret.file",
        PROTOCOL_MAP,
    }
)


def encode_plan(plan: LaunchPlan) -> str:
    """Return the plan as one line of JSON."""
    document = asdict(plan)
    document["data"] = str(plan.data)
    document["manifests"] = [str(path) for path in plan.manifests]
    return json.dumps(document)


def decode_plan(text: str) -> LaunchPlan:
    """Return the plan that `encode_plan` has encoded."""
    document = json.loads(text)
    return LaunchPlan(
        data=Path(document["data"]),
        brokers=document["brokers"],
        ports=Ports(**document["ports"]),
        settings=document["settings"],
        manifests=tuple(Path(path) for path in document["manifests"]),
        fault_proxy=document["fault_proxy"],
        store=document["store"],
        log_directories=tuple(document["log_directories"]),
        said=tuple(document["said"]),
    )


def encode_properties(settings: dict[str, str]) -> str:
    """Return the text of a `server.properties` file."""
    lines = [f"{name}={escape_utf8_property(value)}" for name, value in settings.items()]
    return "# Written by `fairlead up`; the next one overwrites it.\n" + "\n".join(lines) + "\n"
