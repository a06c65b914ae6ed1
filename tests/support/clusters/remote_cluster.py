"""A cluster that commands reach by address: Fairlead, or Kafka (FAIRLEAD_CLIENTS_AGAINST=kafka)."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from local_cluster import ROOT, Cli, take_cluster_ports


@dataclass
class Remote(Cli):
    """Runs commands with the cluster's address, as for a remote cluster."""

    bootstrap: str = ""

    def command(self, *arguments: str) -> list[str]:
        return [
            *(sys.executable, "-m", "fairlead_cli.main", *arguments),
            *("--bootstrap", self.bootstrap),
        ]


@contextmanager
def running_remote(data: Path) -> Iterator[Remote]:
    """Run a cluster for as long as the block takes."""
    if os.environ.get("FAIRLEAD_CLIENTS_AGAINST") == "kafka":
        sys.path.insert(0, str(ROOT / "benchmarks"))
        from fairlead_bench.peers.kafka_distribution import ensure_kafka
        from fairlead_bench.peers.kafka_peer import KafkaPeer
        from fairlead_bench.peers.peer import wait_until_ready

        with KafkaPeer(ensure_kafka(), data) as peer:
            peer.start()
            wait_until_ready(peer)
            yield Remote(data, 0, 0, bootstrap=peer.bootstrap)
        return
    local = Cli(data, *take_cluster_ports())
    started = local.up_for_groups()
    assert started.code == 0, started
    try:
        yield Remote(data, local.port, local.http_port, bootstrap=f"127.0.0.1:{local.port}")
    finally:
        local.close()
