"""Brokers are added and removed under load, again and again: `make reshape RUNS=20`.

    python tests/reshape/run.py --runs 20 --seed 0 --partitions 500 --gigabytes 2

Each run has a seed of its own, which chooses what it kills. The data stays in --data if a run
fails.
"""

import argparse
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[2]
sys.path[:0] = [
    str(Path(__file__).parent),
    str(PROJECT / "benchmarks"),
    *map(str, (PROJECT / "tests" / "support").iterdir()),
]

from keyed_load import CLEANING, COMPACTED, KeyedLoad, KeyedProgress  # noqa: E402
from numbered_load import PRELOADED_SIZE, NumberedLoad  # noqa: E402
from numbered_reader import Progress  # noqa: E402
from reshape_run import ReshapeRun  # noqa: E402
from reshape_topics import create_topics  # noqa: E402
from reshaped_cluster import LocalProcesses  # noqa: E402

NUMBERED: tuple[dict[str, str], type[NumberedLoad], type[Progress]] = {}, NumberedLoad, Progress
KEYED = COMPACTED, KeyedLoad, KeyedProgress
"""Each: configs of topics, their writer, and the check of what is read."""


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--runs", type=int, default=1)
    add("--seed", type=int, default=0, help="of the first run")
    add("--partitions", type=int, default=500)
    add("--gigabytes", type=float, default=2.0, help="written before anything moves")
    add("--rate", type=int, default=300, help="records per second meanwhile")
    add("--compacted", action="store_true", help="a few keys in topics that are compacted")
    add("--quiet", action="store_true", help="kill nobody")
    add("--client", action="append", default=[], help="a setting of the producer, name=value")
    add("--broker", action="append", default=[], help="a setting of the brokers, name=value")
    add("--data", type=Path, help="a folder for the brokers (default: a new one)")
    arguments = parser.parse_args()
    # SIGTERM has to end the brokers, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    data = arguments.data or Path(tempfile.mkdtemp(prefix="reshape-"))
    of_client: dict[str, Any] = dict(each.split("=", 1) for each in arguments.client)
    of_brokers = dict(each.split("=", 1) for each in arguments.broker)
    if arguments.compacted:
        of_brokers = CLEANING | of_brokers
    cluster = LocalProcesses(data, of_brokers)
    failed: list[int] = []
    try:
        cluster.start()
        configs, make_load, progress = KEYED if arguments.compacted else NUMBERED
        places = create_topics(cluster.bootstrap, arguments.partitions, configs)
        load = make_load(
            places, arguments.rate, {"bootstrap.servers": cluster.bootstrap, **of_client}
        )
        say(f"{len(places)} partitions get {arguments.gigabytes} GB")
        load.preload(round(arguments.gigabytes * 1e9 / PRELOADED_SIZE / len(places)))
        for number in range(arguments.runs):
            seed = arguments.seed + number
            say(f"run {number + 1} of {arguments.runs}, seed {seed}")
            run = ReshapeRun(
                cluster,
                load,
                places,
                seed,
                not arguments.quiet,
                lambda text: say(f"  {text}"),
                progress,
            )
            verdict = run.run()
            for line in verdict.lines():
                say(f"  {line}")
            if verdict.findings:
                failed.append(seed)
                break
    finally:
        cluster.stop()
    say(f"{number + 1} runs, {len(failed)} failed")
    if not failed and arguments.data is None:
        shutil.rmtree(data)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
