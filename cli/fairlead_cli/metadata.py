"""`fairlead metadata …`: save what the controller knows, and rebuild it."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fairlead_cli.advice import up_command
from fairlead_cli.errors import CliError, InputError
from fairlead_cli.local.layout import Layout
from fairlead_cli.options import data_option
from fairlead_cli.verb_group import VerbGroup

if TYPE_CHECKING:
    from fairlead_controller.metadata_document import RestoredMetadata

STDIN_STDOUT = "-"

EPILOG = """\b
Examples:
  fairlead metadata export metadata.json
  fairlead metadata export - | jq '.topics[].name'
  fairlead metadata restore metadata.json --data /new/place
"""
EXPORT_EPILOG = """\b
Examples:
  fairlead metadata export metadata.json
  fairlead metadata export -            to stdout

It may be done while the cluster runs. The document is what was committed last.
"""
RESTORE_EPILOG = """\b
Examples:
  fairlead down
  mv .fairlead/controller /tmp/broken-metadata
  fairlead metadata restore metadata.json
  fairlead up

The brokers' folders must be those of the same cluster. What changed after the export is not
known any more: topics made since then keep their files, as -stray folders.
"""


@click.group(cls=VerbGroup, epilog=EPILOG)
def metadata() -> None:
    """Save and rebuild the metadata of a local cluster: brokers, topics, partitions, epochs."""


@metadata.command("export", epilog=EXPORT_EPILOG)
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
@data_option
def export(file: str, data: Path) -> None:
    """Write the metadata to FILE as JSON."""
    from fairlead_controller.metadata_transfer import export_metadata
    from fairlead_controller.stores.metadata_store import StoreError

    try:
        document = export_metadata(Layout(data).controller_directory)
    except (StoreError, OSError) as error:
        raise CliError(
            f"cannot export the metadata of {data}: {error}",
            hint="Name the data directory of a local cluster with --data DIR.",
        ) from error
    text = json.dumps(document, indent=2) + "\n"
    if file == STDIN_STDOUT:
        click.echo(text, nl=False)
        return
    write_whole(Path(file), text)
    click.echo(f"Exported {describe(document)} to {file}.")


@metadata.command("restore", epilog=RESTORE_EPILOG)
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
@data_option
def restore(file: str, data: Path) -> None:
    """Rebuild the metadata from FILE in a folder that has none.

    The cluster must be stopped. Epochs and producer ids start far above those that brokers may
    have seen since the export, so that nothing of the time after it is taken for current.
    """
    document = read_document_file(file)
    restored = restore_into(Layout(data), document)
    click.echo(
        f"Restored {describe(document)}: controller epoch {restored.controller_epoch}, "
        f"cluster {restored.cluster_id}."
    )
    click.echo(f"Start it:  {up_command(data)}")


def restore_into(layout: Layout, document: object) -> RestoredMetadata:
    """Into the controller's folder, which nobody else may be using."""
    import asyncio

    from fairlead_cli.local.preflight import hold_data_directory, refuse_orphans
    from fairlead_controller.metadata_document import DocumentError
    from fairlead_controller.metadata_transfer import restore_metadata
    from fairlead_controller.stores.metadata_store import StoreError

    directory = layout.controller_directory
    with hold_data_directory(layout):
        refuse_orphans(layout)
        directory.mkdir(exist_ok=True)
        try:
            return asyncio.run(restore_metadata(directory, document))
        except DocumentError as error:
            raise InputError(
                f"this is no metadata document: {error}",
                hint="Make one where the cluster is whole:  fairlead metadata export metadata.json",
            ) from error
        except (StoreError, OSError) as error:
            raise CliError(
                f"cannot restore into {directory}: {error}",
                hint="Move what is there away first:\n  "
                + shlex.join(["mv", str(directory), f"{directory}.old"]),
            ) from error


def read_document_file(file: str) -> object:
    """JSON of a file or of stdin."""
    try:
        text = sys.stdin.read() if file == STDIN_STDOUT else read_text(file)
        return json.loads(text)
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{file} is not JSON: {error}") from error


def read_text(file: str) -> str:
    """ValueError for what is not text either."""
    return Path(file).read_text()


def write_whole(path: Path, text: str) -> None:
    """All of it or nothing: an export is often a backup."""
    temporary = path.with_name(f"{path.name}.tmp")
    try:
        temporary.write_text(text)
        temporary.replace(path)
    except OSError as error:
        raise CliError(f"cannot write {path}: {error.strerror}") from error


def describe(document: Any) -> str:
    """`3 brokers, 7 topics`."""
    from fairlead_cli.output import format_count

    brokers = format_count(len(document["brokers"]), "broker")
    return f"{brokers}, {format_count(len(document['topics']), 'topic')}"
