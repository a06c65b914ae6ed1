"""Exactly-once runs from the command line: `make exactly-once RUNS=20`.

    python tests/exactly_once/run.py --runs 20 --seed 0 --against kafka --clients java,streams

Each run has a seed of its own, which replays its faults. All files stay in --data.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
sys.path[:0] = [
    str(Path(__file__).parent),
    str(PROJECT / "benchmarks"),
    *map(str, (PROJECT / "tests" / "support").iterdir()),
]

from applications import ALL, Command  # noqa: E402
from compiled_programs import MissingError  # noqa: E402
from exactly_once_run import SETTINGS, ExactlyOnceRun  # noqa: E402
from fault_driver import LiveCluster  # noqa: E402

from fairlead_bench.peers.cluster_state import wait_until_serving  # noqa: E402
from fairlead_bench.peers.fairlead_cluster import FairleadCluster  # noqa: E402
from fairlead_bench.peers.kafka_cluster import KafkaCluster  # noqa: E402
from fairlead_bench.peers.kafka_distribution import ensure_kafka  # noqa: E402


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def build_cluster(against: str, data: Path) -> LiveCluster:
    if against == "kafka":
        return KafkaCluster(ensure_kafka(), data, SETTINGS)
    return FairleadCluster(data, SETTINGS)


def prepare(names: list[str], folder: Path) -> dict[str, Command]:
    """Build the programs; leave out those that this machine cannot build, and say so."""
    commands = {}
    for name in names:
        try:
            commands[name] = ALL[name].prepare(folder)
        except MissingError as error:
            say(f"{name} is left out: {error}")
    return commands


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--runs", type=int, default=1)
    add("--seed", type=int, default=0, help="of the first run")
    add("--against", choices=("fairlead", "kafka"), default="fairlead")
    add("--clients", default=",".join(ALL), help="of " + ", ".join(ALL))
    add("--moving", action="store_true", help="move partitions all the while")
    add("--data", type=Path, help="a folder for brokers and applications (default: a new one)")
    arguments = parser.parse_args()
    data = arguments.data or Path(tempfile.mkdtemp(prefix="exactly-once-"))
    programs = data / "programs"
    programs.mkdir(parents=True)
    commands = prepare(arguments.clients.split(","), programs)
    failed = []
    cluster = build_cluster(arguments.against, data / "cluster")
    with cluster:
        cluster.start()
        wait_until_serving(cluster)
        for number in range(arguments.runs):
            seed = arguments.seed + number
            folder = data / f"run-{seed}"
            run = ExactlyOnceRun(
                cluster, commands, seed, folder, lambda t: say(f"  {t}"), arguments.moving
            )
            say(f"run {number + 1} of {arguments.runs}, seed {seed}")
            for name, verdict in run.run().items():
                say(f"  {name}: {verdict}")
                if verdict.findings:
                    failed.append(f"{name} with seed {seed}")
    say(f"{arguments.runs} runs, {len(failed)} failed: {', '.join(failed) or '-'} ({data})")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
