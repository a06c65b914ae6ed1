"""Fairlead as a single-broker peer: a cluster of one."""

from pathlib import Path

from fairlead_bench.fairlead_cluster import FairleadCluster


class FairleadPeer(FairleadCluster):
    """A single-broker cluster in `data`, on ports of its own."""

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
