"""Exports metadata from the embedded store, and fills a new one: `fairlead metadata`."""

from pathlib import Path
from typing import Any

from fairlead_controller.decisions.tables.stored_table import StoreError
from fairlead_controller.decisions.tables.table_plan import CLUSTER_TABLE
from fairlead_controller.stores.file import open_file_store, read_file_store
from fairlead_controller.stores.metadata_document import (
    RestoredMetadata,
    build_document,
    read_document,
)
from fairlead_controller.stores.metadata_rewrite import (
    Confirmed,
    choose_confirmed_epoch,
    confirm_metadata,
    require_finding,
    write_restored,
)


def export_metadata(directory: Path) -> dict[str, Any]:
    """Return the document of the metadata in a folder, even while a controller uses it.

    StoreError if the folder has no metadata, or it cannot be read.
    """
    tables = read_file_store(directory)
    if CLUSTER_TABLE not in tables:
        raise StoreError(f"{directory} holds no metadata of a cluster")
    return build_document(tables)


async def restore_metadata(directory: Path, document: object) -> RestoredMetadata:
    """Write a document into a folder without metadata.

    DocumentError for a wrong document, before anything is written; StoreError if the folder already
    holds metadata, or cannot be written. After a crash in between, empty the folder first.
    """
    restored = read_document(document)
    store = await open_file_store(directory)
    try:
        await write_restored(store, restored)
    finally:
        await store.close()
    return restored


async def confirm_in(directory: Path, *, force: bool = False) -> Confirmed:
    """Make the metadata in a folder safe, while no process uses it; StoreError.

    NothingFoundError if no problem of the metadata is recorded or found, unless `force` is set.
    """
    # Read before a store is opened there, which would create one.
    found = read_file_store(directory)
    choose_confirmed_epoch(found)
    if not force:
        require_finding(found)
    store = await open_file_store(directory)
    try:
        tables = await store.load()
        return await confirm_metadata(store, tables, choose_confirmed_epoch(tables))
    finally:
        await store.close()
