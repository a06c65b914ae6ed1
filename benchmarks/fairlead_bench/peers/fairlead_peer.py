"""Fairlead as a single-broker peer: a cluster of one."""

import time
import urllib.request
from pathlib import Path
from typing import Final

from fairlead_bench.peers.fairlead_cluster import FairleadCluster

# The server updates the metrics of its connections once a second.
METRICS_AGE_S: Final = 1.2


class FairleadPeer(FairleadCluster):
    """A single-broker cluster in `data`, with its own ports."""

    def __init__(self, data: Path, settings: dict[str, str] | None = None) -> None:
        super().__init__(data, settings, brokers=1)

    @property
    def port(self) -> int:
        return self.ports[0]

    @property
    def http_port(self) -> int:
        return self.http_ports[0]

    @property
    def log_directory(self) -> Path:
        return self.log_directory_of(0)

    @property
    def broker_pid(self) -> int:
        return self.brokers[0].pid

    def metric(self, name: str) -> float:
        """Return the value of one of the broker's metrics."""
        url = f"http://127.0.0.1:{self.http_port}/metrics"
        with urllib.request.urlopen(url, timeout=10) as page:
            for line in page.read().decode().splitlines():
                if line.startswith(name + " "):
                    return float(line.split()[1])
        raise ValueError(f"the broker tells no {name}")

    def thread_reads(self) -> float | None:
        time.sleep(METRICS_AGE_S)
        return self.metric("fairlead_cold_reads_total")
