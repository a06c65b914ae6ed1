"""`kubectl fairlead metadata …`: export the metadata of a cluster, restore it, confirm it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from fairlead_cli.errors import CliError, InputError
from fairlead_cli.exports.files import describe, read_document, write_document
from fairlead_cli.exports.folders import FolderType, open_folder
from fairlead_cli.kubectl.access import Access, access_options
from fairlead_cli.output import format_count, tell
from fairlead_cli.verb_group import VerbGroup

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fairlead_kube.client import KubeClient

EPILOG = """\b
Examples:
  kubectl fairlead metadata export metadata.json --cluster events
  kubectl fairlead metadata import metadata.json --cluster events
  kubectl fairlead metadata confirm --cluster events
"""
EXPORT_EPILOG = """\b
Examples:
  kubectl fairlead metadata export metadata.json
  kubectl fairlead metadata export - | jq '.topics[].header.name'
"""
BACKUP_EPILOG = """\b
Examples:
  kubectl fairlead metadata backup /backup --keep 168
  kubectl fairlead metadata backup s3://backups/events --keep 168

Files are called CLUSTER-TIME.json. The chart fairlead-cluster runs this as a CronJob
(metadataBackup.enabled). For s3:// set the variables of AWS's tools for endpoint and credentials:
AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID, ...
"""
IMPORT_EPILOG = """\b
Examples:
  kubectl fairlead metadata import metadata.json --cluster events
  kubectl fairlead metadata import s3://backups/events/events-20260101T001700.000000Z.json

Brokers and operator may go on. The import replaces everything in the cluster's ClusterState and
PartitionTables. When all replicas of a partition are back, the one with the longest log becomes
leader. Topics that are not in the export keep their files, as -stray folders.
"""
CONFIRM_EPILOG = """\b
Examples:
  kubectl fairlead metadata confirm --cluster events

Use it for a LogCluster with the reason StoreRolledBack if there is no newer export to import.
Changes after the copy are lost: topics created since then keep their files, as -stray folders.
"""

cluster_option = click.option(
    "--cluster", help="LogCluster; not needed if the namespace has only one."
)
file_argument = click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))


@click.group("metadata", cls=VerbGroup, epilog=EPILOG)
def metadata() -> None:
    """Back up the metadata of a cluster, restore it, or confirm an old copy."""


@metadata.command("export", epilog=EXPORT_EPILOG)
@file_argument
@cluster_option
@access_options
def export(*, file: str, cluster: str | None, access: Access) -> None:
    """Write the metadata of a cluster to FILE as JSON: a path, - or s3://BUCKET/KEY."""
    _, document = read_metadata(access, cluster)
    write_document(file, document)


@metadata.command("backup", epilog=BACKUP_EPILOG)
@click.argument("directory", type=FolderType())
@click.option(
    "--keep",
    type=click.IntRange(1),
    default=168,
    show_default=True,
    help="Number of files to keep.",
)
@cluster_option
@access_options
def backup(*, directory: str, keep: int, cluster: str | None, access: Access) -> None:
    """Export the metadata of a cluster into DIRECTORY, and remove the oldest exports.

    DIRECTORY is one that exists, or s3://BUCKET/FOLDER.
    """
    from fairlead_cli.exports.backups import remove_oldest, save

    folder = open_folder(directory)
    name, document = read_metadata(access, cluster)
    tell(f"Exported {describe(document)} to {save(folder, name, document)}.")
    removed = remove_oldest(folder, name, keep=keep)
    tell(f"Removed {format_count(len(removed), 'old export')}.")


@metadata.command("import", epilog=IMPORT_EPILOG)
@file_argument
@cluster_option
@access_options
def import_metadata(*, file: str, cluster: str | None, access: Access) -> None:
    """Replace the metadata of a cluster by that in FILE.

    FILE is a path, - for stdin, or s3://BUCKET/KEY.
    Epochs and producer ids start far above those that brokers may have seen.
    """
    from fairlead_controller.stores.kubernetes_transfer import import_into_kubernetes

    document = read_document(file)

    async def write(client: KubeClient, namespace: str) -> Any:
        name = await choose_cluster(client, namespace, cluster)
        return await import_into_kubernetes(client, namespace, name, document)

    with store_errors("import the metadata"):
        restored = access.run(write)
    tell(
        f"Imported {describe(document)}: controller epoch {restored.controller_epoch}, "
        f"cluster {restored.cluster_id}."
    )


@metadata.command("confirm", epilog=CONFIRM_EPILOG)
@click.option("--force", is_flag=True, help="Confirm even if nothing wrong was found.")
@cluster_option
@access_options
def confirm(*, force: bool, cluster: str | None, access: Access) -> None:
    """Go on with metadata that went back in time.

    Epochs and producer ids start far above those that brokers have seen.
    """
    from fairlead_controller.stores.kubernetes_transfer import confirm_in_kubernetes

    async def write(client: KubeClient, namespace: str) -> Any:
        name = await choose_cluster(client, namespace, cluster)
        return await confirm_in_kubernetes(client, namespace, name, force=force)

    with store_errors("confirm the metadata"):
        confirmed = access.run(write)
    if confirmed.finding:
        tell(f"It had been found that {confirmed.finding}.")
    tell(
        f"Confirmed: controller epoch {confirmed.controller_epoch}, cluster {confirmed.cluster_id}."
    )


def read_metadata(access: Access, cluster: str | None) -> tuple[str, dict[str, Any]]:
    """Return the name of a cluster and its metadata as a document."""
    from fairlead_controller.stores.kubernetes_transfer import export_from_kubernetes

    async def read(client: KubeClient, namespace: str) -> tuple[str, dict[str, Any]]:
        name = await choose_cluster(client, namespace, cluster)
        return name, await export_from_kubernetes(client, namespace, name)

    with store_errors("export the metadata"):
        return access.run(read)


async def choose_cluster(client: KubeClient, namespace: str, cluster: str | None) -> str:
    """Return the given name, or that of the only LogCluster; CliError."""
    from fairlead_kube.kinds import LOG_CLUSTER

    if cluster:
        return cluster
    listing = await client.list(LOG_CLUSTER, namespace)
    names = sorted(str(each["metadata"]["name"]) for each in listing.items)
    if len(names) != 1:
        found = f"{len(names)}: {', '.join(names)}" if names else "none"
        raise CliError(
            f"namespace {namespace} has not one LogCluster but {found}",
            hint="Say which one is meant:  --cluster NAME",
        )
    return names[0]


@contextmanager
def store_errors(what: str) -> Iterator[None]:
    """Turn errors of the store into CliError."""
    from fairlead_controller.decisions.tables.stored_table import StoreError
    from fairlead_controller.stores.metadata_document import DocumentError
    from fairlead_controller.stores.metadata_rewrite import NothingFoundError
    from fairlead_controller.stores.metadata_store import SealedError

    try:
        yield
    except DocumentError as error:
        raise InputError(f"this is no metadata document: {error}") from error
    except NothingFoundError as error:
        raise CliError(
            f"there is nothing to confirm: {error}",
            hint="If you know better:  kubectl fairlead metadata confirm --force",
        ) from error
    except SealedError as error:
        raise CliError(
            f"cannot {what}: {error}",
            hint="Somebody else may be writing it now: try again. To write it takes the rights to\n"
            "create and update clusterstates and partitiontables.",
        ) from error
    except StoreError as error:
        raise CliError(f"cannot {what}: {error}") from error
