"""Applications that consume, transform and produce count each record once, whatever dies or moves.

All runs share a cluster. Each seed is a run with its own topics and faults, and with all clients.
`make exactly-once` does more runs, and reports its progress.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from applications import ALL, Command
from compiled_programs import MissingError
from exactly_once_run import SETTINGS, ExactlyOnceRun, Verdict
from needed_tools import missing
from proofs import CLIENT_RIDES

from fairlead_bench.peers.cluster_state import wait_until_serving
from fairlead_bench.peers.fairlead_cluster import FairleadCluster
from fairlead_bench.peers.kafka_cluster import KafkaCluster
from fairlead_bench.peers.kafka_distribution import ensure_kafka

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fault_driver import LiveCluster

pytestmark = [
    *CLIENT_RIDES.marks,
    pytest.mark.slow,
    # Each wait in a run has a limit of its own.
    pytest.mark.timeout(900),
]
FIRST_SEED = int(os.environ.get("FAIRLEAD_FIRST_SEED", "0"))
CLIENTS = list(ALL)
SEEDS = range(FIRST_SEED, FIRST_SEED + int(os.environ.get("FAIRLEAD_RUNS", "1")))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveCluster]:
    data = tmp_path_factory.mktemp("exactly-once")
    is_kafka = os.environ.get("FAIRLEAD_CLIENTS_AGAINST") == "kafka"
    with (
        KafkaCluster(ensure_kafka(), data, SETTINGS)
        if is_kafka
        else FairleadCluster(data, SETTINGS)
    ) as started:
        started.start()
        wait_until_serving(started)
        yield started


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Command | MissingError]:
    """Return the command of each program, or why this machine cannot build it."""
    folder = tmp_path_factory.mktemp("programs")
    prepared: dict[str, Command | MissingError] = {}
    for name in CLIENTS:
        try:
            prepared[name] = ALL[name].prepare(folder)
        except MissingError as error:
            prepared[name] = error
    return prepared


@pytest.fixture(scope="module", params=SEEDS, ids=lambda seed: f"seed-{seed}")
def verdicts(
    request: pytest.FixtureRequest,
    cluster: LiveCluster,
    commands: dict[str, Command | MissingError],
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Verdict]:
    """Do one run with every program that could be built."""
    runnable = {name: it for name, it in commands.items() if not isinstance(it, MissingError)}
    folder = tmp_path_factory.mktemp("run")
    return ExactlyOnceRun(cluster, runnable, request.param, folder, print, is_moving=True).run()


@pytest.mark.parametrize("name", CLIENTS)
def test_each_record_counts_once(
    name: str, verdicts: dict[str, Verdict], commands: dict[str, Command | MissingError]
) -> None:
    reason = commands[name]
    if isinstance(reason, MissingError):
        # No distribution has a Go that is new enough, so not even CI needs this program.
        pytest.skip(str(reason)) if name == "franz" else missing(str(reason))
    verdict = verdicts[name]
    assert not verdict.findings, verdict
    assert verdict.committed_count > 0
    # Copying applications abort one transaction in seven, which readers must not see.
    assert verdict.aborted_count > 0 or name == "streams"
