"""What controllers count and tell: decisions, elections, the store, the cluster's partitions."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fairlead_controller.controller import Controller, open_controller
from fairlead_controller.counters import BOUNDS_S, ControllerMetrics, TimeHistogram
from fairlead_controller.decisions.events import (
    AllocateProducerIds,
    ElectLeaders,
    FenceBroker,
    FenceReason,
    RegisterBroker,
    UnfenceBroker,
)
from fairlead_controller.decisions.tables.stored_table import StoredTable, StoreError
from fairlead_controller.kubernetes.cluster_spec import ClusterSpec
from fairlead_controller.kubernetes.metrics import CandidateMetrics
from fairlead_controller.metrics.local_page import LocalMetrics
from fairlead_controller.metrics.loop_lag import LoopLag
from fairlead_controller.sessions.server import SessionServer
from fairlead_controller.stores.file import open_file_store
from fairlead_controller.stores.measured import FAILED, MeasuredStore
from fairlead_controller.stores.metadata_store import (
    MetadataStore,
    TableWrite,
    WriteOutcome,
    WriteResult,
)
from fairlead_controller.views.cluster_summary import ClusterSummaries, PartitionCounts
from fairlead_model.session.refusals import RefusedError

Samples = dict[tuple[str, ...], float]
KAFKA = "kafka_controller_kafkacontroller"
STATS = "kafka_controller_controllerstats"


def parse(text: bytes) -> Samples:
    """Values by name and labels; the text has labels in the order of their names."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_buckets_are_cumulative_and_bounds_inclusive() -> None:
    times = TimeHistogram()
    for seconds in (0.001, 0.0011, 0.5, 60.0):
        times.observe(seconds)
    buckets = dict(times.buckets())
    assert buckets["0.001"] == 1
    assert buckets["0.0025"] == 2
    assert buckets["0.5"] == 3
    assert buckets["10.0"] == 3
    assert buckets["+Inf"] == times.count == 4
    assert len(buckets) == len(BOUNDS_S) + 1


def test_a_summary_counts_partitions_as_they_are(make_world: Callable[..., Any]) -> None:
    world = make_world(brokers=2)
    world.create("t", partitions=3, replication_factor=2)
    summaries = ClusterSummaries()
    summary = summaries.look(world.state)
    assert summary.counts == PartitionCounts(partitions=3)
    assert (summary.topics, summary.active_brokers, summary.fenced_brokers) == (1, 2, 0)
    world.fence(0)
    summary = summaries.look(world.state)
    assert summary.counts.under_replicated == 3
    assert summary.counts.offline == 0
    assert (summary.active_brokers, summary.fenced_brokers) == (1, 1)
    assert summary.misplaced_leaders > 0
    world.fence(1)
    assert summaries.look(world.state).counts.offline == 3


def test_a_summary_looks_only_at_topics_that_changed(
    make_world: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(brokers=1)
    world.create("a")
    world.create("b")
    summaries = ClusterSummaries()
    summaries.look(world.state)
    world.create("c")
    counted: list[str] = []

    def count(topic: Any) -> PartitionCounts:
        counted.append(topic.name)
        return PartitionCounts(partitions=1)

    monkeypatch.setattr("fairlead_controller.views.cluster_summary._count", count)
    assert summaries.look(world.state).counts.partitions == 3
    assert counted == ["c"]


class DoubtfulStore(MetadataStore):
    """A store whose writes end as they are told to."""

    def __init__(self, *outcomes: WriteOutcome) -> None:
        self.outcomes = list(outcomes)

    async def load(self) -> dict[str, StoredTable]:
        return {}

    async def read(self, table: str) -> StoredTable | None:
        return None

    async def write(self, writes: Any) -> list[WriteResult]:
        if not self.outcomes:
            raise StoreError("broken")
        return [WriteResult(self.outcomes.pop(0)) for _ in writes]

    async def close(self) -> None:
        self.outcomes.clear()


def test_writes_count_by_how_they_ended() -> None:
    async def run() -> ControllerMetrics:
        metrics = ControllerMetrics()
        store = MeasuredStore(
            DoubtfulStore(WriteOutcome.WRITTEN, WriteOutcome.UNKNOWN, WriteOutcome.CONFLICT),
            metrics,
        )
        writes = [TableWrite(name, None, 1) for name in ("a", "b", "c")]
        await store.load()
        await store.read("a")
        await store.write(writes)
        with pytest.raises(StoreError):
            await store.write(writes[:1])
        return metrics

    metrics = asyncio.run(run())
    assert metrics.store_outcomes == {"written": 1, "unknown": 1, "conflict": 1, FAILED: 1}
    assert metrics.store_writes.count == 2
    assert metrics.store_reads.count == 2


async def tell(controller: Controller, story: list[Any]) -> Samples:
    sessions = SessionServer(controller, b"secret")
    running = asyncio.create_task(controller.run())
    try:
        for event in story:
            try:
                await controller.submit(event)
            except RefusedError:
                continue
        return parse(await LocalMetrics(controller, sessions, LoopLag()).text())
    finally:
        running.cancel()
        await sessions.close()


def test_a_controller_tells_what_it_decided(
    tmp_path: Path,
    make_create: Callable[..., Any],
    make_topic: Callable[..., Any],
    make_registration: Callable[..., Any],
) -> None:
    async def run() -> Samples:
        controller = await open_controller(await open_file_store(tmp_path), now_ms=lambda: 0)
        return await tell(
            controller,
            [
                ElectLeaders(),
                RegisterBroker(make_registration(1), ""),
                UnfenceBroker(1, 1),
                make_create(make_topic("t")),
                AllocateProducerIds(1),
                UnfenceBroker(1, 99),
                FenceBroker(1, 1, FenceReason.STOPPED),
            ],
        )

    samples = asyncio.run(run())
    assert samples[(f"{KAFKA}_activecontrollercount",)] == 1
    assert samples[(f"{KAFKA}_globaltopiccount",)] == 1
    assert samples[(f"{KAFKA}_globalpartitioncount",)] == 1
    assert samples[(f"{KAFKA}_offlinepartitionscount",)] == 1
    assert samples[(f"{KAFKA}_fencedbrokercount",)] == 1
    assert samples[("fairlead_controller_decisions_total", "CreateTopics")] == 1
    assert samples[("fairlead_controller_refusals_total", "UnfenceBroker")] == 1
    assert samples[("fairlead_controller_leader_changes_total",)] >= 1
    assert samples[(f"{STATS}_leaderelectionrateandtimems_count",)] >= 1
    assert samples[(f"{STATS}_uncleanleaderelections_total",)] == 0
    assert samples[("fairlead_controller_leader_election_seconds_bucket", "+Inf")] >= 1
    assert samples[("fairlead_store_tables_written_total", "written")] >= 4
    assert samples[("fairlead_store_write_seconds_count",)] >= 4
    assert samples[("fairlead_controller_epoch",)] == 1
    assert samples[("process_resident_memory_bytes",)] > 0


def test_a_candidate_tells_of_each_cluster_under_its_name(
    tmp_path: Path, make_registration: Callable[..., Any]
) -> None:
    """A cluster that is not taken over yet has an epoch of 0 and nothing else."""

    async def run() -> Samples:
        controller = await open_controller(await open_file_store(tmp_path), now_ms=lambda: 0)
        sessions = SessionServer(controller, b"secret")
        parts = SimpleNamespace(controller=controller, sessions=sessions)
        reigns: Any = {
            ("logs", "a"): SimpleNamespace(
                controller_epoch=1,
                takeover_s=0.5,
                is_store_available=True,
                parts=parts,
                spec=ClusterSpec("1"),
            ),
            ("logs", "b"): SimpleNamespace(
                controller_epoch=0,
                takeover_s=0.0,
                is_store_available=False,
                parts=None,
                spec=ClusterSpec("2", is_down=True),
            ),
        }
        gate: Any = SimpleNamespace(waiting=2)
        ends: dict[tuple[str, str], float] = {("logs", "a"): 1_800_000_000.0}
        metrics = CandidateMetrics(
            clients={},
            find_informers=dict,
            reigns=reigns,
            gate=gate,
            find_certificate_end=ends.get,
            lag=LoopLag(),
        )
        metrics.is_lease_held = True
        running = asyncio.create_task(controller.run())
        await controller.submit(RegisterBroker(make_registration(1), ""))
        texts = await asyncio.gather(metrics.text(), metrics.text())
        running.cancel()
        assert len(texts) == 2
        return parse(texts[1])

    samples = asyncio.run(run())
    assert samples[("fairlead_lease_held",)] == 1
    assert samples[("fairlead_store_available", "a", "logs")] == 1
    assert samples[("fairlead_store_available", "b", "logs")] == 0
    assert samples[("fairlead_cluster_hibernated", "a", "logs")] == 0
    assert samples[("fairlead_cluster_hibernated", "b", "logs")] == 1
    end = "fairlead_certificate_not_after_timestamp_seconds"
    assert samples[(end, "a", "CONTROLLER", "logs")] == 1_800_000_000
    assert (end, "b", "CONTROLLER", "logs") not in samples
    assert samples[(f"{KAFKA}_activecontrollercount", "a", "logs")] == 1
    assert (f"{KAFKA}_activecontrollercount", "b", "logs") not in samples
    assert samples[(f"{KAFKA}_fencedbrokercount", "a", "logs")] == 1
    assert samples[("fairlead_controller_decisions_total", "a", "RegisterBroker", "logs")] == 1
    assert samples[("fairlead_controller_epoch", "b", "logs")] == 0
