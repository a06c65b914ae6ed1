"""The cost of producing over HTTP, in batches of 100 records of some 100 bytes.

Fairlead only: Apache Kafka's brokers have no HTTP API. The limit is how many records a broker takes
for each second of CPU.
"""

import json
import urllib.request
from pathlib import Path
from typing import Final

from fairlead_bench.loads.load_process import run_load
from fairlead_bench.peers.fairlead_peer import FairleadPeer
from fairlead_bench.peers.own_ports import take_ports
from fairlead_bench.peers.peer import wait_until_ready
from fairlead_bench.report.results import Results
from fairlead_bench.scenarios.single_broker import Bench, Sizes

GROUP: Final = "rest"
SUBJECT: Final = "fairlead"
BATCH: Final = 100
VALUE_BYTES: Final = 80
CONNECTIONS: Final = 4
REQUESTS: Final = 1_000
REQUESTS_QUICK: Final = 200
SHAPES: Final = ("v3", "v2")


def measure_rest(folder: Path, results: Results, sizes: Sizes, *, is_quick: bool) -> None:
    """Run each shape once, with its own broker."""
    data = folder / "rest"
    data.mkdir(parents=True)
    (port,) = take_ports(1)
    with FairleadPeer(data, {"fairlead.rest.listener": f"127.0.0.1:{port}"}) as peer:
        peer.start()
        wait_until_ready(peer)
        topic = Bench(peer, sizes).create_topic("rest")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v3/clusters", timeout=30) as page:
            cluster_id = json.load(page)["data"][0]["cluster_id"]
        paths = {
            "v3": f"/v3/clusters/{cluster_id}/topics/{topic}/records",
            "v2": f"/topics/{topic}",
        }
        for shape in SHAPES:
            sample = run_load(
                "rest_load",
                {
                    "shape": shape,
                    "rest_port": port,
                    "path": paths[shape],
                    "batch": BATCH,
                    "size": VALUE_BYTES,
                    "connections": CONNECTIONS,
                    "requests": REQUESTS_QUICK if is_quick else REQUESTS,
                },
                pids=[peer.broker_pid],
            )
            records = sample.result["records"]
            values = results.values
            values[SUBJECT, f"rest_{shape}_throughput"].append(records / 1e3 / sample.seconds)
            values[SUBJECT, f"rest_{shape}_per_core"].append(records / 1e3 / sample.broker_cpu_s)
