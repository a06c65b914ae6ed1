"""Names that a shell completes: topics and groups from the cluster, brokers, settings.

A shell waits for this at every TAB, and cannot show errors: if there is no answer at once, nothing
is completed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairlead_cli.data_directory import DATA_DEFAULT
from fairlead_cli.errors import CliError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import click
    from confluent_kafka.admin import AdminClient

PATIENCE_S = 2.0


def complete_topics(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return topics with this prefix; internal topics only if their underscores are typed."""
    topic, separator, _ = incomplete.partition(":")
    if separator:
        return []
    names = ask_cluster(ctx, read_topics)
    return [
        name
        for name in names
        if name.startswith(topic) and (topic.startswith("__") or not name.startswith("__"))
    ]


def complete_groups(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return ids of groups with this prefix."""
    return [name for name in ask_cluster(ctx, read_groups) if name.startswith(incomplete)]


def complete_brokers(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return ids of the local cluster's brokers, from its file, because brokers may be down."""
    from fairlead_cli.local.cluster_file import read_cluster_file
    from fairlead_cli.local.layout import Layout

    try:
        cluster = read_cluster_file(Layout(ctx.params.get("data") or DATA_DEFAULT).cluster_file)
    except CliError:
        return []
    ids = [] if cluster is None else [str(broker.id) for broker in cluster.brokers]
    return [each for each in ids if each.startswith(incomplete)]


def complete_topic_settings(
    _ctx: click.Context, parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Return names with this prefix: `retention.ms=` if a value follows, else the name alone."""
    from fairlead_model.configs.config_values import TOPIC_CONFIGS

    return match_settings(TOPIC_CONFIGS, parameter, incomplete)


def complete_broker_settings(
    _ctx: click.Context, parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Complete names of broker settings."""
    from fairlead_model.configs.config_values import BROKER_CONFIGS

    return match_settings(BROKER_CONFIGS, parameter, incomplete)


def match_settings(names: Iterable[str], parameter: click.Parameter, incomplete: str) -> list[str]:
    """Return names with this prefix; a value after the `=` cannot be completed."""
    takes_value = "=" in (getattr(parameter, "metavar", None) or "")
    suffix = "=" if takes_value else ""
    return [f"{name}{suffix}" for name in sorted(names) if name.startswith(incomplete)]


def ask_cluster(ctx: click.Context, read: Callable[[AdminClient], list[str]]) -> list[str]:
    """Return names; none if the cluster of this command line does not answer."""
    import click
    from confluent_kafka import KafkaException

    from fairlead_cli.client.connection import build_admin
    from fairlead_cli.client.target import resolve_bootstrap

    data = ctx.params.get("data") or DATA_DEFAULT
    try:
        address = resolve_bootstrap(ctx.params.get("bootstrap"), data, patience_s=PATIENCE_S)
        return sorted(read(build_admin(address)))
    except (CliError, click.ClickException, KafkaException):
        return []


def read_topics(admin: AdminClient) -> list[str]:
    """Return all topics."""
    return list(admin.list_topics(timeout=PATIENCE_S).topics)


def read_groups(admin: AdminClient) -> list[str]:
    """Return the groups of the brokers that answer."""
    result: Any = admin.list_consumer_groups(request_timeout=PATIENCE_S).result()
    return [listing.group_id for listing in result.valid]
