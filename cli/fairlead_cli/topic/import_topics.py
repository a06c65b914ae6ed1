"""`fairlead topic import`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from fairlead_cli.errors import CliError, ExitCode
from fairlead_cli.options import output_option
from fairlead_cli.zookeeper.address import zookeeper_option

if TYPE_CHECKING:
    from fairlead_cli.zookeeper.old_topics import OldTopic, OldTopics
    from fairlead_cli.zookeeper.tree import Skipped
    from fairlead_model.resources.topic_manifest import TopicSpec
    from fairlead_zookeeper.address import ZooKeeperAccess

EPILOG = """\b
Examples:
  fairlead topic import --zookeeper zk1:2181,zk2:2181/kafka
  fairlead topic import --zookeeper zk1:2181/kafka -o manifests > topics.yaml
  fairlead up -f topics.yaml
  kubectl apply -f topics.yaml

The command only reads, in both clusters: nothing is created before you apply a manifest. Records
are not moved. The command names each znode that it leaves out on stderr, and exits with 1 if that
may matter.
"""


@click.command("import", epilog=EPILOG)
@zookeeper_option
@output_option("table", "json", "manifests")
def command(*, ensemble: ZooKeeperAccess, output: str) -> int:
    """Read the topics of a Kafka on ZooKeeper (0.8 to 3.x), to create the same topics here."""
    from fairlead_cli.output import format_count, note
    from fairlead_cli.zookeeper.old_topics import VERSION_0_7, read_topics
    from fairlead_cli.zookeeper.topic_specs import build_topic_specs

    found = read_topics(read_tree(ensemble))
    if found.is_version_0_7:
        raise CliError(
            f"the topics at {ensemble.connect_string} cannot be read: {VERSION_0_7}",
            hint="Move to Kafka 0.8 first, with the migration tool of that release.",
        )
    specs, left_out = build_topic_specs(found.topics)
    skipped = [*found.skipped, *left_out]
    match output:
        case "manifests":
            print_manifests(specs)
        case "json":
            print_document(found, specs, skipped)
        case _:
            print_topics(specs)
    for each in skipped:
        note(f"skipped {each}")
    note(f"{format_count(len(specs), 'topic')} at {ensemble.connect_string}.")
    is_whole = all(each.is_expected for each in skipped)
    return ExitCode.OK if is_whole else ExitCode.FAILED


def read_tree(ensemble: ZooKeeperAccess) -> dict[str, Any]:
    """Return the znodes with the topics."""
    from fairlead_cli.zookeeper.session import open_session
    from fairlead_zookeeper.znodes import BROKER_TOPICS, CONFIG_TOPICS, DELETE_TOPICS

    with open_session(ensemble) as session:
        session.require_kafka(BROKER_TOPICS)
        return {
            **session.read(BROKER_TOPICS, depth=1),
            **session.read(CONFIG_TOPICS, depth=1),
            **session.read(DELETE_TOPICS, depth=0),
        }


def print_manifests(specs: list[TopicSpec]) -> None:
    """Print a YAML document for each topic."""
    import yaml

    from fairlead_model.resources.topic_manifest import build_topic_manifest

    documents = [build_topic_manifest(spec) for spec in specs]
    if documents:
        text = yaml.safe_dump_all(documents, sort_keys=False, explicit_start=True)
        click.echo(text, nl=False)


def print_document(found: OldTopics, specs: list[TopicSpec], skipped: list[Skipped]) -> None:
    """Print the JSON for scripts."""
    from fairlead_cli.output import print_json

    topics: dict[str, OldTopic] = {topic.name: topic for topic in found.topics}
    print_json(
        {
            "topics": [
                {
                    "name": spec.topic_name,
                    "resource": spec.resource,
                    "partitions": spec.partitions,
                    "replicationFactor": spec.replication_factor,
                    "config": dict(spec.configs),
                    "topicId": topics[spec.topic_name].topic_id,
                    "replicas": [list(ids) for ids in topics[spec.topic_name].replicas],
                }
                for spec in specs
            ],
            "skipped": [each.as_document() for each in skipped],
        }
    )


def print_topics(specs: list[TopicSpec]) -> None:
    """Print a row for each topic."""
    from fairlead_cli.output import print_table

    rows = [
        [
            spec.topic_name,
            str(spec.partitions),
            str(spec.replication_factor),
            ", ".join(f"{name}={text}" for name, text in spec.configs.items()),
        ]
        for spec in specs
    ]
    numbers = ("partitions", "replication factor")
    print_table(("topic", *numbers, "settings"), rows, right=numbers)
