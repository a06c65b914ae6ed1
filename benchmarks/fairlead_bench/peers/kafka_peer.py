"""Apache Kafka as a single-node peer: a cluster of one."""

from pathlib import Path

from fairlead_bench.peers.kafka_cluster import KafkaCluster
from fairlead_bench.peers.kafka_distribution import KafkaDistribution


class KafkaPeer(KafkaCluster):
    """A single-node cluster in `data`."""

    def __init__(
        self,
        distribution: KafkaDistribution,
        data: Path,
        settings: dict[str, str] | None = None,
    ) -> None:
        super().__init__(distribution, data, settings, brokers=1)

    @property
    def port(self) -> int:
        return self.ports[0]

    @property
    def log_directory(self) -> Path:
        return self.log_directory_of(0)

    @property
    def broker_pid(self) -> int:
        return self.brokers[0].pid

    def thread_reads(self) -> float | None:
        return None  # it reads in its network threads, which a disk may hold up
