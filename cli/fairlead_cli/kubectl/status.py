"""`kubectl fairlead status`: brokers, controller, topics, problems and what to do next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from fairlead_cli.errors import CliError, ExitCode
from fairlead_cli.kubectl.access import Access, access_options
from fairlead_cli.kubectl.snapshot import (
    Snapshot,
    condition,
    find_complaints,
    pod_problem,
    read_snapshots,
)
from fairlead_cli.options import table_or_json
from fairlead_cli.output import tell

if TYPE_CHECKING:
    from fairlead_kube.client import KubeClient

EPILOG = """\b
Examples:
  kubectl fairlead status
  kubectl fairlead status demo -n streaming
  kubectl fairlead status demo -o json

Exits with 1 when something is wrong.
"""


@click.command("status", epilog=EPILOG)
@click.argument("cluster", required=False)
@access_options
@table_or_json
def status(*, cluster: str | None, access: Access, output: str) -> int:
    """Show clusters and their problems."""
    from fairlead_cli.output import print_json

    async def read(client: KubeClient, namespace: str) -> tuple[list[Snapshot], str]:
        return await read_snapshots(client, namespace, cluster), namespace

    snapshots, namespace = access.run(read)
    if not snapshots:
        raise CliError(
            f"there is no LogCluster in namespace {namespace}",
            hint="See them all:  kubectl get logclusters -A",
        )
    documents = [build_document(snapshot) for snapshot in snapshots]
    if output == "json":
        print_json(documents)
    else:
        for document in documents:
            print_document(document)
    is_well = not any(document["complaints"] for document in documents)
    return ExitCode.OK if is_well else ExitCode.FAILED


def build_document(snapshot: Snapshot) -> dict[str, Any]:
    """Return one cluster as JSON."""
    status = snapshot.status
    topics_ready = sum(condition(t, "Ready").get("status") == "True" for t in snapshot.topics)
    return {
        "cluster": snapshot.name,
        "namespace": snapshot.cluster["metadata"].get("namespace"),
        "ready": condition(snapshot.cluster, "Ready").get("status", "Unknown"),
        "controller": status.get("controller") or {},
        "bootstrap": status.get("bootstrap"),
        "brokers": status.get("brokers", 0),
        "brokersReady": status.get("brokersReady", 0),
        "topics": status.get("topics", 0),
        "partitions": status.get("partitions", 0),
        "underReplicated": status.get("underReplicated", 0),
        "offline": status.get("offline", 0),
        "topicResources": {"total": len(snapshot.topics), "ready": topics_ready},
        "pods": [
            {
                "name": pod["metadata"]["name"],
                "pool": pod["metadata"]["labels"].get("fairlead.io/pool"),
                "node": (pod.get("spec") or {}).get("nodeName"),
                "restarts": sum(
                    int(container.get("restartCount") or 0)
                    for container in (pod.get("status") or {}).get("containerStatuses") or ()
                ),
                "problem": pod_problem(pod) or None,
            }
            for pod in sorted(snapshot.pods, key=lambda pod: str(pod["metadata"]["name"]))
        ],
        "drillsRunning": [
            drill["metadata"]["name"]
            for drill in snapshot.drills
            if (drill.get("status") or {}).get("phase") in {"Preparing", "Running", "Verifying"}
        ],
        "complaints": [
            {"what": complaint.what, "advice": complaint.advice}
            for complaint in find_complaints(snapshot)
        ],
    }


def print_document(document: dict[str, Any]) -> None:
    """Print the document for people."""
    from fairlead_cli.output import print_table

    controller = document["controller"]
    resources = document["topicResources"]
    tell(click.style(f"{document['namespace']}/{document['cluster']}", bold=True))
    tell(
        f"  ready {document['ready']}, controller {controller.get('pod', 'unknown')} "
        f"(epoch {controller.get('epoch', 'unknown')}), bootstrap {document['bootstrap']}"
    )
    tell(
        f"  {document['brokersReady']} of {document['brokers']} brokers ready, "
        f"{document['topics']} topics, {document['partitions']} partitions "
        f"({document['underReplicated']} under-replicated, {document['offline']} offline); "
        f"{resources['ready']} of {resources['total']} Topic resources ready"
    )
    if document["pods"]:
        print_table(
            ("broker pod", "pool", "node", "restarts", "state"),
            [
                (
                    pod["name"],
                    pod["pool"] or "",
                    pod["node"] or "",
                    str(pod["restarts"]),
                    pod["problem"] or "ready",
                )
                for pod in document["pods"]
            ],
            right=("restarts",),
        )
    for name in document["drillsRunning"]:
        tell(f"  drill {name} is going on: faults are on purpose")
    for complaint in document["complaints"]:
        tell(f"{click.style('WRONG', fg='red', bold=True)} {complaint['what']}")
        if complaint["advice"]:
            tell(f"      next: {complaint['advice']}")
    if not document["complaints"]:
        tell(click.style("Nothing is wrong.", fg="green"))
