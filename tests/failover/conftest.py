"""Real clusters of three brokers for the failover tests, and drills that run inside the test.

The limits hold as promised only where `FAIRLEAD_RUNS` is set (drill_settings.py); then the
distributions are written into docs/failover.md.
"""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from drill_settings import HOLD_S, IS_MEASURED, RUNS, allowed_ms
from drill_table import write_drill_table
from local_cluster import Cli, find_free_ports

from fairlead_cli.client.connection import build_admin
from fairlead_cli.drill.faults import FaultKind
from fairlead_cli.drill.limits import default_limit_ms, find_failures, judged_timing
from fairlead_cli.drill.report import build_document
from fairlead_cli.drill.run import Drill, DrillOutcome, DrillPlan
from fairlead_cli.drill.targets import parse_target

TARGET_TOPIC = "target"
TARGETS = {
    "leader": (f"leader:{TARGET_TOPIC}/0",),
    "follower": (f"follower:{TARGET_TOPIC}/0",),
    "controller": ("controller",),
    "leader+controller": (f"leader:{TARGET_TOPIC}/0", "controller"),
}
Rows = list[dict[str, object]]


def start(cli: Cli, *arguments: str) -> None:
    started = cli.up(*arguments)
    assert started.code == 0, started
    cli.ok("topic", "create", TARGET_TOPIC, "--partitions", "1", "--replication-factor", "3")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """Three brokers, for all drills of a module."""
    cli = Cli(tmp_path_factory.mktemp("failover") / "data", *find_free_ports())
    try:
        start(cli)
        yield cli
    finally:
        cli.close()


@pytest.fixture(scope="module")
def proxied_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """The same behind a fault proxy, so that its network can be cut."""
    cli = Cli(tmp_path_factory.mktemp("cut") / "data", *find_free_ports())
    try:
        start(cli, "--fault-proxy")
        yield cli
    finally:
        cli.close()


@pytest.fixture(scope="session")
def measured() -> Iterator[Rows]:
    """What the drills of this session have found; written down where they were measured."""
    rows: Rows = []
    yield rows
    if IS_MEASURED and rows:
        write_drill_table(Path(__file__).parents[2] / "docs" / "failover.md", rows)


@pytest.fixture
def drill(measured: Rows) -> Callable[..., DrillOutcome]:
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
            runs=RUNS,
            hold_s=hold_s,
        )
        notes: list[str] = []
        admin = build_admin(",".join(f"127.0.0.1:{cli.port + i}" for i in range(3)))
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
        measured.append({"fault": fault, "target": target, **document})
        assert outcome.findings.acknowledged > 0
        assert not failures, "\n".join([*failures, *outcome.findings.examples, *notes])
        return outcome

    return run
