"""Three hosts with a broker and a controller each: cut off, powered off, slow, stopped for good.

The application is an idempotent librdkafka producer with acks=all under a steady load; all that was
acknowledged is read back at the end. These tests measure time, so no other test runs beside them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from host_cluster import HostCluster
from plain_hosts import Switch
from proofs import HOST_ROUNDS
from waiting import wait_until
from zookeeper_ensemble import running_ensemble

from fairlead_cli.drill.checker import check
from fairlead_cli.drill.history import History
from fairlead_cli.drill.reader import read_back
from fairlead_cli.drill.workload import Workload

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.slow, pytest.mark.crash, pytest.mark.proof]

PARTITIONS = 6
RATE = 300
RECORD_SIZE = 200
RECOVERY_S_MAX = 10.0
"""A silent broker is fenced after 1.5 s, a controller replaced within 2 s; the client adds more."""
SLOW_S = 3.0
# By default librdkafka waits a minute for an answer from a host that is cut off.
PATIENCE = {"socket.timeout.ms": 2000, "request.timeout.ms": 2000, "message.timeout.ms": 60_000}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostCluster]:
    directory = tmp_path_factory.mktemp("hosts")
    everywhere = {"clientPortAddress": "0.0.0.0"}
    with (
        Switch(directory, hosts=3) as switch,
        running_ensemble(directory / "zookeeper", servers=1, settings=everywhere) as ensemble,
    ):
        made = HostCluster(switch, ensemble, directory)
        made.start()
        yield made


@dataclass
class Application:
    """A topic under load, and the fate of each record."""

    cluster: HostCluster
    topic: str

    def __post_init__(self) -> None:
        self.cluster.create_topic(self.topic, PARTITIONS)
        self.cluster.wait_whole()
        self.history = History()
        self.workload = Workload(
            self.cluster.bootstrap,
            self.topic,
            partitions=PARTITIONS,
            rate=RATE,
            record_size=RECORD_SIZE,
            history=self.history,
            settings=PATIENCE,
        )
        self.workload.start()
        self.wait_answered()

    def wait_answered(self) -> float:
        """Return the seconds until every partition has acknowledged a record sent from now on."""
        self.workload.mark()
        began = time.monotonic()
        wait_until(
            lambda: len(self.workload.first_after_mark()) == PARTITIONS,
            self.cluster.last_words,
            deadline_s=60,
        )
        return max(self.workload.first_after_mark().values()) - began

    def judge(self) -> None:
        """Check that no record is lost, there twice, or out of order."""
        self.workload.stop()
        found = check(self.history, read_back(self.cluster.bootstrap, self.topic, PARTITIONS))
        assert found.is_clean, found
        assert found.acknowledged == found.sent > 0, (found, self.workload.errors)


@pytest.fixture
def application(cluster: HostCluster, request: pytest.FixtureRequest) -> Iterator[Application]:
    made = Application(cluster, f"load-{request.node.name.partition('[')[0]}-{time.time_ns()}")
    yield made
    made.workload.stop()


def test_every_process_says_who_it_is_and_binds_nothing_else(cluster: HostCluster) -> None:
    _, status = cluster.active()
    assert {broker["id"] for broker in status["brokers"]} == {1, 2, 3}
    for host in cluster.hosts:
        listening = host.run("ss", "-Hlnt").stdout.split("\n")
        bound = {line.split()[3] for line in listening if line}
        ours = {f"{host.address}:{port}" for port in (9092, 9192, 8080, 9191)}
        assert bound == ours | {"127.0.0.1:8170"}


@pytest.mark.parametrize("round_number", range(HOST_ROUNDS.chosen()))
def test_a_host_with_the_active_controller_is_cut_off(
    cluster: HostCluster, application: Application, round_number: int
) -> None:
    host, _ = cluster.active()
    host.cut_off()
    try:
        took_s = application.wait_answered()
        _, status = cluster.active(but=host)
        led = {broker["id"]: broker["leaders"] for broker in status["brokers"]}
        assert led[host.number] == 0
    finally:
        host.join()
    assert took_s <= RECOVERY_S_MAX
    cluster.wait_whole()
    application.judge()


@pytest.mark.parametrize("round_number", range(HOST_ROUNDS.chosen()))
def test_a_host_loses_its_power(
    cluster: HostCluster, application: Application, round_number: int
) -> None:
    host = cluster.hosts[round_number % 3]
    host.power_off()
    try:
        took_s = application.wait_answered()
    finally:
        host.power_on()
    assert took_s <= RECOVERY_S_MAX
    cluster.wait_whole()
    application.judge()


@pytest.mark.parametrize("round_number", range(HOST_ROUNDS.chosen()))
def test_a_slow_host_costs_time_and_no_records(
    cluster: HostCluster, application: Application, round_number: int
) -> None:
    host = cluster.hosts[(round_number + 1) % 3]
    host.slow_down()
    try:
        until = time.monotonic() + SLOW_S
        while time.monotonic() < until:
            assert application.wait_answered() <= RECOVERY_S_MAX
    finally:
        host.speed_up()
    cluster.wait_whole()
    application.judge()


def test_a_stop_hands_over_and_a_start_comes_back(
    cluster: HostCluster, application: Application
) -> None:
    """As `systemctl stop` and `start` do it, for a broker and for the active controller."""
    host, _ = cluster.active()
    for program in ("controller", "broker"):
        assert host.processes[program].stop(30) == 0
        assert application.wait_answered() <= RECOVERY_S_MAX
    log = (host.directory / "broker.log").read_text()
    assert "without a controlled shutdown" not in log
    assert "stopped cleanly" in log
    for program in ("controller", "broker"):
        host.restart(program)
    cluster.wait_whole()
    application.judge()
