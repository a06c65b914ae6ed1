"""The broker's metrics: values that follow what it does, text that parses, bounds that hold."""

import asyncio
import math
import time
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from transactional_producer import TransactionalProducer
from waiting import wait_until

from fairlead_broker.http.disk_families import measure_disk
from fairlead_broker.http.metrics_page import MetricsPage
from fairlead_broker.http.readiness import Phase, Readiness
from fairlead_broker.http.replica_families import LATE_TRANSACTION_MS
from fairlead_broker.measures.traffic import Traffic

Samples = dict[tuple[str, ...], float]


def scrape(stage: Any, page: MetricsPage | None = None) -> Samples:
    page = page or MetricsPage(Readiness(phase=Phase.SERVING))
    page.broker = stage.broker
    return parse(stage.run(page.text()))


def parse(text: str) -> Samples:
    samples: Samples = {}
    for family in text_string_to_metric_families(text):
        assert family.documentation, family.name
        for sample in family.samples:
            key = (sample.name, *sample.labels.values())
            assert key not in samples, f"{key} is told twice"
            samples[key] = sample.value
    return samples


def test_replicas_of_a_leader_are_counted_as_kafka_does(stage: Any) -> None:
    stage.topic("led", partitions=3, replicas=(1, 2, 3), configs={"min.insync.replicas": "1"})
    stage.topic("followed", partitions=2, leader=2, replicas=(2, 1))
    samples = scrape(stage)
    manager = "kafka_server_replicamanager"
    assert samples[(f"{manager}_partitioncount",)] == 5
    assert samples[(f"{manager}_leadercount",)] == 3
    assert samples[(f"{manager}_underreplicatedpartitions",)] == 3
    assert samples[(f"{manager}_underminisrpartitioncount",)] == 0
    assert samples[(f"{manager}_atminisrpartitioncount",)] == 3
    assert samples[(f"{manager}_offlinereplicacount",)] == 0


def test_a_transaction_that_should_have_ended_is_told(stage: Any) -> None:
    stage.topic("t", partitions=2)
    now_ms = stage.clock.now_ms()
    longest_ms = stage.broker.settings.transaction_max_timeout_ms + LATE_TRANSACTION_MS
    late = "kafka_server_replicamanager_partitionswithlatetransactionscount"

    async def write(index: int, age_ms: int) -> None:
        producer = TransactionalProducer(7 + index, now_ms=now_ms - age_ms)
        producer.put(stage.partition("t", index), b"v")

    stage.run(write(0, longest_ms))
    assert scrape(stage)[(late,)] == 0
    stage.run(write(1, longest_ms + 1))
    assert scrape(stage)[(late,)] == 1


def test_traffic_is_told_per_topic_and_in_all(stage: Any) -> None:
    stage.topic("a", partitions=2)
    stage.topic("b")
    for topic, count in (("a", 3), ("b", 1)):
        traffic = stage.broker.partitions[(topic, 0)].traffic
        traffic.messages_in += count
        traffic.bytes_in += 100 * count
    samples = scrape(stage)
    name = "kafka_server_brokertopicmetrics_messagesin_total"
    assert (samples[(name,)], samples[(name, "a")], samples[(name, "b")]) == (4, 3, 1)
    assert samples[("kafka_server_brokertopicmetrics_bytesin_total",)] == 400
    assert samples[("fairlead_produced_bytes_total",)] == 400


def test_totals_do_not_fall_when_a_topic_leaves() -> None:
    traffic = Traffic()
    traffic.of("a").bytes_in = 10
    traffic.of("b").bytes_in = 5
    traffic.find("made up").failed_produces += 1
    traffic.keep_only(["b"])
    assert list(traffic.topics) == ["b"]
    total = traffic.total()
    assert (total.bytes_in, total.failed_produces) == (15, 1)


def test_offsets_and_sizes_of_logs_are_told(stage: Any) -> None:
    stage.topic("t", partitions=2)
    stage.append("t", b"a", b"b")
    samples = scrape(stage)
    assert samples[("kafka_log_log_logendoffset", "t", "0")] == 2
    assert samples[("kafka_log_log_logstartoffset", "t", "0")] == 0
    assert samples[("kafka_log_log_numlogsegments", "t", "1")] == 1
    assert samples[("kafka_log_log_size", "t", "0")] > 60


def test_partitions_beyond_the_limit_count_in_sums_only(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlead_broker.http.replica_families.METRIC_PARTITIONS_MAX", 1)
    monkeypatch.setattr("fairlead_broker.http.replica_families.METRIC_PARTITIONS_A_TURN", 1)
    stage.topic("t", partitions=3)
    samples = scrape(stage)
    assert [key for key in samples if key[0] == "kafka_log_log_size"] == [
        ("kafka_log_log_size", "t", "0")
    ]
    assert samples[("kafka_server_replicamanager_partitioncount",)] == 3


def test_request_times_are_summaries_and_a_histogram(stage: Any) -> None:
    metrics = stage.broker.metrics
    metrics.requests[3] = 2
    metrics.client_times[0].note(3_000_000)
    metrics.client_times[0].local_ns = 1_000_000
    metrics.client_times[0].remote_ns = 1_500_000
    metrics.peer_times[1].note(500_000_000)
    metrics.client_times[3].note(50_000)
    metrics.peer_times[3].note(50_000)
    samples = scrape(stage)
    name = "kafka_network_requestmetrics"
    assert samples[(f"{name}_totaltimems_sum", "Produce")] == 3
    assert samples[(f"{name}_totaltimems_count", "Produce")] == 1
    assert 2 <= samples[(f"{name}_totaltimems", "Produce", "0.99")] <= 4.2
    assert samples[(f"{name}_localtimems_sum", "Produce")] == 1
    assert samples[(f"{name}_remotetimems_sum", "Produce")] == 1.5
    assert samples[(f"{name}_requestqueuetimems_sum", "Produce")] == 0.5
    assert samples[(f"{name}_totaltimems_count", "FetchFollower")] == 1
    assert samples[(f"{name}_totaltimems_count", "Metadata")] == 2
    assert samples[(f"{name}_requests_total", "FetchFollower")] == 1
    assert math.isnan(samples[(f"{name}_totaltimems", "FetchConsumer", "0.99")])
    histogram = "fairlead_request_seconds"
    assert samples[(f"{histogram}_count", "FetchFollower")] == 1
    assert samples[(f"{histogram}_sum", "FetchFollower")] == 0.5
    assert samples[(f"{histogram}_count", "Other")] == 2
    bounds = {key[2]: value for key, value in samples.items() if key[0] == f"{histogram}_bucket"}
    assert len(bounds) == 23


class AnySession:
    is_connected = True
    silence_s = 0.25
    controller_epoch = 7
    broker_epoch = 3


def test_the_session_with_the_controller_is_told(stage: Any) -> None:
    page = MetricsPage(Readiness(phase=Phase.SERVING))
    assert scrape(stage, page)[("fairlead_controller_session_up",)] == 0
    page.session = AnySession()
    samples = scrape(stage, page)
    assert samples[("fairlead_controller_session_up",)] == 1
    assert samples[("fairlead_controller_silence_seconds",)] == 0.25
    assert samples[("fairlead_session_controller_epoch",)] == 7
    assert 0 < samples[("fairlead_disk_available_bytes",)] <= samples[("fairlead_disk_size_bytes",)]


def test_all_who_ask_at_a_time_are_told_of_the_disks(stage: Any) -> None:
    """Two Prometheus servers, and the operator, which reads /load."""
    page = MetricsPage(Readiness(phase=Phase.SERVING))
    page.broker = stage.broker

    async def ask_together() -> tuple[Any, ...]:
        return await asyncio.gather(page.text(), page.text(), page.capacity(), page.capacity())

    *texts, first, second = stage.run(ask_together())
    for text in texts:
        assert parse(text)[("fairlead_disk_size_bytes",)] > 0
    assert first is not None
    assert second is not None
    assert page._disks.asked == {}


def test_a_disk_that_is_slow_is_told_all_the_same(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Longer than the disk takes, a busy machine may keep this process waiting, but not each time.
    def measure_slowly(path: str) -> tuple[int, int]:
        time.sleep(0.5)
        return measure_disk(path)

    monkeypatch.setattr("fairlead_broker.http.disk_families.measure_disk", measure_slowly)
    page = MetricsPage(Readiness(phase=Phase.SERVING))
    wait_until(lambda: scrape(stage, page).get(("fairlead_disk_size_bytes",), 0) > 0)
    wait_until(lambda: stage.run(page.capacity()) is not None)


def test_a_disk_that_hangs_hides_only_itself(stage: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead_broker.http.disk_families.DISK_WAIT_S", 0.01)
    page = MetricsPage(Readiness(phase=Phase.SERVING))
    page.broker = stage.broker

    async def scrape_twice() -> list[str]:
        question: asyncio.Future[tuple[int, int]] = asyncio.get_running_loop().create_future()
        page._disks.asked[str(stage.directory)] = question
        texts = [await page.text(), await page.text()]
        assert page._disks.asked == {str(stage.directory): question}, "one question at a time"
        question.cancel()
        return texts

    for text in stage.run(scrape_twice()):
        samples = parse(text)
        assert ("fairlead_disk_size_bytes",) not in samples
        assert samples[("fairlead_ready",)] == 1


def test_two_thousand_partitions_are_scraped_in_well_under_a_second(stage: Any) -> None:
    for number in range(100):
        stage.topic(f"t{number}", partitions=20)
    page = MetricsPage(Readiness(phase=Phase.SERVING))
    page.broker = stage.broker
    began = time.process_time()
    text = stage.run(page.text())
    took = time.process_time() - began
    samples = parse(text)
    assert samples[("kafka_server_replicamanager_partitioncount",)] == 2000
    assert len(samples) < 6_000
    assert took < 1.0


def test_what_brokers_say_of_transactions_is_told(stage: Any) -> None:
    metrics = stage.broker.metrics
    metrics.verification_failures = 3
    metrics.verification_times.note(4_000_000)
    metrics.leaderless_markers = 2
    samples = scrape(stage)
    asking = "kafka_server_addpartitionstotxnmanager"
    assert samples[(f"{asking}_verificationfailurerate_total",)] == 3
    assert samples[(f"{asking}_verificationtimems_count",)] == 1
    assert samples[(f"{asking}_verificationtimems_sum",)] == 4
    channels = "kafka_coordinator_transaction_transactionmarkerchannelmanager"
    assert samples[(f"{channels}_unknowndestinationqueuesize",)] == 2
