"""How times and memory grow with the number of partitions: the figures of docs/sizing.md.

python benchmarks/scale.py [--partitions 1000:one,10000] [--peers fairlead,kafka] [-o json]

For each number: a fresh cluster of three brokers, three replicas a partition. They are made; one
broker is killed and started again; all are stopped cleanly and started again. With `:one` the
broker that is killed leads all of them, otherwise a third.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from fairlead_bench.arguments import PEERS, layouts, names_among
from fairlead_bench.loads.process_usage import read_memory_mb
from fairlead_bench.peers.cluster import Cluster
from fairlead_bench.peers.cluster_state import wait_until_in_sync, wait_until_serving
from fairlead_bench.peers.fairlead_cluster import FairleadCluster
from fairlead_bench.peers.kafka_cluster import KafkaCluster
from fairlead_bench.peers.kafka_distribution import KafkaUnavailableError, ensure_kafka
from fairlead_bench.project import PROJECT
from fairlead_bench.scenarios.many_partitions import create_partitions, time_failover, time_return

RESULTS_FOLDER: Final = PROJECT / "benchmarks" / "results"
KILLED_INDEX: Final = 0
ROWS: Final = {
    "create_s": "created, all replicas in sync, s",
    "memory_mb": "memory of all processes then, MB",
    "moved": "partitions led by the broker that is killed",
    "leaders_s": "kill -9: new leaders known to both others, s",
    "acknowledged_s": "kill -9: acks=all acknowledged on each, s",
    "return_s": "the killed broker started, in sync again, s",
    "stop_s": "clean stop of all, s",
    "start_leaders_s": "start of all: every leader known, s",
    "start_in_sync_s": "start of all: all replicas in sync, s",
    "memory_end_mb": "memory of all processes at the end, MB",
    "given_up": "live brokers that the controller gave up",
}


def measure(
    cluster: Cluster, partitions: int, *, is_led_by_one: bool, say: Callable[[str], None]
) -> dict[str, float]:
    found: dict[str, float] = {}

    def note(name: str, value: float) -> None:
        found[name] = value
        say(f"{cluster.name}, {partitions} partitions: {ROWS[name]} {value:.2f}")

    def memory_mb() -> float:
        return sum(read_memory_mb(pid) for pid in cluster.pids)

    killed = cluster.broker_id(KILLED_INDEX)
    cluster.start()
    wait_until_serving(cluster)
    started_s = time.monotonic()
    create_partitions(cluster, partitions, leader_index=KILLED_INDEX if is_led_by_one else None)
    note("create_s", time.monotonic() - started_s)
    note("memory_mb", memory_mb())
    failover = time_failover(cluster, KILLED_INDEX)
    note("moved", failover.moved_count)
    note("leaders_s", failover.leaders_s)
    note("acknowledged_s", failover.acknowledged_s)
    note("return_s", time_return(cluster, KILLED_INDEX, partitions=partitions))
    started_s = time.monotonic()
    cluster.stop()
    note("stop_s", time.monotonic() - started_s)
    started_s = time.monotonic()
    cluster.start()
    wait_until_serving(cluster, partitions=partitions)
    note("start_leaders_s", time.monotonic() - started_s)
    wait_until_in_sync(cluster, partitions=partitions)
    note("start_in_sync_s", time.monotonic() - started_s)
    note("memory_end_mb", memory_mb())
    note("given_up", sum(f"broker {killed} " not in line for line in cluster.fencings()))
    return found


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks/scale.py", description=__doc__)
    parser.add_argument(
        "--partitions",
        type=layouts,
        default="1000:one,10000",
        help="how many, comma-separated; with :one one broker leads all of them",
    )
    parser.add_argument(
        "--peers", type=names_among(PEERS), default="fairlead", help="fairlead, kafka or both"
    )
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    parser.add_argument("--data", type=Path, help="folder for data (default: beside the results)")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    options = parse_arguments(arguments)
    console = Console(stderr=options.output == "json")
    base = options.data or PROJECT / ".cache"
    base.mkdir(parents=True, exist_ok=True)
    makers: dict[str, Callable[[Path], Cluster]] = {"fairlead": FairleadCluster}
    if "kafka" in options.peers:
        try:
            distribution = ensure_kafka()
        except KafkaUnavailableError as error:
            print(f"Apache Kafka cannot be run: {error}", file=sys.stderr)
            return 2
        makers["kafka"] = lambda data: KafkaCluster(distribution, data)
    results: dict[str, dict[str, float]] = {}
    for peer in options.peers:
        for layout in options.partitions:
            count, _, led_by = layout.partition(":")
            folder = Path(tempfile.mkdtemp(prefix="scale-", dir=base))
            cluster = makers[peer](folder)
            try:
                results[f"{peer} {layout}"] = measure(
                    cluster, int(count), is_led_by_one=led_by == "one", say=console.print
                )
            finally:
                cluster.stop()
                shutil.rmtree(folder, ignore_errors=True)
    RESULTS_FOLDER.mkdir(parents=True, exist_ok=True)
    (RESULTS_FOLDER / "scale.json").write_text(json.dumps(results, indent=1) + "\n")
    if options.output == "json":
        json.dump(results, sys.stdout, indent=1)
        return 0
    table = Table(title="Three brokers, three replicas", title_justify="left")
    table.add_column("measured")
    for name in results:
        table.add_column(name, justify="right")
    for key, title in ROWS.items():
        table.add_row(title, *(f"{found[key]:,.2f}" for found in results.values()))
    console.print(table)
    return 0
