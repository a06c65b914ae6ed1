"""Exports metadata from a tree in ZooKeeper, and restores a lost one: `fairlead metadata`."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from fairlead_controller.decisions.tables.stored_table import StoreError
from fairlead_controller.decisions.tables.table_plan import CLUSTER_TABLE
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
from fairlead_controller.stores.steady_tables import load_steady
from fairlead_controller.stores.zookeeper import ZooKeeperStore, load_tables
from fairlead_controller.stores.zookeeper_fence import raise_epoch, read_epoch
from fairlead_controller.stores.zookeeper_projections import CONTAINERS
from fairlead_zookeeper.address import ZooKeeperAccess
from fairlead_zookeeper.client import ZooKeeperClient, ZooKeeperError
from fairlead_zookeeper.znodes import CONTROLLER, FAIRLEAD, TABLES

CONNECT_TIMEOUT_S: Final = 15.0


async def export_from_zookeeper(access: ZooKeeperAccess) -> dict[str, Any]:
    """Return the document of a cluster's metadata, even while a controller uses it; StoreError."""
    async with _connected(access) as client:
        store = ZooKeeperStore(client, None)
        try:
            tables = await load_steady(store)
        finally:
            await store.close()
    if CLUSTER_TABLE not in tables:
        raise StoreError(f"ZooKeeper at {access.connect_string} holds no metadata of a cluster")
    return build_document(tables)


async def restore_into_zookeeper(access: ZooKeeperAccess, document: object) -> RestoredMetadata:
    """Write a document into a chroot without tables.

    DocumentError for a wrong document, before anything is written; StoreError if a controller runs
    there, if there are tables already, or if they cannot be written. After a crash in between,
    delete the tables first.
    """
    restored = read_document(document)
    async with _connected(access) as client:
        if await client.get(CONTROLLER) is not None:
            raise StoreError(f"a controller runs ({CONTROLLER}): stop all of them first")
        if await client.children(TABLES):
            raise StoreError(
                f"{TABLES} under {access.connect_string} holds metadata already: delete it first"
            )
        known = await read_epoch(client)
        for path in CONTAINERS:
            await client.ensure_path(path, is_private=path.startswith(FAIRLEAD))
        # The epoch is above any that a candidate remembers: the document's epoch has jumped.
        epoch = max(restored.controller_epoch, known.epoch + 1)
        store = ZooKeeperStore(client, await raise_epoch(client, known, epoch))
        try:
            await write_restored(store, restored)
        finally:
            await store.close()
    return restored


async def confirm_in_zookeeper(access: ZooKeeperAccess, *, force: bool = False) -> Confirmed:
    """Make the metadata in a chroot safe; StoreError if a controller runs there.

    NothingFoundError if no problem of the metadata is recorded or found, unless `force` is set.
    """
    async with _connected(access) as client:
        if await client.get(CONTROLLER) is not None:
            raise StoreError(f"a controller runs ({CONTROLLER}): stop all of them first")
        tables = await load_tables(client)
        if not force:
            require_finding(tables)
        known = await read_epoch(client)
        epoch = max(choose_confirmed_epoch(tables), known.epoch + 1)
        store = ZooKeeperStore(client, await raise_epoch(client, known, epoch))
        try:
            return await confirm_metadata(store, await store.load(), epoch)
        finally:
            await store.close()


@asynccontextmanager
async def _connected(access: ZooKeeperAccess) -> AsyncIterator[ZooKeeperClient]:
    """Connect, and synchronize with the leader; StoreError if anything fails from here on."""
    client = ZooKeeperClient(access)
    client.start()
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            await client.wait_connected()
            await client.sync()
        yield client
    except TimeoutError:
        raise StoreError(
            f"no connection to ZooKeeper at {access.connect_string} in {CONNECT_TIMEOUT_S:.0f} s"
        ) from None
    except ZooKeeperError as error:
        raise StoreError(f"ZooKeeper at {access.connect_string}: {error}") from error
    finally:
        await client.stop()
