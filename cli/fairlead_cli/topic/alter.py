"""`fairlead topic alter`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fairlead_cli.name_completion import complete_topic_settings, complete_topics
from fairlead_cli.options import bootstrap_option, data_option, parse_assignments

if TYPE_CHECKING:
    from pathlib import Path

    from confluent_kafka.admin import AdminClient

EPILOG = """\b
Examples:
  fairlead topic alter orders --partitions 12
  fairlead topic alter orders --config retention.ms=3600000
  fairlead topic alter orders --delete-config retention.ms

Keys move to other partitions when their number grows; records that are there stay where they are.
"""


@click.command("alter", epilog=EPILOG)
@click.argument("name", shell_complete=complete_topics)
@click.option("--partitions", type=click.IntRange(min=1), help="New number; it can only grow.")
@click.option(
    "--config",
    "assignments",
    multiple=True,
    metavar="KEY=VALUE",
    shell_complete=complete_topic_settings,
    help="Set a topic setting; may be repeated.",
)
@click.option(
    "--delete-config",
    "removals",
    multiple=True,
    metavar="KEY",
    shell_complete=complete_topic_settings,
    help="Back to the cluster's default; may be repeated.",
)
@data_option
@bootstrap_option
def command(
    *,
    name: str,
    partitions: int | None,
    assignments: tuple[str, ...],
    removals: tuple[str, ...],
    data: Path,
    bootstrap: str | None,
) -> None:
    """Add partitions to a topic, set or unset its settings."""
    from fairlead_cli.client.connection import build_admin, require_topic
    from fairlead_cli.client.target import resolve_bootstrap
    from fairlead_cli.output import format_count

    configs = parse_assignments(assignments, "--config")
    if partitions is None and not configs and not removals:
        raise click.UsageError("nothing to alter: --partitions, --config or --delete-config")
    admin = build_admin(resolve_bootstrap(bootstrap, data))
    require_topic(admin, name)
    if configs or removals:
        alter_configs(admin, name, configs, removals)
        count = format_count(len(configs) + len(removals), "setting")
        click.echo(f"Changed {count} of topic {name}.")
    if partitions is not None:
        add_partitions(admin, name, partitions)
        click.echo(f"Topic {name} has {partitions} partitions now.")


def alter_configs(
    admin: AdminClient, name: str, configs: dict[str, str], removals: tuple[str, ...]
) -> None:
    """One request: all of the changes, or none."""
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

    from fairlead_cli.client.connection import wait_for

    changes = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for key, value in configs.items()
    ]
    changes += [
        ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE) for key in removals
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=changes)
    futures = admin.incremental_alter_configs([resource])
    wait_for(futures[resource], f"cannot alter topic '{name}'")


def add_partitions(admin: AdminClient, name: str, partitions: int) -> None:
    """Grow the topic to this number."""
    from confluent_kafka.admin import NewPartitions

    from fairlead_cli.client.connection import wait_for

    futures = admin.create_partitions([NewPartitions(name, partitions)])
    wait_for(futures[name], f"cannot add partitions to topic '{name}'")
