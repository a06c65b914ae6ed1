"""Exports metadata from the Kubernetes API and imports it there: `kubectl fairlead metadata`.

This works while controllers run. A writer acts as the controller for a moment: it seals the tables,
so the reigning controller ends with its next write, and the next one takes over the new tables.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fairlead_controller.decisions.tables.stored_table import StoreError
from fairlead_controller.decisions.tables.table_plan import CLUSTER_TABLE
from fairlead_controller.stores.kubernetes import KubernetesStore, open_kubernetes_store
from fairlead_controller.stores.metadata_document import (
    RestoredMetadata,
    build_document,
    read_document,
)
from fairlead_controller.stores.metadata_rewrite import (
    Confirmed,
    choose_confirmed_epoch,
    confirm_metadata,
    read_replacement,
    replace_metadata,
    require_finding,
    write_restored,
)
from fairlead_controller.stores.steady_tables import load_steady
from fairlead_kube.client import KubeClient


async def export_from_kubernetes(
    client: KubeClient, namespace: str, cluster: str
) -> dict[str, Any]:
    """Return the document of a cluster's metadata, even while a controller writes; StoreError."""
    async with _opened(client, namespace, cluster) as store:
        tables = await load_steady(store)
    if CLUSTER_TABLE not in tables:
        raise StoreError(f"{namespace} holds no metadata of a cluster {cluster}")
    return build_document(tables)


async def import_into_kubernetes(
    client: KubeClient, namespace: str, cluster: str, document: object
) -> RestoredMetadata:
    """Replace all metadata of a cluster by a document.

    DocumentError for a wrong document, before anything is written; StoreError if the present
    metadata belongs to another cluster with brokers; SealedError if somebody else writes.
    """
    async with _opened(client, namespace, cluster) as store:
        tables = await store.load()
        if CLUSTER_TABLE in tables:
            restored = read_replacement(tables, document)
            await replace_metadata(store, tables, restored)
            return restored
        if tables:
            names = ", ".join(sorted(tables))
            raise StoreError(f"ClusterState {cluster} is missing, but not {names}: delete them")
        restored = read_document(document)
        await write_restored(store, restored)
        return restored


async def confirm_in_kubernetes(
    client: KubeClient, namespace: str, cluster: str, *, force: bool = False
) -> Confirmed:
    """Make the metadata of a cluster safe; StoreError, or SealedError if somebody else writes.

    NothingFoundError if no problem of the metadata is recorded or found, unless `force` is set.
    """
    async with _opened(client, namespace, cluster) as store:
        tables = await store.load()
        epoch = choose_confirmed_epoch(tables)
        if not force:
            require_finding(tables)
        return await confirm_metadata(store, tables, epoch)


@asynccontextmanager
async def _opened(
    client: KubeClient, namespace: str, cluster: str
) -> AsyncIterator[KubernetesStore]:
    store = await open_kubernetes_store(client, namespace, cluster)
    try:
        yield store
    finally:
        await store.close()
