"""Metadata out of the embedded store and into a new one: `fairlead metadata export|restore`."""

from pathlib import Path
from typing import Any

from fairlead_controller.committer import Committer
from fairlead_controller.metadata_document import RestoredMetadata, build_document, read_document
from fairlead_controller.stores.file import open_file_store, read_file_store
from fairlead_controller.stores.metadata_store import (
    MetadataStore,
    StoreError,
    TableWrite,
    WriteOutcome,
)
from fairlead_controller.table_plan import CLUSTER_TABLE, TableLayout, WritePlan, first_lines


def export_metadata(directory: Path) -> dict[str, Any]:
    """Give the document of the metadata in a folder; also while a controller is running on it.

    StoreError if there is none, or it cannot be read.
    """
    tables = read_file_store(directory)
    if CLUSTER_TABLE not in tables:
        raise StoreError(f"{directory} holds no metadata of a cluster")
    return build_document(tables)


async def restore_metadata(directory: Path, document: object) -> RestoredMetadata:
    """Put what a document says into a folder without metadata.

    DocumentError for a wrong document, before anything is written; StoreError if the folder holds
    metadata already, or cannot be written. After a crash in the middle, empty the folder first.
    """
    restored = read_document(document)
    store = await open_file_store(directory)
    try:
        await write_restored(store, restored)
    finally:
        await store.close()
    return restored


async def write_restored(store: MetadataStore, restored: RestoredMetadata) -> None:
    """Fill an empty store; the next controller takes it over as it would any other."""
    if await store.load():
        raise StoreError("there is metadata already: restore into an empty folder")
    epoch = restored.controller_epoch
    first = first_lines(restored.cluster_id, restored.counters)
    (result,) = await store.write([TableWrite(CLUSTER_TABLE, None, epoch, first)])
    if result.outcome is not WriteOutcome.WRITTEN:
        raise StoreError("the first write did not succeed; empty the folder and try again")
    plan = WritePlan(TableLayout())
    plan.add(restored.changes)
    committer = Committer(store, await store.load(), epoch)
    await committer.commit(plan.stages())
