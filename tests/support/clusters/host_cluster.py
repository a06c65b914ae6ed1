"""A cluster on plain hosts, set up as in docs/install_hosts.md: three brokers, three controllers.

The settings are those of `examples/hosts`; only addresses, folders and ZooKeeper's servers are this
cluster's own.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka.admin import AdminClient, NewTopic
from plain_hosts import Host, Switch, fairlead
from waiting import wait_until

from fairlead_model.configs.property_files import read_properties

if TYPE_CHECKING:
    from zookeeper_ensemble import ZooKeeperEnsemble

EXAMPLES: Final = Path(__file__).resolve().parents[3] / "examples" / "hosts"
KAFKA_PORT: Final = 9092
CONTROLLER_IDS: Final = 10_000
START_S: Final = 60.0
CHROOT: Final = "/fairlead"


class HostCluster:
    """Brokers and controllers of the hosts at one switch."""

    def __init__(self, switch: Switch, ensemble: ZooKeeperEnsemble, directory: Path) -> None:
        self.hosts = switch.hosts
        self._switch = switch
        self._secret = directory / "secret"
        self._secret.touch(mode=0o600)
        self._secret.write_text("what brokers and controllers of these hosts share")
        ports = (server.client_port for server in ensemble.servers)
        self.zookeeper = ",".join(f"{switch.gateway}:{port}" for port in ports) + CHROOT

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{host.address}:{KAFKA_PORT}" for host in self.hosts)

    def settings(self, host: Host, file: str) -> dict[str, str]:
        """Return the example's settings with this host's own values."""
        example = read_properties((EXAMPLES / file).read_text())
        own = {
            name: text.replace("10.0.0.1:", f"{host.address}:") for name, text in example.items()
        }
        is_broker = file == "server.properties"
        return own | {
            "node.id": str(host.number if is_broker else CONTROLLER_IDS + host.number),
            "log.dirs": str(host.directory / ("broker" if is_broker else "controller")),
            "zookeeper.connect": self.zookeeper,
            "fairlead.cluster.secret.file": str(self._secret),
            # All hosts here have this machine's host name.
            **({"fairlead.host.name": host.name} if is_broker else {}),
        }

    def start(self) -> None:
        """Start all processes at once, and wait until every broker serves."""
        for host in self.hosts:
            for program, file in (
                ("controller", "controller.properties"),
                ("broker", "server.properties"),
            ):
                lines = "".join(
                    f"{name}={text}\n" for name, text in self.settings(host, file).items()
                )
                path = host.directory / file
                path.write_text(lines)
                host.begin(program, fairlead(), program, "--config", str(path))
        self.wait_whole()

    def create_topic(self, name: str, partitions: int) -> None:
        topic = NewTopic(name, partitions, 3, config={"min.insync.replicas": "2"})
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        admin.create_topics([topic])[name].result(30)

    def wait_whole(self) -> None:
        """Wait until a controller is active for which all brokers live and nothing is missing."""

        def is_whole() -> bool:
            found = [status for host in self.hosts if (status := self.status_of(host))]
            if len(found) != 1:
                return False
            (status,) = found
            states = [broker["state"] for broker in status["brokers"]]
            missing = status["partitions"]["underReplicated"] + status["partitions"]["offline"]
            return states == ["live"] * len(self.hosts) and missing == 0

        wait_until(is_whole, self.last_words, deadline_s=START_S)

    def active(self, *, but: Host | None = None) -> tuple[Host, dict[str, Any]]:
        """Return the host of the active controller, and its view of the cluster.

        A controller that is cut off cannot know that it was replaced: `but` leaves it out.
        """
        asked = [host for host in self.hosts if host is not but]

        def find() -> tuple[Host, dict[str, Any]] | None:
            answers = ((host, self.status_of(host)) for host in asked)
            return next(((host, status) for host, status in answers if status), None)

        return wait_until(find, self.last_words, deadline_s=START_S)

    def status_of(self, host: Host) -> dict[str, Any] | None:
        """Return the status of a host's controller; None if it is not active."""
        asked = host.run("curl", "-sf", "--max-time", "2", "http://127.0.0.1:8170/status")
        if asked.returncode != 0:
            return None
        status: dict[str, Any] = json.loads(asked.stdout)
        return status

    def last_words(self) -> str:
        return "\n".join(host.last_words() for host in self.hosts)
