"""`fairlead topic create`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from fairlead_cli.name_completion import complete_topic_settings
from fairlead_cli.options import (
    PARTITIONS_MAX,
    REPLICAS_MAX,
    bootstrap_option,
    data_option,
    parse_assignments,
)

if TYPE_CHECKING:
    from pathlib import Path

    from confluent_kafka.admin import AdminClient, BrokerMetadata

# Metadata reaches every broker within milliseconds; this is the limit for a slow machine.
VISIBLE_TIMEOUT_S = 5.0
VISIBLE_POLL_S = 0.02
# Longer than a broker may be silent before it is fenced: one that hangs is not waited for.
BROKER_PATIENCE_S = 2.0
METADATA_VERSION = 7

EPILOG = """\b
Examples:
  fairlead topic create orders
  fairlead topic create orders --partitions 6 --config retention.ms=86400000
  fairlead topic create orders --if-not-exists
  fairlead topic create orders --bootstrap broker.example:9092 --replication-factor 3
"""


@click.command("create", epilog=EPILOG)
@click.argument("name")
@click.option(
    "--partitions",
    type=click.IntRange(1, PARTITIONS_MAX),
    help="Default: the cluster's num.partitions.",
)
@click.option(
    "--replication-factor",
    type=click.IntRange(1, REPLICAS_MAX),
    help="Default: the cluster's default.replication.factor.",
)
@click.option(
    "--config",
    "assignments",
    multiple=True,
    metavar="KEY=VALUE",
    shell_complete=complete_topic_settings,
    help="A topic setting (`fairlead config list`); may be repeated.",
)
@click.option("--if-not-exists", is_flag=True, help="Do not fail if the topic exists.")
@data_option
@bootstrap_option
def command(
    *,
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    assignments: tuple[str, ...],
    if_not_exists: bool,
    data: Path,
    bootstrap: str | None,
) -> None:
    """Create a topic."""
    from fairlead_cli.client.connection import build_admin, build_error
    from fairlead_cli.client.target import resolve_bootstrap

    configs = parse_assignments(assignments, "--config")
    admin = build_admin(resolve_bootstrap(bootstrap, data))
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import NewTopic

    # -1 lets the cluster choose.
    request = NewTopic(
        name,
        num_partitions=partitions or -1,
        replication_factor=replication_factor or -1,
        config=configs,
    )
    try:
        admin.create_topics([request])[name].result()
    except KafkaException as exception:
        error = exception.args[0]
        if if_not_exists and error.name() == "TOPIC_ALREADY_EXISTS":
            click.echo(f"Topic {name} exists already.")
            return
        raise build_error(f"cannot create topic '{name}'", error, name=name) from exception
    count = wait_until_visible(admin, name)
    click.echo(f"Created topic {name} with {count} partition{'' if count == 1 else 's'}.")


def wait_until_visible(admin: AdminClient, name: str, *, at_least: int = 1) -> int:
    """Wait until each broker knows a leader of every partition; return how many there are.

    Then the next command can use the topic, whichever broker it asks. `at_least` is how many
    partitions the topic has by now. A broker that does not answer is named, and not waited for.
    """
    from fairlead_cli.client.connection import fetch_metadata

    deadline = time.monotonic() + VISIBLE_TIMEOUT_S
    may_ask_each = _may_ask_each()
    knowing: set[int] = set()
    silent: set[int] = set()
    while True:
        metadata = fetch_metadata(admin, name)
        topic = metadata.topics.get(name)
        partitions = topic.partitions.values() if topic is not None and not topic.error else []
        is_led = len(partitions) >= at_least and all(each.leader >= 0 for each in partitions)
        lagging: set[int] = set()
        if is_led and may_ask_each:
            for broker_id in sorted(metadata.brokers.keys() - knowing - silent):
                knows = _knows(metadata.brokers[broker_id], name, at_least, deadline)
                (silent if knows is None else knowing if knows else lagging).add(broker_id)
        if (is_led and not lagging) or time.monotonic() > deadline:
            late = ", ".join(map(str, sorted(lagging | silent)))
            if not is_led:
                click.echo("Not every partition has a leader yet.", err=True)
            elif late:
                click.echo(f"Topic {name} has not reached every broker yet: {late}.", err=True)
            return len(partitions)
        time.sleep(VISIBLE_POLL_S)


def _may_ask_each() -> bool:
    """Tell whether this command can log in to a broker of its choice.

    Where only librdkafka can, as with tokens, the broker that it asks speaks for all.
    """
    from fairlead_cli.client.access import login_settings
    from fairlead_wire.sasl_login import MECHANISMS

    login = login_settings()
    return login is None or login.mechanism in MECHANISMS


def _knows(broker: BrokerMetadata, name: str, at_least: int, deadline: float) -> bool | None:
    """Tell whether a broker knows a leader of every partition of a topic; None: no answer."""
    from fairlead_cli.client.wire_call import call_broker
    from fairlead_cli.errors import NoAnswerError
    from fairlead_wire.messages.metadata import MetadataRequest, MetadataRequestTopic

    request = MetadataRequest([MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    left_s = min(max(deadline - time.monotonic(), VISIBLE_POLL_S), BROKER_PATIENCE_S)
    try:
        reply = call_broker(
            broker.host.strip("[]"), broker.port, request, METADATA_VERSION, timeout_s=left_s
        )
    except NoAnswerError:
        return None
    (topic,) = reply.topics
    return (
        not topic.error_code
        and len(topic.partitions) >= at_least
        and all(each.leader_id >= 0 for each in topic.partitions)
    )
