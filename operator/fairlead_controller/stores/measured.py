"""A metadata store that is timed: how long its writes and reads take, and how they end."""

import time
from collections.abc import Sequence

from fairlead_controller.metrics import ControllerMetrics
from fairlead_controller.stores.metadata_store import (
    MetadataStore,
    StoredTable,
    TableWrite,
    WriteResult,
)

FAILED = "error"


class MeasuredStore(MetadataStore):
    """Hands everything on."""

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
        """Write tables; each counts by how its write ended."""
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

    async def close(self) -> None:
        """Let go of the store."""
        await self._store.close()
