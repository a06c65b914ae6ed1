"""`fairlead topic …`: one file a verb."""

from __future__ import annotations

import click

from fairlead_cli.verb_group import Verb, VerbGroup

VERBS = {
    "create": Verb("fairlead_cli.topic.create", "command", "Create a topic."),
    "list": Verb("fairlead_cli.topic.listing", "command", "List topics and their health."),
    "describe": Verb(
        "fairlead_cli.topic.describe", "command", "Show partitions, leaders, offsets and settings."
    ),
    "alter": Verb(
        "fairlead_cli.topic.alter", "command", "Change partitions, replicas and settings."
    ),
    "reassign": Verb("fairlead_cli.topic.reassign", "command", "Move replicas to other brokers."),
    "elect": Verb("fairlead_cli.topic.elect", "command", "Let preferred replicas lead again."),
    "delete": Verb("fairlead_cli.topic.delete", "command", "Delete topics and their records."),
    "import": Verb(
        "fairlead_cli.topic.import_topics", "command", "Read the topics of a Kafka on ZooKeeper."
    ),
}

EPILOG = """\b
Examples:
  fairlead topic create orders --partitions 6 --config retention.ms=86400000
  fairlead topic list -o json
  fairlead topic describe orders
  fairlead topic alter orders --partitions 12 --config max.message.bytes=2097152
  fairlead topic reassign orders --to 1 --to 2 --to 4
  fairlead topic elect orders
  fairlead topic delete orders
  fairlead topic import --zookeeper zk1:2181/kafka -o manifests
"""


@click.group(cls=VerbGroup, verbs=VERBS, epilog=EPILOG)
def topic() -> None:
    """Create, list, describe, alter, move and delete topics; elect their leaders."""
