"""`fairlead topic describe`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from fairlead_cli.name_completion import complete_topics
from fairlead_cli.options import bootstrap_option, data_option, table_or_json
from fairlead_cli.output import tell

if TYPE_CHECKING:
    from pathlib import Path

    from confluent_kafka.admin import AdminClient

EPILOG = """\b
Examples:
  fairlead topic describe orders
  fairlead topic describe orders --all-configs
  fairlead topic describe orders payments -o json
"""


@click.command("describe", epilog=EPILOG)
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete_topics)
@click.option("--all-configs", is_flag=True, help="Also show settings that have their default.")
@data_option
@bootstrap_option
@table_or_json
def command(
    names: tuple[str, ...], all_configs: bool, data: Path, bootstrap: str | None, output: str
) -> int:
    """Show partitions, leaders, replicas, offsets and settings of topics."""
    from fairlead_cli.client.connection import build_admin
    from fairlead_cli.client.target import resolve_bootstrap
    from fairlead_cli.output import print_json
    from fairlead_cli.several_names import find_each, report_missing

    admin = build_admin(resolve_bootstrap(bootstrap, data))
    documents, errors = find_each(
        names, lambda name: describe_topic(admin, name, all_configs=all_configs)
    )
    if output == "json":
        print_json(documents)
    else:
        for document in documents:
            print_topic(document)
    return report_missing(errors)


def describe_topic(admin: AdminClient, name: str, *, all_configs: bool) -> dict[str, Any]:
    """Return everything about one topic for the JSON output.

    Its settings are None if the command's user may not read them.
    """
    from fairlead_cli.client.connection import require_topic
    from fairlead_cli.client.offsets import read_ends
    from fairlead_cli.errors import ForbiddenError

    topic = require_topic(admin, name)
    ends = read_ends(admin, name, [p.id for p in topic.partitions.values() if p.leader >= 0])
    partitions = []
    for partition in sorted(topic.partitions.values(), key=lambda partition: int(partition.id)):
        start, end = ends.get(partition.id, (None, None))
        partitions.append(
            {
                "partition": partition.id,
                "leader": partition.leader if partition.leader >= 0 else None,
                "replicas": list(partition.replicas),
                "isr": list(partition.isrs),
                "health": health_of(partition),
                "startOffset": start,
                "endOffset": end,
            }
        )
    configs: dict[str, str | None] | None
    try:
        configs = describe_configs(admin, name, all_configs=all_configs)
    except ForbiddenError:
        configs = None
    return {"name": name, "partitions": partitions, "configs": configs}


def health_of(partition: Any) -> str:
    """Return the state of a partition in one word, as `topic list` counts it."""
    if partition.leader < 0:
        return "offline"
    return "under-replicated" if len(partition.isrs) < len(partition.replicas) else "ok"


def describe_configs(admin: AdminClient, name: str, *, all_configs: bool) -> dict[str, str | None]:
    """Return the topic's own overrides, or all its settings; ForbiddenError."""
    from confluent_kafka.admin import ConfigResource, ConfigSource

    from fairlead_cli.client.connection import REQUEST_TIMEOUT_S, wait_for

    resource = ConfigResource(ConfigResource.Type.TOPIC, name)
    futures = admin.describe_configs([resource], request_timeout=REQUEST_TIMEOUT_S)
    entries = wait_for(futures[resource], f"cannot read the settings of topic '{name}'")
    own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    return {
        entry.name: entry.value
        for entry in sorted(entries.values(), key=lambda entry: str(entry.name))
        if all_configs or entry.source == own
    }


def print_topic(document: dict[str, Any]) -> None:
    """Print two tables: partitions, and settings if there are any."""
    from fairlead_cli.output import print_table

    def shown(value: object) -> str:
        return "-" if value is None else str(value)

    def joined(ids: list[int]) -> str:
        return ",".join(str(number) for number in ids) or "-"

    columns = ("partition", "leader", "replicas", "in sync", "health", "start", "end", "records")
    rows = []
    for entry in document["partitions"]:
        start, end = entry["startOffset"], entry["endOffset"]
        records = None if start is None or end is None else end - start
        rows.append(
            (
                shown(entry["partition"]),
                "none" if entry["leader"] is None else shown(entry["leader"]),
                joined(entry["replicas"]),
                joined(entry["isr"]),
                entry["health"],
                shown(start),
                shown(end),
                shown(records),
            )
        )
    print_table(columns, rows, title=document["name"], right=(*columns[:2], *columns[5:]))
    if document["configs"] is None:
        tell("Its settings are not shown: the user of this command may not read them.")
    elif document["configs"]:
        settings = [(name, shown(value)) for name, value in document["configs"].items()]
        print_table(("setting", "value"), settings)
