"""TLS compared to TLS of Apache Kafka, and the cost of checking requests against access rules.

Both brokers use TLS 1.3, a certificate of the same kind, and the same suite, which is verified
before the measurement. The authorizer is measured for Fairlead only: the same requests go to a
broker without one, and to a broker with rules, most of which are for other users.
"""

import socket
import ssl
import statistics
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from fairlead_bench.loads.load_process import Sample
from fairlead_bench.peers.fairlead_peer import FairleadPeer
from fairlead_bench.peers.own_ports import take_ports
from fairlead_bench.peers.peer import Peer, wait_until_ready
from fairlead_bench.report.results import OURS, Results
from fairlead_bench.scenarios.single_broker import Bench, Sizes
from fairlead_operator.certificates.authority import issue, make_authority

GROUP: Final = "tls"
SUITE: Final = "TLS_AES_256_GCM_SHA384"
CONNECTIONS: Final = 4
RULES: Final = 1_000
"""For other users: a company's cluster has some rules for each of its applications."""
AUTHORIZER: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # The user that creates the rules is anonymous, as is the measured one. The topic has rules, so
    # this setting does not decide there.
    "allow.everyone.if.no.acl.found": "true",
}


@dataclass(frozen=True, slots=True)
class TlsSizes:
    """How many records are sent; `loads` has those of the loads without TLS, too."""

    loads: Sizes
    connections: int
    repetitions: int


class TlsRun:
    """The peers alternate, in the reverse order with each repetition."""

    def __init__(
        self,
        makers: dict[str, Callable[[Path], Peer]],
        sizes: TlsSizes,
        results: Results,
        *,
        say: Callable[[str], None],
        settle: Callable[[], None],
    ) -> None:
        self._makers, self._sizes, self._results = makers, sizes, results
        self._say, self._settle = say, settle

    def measure(self, folder: Path) -> None:
        """Measure TLS of all peers, then Fairlead's authorizer."""
        folder = folder / GROUP
        folder.mkdir(parents=True)
        self._measure_tls(folder)
        if OURS in self._makers:
            self._measure_authorizer(folder)

    def _measure_tls(self, folder: Path) -> None:
        authority = make_authority("bench", datetime.now(UTC))
        pair = issue(authority, "broker", datetime.now(UTC), hosts=("127.0.0.1",))
        ca, keystore = folder / "ca.pem", folder / "broker.pem"
        ca.write_bytes(authority.certificate)
        keystore.write_bytes(pair.key + pair.certificate)
        keystore.chmod(0o600)
        with ExitStack() as stack:
            benches: dict[str, EncryptedBench] = {}
            for name, make in self._makers.items():
                peer = make(folder / name)
                peer.data.mkdir(parents=True)
                (port,) = take_ports(1)
                peer.add_tls_listener(port, keystore)
                stack.callback(peer.stop)
                peer.start()
                wait_until_ready(peer)
                benches[name] = EncryptedBench(peer, self._sizes, port, ca)
                benches[name].check_suite()
            loads = (EncryptedBench.produce, EncryptedBench.consume, EncryptedBench.connect)
            for repetition in range(-1, self._sizes.repetitions):
                for load in loads:
                    for name in _order(benches, repetition):
                        self._say(f"{repetition + 1}/{self._sizes.repetitions} {name}: TLS")
                        sample = load(benches[name])
                        self._settle()
                        if repetition >= 0:
                            scenario = f"tls_{load.__name__}"
                            self._results.samples[name, scenario].append(sample)
                for bench in benches.values():
                    bench.delete_topics()

    def _measure_authorizer(self, folder: Path) -> None:
        costs: dict[str, list[float]] = {"off": [], "on": []}
        with ExitStack() as stack:
            benches: dict[str, Bench] = {}
            for name, settings in (("off", {}), ("on", AUTHORIZER)):
                peer = FairleadPeer(folder / f"authorizer-{name}", dict(settings))
                stack.callback(peer.stop)
                peer.start()
                wait_until_ready(peer)
                benches[name] = Bench(peer, self._sizes.loads)
            make_rules(benches["on"].peer.bootstrap)
            for repetition in range(-1, self._sizes.repetitions):
                for name in _order(benches, repetition):
                    self._say(f"{repetition + 1}/{self._sizes.repetitions} authorizer {name}")
                    sample = benches[name].requests()
                    self._settle()
                    if repetition >= 0:
                        cost = sample.broker_cpu_s / (sample.result["records"] / 1e6)
                        costs[name].append(cost)
        for name, values in costs.items():
            self._results.values[OURS, f"authorizer_{name}_cpu"] += values
        ratio = statistics.median(costs["on"]) / statistics.median(costs["off"])
        self._results.values[OURS, "authorizer_ratio"].append(ratio)


class EncryptedBench(Bench):
    """A peer under load over TLS; topics are created without TLS."""

    def __init__(self, peer: Peer, sizes: TlsSizes, port: int, ca: Path) -> None:
        super().__init__(peer, sizes.loads)
        self._tls_sizes, self._port, self._ca = sizes, port, ca
        self._topic = ""

    def check_suite(self) -> None:
        """Raise RuntimeError if another suite is chosen: the figures would not be comparable."""
        context = ssl.create_default_context(cafile=str(self._ca))
        with (
            socket.create_connection(("127.0.0.1", self._port), 30) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
        ):
            chosen = connection.cipher()
        if chosen is None or chosen[0] != SUITE:
            raise RuntimeError(f"{self.peer.name} chose {chosen}, not {SUITE}")

    def produce(self) -> Sample:
        """Records of 1 KB, as fast as the client can."""
        self._topic = self.create_topic("tls")
        return self._run("produce", size=1000, count=self._tls_sizes.loads.produce_1k_records)

    def consume(self) -> Sample:
        """Read what was just written, which is in the page cache."""
        count = self._tls_sizes.loads.produce_1k_records
        return self._run("consume", count=count, passes=self._tls_sizes.loads.consume_passes)

    def connect(self) -> Sample:
        """Open a connection, send a small request, and close, repeatedly."""
        return self.run(
            "tls_load",
            "connect",
            "",
            ca=str(self._ca),
            port=self._port,
            count=self._tls_sizes.connections,
            connections=CONNECTIONS,
        )

    def _run(self, mode: str, **arguments: object) -> Sample:
        settings = {"security.protocol": "ssl", "ssl.ca.location": str(self._ca)}
        bootstrap = f"127.0.0.1:{self._port}"
        return self.run(
            "rdkafka_load", mode, self._topic, bootstrap=bootstrap, settings=settings, **arguments
        )


def make_rules(bootstrap: str) -> None:
    """Create a rule that lets everybody write the measured topics, among many for others."""

    def rule(principal: str, name: str) -> AclBinding:
        return AclBinding(
            ResourceType.TOPIC,
            name,
            ResourcePatternType.PREFIXED,
            principal,
            "*",
            AclOperation.ALL,
            AclPermissionType.ALLOW,
        )

    others = [rule(f"User:app-{number}", f"topic-{number}-") for number in range(RULES)]
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    for future in admin.create_acls([rule("User:ANONYMOUS", "requests-"), *others]).values():
        future.result(60)


def _order(names: Iterable[str], repetition: int) -> list[str]:
    found = list(names)
    return found if repetition % 2 else found[::-1]
