"""One row for each topic: its partitions, and how many of them have problems."""

from __future__ import annotations

from typing import Any, TypedDict


class TopicHealth(TypedDict):
    """The row of `status` and `topic list`, also in their JSON."""

    name: str
    partitions: int
    replicationFactor: int
    underReplicated: int
    offline: int


def summarize_topics(metadata: Any) -> list[TopicHealth]:
    """Return the rows from librdkafka's cluster metadata, by name."""
    rows = []
    for name, topic in sorted(metadata.topics.items()):
        partitions = list(topic.partitions.values())
        rows.append(
            TopicHealth(
                name=name,
                partitions=len(partitions),
                replicationFactor=max((len(p.replicas) for p in partitions), default=0),
                underReplicated=sum(len(p.isrs) < len(p.replicas) for p in partitions),
                offline=sum(p.leader < 0 for p in partitions),
            )
        )
    return rows


def print_topics(rows: list[TopicHealth]) -> None:
    """Print the topics as a table."""
    from fairlead_cli.output import print_table

    columns = ("topic", "partitions", "replicas", "under-replicated", "offline")
    print_table(
        columns,
        [
            (
                row["name"],
                str(row["partitions"]),
                str(row["replicationFactor"]),
                str(row["underReplicated"]),
                str(row["offline"]),
            )
            for row in rows
        ],
        right=columns[1:],
    )
