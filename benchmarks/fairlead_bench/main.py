"""The command line of the benchmark: who is measured, how often, and where the results go.

python benchmarks/run.py [--repetitions N] [--quick] [-o json] [--peers fairlead,kafka]
"""

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console

from fairlead_bench.arguments import PEERS, at_least_one, names_among
from fairlead_bench.interruption import is_interrupted
from fairlead_bench.loads.failover_client import ClientFailedError
from fairlead_bench.loads.guest_memory import touch_memory
from fairlead_bench.loads.load_process import LoadFailedError
from fairlead_bench.loads.process_usage import read_memory_mb
from fairlead_bench.peers.fairlead_cluster import INTERNAL_TOPICS, FairleadCluster
from fairlead_bench.peers.fairlead_peer import FairleadPeer
from fairlead_bench.peers.kafka_cluster import KafkaCluster
from fairlead_bench.peers.kafka_distribution import (
    POM,
    KafkaUnavailableError,
    ensure_kafka,
    read_version,
)
from fairlead_bench.peers.kafka_peer import KafkaPeer
from fairlead_bench.peers.peer import Peer, wait_until_ready
from fairlead_bench.project import PROJECT
from fairlead_bench.report.chart import draw_chart
from fairlead_bench.report.results import LIMIT, Results
from fairlead_bench.report.terminal_report import print_report
from fairlead_bench.scenarios import (
    compaction,
    failover,
    partition_counts,
    promise_cells,
    promises,
    replicated,
    rest,
    rest_polls,
    spark,
    tls,
)
from fairlead_bench.scenarios.limits import measure_limits
from fairlead_bench.scenarios.single_broker import FULL, QUICK, SCENARIOS, Bench, settle
from fairlead_bench.scenarios.startup import measure_starts

if TYPE_CHECKING:
    from collections.abc import Callable

RESULTS_FOLDER: Final = PROJECT / "benchmarks" / "results"
# The memory of an idle broker is read this long after its start.
IDLE_S: Final = 3.0
# The width of a table if the terminal's is not known.
TABLE_WIDTH: Final = 140


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="benchmarks/run.py",
        description="Measure Fairlead and Apache Kafka, alternating in one run.",
    )
    parser.add_argument(
        "--repetitions", type=at_least_one, help="of each load (default 5, quick 2)"
    )
    parser.add_argument(
        "--runs",
        type=at_least_one,
        help="kills of a broker (default 5, quick 2; promises: 10, quick 3)",
    )
    parser.add_argument("--quick", action="store_true", help="small loads: a first look")
    parser.add_argument(
        "--peers", type=names_among(PEERS), default="fairlead,kafka", help="which of them to run"
    )
    groups = ["start", replicated.GROUP, failover.GROUP, compaction.GROUP, spark.GROUP]
    groups += [rest.GROUP, promise_cells.GROUP, partition_counts.GROUP, tls.GROUP]
    loads = [*SCENARIOS, *groups]
    parser.add_argument(
        "--only", type=names_among(loads), help=f"loads, comma-separated: {', '.join(loads)}"
    )
    parser.add_argument("--spark", action="store_true", help="also what only --only=spark measures")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    parser.add_argument("--data", type=Path, help="folder for data (default: beside the results)")
    parser.add_argument("--name", default="latest", help="base name of the files in results/")
    return parser.parse_args(arguments)


class Run:
    """One run: the peers alternate, each repetition in the reverse order of the last."""

    def __init__(self, options: argparse.Namespace, folder: Path, console: Console) -> None:
        self.options, self.folder, self.console = options, folder, console
        self.sizes = QUICK if options.quick else FULL
        self.repetitions = options.repetitions or (2 if options.quick else 5)
        self.replicated_sizes = replicated.choose_sizes(
            is_quick=options.quick, repetitions=options.repetitions
        )
        everything = {*SCENARIOS, "start", replicated.GROUP, failover.GROUP}
        everything |= {compaction.GROUP, rest.GROUP}
        chosen = set(options.only) if options.only else everything
        if "fetch" in chosen:
            chosen.add("consume")  # which writes what both read
        self.scenarios = {name: load for name, load in SCENARIOS.items() if name in chosen}
        self.measures_start = "start" in chosen
        self.measures_replicated = replicated.GROUP in chosen
        self.measures_failover = failover.GROUP in chosen
        self.kills = options.runs or (failover.RUNS_QUICK if options.quick else failover.RUNS)
        self.measures_compaction = compaction.GROUP in chosen and "fairlead" in options.peers
        self.measures_rest = rest.GROUP in chosen and "fairlead" in options.peers
        # Not in every run: it takes some minutes, and does not depend on the broker.
        self.measures_spark = options.spark or spark.GROUP in chosen
        # Nor these: they compare a user's choices, and take some minutes.
        self.measures_promises = promise_cells.GROUP in chosen
        self.promise_sizes = promises.choose_sizes(is_quick=options.quick, kills=options.runs)
        self.measures_partitions = partition_counts.GROUP in chosen
        self.measures_tls = tls.GROUP in chosen
        self.tls_sizes = tls.TlsSizes(self.sizes, 500 if options.quick else 5_000, self.repetitions)
        self.count_sizes = partition_counts.QUICK if options.quick else partition_counts.FULL
        self.results = Results()
        self.makers: dict[str, Callable[[Path], Peer]] = {}
        self.cluster_makers: dict[str, replicated.Maker] = {}
        if "fairlead" in options.peers:
            self.makers["fairlead"] = FairleadPeer
            self.cluster_makers["fairlead"] = lambda data: FairleadCluster(data, INTERNAL_TOPICS)
        if "kafka" in options.peers:
            distribution = ensure_kafka()
            self.makers["kafka"] = lambda data: KafkaPeer(distribution, data)
            self.cluster_makers["kafka"] = lambda data: KafkaCluster(distribution, data)

    @property
    def repetitions_text(self) -> str:
        """Return the repetitions of single-broker loads, replicated ones, kills, choices, Spark."""
        counts = [self.repetitions] if self.scenarios or self.measures_start else []
        if self.measures_replicated:
            counts.append(self.replicated_sizes.repetitions)
        if self.measures_failover:
            counts.append(self.kills)
        if self.measures_promises:
            counts.append(self.promise_sizes.kills)
        if self.measures_partitions:
            counts.append(self.count_sizes.repetitions)
        if self.measures_tls:
            counts.append(self.tls_sizes.repetitions)
        if self.measures_spark:
            sizes = spark.QUICK if self.options.quick else spark.FULL
            counts.append(sizes.repetitions * sizes.sessions)
        return " and ".join(str(count) for count in counts)

    def measure(self) -> None:
        if not self.options.quick:
            self._say("touching memory")
            touch_memory()
        if self.measures_start:
            for name, make in self.makers.items():
                self._say(f"{name}: starts")
                fresh, loaded = measure_starts(
                    make, self.folder / f"{name}-start", min(self.repetitions, 3)
                )
                self.results.values[name, "start_fresh"] = fresh
                self.results.values[name, "start_loaded"] = loaded
        if self.scenarios:
            self._measure_loads()
            self._say("limits")
            for name, sample in measure_limits(self.sizes).items():
                if name in self.scenarios:
                    self.results.samples[LIMIT, name].append(sample)
        if self.measures_replicated:
            replicated.ReplicatedRun(
                self.cluster_makers,
                self.replicated_sizes,
                self.results,
                say=self._say,
                settle=settle,
            ).measure(self.folder)
        if self.measures_failover:
            failover.FailoverRun(
                self.cluster_makers, self.results, runs=self.kills, say=self._say
            ).measure(self.folder)
        if self.measures_compaction:
            self._say("compaction")
            compaction.measure_compaction(
                self.folder,
                self.results,
                is_quick=self.options.quick,
                repetitions=self.options.repetitions,
            )
        if self.measures_promises:
            promises.PromisesRun(
                self.cluster_makers,
                self.promise_sizes,
                self.results,
                say=self._say,
                settle=settle,
            ).measure(self.folder)
        if self.measures_partitions:
            partition_counts.CountsRun(
                self.cluster_makers,
                self.count_sizes,
                self.results,
                say=self._say,
                settle=settle,
            ).measure(self.folder)
        if self.measures_tls:
            tls.TlsRun(
                self.makers, self.tls_sizes, self.results, say=self._say, settle=settle
            ).measure(self.folder)
        if self.measures_rest:
            self._say("produce by HTTP")
            rest.measure_rest(self.folder, self.results, self.sizes, is_quick=self.options.quick)
            self._say("Kafka's protocol beside long polls by HTTP")
            rest_polls.measure_polls(
                self.folder, self.results, self.sizes, is_quick=self.options.quick
            )
        if self.measures_spark:
            sizes = spark.QUICK if self.options.quick else spark.FULL
            spark.SparkRun(sizes, self.results, say=self._say).measure(self.folder)

    def _measure_loads(self) -> None:
        with ExitStack() as stack:
            benches = {}
            for name, make in self.makers.items():
                peer = make(self.folder / name)
                peer.data.mkdir(parents=True, exist_ok=True)
                stack.callback(peer.stop)
                peer.start()
                wait_until_ready(peer)
                benches[name] = Bench(peer, self.sizes)
            time.sleep(IDLE_S)
            for name, bench in benches.items():
                idle_mb = read_memory_mb(bench.peer.broker_pid)
                self.results.values[name, "memory_idle"].append(idle_mb)
            # The first round does not count: Kafka's compiler has to see the code first.
            for repetition in range(-1, self.repetitions):
                order = list(benches) if repetition % 2 else list(reversed(benches))
                for scenario in self.scenarios:
                    for name in order:
                        self._measure_once(name, benches[name], scenario, repetition)
                for bench in benches.values():
                    bench.delete_topics()
            for name, bench in benches.items():
                peak_mb = read_memory_mb(bench.peer.broker_pid, "VmHWM")
                self.results.values[name, "memory_loaded"].append(peak_mb)

    def _measure_once(self, name: str, bench: Bench, scenario: str, repetition: int) -> None:
        what = "warm-up" if repetition < 0 else f"{repetition + 1}/{self.repetitions}"
        self._say(f"{what} {scenario} {name}")
        sample = self.scenarios[scenario](bench)
        settle()
        if repetition >= 0:
            self.results.samples[name, scenario].append(sample)

    def _say(self, text: str) -> None:
        if self.console.is_terminal:
            self.console.print(f"  {text}".ljust(60), end="\r", highlight=False)
        else:
            self.console.print(text, highlight=False)


def describe_machine() -> dict[str, object]:
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def main(arguments: list[str] | None = None) -> int:
    options = parse_arguments(arguments)
    console = Console(stderr=options.output == "json")
    if not console.is_terminal:
        console.width = TABLE_WIDTH
    RESULTS_FOLDER.mkdir(parents=True, exist_ok=True)
    base = options.data or PROJECT / ".cache"
    base.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="bench-", dir=base))
    started_s = time.monotonic()
    try:
        run = Run(options, folder, console)
        run.measure()
    except KafkaUnavailableError as error:
        print(
            f"Apache Kafka cannot be run: {error}. --peers fairlead leaves it out.", file=sys.stderr
        )
        return 2
    except (LoadFailedError, ClientFailedError) as error:
        if is_interrupted(error):
            raise
        print(f"no results are written: {error}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if not run.results.samples and not run.results.values:
        print(
            "nothing was measured: these loads are of fairlead alone, and --peers leaves it out",
            file=sys.stderr,
        )
        return 2
    machine = describe_machine()
    title = (
        f"Fairlead and Apache Kafka {read_version(POM)} on {machine['cpu']}, "
        f"{machine['cores']} cores: {run.repetitions_text} repetitions, "
        f"{time.monotonic() - started_s:.0f} s"
    )
    document = {"title": title, "machine": machine, "metrics": run.results.as_json()}
    (RESULTS_FOLDER / f"{options.name}.json").write_text(json.dumps(document, indent=1) + "\n")
    draw_chart(run.results, RESULTS_FOLDER / f"{options.name}.png", title=title)
    if options.output == "json":
        print(json.dumps(document, indent=1))
    else:
        print_report(run.results, title=title, console=console)
        console.print(f"chart and JSON: {RESULTS_FOLDER.relative_to(PROJECT)}/{options.name}.*")
    return 0
