"""`fairlead status`: processes, leaders, and what is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from fairlead_cli.advice import cluster_arguments, data_arguments
from fairlead_cli.data_directory import DATA_DEFAULT
from fairlead_cli.errors import CliError, ExitCode
from fairlead_cli.local.cluster_file import ClusterFile, ProcessEntry, read_cluster_file
from fairlead_cli.local.control import state_of_entry
from fairlead_cli.local.layout import Layout
from fairlead_cli.local.up_command import up_command
from fairlead_cli.options import bootstrap_option, data_option, table_or_json
from fairlead_cli.output import escape_controls, tell
from fairlead_model.host_address import join_address

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fairlead_cli.client.answering import Address
    from fairlead_cli.topic.health import TopicHealth

# Twice the time after which the controller fences a silent broker. A busy machine keeps a healthy
# one from its processor for longer than a second.
BROKER_PATIENCE_S = 4.0

EPILOG = """\b
Examples:
  fairlead status
  fairlead status -o json | jq '.topics[] | select(.offline > 0)'
  fairlead status --bootstrap broker.example:9092

Exits with 1 if the cluster does not run, or no broker answers.
"""


@click.command(epilog=EPILOG)
@data_option
@bootstrap_option
@table_or_json
def status(data: Path, bootstrap: str | None, output: str) -> int:
    """Show brokers, controller and topics of a cluster."""
    from fairlead_cli.client.access import configured_bootstrap
    from fairlead_cli.output import note, print_json

    bootstrap = bootstrap or configured_bootstrap()
    document = describe_remote(bootstrap) if bootstrap is not None else describe_local(data)
    if output == "json":
        print_json(document)
    else:
        print_status(document)
        if bootstrap is None and document["supervisor"]["pid"] is None:
            note(advise_start(data, is_stopped=document["state"] == "stopped"))
    is_running = document["state"] == "running"
    if is_running and not are_topics_known(document):
        note("No broker answers: which topics there are is not known.")
        return ExitCode.FAILED
    return ExitCode.OK if is_running else ExitCode.FAILED


def are_topics_known(document: dict[str, Any]) -> bool:
    """Tell whether a broker has answered with the topics."""
    return any(broker["leaders"] is not None for broker in document["brokers"])


def advise_start(data: Path, *, is_stopped: bool) -> str:
    """Return advice for a cluster without a supervisor: it may serve, but restarts nothing."""
    start = up_command(data, read_cluster_file(Layout(data).cluster_file))
    if is_stopped:
        return f"Start it; its data is still there:\n  {start}"
    return (
        "Its supervisor was killed: nothing is started again. Stop what is left, and start anew:\n"
        f"  fairlead down{data_arguments(data)}\n  {start}"
    )


def describe_remote(bootstrap: str) -> dict[str, Any]:
    """Describe a cluster from its address only: null is what a client cannot know.

    Each broker is asked itself, because others still name a broker for a while after it is gone.
    """
    from fairlead_cli.broker.listing import COUNTS, count_in
    from fairlead_cli.client.answering import Address, find_answering
    from fairlead_cli.client.connection import build_admin, fetch_metadata
    from fairlead_cli.client.target import resolve_bootstrap
    from fairlead_cli.topic.health import summarize_topics

    metadata = fetch_metadata(build_admin(resolve_bootstrap(bootstrap, DATA_DEFAULT)))
    brokers = sorted(metadata.brokers.values(), key=lambda broker: int(broker.id))
    counts = count_in(metadata)
    addresses = [Address(broker.host, broker.port) for broker in brokers]
    found = find_answering(addresses, patience_s=BROKER_PATIENCE_S, grace_s=BROKER_PATIENCE_S)
    return {
        "state": "running",
        "bootstrap": bootstrap,
        "data": None,
        "supervisor": {"pid": None},
        "controller": dict.fromkeys(("pid", "host", "port", "httpPort", "state", "restarts")),
        "brokers": [
            {
                "id": broker.id,
                "pid": None,
                "host": broker.host,
                "port": broker.port,
                "httpPort": None,
                "rest": None,
                "state": "running" if address in found.answering else "no answer",
                "restarts": None,
                **{name: counts[name].get(broker.id, 0) for name in COUNTS},
                **tell_orders(address, broker.id if address in found.answering else None),
            }
            for broker, address in zip(brokers, addresses, strict=True)
        ],
        "topics": summarize_topics(metadata),
    }


def describe_local(data: Path) -> dict[str, Any]:
    """Describe a cluster from its cluster file, corrected by which processes are alive."""
    cluster = read_cluster_file(Layout(data).cluster_file)
    if cluster is None:
        raise CliError(
            f"there is no local cluster in {data}",
            hint=f"Start one:\n  {up_command(data)}\n"
            "or name another with --data DIR or --bootstrap HOST:PORT.",
        )
    from fairlead_cli.broker.listing import COUNTS, count_partitions
    from fairlead_cli.client.answering import Address

    counts = count_partitions(cluster)
    return {
        "state": state_of(cluster),
        "bootstrap": cluster.bootstrap,
        "data": cluster.data,
        "supervisor": {"pid": cluster.supervisor_pid if cluster.is_supervised else None},
        "controller": {
            "pid": live_pid(cluster.controller),
            "host": cluster.controller.host,
            "port": cluster.controller.port,
            "httpPort": cluster.controller.http_port,
            "state": state_of_entry(cluster.controller),
            "restarts": cluster.controller.restarts,
        },
        "brokers": [
            {
                "id": broker.id,
                "pid": live_pid(broker),
                "host": broker.host,
                "port": broker.port,
                "httpPort": broker.http_port,
                "rest": broker.rest,
                "state": state_of_entry(broker),
                "restarts": broker.restarts,
                **{name: counts and counts[name].get(broker.id, 0) for name in COUNTS},
                **tell_orders(
                    Address(broker.host, broker.port),
                    broker.id if state_of_entry(broker) == "running" else None,
                ),
            }
            for broker in cluster.brokers
        ],
        "topics": read_topics(cluster),
    }


def tell_orders(address: Address, broker_id: int | None) -> dict[str, Any]:
    """Return the orders for a broker; unknown if it does not serve (None)."""
    from fairlead_cli.client.broker_configs import BrokerOrders, read_orders

    orders = BrokerOrders()
    if broker_id is not None:
        orders = read_orders(address.host, address.port, broker_id)
    return {
        "drained": orders.drained,
        "fencedBy": orders.fenced_by,
        "cordonedLogDirs": sorted(orders.cordoned),
    }


def state_of(cluster: ClusterFile) -> str:
    """Return `running` if any process serves, even after the supervisor was killed."""
    alive = [entry.is_alive for entry in cluster.entries]
    if not any(alive):
        return "starting" if cluster.is_supervised else "stopped"
    if cluster.is_supervised:
        return cluster.state
    return "running" if all(alive) else "unsupervised"


def live_pid(entry: ProcessEntry) -> int | None:
    """Return the pid if it is still that process."""
    return entry.pid if entry.is_alive else None


def read_topics(cluster: ClusterFile) -> list[TopicHealth]:
    """Return the topics from any broker that answers; none if no broker does."""
    from fairlead_cli.client.target import find_local, join_addresses

    answering = find_local(cluster).answering
    if not answering:
        return []
    from fairlead_cli.client.connection import build_admin, fetch_metadata
    from fairlead_cli.topic.health import summarize_topics

    return summarize_topics(fetch_metadata(build_admin(join_addresses(answering))))


def print_status(document: dict[str, Any]) -> None:
    """Print the status as tables."""
    from fairlead_cli.output import print_table
    from fairlead_cli.topic.health import print_topics

    def pid(entry: dict[str, Any]) -> str:
        return "-" if entry["pid"] is None else str(entry["pid"])

    where = document["data"] or document["bootstrap"]
    tell(f"Cluster {where}: {document['state']}")

    def count(entry: dict[str, Any], name: str) -> str:
        return "-" if entry.get(name) is None else str(entry[name])

    rows = [
        (
            f"broker {broker['id']}",
            broker["state"],
            pid(broker),
            join_address(broker["host"], broker["port"]),
            count(broker, "restarts"),
            count(broker, "leaders"),
            count(broker, "inSync"),
            count(broker, "replicas"),
        )
        for broker in document["brokers"]
    ]
    controller = document["controller"]
    if controller["state"] is not None:
        rows.append(
            (
                "controller",
                controller["state"],
                pid(controller),
                join_address(controller["host"], controller["port"]),
                str(controller["restarts"]),
                *("-", "-", "-"),
            )
        )
    columns = ("process", "state", "pid", "address", "restarts", "leads", "in sync", "replicas")
    print_table(columns, rows, right=("pid", *columns[4:]))
    for broker in document["brokers"]:
        for order in list_orders(broker):
            tell(f"broker {broker['id']}: {order}")
    if document["topics"]:
        print_topics(document["topics"])
    elif document["state"] == "running" and are_topics_known(document):
        tell(f"No topics yet. Create one:  fairlead topic create hello{cluster_arguments()}")


def list_orders(broker: dict[str, Any]) -> Iterator[str]:
    """Yield the orders that keep a broker from its full share of the work."""
    named = f"{broker['id']}{cluster_arguments()}"
    if broker.get("fencedBy"):
        why = escape_controls(broker["fencedBy"])
        yield f"fenced by order ({why}); end it: fairlead broker unfence {named}"
    if broker.get("drained"):
        yield f"drained, it gets nothing new; end it: fairlead broker undrain {named}"
    for folder in broker.get("cordonedLogDirs", ()):
        yield f"{folder} is cordoned, it gets nothing new (cordoned.log.dirs)"
