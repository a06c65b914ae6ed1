"""The limits of a broker in Python on this machine: the same loads on one that does nothing."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from fairlead_bench.loads.load_process import Sample, run_load
from fairlead_bench.peers.null_broker import BATCH_RECORDS, BATCHES_IN_FILE, PARTITIONS, TOPIC
from fairlead_bench.project import child_environment
from fairlead_bench.scenarios.single_broker import MEGABYTE, Sizes


@contextmanager
def null_broker(record_size: int, batches: int = BATCHES_IN_FILE) -> Iterator[tuple[int, int]]:
    """Run a null broker with this many batches to read; yield its port and process id."""
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "fairlead_bench.peers.null_broker"),
            json.dumps({"record_size": record_size, "batches": batches}),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=child_environment(),
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline()), process.pid
    finally:
        process.stdin.close()
        process.wait(10)
        process.stdout.close()


def measure_limits(sizes: Sizes) -> dict[str, Sample]:
    """Return one sample for each scenario."""
    batches = sizes.produce_1k_records // (BATCH_RECORDS * PARTITIONS)
    loads: dict[str, tuple[str, dict[str, object]]] = {
        "produce_1k": (
            "rdkafka_load",
            {"mode": "produce", "size": 1000, "count": sizes.produce_1k_records},
        ),
        "produce_100b": (
            "rdkafka_load",
            {"mode": "produce", "size": 100, "count": sizes.produce_100b_records},
        ),
        "consume": (
            "rdkafka_load",
            {
                "mode": "consume",
                "count": batches * BATCH_RECORDS * PARTITIONS,
                "passes": sizes.consume_passes,
            },
        ),
        "fetch": (
            "socket_load",
            {
                "mode": "fetch",
                "bytes": sizes.fetch_bytes,
                "in_flight": 2,
                "request_bytes": MEGABYTE,
            },
        ),
        "requests": (
            "socket_load",
            {
                "mode": "produce",
                "size": 100,
                "count": sizes.requests,
                "connections": 64,
                "in_flight": 32,
            },
        ),
        "single": (
            "rdkafka_load",
            {
                "mode": "produce",
                "size": 100,
                "count": sizes.single_requests,
                "settings": {"linger.ms": 0, "batch.num.messages": 1},
            },
        ),
    }
    with null_broker(record_size=1000, batches=batches) as (port, pid):
        target = {
            "topic": TOPIC,
            "bootstrap": f"127.0.0.1:{port}",
            "port": port,
            "partitions": PARTITIONS,
        }
        return {
            name: run_load(module, {**target, **arguments}, pids=[pid])
            for name, (module, arguments) in loads.items()
        }
