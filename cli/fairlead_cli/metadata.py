"""`fairlead metadata …`: export the controller's metadata, restore it, confirm an old copy."""

from __future__ import annotations

import shlex
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from fairlead_cli.advice import data_arguments
from fairlead_cli.errors import CliError, InputError
from fairlead_cli.exports.files import describe, read_document, write_document
from fairlead_cli.local.layout import Layout
from fairlead_cli.local.store import FORM, open_access, read_store
from fairlead_cli.local.up_command import up_command
from fairlead_cli.options import data_option, require_name
from fairlead_cli.verb_group import VerbGroup

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from fairlead_controller.stores.metadata_document import RestoredMetadata
    from fairlead_controller.stores.metadata_rewrite import Confirmed

EPILOG = """\b
Examples:
  fairlead metadata export metadata.json
  fairlead metadata export - | jq '.topics[].header.name'
  fairlead metadata restore metadata.json --data /new/place
  fairlead metadata confirm
  fairlead metadata export metadata.json --store zookeeper://127.0.0.1:2181/fairlead
  fairlead metadata export s3://backups/fairlead/metadata.json
"""
EXPORT_EPILOG = """\b
Examples:
  fairlead metadata export metadata.json
  fairlead metadata export -            to stdout
  fairlead metadata export s3://backups/fairlead/metadata.json

The cluster may run meanwhile. The document has the metadata that was committed last. The user for
ZooKeeper is in the file that FAIRLEAD_ZOOKEEPER_DIGEST_FILE names. For s3:// set the variables of
AWS's tools for endpoint and credentials: AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID, ...
"""
RESTORE_EPILOG = """\b
Examples:
  fairlead down
  mv .fairlead/controller /tmp/broken-metadata
  fairlead metadata restore metadata.json
  fairlead up

With --store the metadata goes into ZooKeeper, which must have no metadata there. The brokers'
folders must be those of the same cluster. Changes after the export are lost: topics created since
then keep their files, as -stray folders.
"""


CONFIRM_EPILOG = """\b
Examples:
  fairlead down
  fairlead metadata confirm
  fairlead up

Use it for metadata that "went back in time" because somebody put back an old copy, if there is no
newer copy. Changes after the copy are lost: topics created since then keep their files, as -stray
folders. When all replicas of a partition are back, the one with the longest log becomes leader.
"""


store_option = click.option(
    "--store",
    metavar="ADDRESS",
    help=f"Metadata in ZooKeeper, at {FORM}, instead of a local cluster's.",
)


@click.group(cls=VerbGroup, epilog=EPILOG)
def metadata() -> None:
    """Save and rebuild the metadata of a cluster: brokers, topics, partitions, epochs."""


@metadata.command("export", epilog=EXPORT_EPILOG)
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True), callback=require_name)
@data_option
@store_option
def export(file: str, data: Path, store: str | None) -> None:
    """Write the metadata to FILE as JSON: a path, - or s3://BUCKET/KEY."""
    from fairlead_controller.decisions.tables.stored_table import StoreError

    try:
        document = read_metadata(Layout(data), store or read_store(Layout(data)))
    except (StoreError, OSError) as error:
        if store is not None:
            raise CliError(f"cannot export the metadata: {error}") from error
        raise CliError(
            f"cannot export the metadata of {data}: {error}",
            hint="Name the data directory of a local cluster with --data DIR.",
        ) from error
    write_document(file, document)


def read_metadata(layout: Layout, store: str | None) -> dict[str, Any]:
    """Return the metadata of a local cluster, or of the cluster at an address in ZooKeeper."""
    if store is None:
        from fairlead_controller.stores.metadata_transfer import export_metadata

        return export_metadata(layout.controller_directory)
    import asyncio

    from fairlead_controller.stores.zookeeper_transfer import export_from_zookeeper

    return asyncio.run(export_from_zookeeper(open_access(store)))


@metadata.command("restore", epilog=RESTORE_EPILOG)
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True), callback=require_name)
@data_option
@store_option
def restore(file: str, data: Path, store: str | None) -> None:
    """Rebuild metadata from FILE (a path, - or s3://BUCKET/KEY) where there is none.

    The cluster must be stopped. Epochs and producer ids start far above those that brokers may have
    seen since the export, so that nothing from that time is mistaken for current.
    """
    document = read_document(file)
    if store is not None:
        restored = restore_at(store, document)
    else:
        restored = restore_into(Layout(data), document)
    click.echo(
        f"Restored {describe(document)}: controller epoch {restored.controller_epoch}, "
        f"cluster {restored.cluster_id}."
    )
    if store is None:
        click.echo(f"Start it:  {up_command(data)}")


@metadata.command("confirm", epilog=CONFIRM_EPILOG)
@click.option("--force", is_flag=True, help="Confirm even if nothing wrong was found.")
@data_option
@store_option
def confirm(*, force: bool, data: Path, store: str | None) -> None:
    """Go on with metadata that went back in time.

    The cluster must be stopped. Epochs and producer ids start far above those that brokers have
    seen.
    """
    confirmed = confirm_in_place(Layout(data), store, force=force)
    if confirmed.finding:
        click.echo(f"It had been found that {confirmed.finding}.")
    click.echo(
        f"Confirmed: controller epoch {confirmed.controller_epoch}, cluster {confirmed.cluster_id}."
    )
    if store is None:
        click.echo(f"Start it:  {up_command(data)}")


def confirm_in_place(layout: Layout, store: str | None, *, force: bool) -> Confirmed:
    """Confirm the metadata of a local cluster, or of an address in ZooKeeper."""
    import asyncio

    from fairlead_cli.local.preflight import hold_data_directory, refuse_orphans
    from fairlead_controller.decisions.tables.stored_table import StoreError
    from fairlead_controller.stores.metadata_rewrite import NothingFoundError
    from fairlead_controller.stores.metadata_transfer import confirm_in
    from fairlead_controller.stores.zookeeper_transfer import confirm_in_zookeeper

    where = store or str(layout.controller_directory)
    place = f" --store {shlex.quote(store)}" if store else data_arguments(layout.root)
    try:
        if store is not None:
            return asyncio.run(confirm_in_zookeeper(open_access(store), force=force))
        with hold_data_directory(layout):
            refuse_orphans(layout)
            kept = read_store(layout)
            if kept is not None:
                where = kept
                return asyncio.run(confirm_in_zookeeper(open_access(kept), force=force))
            return asyncio.run(confirm_in(layout.controller_directory, force=force))
    except NothingFoundError as error:
        raise CliError(
            f"there is nothing to confirm: {error}",
            hint="Start the cluster: a controller and its brokers find out. If you know better:\n"
            f"  fairlead metadata confirm --force{place}",
        ) from error
    except (StoreError, OSError) as error:
        raise CliError(
            f"cannot confirm the metadata in {where}: {error}",
            hint="Put an export in its place:  fairlead metadata restore --help",
        ) from error


def restore_into(layout: Layout, document: object) -> RestoredMetadata:
    """Restore a local cluster's metadata; no other process may use it."""
    import asyncio

    from fairlead_cli.local.preflight import hold_data_directory, refuse_orphans
    from fairlead_controller.stores import metadata_document
    from fairlead_controller.stores.metadata_transfer import restore_metadata

    directory = layout.controller_directory
    with restore_errors(str(directory), ""):
        metadata_document.read_document(document)  # Check it before a folder is created.
    with hold_data_directory(layout):
        refuse_orphans(layout)
        store = read_store(layout)
        if store is not None:
            return restore_at(store, document)
        directory.mkdir(exist_ok=True)
        move_away = shlex.join(["mv", str(directory), f"{directory}.old"])
        with restore_errors(str(directory), f"Move what is there away first:\n  {move_away}"):
            return asyncio.run(restore_metadata(directory, document))


def restore_at(store: str, document: object) -> RestoredMetadata:
    """Restore metadata in ZooKeeper, at an address."""
    import asyncio

    from fairlead_controller.stores.zookeeper_transfer import restore_into_zookeeper

    access = open_access(store)
    with restore_errors(store, "Name servers that answer, and a chroot without a cluster."):
        return asyncio.run(restore_into_zookeeper(access, document))


@contextmanager
def restore_errors(where: str, hint: str) -> Iterator[None]:
    """Turn errors of a restore into CliError."""
    from fairlead_controller.decisions.tables.stored_table import StoreError
    from fairlead_controller.stores.metadata_document import DocumentError

    try:
        yield
    except DocumentError as error:
        raise InputError(
            f"this is no metadata document: {error}",
            hint="Make one where the cluster is whole:  fairlead metadata export metadata.json",
        ) from error
    except (StoreError, OSError) as error:
        raise CliError(f"cannot restore into {where}: {error}", hint=hint) from error
