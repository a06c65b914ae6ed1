"""`kubectl fairlead topic describe`: partitions, leaders, ISR and settings, from the resources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from fairlead_cli.errors import CliError
from fairlead_cli.kubectl.access import Access, access_options
from fairlead_cli.kubectl.snapshot import condition
from fairlead_cli.options import table_or_json
from fairlead_cli.output import tell
from fairlead_cli.verb_group import VerbGroup

if TYPE_CHECKING:
    from fairlead_kube.client import KubeClient

EPILOG = """\b
Examples:
  kubectl fairlead topic describe orders
  kubectl fairlead topic describe orders -n streaming -o json
"""


@click.group("topic", cls=VerbGroup, epilog=EPILOG)
def topic() -> None:
    """Show topics."""


@topic.command("describe", epilog=EPILOG)
@click.argument("name")
@click.option("--cluster", help="LogCluster, if several have a topic of this name.")
@access_options
@table_or_json
def describe(*, name: str, cluster: str | None, access: Access, output: str) -> None:
    """Show a topic, by the name of its resource or its name in Kafka."""
    from fairlead_cli.output import print_json

    async def read(client: KubeClient, namespace: str) -> dict[str, Any]:
        return await read_topic(client, namespace, name, cluster)

    document = access.run(read)
    if output == "json":
        print_json(document)
    else:
        print_topic(document)


async def read_topic(
    client: KubeClient, namespace: str, name: str, cluster: str | None
) -> dict[str, Any]:
    """Return the resource, and the controller's records of its partitions."""
    from fairlead_kube.kinds import TOPIC

    topics = (await client.list(TOPIC, namespace)).items
    resource = find_resource(topics, name, cluster)
    home = (resource["spec"].get("clusterNamespace") if resource else None) or namespace
    tables = await read_tables(client, home, may_be_forbidden=home != namespace)
    topic_name = (resource["spec"].get("topicName") if resource else None) or name
    owner = cluster or (resource["spec"].get("clusterName") if resource else None)
    header, partitions = find_records(tables, str(topic_name), owner)
    if resource is None and header is None:
        raise build_unknown_topic_error(name, namespace, topics)
    return build_document(str(topic_name), resource, header, partitions)


async def read_tables(
    client: KubeClient, namespace: str, *, may_be_forbidden: bool
) -> list[dict[str, Any]]:
    """Return the controllers' tables in a namespace; none if the user may not read them."""
    from fairlead_cli.output import note
    from fairlead_kube.errors import ApiError
    from fairlead_kube.kinds import PARTITION_TABLE

    try:
        return (await client.list(PARTITION_TABLE, namespace)).items
    except ApiError as error:
        if not (may_be_forbidden and error.is_forbidden):
            raise
        note(f"Partitions are missing: you may not list {PARTITION_TABLE.plural} in {namespace}.")
        return []


def build_unknown_topic_error(name: str, namespace: str, topics: list[dict[str, Any]]) -> CliError:
    """Return an error that names the most similar topic."""
    from difflib import get_close_matches

    near = get_close_matches(name, [each["metadata"]["name"] for each in topics], n=1)
    advice = f"Did you mean '{near[0]}'? " if near else ""
    return CliError(
        f"there is no topic '{name}' in namespace {namespace}",
        hint=f"{advice}See what there is:  kubectl get topics.fairlead.io -n {namespace}",
    )


def find_resource(
    topics: list[dict[str, Any]], name: str, cluster: str | None
) -> dict[str, Any] | None:
    """Return the topic by the resource's name, else by the topic's; CliError if ambiguous."""
    mine = [each for each in topics if cluster in (None, each["spec"].get("clusterName"))]
    named = [each for each in mine if each["metadata"]["name"] == name]
    found = named or [each for each in mine if each["spec"].get("topicName") == name]
    if len(found) > 1:
        raise CliError(f"{len(found)} resources declare topic '{name}'", hint="Add --cluster.")
    return found[0] if found else None


def find_records(
    tables: list[dict[str, Any]], topic_name: str, cluster: str | None
) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    """Return the topic's header and its partitions, in order; CliError if several clusters have it.

    Both are records of the tables.
    """
    import json

    from fairlead_model.topic import TopicState

    headers: dict[str, dict[str, Any]] = {}
    partitions: list[tuple[str, int, dict[str, Any]]] = []
    for table in tables:
        if cluster is not None and table["spec"]["clusterName"] != cluster:
            continue
        for line in table["spec"]["lines"].splitlines():
            key, _, value = line.partition(" ")
            kind, _, rest = key.partition("/")
            if kind == "topic":
                headers[rest] = json.loads(value)
            elif kind == "partition":
                topic_id, _, index = rest.rpartition("/")
                partitions.append((topic_id, int(index), json.loads(value)))
    # A deleted topic stays here until all brokers, also absent ones, have deleted it.
    ids = [
        topic_id
        for topic_id, header in headers.items()
        if header.get("name") == topic_name and header.get("state") != TopicState.DELETING
    ]
    if not ids:
        return None, []
    if len(ids) > 1:
        raise CliError(f"{len(ids)} clusters have a topic '{topic_name}'", hint="Add --cluster.")
    mine = sorted((index, record) for topic_id, index, record in partitions if topic_id == ids[0])
    header = {"topicId": ids[0]} | headers[ids[0]]
    return header, [{"partition": index} | record for index, record in mine]


def build_document(
    name: str,
    resource: dict[str, Any] | None,
    header: dict[str, Any] | None,
    partitions: list[dict[str, Any]],
) -> dict[str, Any]:
    """Return the topic as JSON; `problem` says what is wrong with a partition."""
    status = (resource or {}).get("status") or {}
    return {
        "name": name,
        "resource": resource["metadata"]["name"] if resource else None,
        "cluster": resource["spec"].get("clusterName") if resource else None,
        "topicId": (header or {}).get("topicId") or status.get("topicId"),
        "conditions": status.get("conditions") or [],
        "config": (resource["spec"].get("config") or {}) if resource else {},
        "partitions": [part | {"problem": partition_problem(part)} for part in partitions],
    }


def partition_problem(partition: dict[str, Any]) -> str | None:
    """Return what is wrong with a partition, in words; None if all is well."""
    replicas, isr = partition.get("replicas") or [], partition.get("isr") or []
    if partition.get("leader", -1) < 0:
        waits = isr or partition.get("elr") or partition.get("last_known_elr") or replicas
        return f"offline, waits for broker {' or '.join(map(str, waits))}"
    missing = [str(broker) for broker in replicas if broker not in isr]
    return f"out of sync: {', '.join(missing)}" if missing else None


def print_topic(document: dict[str, Any]) -> None:
    """Print the topic for people."""
    from fairlead_cli.output import print_table

    tell(click.style(f"topic {document['name']}", bold=True))
    ready = condition({"status": {"conditions": document["conditions"]}}, "Ready")
    origin = f"resource {document['resource']}" if document["resource"] else "without a resource"
    tell(
        f"  {origin}, id {document['topicId']}, "
        f"ready {ready.get('status', 'Unknown')} {ready.get('reason', '')}".rstrip()
    )
    if ready.get("status") == "False":
        tell(f"  {ready.get('message', '')}")
    for key, value in sorted(document["config"].items()):
        tell(f"  {key}={'(left alone)' if value is None else value}")
    print_table(
        ("partition", "leader", "epoch", "replicas", "in sync", "problem"),
        [
            (
                str(part["partition"]),
                str(part.get("leader", "")),
                str(part.get("leader_epoch", "")),
                " ".join(map(str, part.get("replicas") or [])),
                " ".join(map(str, part.get("isr") or [])),
                part["problem"] or "",
            )
            for part in document["partitions"]
        ],
        right=("partition", "leader", "epoch"),
    )
