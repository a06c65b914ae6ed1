"""Apache Kafka as a cluster: each process is broker and KRaft voter, default settings."""

import re
import subprocess
import uuid
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Final, Self

from fairlead_bench.loads import wire_bytes
from fairlead_bench.peers.cluster import BROKERS, Child, stop_all
from fairlead_bench.peers.kafka_distribution import KafkaDistribution
from fairlead_bench.peers.own_ports import take_ports
from fairlead_bench.peers.peer import exchange

HEAP_MB: Final = 1024
FIRST_NODE_ID: Final = 1
# The JVM options of Kafka's own start script, besides the heap.
JVM_OPTIONS: Final = (
    f"-Xms{HEAP_MB}m",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
    # The only messages below warnings that are counted: which brokers a controller fences.
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.controller.ReplicationControlManager=info",
)
FENCED: Final = re.compile(r"Fencing broker \d+ .*session has timed out")


class KafkaCluster:
    """Nodes 1, 2, 3 … in `data`; formatted before the first start."""

    name = "kafka"

    def __init__(
        self,
        distribution: KafkaDistribution,
        data: Path,
        settings: dict[str, str] | None = None,
        *,
        brokers: int = BROKERS,
    ) -> None:
        self.data = data
        self._distribution = distribution
        self._settings = dict(settings or {})
        self._tls_port: int | None = None
        ports = take_ports(2 * brokers)
        self.ports, self._controller_ports = ports[:brokers], ports[brokers:]
        self.brokers = [Child(data / f"node-{index}.out") for index in range(brokers)]

    @property
    def version(self) -> str:
        return self._distribution.version

    def add_tls_listener(self, port: int, keystore: Path) -> None:
        """Let node 1 listen with TLS at one more port; `keystore` is PEM. Before the start."""
        self._tls_port = port
        self._settings |= {
            "listener.security.protocol.map": (
                "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,ENCRYPTED:SSL"
            ),
            "inter.broker.listener.name": "PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(keystore),
            "ssl.enabled.protocols": "TLSv1.3",
        }

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    @property
    def pids(self) -> list[int]:
        return [child.pid for child in self.brokers if child.is_started]

    def broker_id(self, index: int) -> int:
        return FIRST_NODE_ID + index

    def controller_index(self) -> int | None:
        request = wire_bytes.describe_quorum_request()
        leader = wire_bytes.quorum_leader(exchange(self.ports[0], request))
        return None if leader is None else leader - FIRST_NODE_ID

    def log_directory_of(self, index: int) -> Path:
        return self.data / f"data-{index}"

    def _settings_file(self, index: int) -> Path:
        return self.data / f"node-{index}.properties"

    def start(self) -> None:
        self.prepare()
        for index in range(len(self.brokers)):
            self.start_broker(index)

    def start_broker(self, index: int = 0) -> None:
        command = self._distribution.java_command(
            "kafka.Kafka", heap_mb=HEAP_MB, options=JVM_OPTIONS
        )
        self.brokers[index].start([*command, str(self._settings_file(index))])

    def stop_broker(self, index: int = 0) -> None:
        stop_all([self.brokers[index]])

    def kill_broker(self, index: int = 0) -> None:
        self.brokers[index].kill()

    def stop(self) -> None:
        stop_all(self.brokers)

    def prepare(self) -> None:
        """Write the settings and format the storage, once."""
        if self._settings_file(0).exists():
            return
        self.data.mkdir(parents=True, exist_ok=True)
        cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").lstrip("-")
        for index in range(len(self.brokers)):
            settings = self._settings_of(index)
            lines = [f"{name}={value}\n" for name, value in settings.items()]
            self._settings_file(index).write_text("".join(lines))
            command = self._distribution.java_command(
                "kafka.tools.StorageTool", heap_mb=128, options=("-XX:TieredStopAtLevel=1",)
            )
            identity = ("-t", cluster_id.ljust(22, "A"), "-c", str(self._settings_file(index)))
            subprocess.run(
                [*command, "format", *identity], check=True, capture_output=True, timeout=60
            )

    def _settings_of(self, index: int) -> dict[str, str]:
        port, controller_port = self.ports[index], self._controller_ports[index]
        voters = [
            f"{self.broker_id(voter)}@127.0.0.1:{voter_port}"
            for voter, voter_port in enumerate(self._controller_ports)
        ]
        clients = f"PLAINTEXT://127.0.0.1:{port}"
        if self._tls_port is not None:
            clients += f",ENCRYPTED://127.0.0.1:{self._tls_port}"
        # A single broker cannot have the three replicas of internal topics that are the default.
        copies = str(min(3, len(self.brokers)))
        return {
            "process.roles": "broker,controller",
            "node.id": str(self.broker_id(index)),
            "controller.quorum.voters": ",".join(voters),
            "listeners": f"{clients},CONTROLLER://127.0.0.1:{controller_port}",
            "advertised.listeners": clients,
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.log_directory_of(index)),
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": str(min(2, len(self.brokers))),
            "auto.create.topics.enable": "false",
            **self._settings,
        }

    def failure(self) -> str | None:
        if not any(child.is_started for child in self.brokers):
            return "not started"
        failures = [child.failure() for child in self.brokers]
        return next((failure for failure in failures if failure), None)

    def fencings(self) -> list[str]:
        return [line for child in self.brokers for line in child.lines(FENCED)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()
