"""`kubectl fairlead report`: everything that a person who helps needs, without secrets."""

from __future__ import annotations

import io
import json
import tarfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fairlead_cli.errors import CliError
from fairlead_cli.kubectl.access import Access, access_options
from fairlead_cli.kubectl.masking import mask_manifest, mask_text
from fairlead_cli.options import require_place, table_or_json

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from fairlead_kube.client import KubeClient
    from fairlead_kube.kinds import ResourceKind

EPILOG = """\b
Examples:
  kubectl fairlead report
  kubectl fairlead report -n streaming --operator-namespace fairlead --file bundle.tar.gz

The bundle contains resources with their statuses, Events, logs of brokers, drills and operator, and
the controller's state. It never contains Secrets or records. Values that look like secrets are
masked; check the bundle nevertheless before you give it to others.
"""
LOG_LINES = 20_000
OPERATOR_SELECTOR = "app.kubernetes.io/component=operator,app.kubernetes.io/name=fairlead"
OUR_SELECTOR = "app.kubernetes.io/name=fairlead"
CONTROLLER_PORT = 8080


@click.command("report", epilog=EPILOG)
@click.option(
    "--file",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=require_place,
    help="File to write; default: fairlead-report-….tar.gz",
)
@click.option("--operator-namespace", help="Namespace of the operator; default: all that have one.")
@click.option("--since-s", type=click.IntRange(min=1), default=86_400, show_default=True)
@access_options
@table_or_json
def report(
    *,
    file: Path | None,
    operator_namespace: str | None,
    since_s: int,
    access: Access,
    output: str,
) -> None:
    """Write a support bundle: resources, Events, logs, statuses."""
    from fairlead_cli.output import print_json

    async def collect(client: KubeClient, namespace: str) -> Bundle:
        bundle = Bundle()
        await collect_namespace(client, namespace, bundle)
        await collect_pods(client, namespace, OUR_SELECTOR, bundle, since_s)
        for home in await find_operators(client, operator_namespace, namespace, bundle):
            await collect_pods(client, home, OPERATOR_SELECTOR, bundle, since_s)
            await collect_controller(client, home, bundle)
        return bundle

    bundle = access.run(collect)
    if not bundle.entries and bundle.problems:
        raise CliError(
            f"nothing could be read, so no bundle was written: {bundle.problems[0]}",
            hint="Try:  kubectl get nodes",
        )
    path = file or Path(f"fairlead-report-{time.strftime('%Y%m%d-%H%M%S')}.tar.gz")
    try:
        bundle.write(path)
    except OSError as error:
        raise CliError(f"cannot write {path}: {error.strerror}") from error
    if output == "json":
        print_json(
            {"file": str(path), "entries": sorted(bundle.entries), "problems": bundle.problems}
        )
        return
    click.echo(f"{path}: {len(bundle.entries)} files")
    for problem in bundle.problems:
        click.echo(f"  left out: {problem}")
    click.echo("Secrets are not in it, and what looks like one is masked. Look through it anyway.")


class Bundle:
    """Files by path; content is masked here, when it is added, and nowhere else."""

    def __init__(self) -> None:
        self.entries: dict[str, bytes] = {}
        self.problems: list[str] = []

    def add_manifest(self, path: str, manifest: Any) -> None:
        """Add a manifest as JSON, masked."""
        text = json.dumps(mask_manifest(manifest), indent=2, ensure_ascii=False)
        self.entries[f"{path}.json"] = text.encode()

    def add_text(self, path: str, text: str) -> None:
        """Add a text, masked."""
        self.entries[path] = mask_text(text).encode()

    async def attempt(self, what: str, work: Awaitable[Any]) -> Any:
        """Read a part; if that fails, note that it is missing."""
        from fairlead_kube.errors import ApiError, ApiUnavailableError

        try:
            return await work
        except (ApiError, ApiUnavailableError) as error:
            self.problems.append(f"{what}: {error}")
            return None

    def write(self, path: Path) -> None:
        """Write a tar.gz that only its owner may read."""
        entries = self.entries | {"problems.txt": "\n".join(self.problems).encode()}
        path.touch(mode=0o600)
        if path.is_file():  # An existing file may be readable for everybody.
            path.chmod(0o600)
        with tarfile.open(path, "w:gz") as archive:
            for name, content in sorted(entries.items()):
                info = tarfile.TarInfo(f"fairlead-report/{name}")
                info.size, info.mtime, info.mode = len(content), int(time.time()), 0o600
                archive.addfile(info, io.BytesIO(content))


def our_kinds() -> list[ResourceKind]:
    """Return Fairlead's own kinds."""
    from fairlead_kube import kinds

    return [
        kinds.LOG_CLUSTER,
        kinds.BROKER_POOL,
        kinds.TOPIC,
        kinds.USER,
        kinds.CONSUMER_GROUP,
        kinds.STREAM_JOB,
        kinds.FAILOVER_DRILL,
        kinds.REBALANCE,
        kinds.PARTITION_TABLE,
        kinds.CLUSTER_STATE,
    ]


def borrowed_kinds() -> list[ResourceKind]:
    """Return the kinds of which objects with Fairlead's label are collected. Never Secrets."""
    from fairlead_kube import kinds

    return [
        kinds.STATEFUL_SET,
        kinds.POD,
        kinds.SERVICE,
        kinds.CONFIG_MAP,
        kinds.PERSISTENT_VOLUME_CLAIM,
        kinds.POD_DISRUPTION_BUDGET,
        kinds.NETWORK_POLICY,
    ]


async def collect_namespace(client: KubeClient, namespace: str, bundle: Bundle) -> None:
    """Collect the resources and Events of a namespace."""
    from fairlead_kube.kinds import EVENT, NODE

    wanted = [(kind, "") for kind in our_kinds()]
    wanted += [(kind, OUR_SELECTOR) for kind in borrowed_kinds()] + [(EVENT, "")]
    for kind, selector in wanted:
        listed = await bundle.attempt(
            kind.plural, client.list(kind, namespace, label_selector=selector)
        )
        for item in listed.items if listed else ():
            bundle.add_manifest(f"{namespace}/{kind.plural}/{item['metadata']['name']}", item)
    nodes = await bundle.attempt("nodes", client.list(NODE))
    for node in nodes.items if nodes else ():
        bundle.add_manifest(f"nodes/{node['metadata']['name']}", node)


async def find_operators(
    client: KubeClient, named: str | None, namespace: str, bundle: Bundle
) -> list[str]:
    """Return the namespaces with pods of an operator."""
    from fairlead_kube.kinds import POD

    if named:
        return [named]
    listed = await bundle.attempt(
        "pods of all namespaces", client.list(POD, label_selector=OPERATOR_SELECTOR)
    )
    if listed is None:
        return [namespace]
    return sorted({pod["metadata"]["namespace"] for pod in listed.items})


async def collect_pods(
    client: KubeClient, namespace: str, selector: str, bundle: Bundle, since_s: int
) -> None:
    """Collect manifests and logs, also of containers before their last restart."""
    from fairlead_kube.kinds import POD

    pods = await bundle.attempt("pods", client.list(POD, namespace, label_selector=selector))
    for pod in pods.items if pods else ():
        name = pod["metadata"]["name"]
        bundle.add_manifest(f"{namespace}/pods/{name}", pod)
        for container in (pod.get("status") or {}).get("containerStatuses") or ():
            restarts = int(container.get("restartCount") or 0)
            for is_previous in (False, True) if restarts else (False,):
                params = {
                    "container": str(container["name"]),
                    "tailLines": str(LOG_LINES),
                    "sinceSeconds": str(since_s),
                    "timestamps": "true",
                }
                if is_previous:
                    params["previous"] = "true"
                await collect_log(client, namespace, name, params, bundle)


async def collect_log(
    client: KubeClient, namespace: str, pod: str, params: dict[str, str], bundle: Bundle
) -> None:
    """Collect the last lines of one container."""
    from fairlead_kube.kinds import POD

    container = params["container"]
    text = await bundle.attempt(
        f"log of {pod}/{container}", client.read_text(POD.path(namespace, pod, "log"), params)
    )
    if text is not None:
        suffix = "previous.log" if "previous" in params else "log"
        bundle.add_text(f"{namespace}/logs/{pod}.{container}.{suffix}", text)


async def collect_controller(client: KubeClient, namespace: str, bundle: Bundle) -> None:
    """Collect the public pages of each candidate, and the holder of the Lease."""
    from fairlead_kube.kinds import LEASE, POD

    leases = await bundle.attempt("leases", client.list(LEASE, namespace))
    for lease in leases.items if leases else ():
        bundle.add_manifest(f"{namespace}/leases/{lease['metadata']['name']}", lease)
    pods = await bundle.attempt(
        "operator pods", client.list(POD, namespace, label_selector=OPERATOR_SELECTOR)
    )
    for pod in pods.items if pods else ():
        name = pod["metadata"]["name"]
        for page in ("readyz", "metrics"):
            path = POD.path(namespace, f"{name}:{CONTROLLER_PORT}", f"proxy/{page}")
            text = await bundle.attempt(f"{page} of {name}", client.read_text(path))
            if text is not None:
                bundle.add_text(f"{namespace}/controller/{name}.{page}.txt", text)
