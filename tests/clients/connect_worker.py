"""A worker of Kafka Connect in distributed mode, as a process, and its REST interface."""

import json
import subprocess
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Final

from waiting import wait_until

from fairlead_bench.peers.kafka_distribution import KafkaDistribution, ensure_kafka
from fairlead_bench.peers.own_ports import take_ports

POM: Final = Path(__file__).parent / "connect" / "pom.xml"
ANSWER_TIMEOUT_S: Final = 30
STRINGS: Final = "org.apache.kafka.connect.storage.StringConverter"
BYTES: Final = "org.apache.kafka.connect.converters.ByteArrayConverter"


def ensure_connect() -> KafkaDistribution:
    return ensure_kafka(pom=POM, folder="connect")


class ConnectWorker:
    """One worker, which keeps its topics and its port when it is started again."""

    def __init__(self, bootstrap: str, folder: Path, group: str) -> None:
        (self._port,) = take_ports(1)
        self._log = folder / "connect.out"
        self._settings = folder / "connect.properties"
        self._process: subprocess.Popen[bytes] | None = None
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "exactly.once.source.support": "enabled",
            "listeners": f"http://127.0.0.1:{self._port}",
            "key.converter": STRINGS,
            "value.converter": STRINGS,
            "plugin.discovery": "service_load",
            "offset.flush.interval.ms": "500",
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "1000",
            "scheduled.rebalance.max.delay.ms": "0",
        }
        for name in ("config", "offset", "status"):
            settings[f"{name}.storage.topic"] = f"{group}-{name}"
            settings[f"{name}.storage.replication.factor"] = "1"
        for name in ("offset", "status"):
            settings[f"{name}.storage.partitions"] = "3"
        lines = [f"{name}={value}\n" for name, value in settings.items()]
        self._settings.write_text("".join(lines))

    def start(self) -> None:
        """Start it, and wait until it answers."""
        command = ensure_connect().java_command(
            "org.apache.kafka.connect.cli.ConnectDistributed",
            heap_mb=512,
            options=("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"),
        )
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, str(self._settings)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        wait_until(self._is_answering, self.last_words)

    def ensure_started(self) -> None:
        """Start it where it does not run."""
        if self._process is None or self._process.poll() is not None:
            self.start()

    def kill(self) -> None:
        """Kill it -9."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def put(self, connector: str, config: dict[str, str]) -> None:
        """Make a connector; it may take a while until a new worker leads its group."""
        wait_until(
            lambda: self._request(f"{connector}/config", config) is not None, self.last_words
        )

    def states(self, connector: str) -> list[str]:
        """Of the connector and its tasks."""
        status = self._request(f"{connector}/status")
        if status is None:
            return []
        return [status["connector"]["state"], *(task["state"] for task in status["tasks"])]

    def last_words(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-8:])

    def _is_answering(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.last_words()
        return self._request("") is not None

    def _request(self, path: str, body: Any = None) -> Any:
        """What it answers; None while it cannot yet."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}/connectors/{path}".rstrip("/"),
            data=None if body is None else json.dumps(body).encode(),
            method="GET" if body is None else "PUT",
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_TIMEOUT_S) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                assert error.code in (404, 409, 500, 503), error.read().decode()
            return None
        except OSError:
            return None
