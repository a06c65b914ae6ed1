"""What the peers of a run promise is the same on both sides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

from fairlead_bench.main import Run, parse_arguments
from fairlead_bench.peers.kafka_cluster import KafkaCluster
from fairlead_bench.peers.kafka_distribution import KafkaDistribution
from fairlead_model.configs.property_files import read_properties

if TYPE_CHECKING:
    from pathlib import Path

SAME = (
    "offsets.topic.replication.factor",
    "transaction.state.log.replication.factor",
    "transaction.state.log.min.isr",
)


def test_internal_topics_have_as_many_replicas_in_both_clusters(tmp_path: Path) -> None:
    """A commit that waits for one broker is no match for one that waits for two."""
    options = parse_arguments(["--only", "replicated", "--peers", "fairlead"])
    ours = Run(options, tmp_path, Console(quiet=True)).cluster_makers["fairlead"](tmp_path)
    ours.prepare()
    settings = read_properties((tmp_path / "broker-0.properties").read_text())
    kafka = KafkaCluster(KafkaDistribution("4", tmp_path, "java"), tmp_path)._settings_of(0)
    assert {name: settings.get(name) for name in SAME} == {name: kafka[name] for name in SAME}
