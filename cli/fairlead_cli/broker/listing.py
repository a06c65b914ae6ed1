"""`fairlead broker list`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from fairlead_cli.options import data_option, table_or_json
from fairlead_model.host_address import join_address

if TYPE_CHECKING:
    from pathlib import Path

    from fairlead_cli.local.cluster_file import ClusterFile

EPILOG = """\b
Examples:
  fairlead broker list
  fairlead broker list -o json
"""


@click.command("list", epilog=EPILOG)
@data_option
@table_or_json
def command(data: Path, output: str) -> None:
    """List the brokers of a local cluster, with the partitions that they lead and have."""
    from fairlead_cli.local.control import require_cluster
    from fairlead_cli.output import print_json, print_table

    rows = list_brokers(require_cluster(data))
    if output == "json":
        print_json(rows)
        return
    columns = ("broker", "state", "pid", "address", "leaders", "replicas", "in sync", "restarts")
    names = ("id", "state", "pid", "address", "leaders", "replicas", "inSync", "restarts")
    print_table(
        columns,
        [["-" if row[name] is None else str(row[name]) for name in names] for row in rows],
        right=("broker", "pid", "leaders", "replicas", "in sync", "restarts"),
    )


def list_brokers(cluster: ClusterFile) -> list[dict[str, Any]]:
    """Return one entry for each broker; counts are None if no broker answers."""
    from fairlead_cli.local.control import state_of_entry

    counts = count_partitions(cluster)
    return [
        {
            "id": entry.id,
            "state": state_of_entry(entry),
            "pid": entry.pid if entry.is_alive else None,
            "address": join_address(entry.host, entry.port),
            "restarts": entry.restarts,
            **{name: None if counts is None else counts[name].get(entry.id, 0) for name in COUNTS},
        }
        for entry in cluster.brokers
    ]


COUNTS = ("leaders", "replicas", "inSync")


def count_partitions(cluster: ClusterFile) -> dict[str, dict[int | None, int]] | None:
    """Return how many partitions each broker leads, replicates, and has in sync."""
    from fairlead_cli.client.connection import build_admin, fetch_metadata
    from fairlead_cli.client.target import find_local, join_addresses

    answering = find_local(cluster).answering
    if not answering:
        return None
    return count_in(fetch_metadata(build_admin(join_addresses(answering))))


def count_in(metadata: Any) -> dict[str, dict[int | None, int]]:
    """Return the counts of `count_partitions` from given metadata."""
    from collections import Counter

    counts: dict[str, dict[int | None, int]] = {name: Counter() for name in COUNTS}
    for topic in metadata.topics.values():
        for partition in topic.partitions.values():
            if partition.leader >= 0:
                counts["leaders"][partition.leader] += 1
            for broker_id in partition.replicas:
                counts["replicas"][broker_id] += 1
            for broker_id in partition.isrs:
                counts["inSync"][broker_id] += 1
    return counts
