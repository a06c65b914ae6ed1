"""Reads the tables of a store to which a controller may write meanwhile.

A remote store reads one table after another. What two reads in a row return was there at one
instant, between the two.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

from fairlead_controller.decisions.tables.stored_table import StoredTable, StoreError
from fairlead_controller.stores.metadata_store import MetadataStore

READ_ATTEMPTS: Final = 20
READ_PAUSE_S: Final = 0.2


async def load_steady(store: MetadataStore) -> dict[str, StoredTable]:
    """Return all tables as they were at one instant; StoreError if they change all the time."""
    tables = await store.load()
    for _ in range(READ_ATTEMPTS):
        before, tables = tables, await store.load()
        if _versions(tables) == _versions(before):
            return tables
        await asyncio.sleep(READ_PAUSE_S)
    raise StoreError("the metadata changes without a pause; try again")


def _versions(tables: Mapping[str, StoredTable]) -> dict[str, str]:
    return {name: table.version for name, table in tables.items()}
