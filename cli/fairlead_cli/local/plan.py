"""What `fairlead up` was asked to run, as a value that also crosses to a detached supervisor."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict, dataclass
from pathlib import Path

from fairlead_cli.local.layout import HOST, BrokerPorts, Layout, Ports

BROKERS_DEFAULT = 3
REPLICATION_FACTOR_DEFAULT = 3
REPLICATION_FACTOR_SETTING = "default.replication.factor"
KAFKA_PORT_DEFAULT = 9092
HTTP_PORT_DEFAULT = 8080


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """Checked arguments. `settings` are broker settings by Kafka's names, the same for all;
    brokers get them as arguments, where they win over the environment."""

    data: Path
    brokers: int
    ports: Ports
    settings: dict[str, str]
    manifests: tuple[Path, ...]
    fault_proxy: bool = False
    said: tuple[str, ...] = ()
    """What the user said behind `fairlead up`, ports aside: for advice."""

    def command(self, ports: Ports) -> str:
        """`fairlead up …` as it was said, at these ports."""
        words = ["fairlead", "up", *self.said]
        if ports.first_kafka != KAFKA_PORT_DEFAULT:
            words += ["--port", str(ports.first_kafka)]
        if ports.first_http != HTTP_PORT_DEFAULT:
            words += ["--http-port", str(ports.first_http)]
        return shlex.join(words)

    @property
    def layout(self) -> Layout:
        """The data directory."""
        return Layout(self.data)

    @property
    def replication_factor(self) -> int:
        """Of topics that say nothing else: as many replicas as make sense here."""
        return min(REPLICATION_FACTOR_DEFAULT, self.brokers)

    def broker_settings(self, broker_id: int) -> dict[str, str]:
        """One broker's properties file: what no user chooses, and our own defaults."""
        ports = self.ports.of_broker(broker_id)
        bound = self.ports.hidden(broker_id) if self.fault_proxy else ports
        return {
            "node.id": str(broker_id),
            "log.dirs": str(self.layout.broker_directory(broker_id)),
            "listeners": build_listeners(bound),
            "advertised.listeners": build_listeners(ports),
            "fairlead.http.listener": f"{HOST}:{ports.http}",
            "fairlead.controller.sessions": f"ws://{HOST}:{self.ports.session}",
            "fairlead.cluster.secret.file": str(self.layout.secret_file),
            REPLICATION_FACTOR_SETTING: str(self.replication_factor),
            "offsets.topic.replication.factor": str(self.replication_factor),
            # On one machine there are few members, and whoever tries it out should not wait.
            "group.initial.rebalance.delay.ms": "0",
        }


def build_listeners(ports: BrokerPorts) -> str:
    """In the form of `listeners`."""
    return f"CLIENT://{HOST}:{ports.kafka},INTERNAL://{HOST}:{ports.internal}"


# Settings that `up` derives itself; setting them by hand would pull the cluster apart.
OWN_SETTINGS = frozenset(
    {
        "node.id",
        "log.dirs",
        "listeners",
        "advertised.listeners",
        "fairlead.http.listener",
        "fairlead.controller.sessions",
        "fairlead.cluster.secret.file",
    }
)


def encode_plan(plan: LaunchPlan) -> str:
    """As one line of JSON."""
    document = asdict(plan)
    document["data"] = str(plan.data)
    document["manifests"] = [str(path) for path in plan.manifests]
    return json.dumps(document)


def decode_plan(text: str) -> LaunchPlan:
    """The inverse of `encode_plan`."""
    document = json.loads(text)
    return LaunchPlan(
        data=Path(document["data"]),
        brokers=document["brokers"],
        ports=Ports(**document["ports"]),
        settings=document["settings"],
        manifests=tuple(Path(path) for path in document["manifests"]),
        fault_proxy=document["fault_proxy"],
        said=tuple(document["said"]),
    )


def encode_properties(settings: dict[str, str]) -> str:
    """A `server.properties` file."""
    lines = [f"{name}={value}" for name, value in settings.items()]
    return "# Written by `fairlead up`; the next one overwrites it.\n" + "\n".join(lines) + "\n"
