"""The metrics, with units and targets: one table, in the order of the report."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from fairlead_bench.loads.load_process import Sample
from fairlead_bench.scenarios.promise_cells import CELLS


class Better(Enum):
    """Which direction is good."""

    LOWER = "lower"
    HIGHER = "higher"


@dataclass(frozen=True, slots=True)
class Target:
    """A limit of the ratio to Apache Kafka in the same run, or of the value itself."""

    bound: float
    is_ratio: bool
    or_client_bound: bool = False

    def __str__(self) -> str:
        number = f"{self.bound:.3g} x Kafka" if self.is_ratio else f"{self.bound:g}"
        return f"{number} or client-bound" if self.or_client_bound else number


@dataclass(frozen=True, slots=True)
class Metric:
    """One row: computed from the samples of a scenario, or given as plain numbers by the run."""

    key: str
    scenario: str
    title: str
    unit: str
    better: Better
    target: Target | None = None
    read: Callable[[Sample], float | None] | None = None


def megabytes_per_second(sample: Sample) -> float:
    return float(sample.result["bytes"]) / 1e6 / sample.seconds


def client_memory(sample: Sample) -> float:
    return sample.client_memory_mb


def cpu_per_gigabyte(sample: Sample) -> float:
    return sample.broker_cpu_s / (float(sample.result["bytes"]) / 1e9)


def client_cpu_per_gigabyte(sample: Sample) -> float:
    return sample.client_cpu_s / (float(sample.result["bytes"]) / 1e9)


def thousand_records_per_second(sample: Sample) -> float:
    return float(sample.result["records"]) / 1e3 / sample.seconds


def cpu_per_million_records(sample: Sample) -> float:
    return sample.broker_cpu_s / (float(sample.result["records"]) / 1e6)


def percentile(name: str) -> Callable[[Sample], float]:
    return lambda sample: float(sample.result[name])


def counted(name: str) -> Callable[[Sample], float | None]:
    """Return a reader of a value that only some of the peers count."""
    return lambda sample: sample.result.get(name)


LOW, HIGH = Better.LOWER, Better.HIGHER
MB_S, K_S, S_GB, S_M = "MB/s", "thousand/s", "CPU s/GB", "CPU s/million"
AT_LEAST_KAFKA: Final = Target(1.0, is_ratio=True, or_client_bound=True)


def ratio(bound: float) -> Target:
    return Target(bound, is_ratio=True)


def limit(bound: float) -> Target:
    return Target(bound, is_ratio=False)


PARTITION_COUNTS: Final = (1, 10, 100, 1000)

# For a probe that never backs off, and for applications with default settings.
FAILOVER_P99_MS: Final = {
    "probe": 250,
    "librdkafka": 600,
    "kafka-python": 600,
    "aiokafka": 600,
    "java": 600,
}


def failover_metrics() -> tuple[Metric, ...]:
    """Return metrics of kills of a leader, by application: median, extremes, 99th percentile."""
    rows = []
    for name, bound in FAILOVER_P99_MS.items():
        key, title = f"failover_{name}", f"kill -9: {name} waits"
        rows.append(Metric(key, f"failover_{name}", title, "ms", LOW))
        rows.append(Metric(f"{key}_p99", f"failover_{name}", "p99", "ms", LOW, limit(bound)))
    for key, title in (
        ("lost", "kill -9: acknowledged, and not there"),
        ("damaged", "there twice, out of order or elsewhere"),
        ("errors", "errors that reached an application"),
    ):
        rows.append(Metric(f"failover_{key}", "failover_records", title, "", LOW, limit(0)))
    return tuple(rows)


def promises_metrics() -> tuple[Metric, ...]:
    """Return metrics of each way to acknowledge: its cost, and what a killed leader loses."""
    rows = []
    for cell in CELLS:
        key = cell.key
        # acks=all promises that nothing is lost.
        bound = limit(0) if cell.acks == "all" else None
        rows += [
            Metric(
                f"{key}_throughput",
                f"{key}_produce",
                f"{cell.title}: produce 1 KB",
                MB_S,
                HIGH,
                None,
                megabytes_per_second,
            ),
            Metric(
                f"{key}_p99",
                f"{key}_latency",
                "at 1,000/s, p99",
                "ms",
                LOW,
                None,
                percentile("p99"),
            ),
            Metric(f"{key}_lost", key, "lost by a kill -9 of the leader", "records", LOW, bound),
            Metric(f"{key}_refused", key, "refused by it", "records", LOW),
            Metric(f"{key}_survived", key, "there, though refused", "records", LOW),
            Metric(f"{key}_doubled", key, "there twice", "records", LOW),
        ]
    return tuple(rows)


def partition_count_metrics() -> tuple[Metric, ...]:
    """Return metrics of one producer, acks=all, and topics of more and more partitions."""
    rows = []
    for count in PARTITION_COUNTS:
        key, many = f"partitions-{count}", "partition" if count == 1 else "partitions"
        title = f"{count:,} {many}, 3 replicas: produce 1 KB"
        produce, latency = f"{key}_produce", f"{key}_latency"
        rows += [
            Metric(f"{key}_throughput", produce, title, MB_S, HIGH, None, megabytes_per_second),
            Metric(f"{key}_cpu", produce, "", S_GB, LOW, None, cpu_per_gigabyte),
            Metric(f"{key}_p50", latency, "at 1,000/s, p50", "ms", LOW, None, percentile("p50")),
            Metric(f"{key}_p99", latency, "p99", "ms", LOW, None, percentile("p99")),
            Metric(
                f"{key}_client", latency, "memory of that client", "MB", LOW, None, client_memory
            ),
        ]
    return tuple(rows)


def transaction_metrics() -> tuple[Metric, ...]:
    """Return metrics of transactions at a fixed rate on three replicas: CPU and times."""
    rows = []
    for scenario, title, p99_title in (
        ("transactions", "transactions, committed every 100 ms", "a commit, p99"),
        ("short_transactions", "committed every 10 ms", "a commit, p99"),
        ("transform", "consume, transform, produce, every 100 ms", "due to committed copy, p99"),
    ):
        rows.append(
            Metric(f"{scenario}_cpu", scenario, title, S_GB, LOW, ratio(0.5), cpu_per_gigabyte)
        )
        rows.append(Metric(f"{scenario}_p50", scenario, "p50", "ms", LOW, None, percentile("p50")))
        rows.append(
            Metric(f"{scenario}_p99", scenario, p99_title, "ms", LOW, ratio(1.0), percentile("p99"))
        )
    return tuple(rows)


def tls_metrics() -> tuple[Metric, ...]:
    """Return metrics of the cost of TLS, compared to Apache Kafka's, and of access rules."""
    rows = []
    for load, title in (("produce", "TLS: produce 1 KB"), ("consume", "TLS: consume 1 KB, hot")):
        scenario = f"tls_{load}"
        rows += [
            Metric(
                f"{scenario}_throughput",
                scenario,
                title,
                MB_S,
                HIGH,
                AT_LEAST_KAFKA,
                megabytes_per_second,
            ),
            Metric(f"{scenario}_cpu", scenario, "", S_GB, LOW, ratio(0.8), cpu_per_gigabyte),
        ]
    return (
        *rows,
        Metric(
            "tls_connect_throughput",
            "tls_connect",
            "TLS: connections, each made anew",
            K_S,
            HIGH,
            AT_LEAST_KAFKA,
            thousand_records_per_second,
        ),
        Metric("tls_connect_cpu", "tls_connect", "", S_M, LOW, None, cpu_per_million_records),
        Metric("authorizer_off_cpu", "authorizer", "requests without an authorizer", S_M, LOW),
        Metric("authorizer_on_cpu", "authorizer", "with one, and 1,001 rules", S_M, LOW),
        Metric("authorizer_ratio", "authorizer", "ratio of these", "x", LOW, limit(1.05)),
    )


METRICS: Final = (
    Metric(
        "produce_1k_throughput",
        "produce_1k",
        "produce 1 KB",
        MB_S,
        HIGH,
        AT_LEAST_KAFKA,
        megabytes_per_second,
    ),
    Metric("produce_1k_cpu", "produce_1k", "", S_GB, LOW, ratio(0.4), cpu_per_gigabyte),
    Metric(
        "produce_100b_throughput",
        "produce_100b",
        "produce 100 B",
        K_S,
        HIGH,
        AT_LEAST_KAFKA,
        thousand_records_per_second,
    ),
    Metric("produce_100b_cpu", "produce_100b", "", S_M, LOW, ratio(0.5), cpu_per_million_records),
    Metric(
        "consume_throughput",
        "consume",
        "consume 1 KB, hot",
        MB_S,
        HIGH,
        Target(1.1, is_ratio=True, or_client_bound=True),
        megabytes_per_second,
    ),
    Metric("consume_cpu", "consume", "", S_GB, LOW, ratio(0.7), cpu_per_gigabyte),
    Metric(
        "consume_client_cpu",
        "consume",
        "its client",
        S_GB,
        LOW,
        ratio(1.0),
        client_cpu_per_gigabyte,
    ),
    Metric(
        "consume_thread_reads",
        "consume",
        "thread reads while everything is hot",
        "",
        LOW,
        limit(0),
        counted("thread_reads"),
    ),
    Metric(
        "fetch_throughput",
        "fetch",
        "consume, plain sockets",
        MB_S,
        HIGH,
        None,
        megabytes_per_second,
    ),
    Metric("fetch_cpu", "fetch", "", S_GB, LOW, None, cpu_per_gigabyte),
    Metric(
        "requests_throughput",
        "requests",
        "one-record requests, plain sockets",
        K_S,
        HIGH,
        Target(1.0, is_ratio=True),
        thousand_records_per_second,
    ),
    Metric("requests_cpu", "requests", "", S_M, LOW, ratio(0.8), cpu_per_million_records),
    Metric(
        "single_throughput",
        "single",
        "one-record requests, librdkafka",
        K_S,
        HIGH,
        None,
        thousand_records_per_second,
    ),
    Metric("single_cpu", "single", "", S_M, LOW, None, cpu_per_million_records),
    Metric(
        "commits_throughput",
        "commits",
        "offset commits, plain sockets",
        K_S,
        HIGH,
        None,
        thousand_records_per_second,
    ),
    # At least 0.7 of Kafka's commits a CPU second.
    Metric("commits_cpu", "commits", "", S_M, LOW, ratio(1 / 0.7), cpu_per_million_records),
    Metric(
        "latency_p50",
        "latency",
        "acknowledged at 1,000/s, p50",
        "ms",
        LOW,
        limit(0.3),
        percentile("p50"),
    ),
    Metric("latency_p99", "latency", "p99", "ms", LOW, limit(3.0), percentile("p99")),
    Metric("latency_p99_9", "latency", "p99.9", "ms", LOW, None, percentile("p99.9")),
    Metric("memory_idle", "memory", "broker memory, idle", "MB", LOW, limit(80)),
    Metric("memory_loaded", "memory", "broker memory, highest under load", "MB", LOW, limit(150)),
    Metric("start_fresh", "start", "ready after a fresh start", "s", LOW, limit(1.0)),
    Metric("start_loaded", "start", "ready with 1,000 clean partitions", "s", LOW, limit(1.0)),
    Metric(
        "replicated_throughput",
        "replicated_produce",
        "3 replicas, produce 1 KB",
        MB_S,
        HIGH,
        ratio(2.0),
        megabytes_per_second,
    ),
    Metric("replicated_cpu", "replicated_produce", "", S_GB, LOW, ratio(0.35), cpu_per_gigabyte),
    Metric(
        "replicated_latency_p50",
        "replicated_latency",
        "3 replicas, at 1,000/s, p50",
        "ms",
        LOW,
        limit(2.0),
        percentile("p50"),
    ),
    Metric(
        "replicated_latency_p99",
        "replicated_latency",
        "p99",
        "ms",
        LOW,
        limit(15.0),
        percentile("p99"),
    ),
    Metric(
        "replicated_latency_p99_9",
        "replicated_latency",
        "p99.9",
        "ms",
        LOW,
        None,
        percentile("p99.9"),
    ),
    *transaction_metrics(),
    Metric(
        "replicated_memory_idle",
        "replicated_memory",
        "3 replicas, all memory, idle",
        "MB",
        LOW,
    ),
    Metric(
        "replicated_memory_loaded",
        "replicated_memory",
        "all memory, highest under load",
        "MB",
        LOW,
        limit(300),
    ),
    Metric(
        "replicated_start",
        "replicated_start",
        "3 replicas, 1,000 led after a restart",
        "s",
        LOW,
        limit(2.0),
    ),
    Metric(
        "replicated_fencings",
        "replicated_start",
        "live brokers given up",
        "",
        LOW,
        limit(0),
    ),
    *failover_metrics(),
    *promises_metrics(),
    *partition_count_metrics(),
    *tls_metrics(),
    Metric("compaction_idle_p99", "compaction", "acknowledged at 1,000/s, p99 alone", "ms", LOW),
    Metric("compaction_p99", "compaction", "p99 while 1 GB is compacted", "ms", LOW),
    Metric("compaction_p99_ratio", "compaction", "ratio of these", "x", LOW, limit(2.0)),
    Metric("compaction_throughput", "compaction", "compaction, 1 million keys", MB_S, HIGH),
    Metric("compaction_cpu", "compaction", "", S_GB, LOW),
    Metric("compaction_memory", "compaction", "memory of its process", "MB", LOW, limit(200)),
    Metric(
        "rest_v3_per_core",
        "rest",
        "produce by HTTP, 100 records a request: v3, for each CPU s",
        K_S,
        HIGH,
        limit(5.0),
    ),
    Metric("rest_v3_throughput", "rest", "in all", K_S, HIGH),
    Metric("rest_v2_per_core", "rest", "v2, for each CPU s", K_S, HIGH, limit(5.0)),
    Metric("rest_v2_throughput", "rest", "in all", K_S, HIGH),
    Metric(
        "rest_polls_requests",
        "rest",
        "100 long polls by HTTP wait: CPU of small produce requests",
        "x alone",
        LOW,
        limit(1.05),
    ),
    Metric("rest_polls_fetch", "rest", "CPU of fetches", "x alone", LOW, limit(1.05)),
    Metric(
        "spark_1k_records",
        "spark_1k",
        "Spark reads 1 KB records: our source, its own connector",
        K_S,
        HIGH,
        ratio(1.0),
    ),
    Metric("spark_1k_throughput", "spark_1k", "", "MB/s", HIGH),
    Metric("spark_1k_cpu", "spark_1k", "CPU of Spark and its workers", S_M, LOW),
    Metric(
        "spark_100b_records",
        "spark_100b",
        "Spark reads 100 B records",
        K_S,
        HIGH,
        ratio(1.0),
    ),
    Metric("spark_100b_throughput", "spark_100b", "", "MB/s", HIGH),
    Metric("spark_100b_cpu", "spark_100b", "CPU of Spark and its workers", S_M, LOW),
    Metric("spark_first_row", "spark_start", "Spark session to the first row", "s", LOW),
    Metric("spark_memory", "spark_start", "memory of Spark and its workers, a task", "MB", LOW),
)
