"""`fairlead topic alter`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fairlead_cli.advice import cluster_arguments
from fairlead_cli.errors import CliError
from fairlead_cli.name_completion import complete_topic_settings, complete_topics
from fairlead_cli.options import (
    PARTITIONS_MAX,
    REPLICAS_MAX,
    bootstrap_option,
    data_option,
    parse_assignments,
)
from fairlead_cli.output import tell

if TYPE_CHECKING:
    from pathlib import Path

    from confluent_kafka.admin import AdminClient

EPILOG = """\b
Examples:
  fairlead topic alter orders --partitions 12
  fairlead topic alter orders --replication-factor 3
  fairlead topic alter orders --config retention.ms=3600000
  fairlead topic alter orders --delete-config retention.ms

Replicas are added and removed while the topic is in use; `fairlead topic reassign orders --wait`
returns when that is done. With more partitions, new records of a key may go to another partition;
existing records stay where they are.
"""


@click.command("alter", epilog=EPILOG)
@click.argument("name", shell_complete=complete_topics)
@click.option(
    "--partitions", type=click.IntRange(1, PARTITIONS_MAX), help="New number; it can only grow."
)
@click.option(
    "--replication-factor",
    type=click.IntRange(1, REPLICAS_MAX),
    help="New number of replicas of each partition.",
)
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
    help="Set a config back to the cluster's default; may be repeated.",
)
@data_option
@bootstrap_option
def command(
    *,
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    assignments: tuple[str, ...],
    removals: tuple[str, ...],
    data: Path,
    bootstrap: str | None,
) -> None:
    """Add partitions to a topic, change its replicas, set or unset its settings."""
    from fairlead_cli.client.connection import build_admin, require_topic
    from fairlead_cli.client.target import resolve_bootstrap
    from fairlead_cli.output import format_count
    from fairlead_cli.topic.create import wait_until_visible

    configs = parse_assignments(assignments, "--config")
    if partitions is None and replication_factor is None and not configs and not removals:
        raise click.UsageError(
            "nothing to alter: --partitions, --replication-factor, --config or --delete-config"
        )
    if twice := sorted(configs.keys() & set(removals)):
        raise click.UsageError(f"--config and --delete-config of {', '.join(twice)}")
    addresses = resolve_bootstrap(bootstrap, data)
    admin = build_admin(addresses)
    require_topic(admin, name)
    require_settings(admin, name, removals)
    if configs or removals:
        alter_configs(admin, name, configs, removals)
        count = format_count(len(configs) + len(removals), "setting")
        tell(f"Changed {count} of topic {name}.")
    if partitions is not None:
        add_partitions(admin, name, partitions)
        wait_until_visible(admin, name, at_least=partitions)
        tell(f"Topic {name} has {partitions} partitions now.")
    if replication_factor is not None:
        changed = change_replication_factor(admin, addresses, name, replication_factor)
        replicas = format_count(replication_factor, "replica")
        tell(
            f"{format_count(changed, 'partition')} of topic {name} will have {replicas}."
            if changed
            else f"Topic {name} has {replicas} already."
        )


def require_settings(admin: AdminClient, name: str, keys: tuple[str, ...]) -> None:
    """Raise CliError for unknown settings: brokers silently ignore their deletion."""
    from fairlead_cli.topic.describe import describe_configs

    known = describe_configs(admin, name, all_configs=True) if keys else {}
    unknown = [key for key in keys if key not in known]
    if unknown:
        raise CliError(
            f"topics have no setting {', '.join(unknown)}; nothing was changed",
            hint="See what there is:  fairlead config list --scope topic",
        )


def alter_configs(
    admin: AdminClient, name: str, configs: dict[str, str], removals: tuple[str, ...]
) -> None:
    """Change settings with one request: all of them, or none."""
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
    """Increase the topic's partitions to this number."""
    from confluent_kafka.admin import NewPartitions

    from fairlead_cli.client.connection import wait_for

    futures = admin.create_partitions([NewPartitions(name, partitions)])
    wait_for(futures[name], f"cannot add partitions to topic '{name}'")


def change_replication_factor(admin: AdminClient, addresses: str, name: str, factor: int) -> int:
    """Ask for `factor` replicas of each partition; return how many partitions change."""
    from fairlead_cli.client.connection import require_topic
    from fairlead_cli.client.reassignment import alter_reassignments, read_targets
    from fairlead_cli.output import format_count
    from fairlead_cli.topic.assignment import TooFewBrokersError
    from fairlead_cli.topic.reassign import build_assigner, leave_out_drained

    assigner = build_assigner(admin)
    leave_out_drained(admin, assigner)
    partitions = require_topic(admin, name).partitions
    before = {index: partition.replicas for index, partition in sorted(partitions.items())}
    try:
        targets = {
            index: assigner.resized(replicas, factor, partitions[index].isrs)
            for index, replicas in read_targets(addresses, name, before).items()
            if len(replicas) != factor
        }
    except TooFewBrokersError:
        raise CliError(
            f"{factor} replicas need as many brokers; {len(assigner.places)} can take new ones",
            hint=f"Look:  fairlead status{cluster_arguments()}",
        ) from None
    if not targets:
        return 0
    refused = alter_reassignments(addresses, name, targets)
    if refused:
        index, refusal = min(refused.items())
        raise CliError(
            f"{format_count(len(refused), 'partition')} of topic '{name}' cannot get {factor} "
            f"replicas; partition {index}: {refusal.message}"
        )
    return len(targets)
