"""The topics of a run."""

from collections.abc import Mapping
from typing import Final

from confluent_kafka.admin import AdminClient, NewTopic
from numbered_load import Place

PARTITIONS_EACH: Final = 100
REPLICAS: Final = 3
ADMIN_TIMEOUT_S: Final = 120


def create_topics(
    bootstrap: str, partitions_count: int, configs: Mapping[str, str] | None = None
) -> list[Place]:
    """Make topics with at most a hundred partitions each; return all partitions."""
    own = {"min.insync.replicas": "2", **(configs or {})}
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    sizes = [
        min(PARTITIONS_EACH, partitions_count - first)
        for first in range(0, partitions_count, PARTITIONS_EACH)
    ]
    topics = [
        NewTopic(f"load-{number}", size, REPLICAS, config=own) for number, size in enumerate(sizes)
    ]
    for future in admin.create_topics(topics).values():
        future.result(ADMIN_TIMEOUT_S)
    return [(each.topic, index) for each in topics for index in range(each.num_partitions)]
