"""A metadata store with measurements: how long writes and reads take, and how they end."""

import time
from collections.abc import Mapping, Sequence

from fairlead_controller.counters import ControllerMetrics
from fairlead_controller.decisions.tables.stored_table import StoredTable
from fairlead_controller.stores.metadata_store import MetadataStore, TableWrite, WriteResult
from fairlead_model.ids import ControllerEpoch

FAILED = "error"


class MeasuredStore(MetadataStore):
    """Passes every call on to a store and measures it."""

    def __init__(self, store: MetadataStore, metrics: ControllerMetrics) -> None:
        self._store = store
        self._metrics = metrics

    async def load(self) -> dict[str, StoredTable]:
        """Read all tables."""
        began = time.monotonic()
        try:
            return await self._store.load()
        finally:
            self._metrics.store_reads.observe(time.monotonic() - began)

    async def read(self, table: str) -> StoredTable | None:
        """Read one table."""
        began = time.monotonic()
        try:
            return await self._store.read(table)
        finally:
            self._metrics.store_reads.observe(time.monotonic() - began)

    async def write(self, writes: Sequence[TableWrite]) -> list[WriteResult]:
        """Write tables; count each by how its write ended."""
        outcomes = self._metrics.store_outcomes
        began = time.monotonic()
        try:
            results = await self._store.write(writes)
        except Exception:
            outcomes[FAILED] += len(writes)
            raise
        finally:
            self._metrics.store_writes.observe(time.monotonic() - began)
        for result in results:
            outcomes[result.outcome.value] += 1
        return results

    def next_epoch(self, tables: Mapping[str, StoredTable]) -> ControllerEpoch:
        """Return the epoch that the store gives."""
        return self._store.next_epoch(tables)

    async def close(self) -> None:
        """Close the store."""
        await self._store.close()
