"""Real clusters of three brokers for the failover tests, and drills that run inside the test.

Each drill runs once in `make test-all`, and more often in `make proofs` (proofs.py). The limits
hold as promised only where `FAIRLEAD_RUNS` is set (drill_settings.py); then the distributions are
written into docs/failover.md.
"""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from drill_settings import HOLD_S, IS_MEASURED, allowed_ms
from drill_table import BEGIN, SECURE_BEGIN, ZOOKEEPER_BEGIN, write_drill_table
from local_cluster import Cli, log_in_to, log_out, take_cluster_ports
from proofs import DRILL_RUNS

from fairlead_cli.client.connection import build_admin
from fairlead_cli.drill.faults import FaultKind
from fairlead_cli.drill.limits import default_limit_ms, find_failures, judged_timing
from fairlead_cli.drill.report import build_document
from fairlead_cli.drill.run import Drill, DrillOutcome, DrillPlan
from fairlead_cli.drill.targets import parse_target
from fairlead_cli.local.control import require_cluster

if TYPE_CHECKING:
    from zookeeper_ensemble import ZooKeeperEnsemble

TARGET_TOPIC = "target"
TARGETS = {
    "leader": (f"leader:{TARGET_TOPIC}/0",),
    "follower": (f"follower:{TARGET_TOPIC}/0",),
    "controller": ("controller",),
    "leader+controller": (f"leader:{TARGET_TOPIC}/0", "controller"),
}
TABLES = {"zookeeper_cluster": ZOOKEEPER_BEGIN, "secure_cluster": SECURE_BEGIN}
Rows = list[dict[str, object]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        is_here = item.path.parent == Path(__file__).parent
        if is_here and "drill" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.proof)


def start(cli: Cli, *arguments: str) -> None:
    started = cli.up(*arguments)
    assert started.code == 0, started
    cli.ok("topic", "create", TARGET_TOPIC, "--partitions", "1", "--replication-factor", "3")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """Three brokers, for all drills of a module."""
    cli = Cli(tmp_path_factory.mktemp("failover") / "data", *take_cluster_ports())
    try:
        start(cli)
        yield cli
    finally:
        cli.close()


@pytest.fixture(scope="module")
def proxied_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """The same behind a fault proxy, so that its network can be cut."""
    cli = Cli(tmp_path_factory.mktemp("cut") / "data", *take_cluster_ports())
    try:
        start(cli, "--fault-proxy")
        yield cli
    finally:
        cli.close()


@pytest.fixture(scope="module")
def secure_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """The same with TLS everywhere, SCRAM and ACLs."""
    cli = Cli(tmp_path_factory.mktemp("secure") / "data", *take_cluster_ports())
    try:
        start(cli, "--secure")
        yield cli
    finally:
        cli.close()


@pytest.fixture(scope="module")
def zookeeper_cluster(
    tmp_path_factory: pytest.TempPathFactory, zookeeper: "ZooKeeperEnsemble"
) -> Iterator[Cli]:
    """The same with its metadata in ZooKeeper."""
    cli = Cli(tmp_path_factory.mktemp("zookeeper") / "data", *take_cluster_ports())
    try:
        start(cli, "--store", f"zookeeper://{zookeeper.connect_string('/failover')}")
        yield cli
    finally:
        cli.close()


@pytest.fixture(scope="session")
def measured() -> Iterator[dict[str, Rows]]:
    """What the drills of this session have found; written down where they were measured."""
    tables: dict[str, Rows] = {BEGIN: [], SECURE_BEGIN: [], ZOOKEEPER_BEGIN: []}
    yield tables
    for begin, rows in tables.items():
        if IS_MEASURED and rows:
            page = Path(__file__).parents[2] / "docs" / "failover.md"
            write_drill_table(page, rows, begin=begin)


@pytest.fixture
def log_in() -> Iterator[Callable[[Cli], None]]:
    """Let the clients of this process log in to a cluster, until the test ends."""
    yield log_in_to
    log_out()


@pytest.fixture
def drill(
    measured: dict[str, Rows], log_in: Callable[[Cli], None], request: pytest.FixtureRequest
) -> Callable[..., DrillOutcome]:
    """Run one drill; it fails the test as `fairlead drill` would fail."""

    def run(
        cli: Cli,
        fault: str,
        target: str,
        *,
        limit_ms: int | None = None,
        hold_s: float = HOLD_S,
    ) -> DrillOutcome:
        plan = DrillPlan(
            targets=tuple(parse_target(text) for text in TARGETS[target]),
            kind=FaultKind(fault),
            runs=DRILL_RUNS.chosen(),
            hold_s=hold_s,
        )
        notes: list[str] = []
        log_in(cli)
        cluster = require_cluster(cli.data)
        admin = build_admin(cluster.bootstrap)
        work = Drill(cli.data, plan, admin, notes.append)
        try:
            outcome = asyncio.run(work.run())
        finally:
            work.clean_up()
        timing = judged_timing(plan.kind, is_broker=plan.is_broker)
        limit = limit_ms or default_limit_ms(
            plan.kind, is_broker=plan.is_broker, is_controller=plan.is_controller
        )
        failures = find_failures(
            outcome.runs,
            outcome.findings,
            outcome.client_errors,
            timing=timing,
            limit_ms=allowed_ms(limit),
        )
        document = build_document(plan, outcome, failures, timing=timing, limit_ms=limit)
        begin = next(
            (begin for name, begin in TABLES.items() if name in request.fixturenames), BEGIN
        )
        measured[begin].append({"fault": fault, "target": target, **document})
        assert outcome.findings.acknowledged > 0
        assert not failures, "\n".join([*failures, *outcome.findings.examples, *notes])
        return outcome

    return run
