"""A metadata store that only the holder of the Lease may write to.

The check costs nothing and comes before every write. It is the seal, not this check, that protects
the tables from a deposed controller (I11). The check ends a process that was paused before it acts.
"""

from collections.abc import Callable, Sequence

from fairlead_controller.decisions.tables.stored_table import StoredTable
from fairlead_controller.stores.kubernetes import KubernetesStore
from fairlead_controller.stores.metadata_store import MetadataStore, TableWrite, WriteResult


class LeasedStore(MetadataStore):
    """Passes calls on; `check_lease` does not return if this process does not hold the Lease."""

    def __init__(self, store: KubernetesStore, check_lease: Callable[[], None]) -> None:
        self._store = store
        self._check_lease = check_lease

    @property
    def is_available(self) -> bool:
        """Whether the API server answers; if not, metadata is frozen."""
        return self._store.is_available

    @property
    def unavailable_since(self) -> float | None:
        """Unix time of the first failed request since the last one that succeeded."""
        return self._store.unavailable_since

    @property
    def problem(self) -> str:
        """Why the store is not available; empty while it is."""
        return self._store.problem

    async def load(self) -> dict[str, StoredTable]:
        """Read all tables."""
        return await self._store.load()

    async def read(self, table: str) -> StoredTable | None:
        """Read one table."""
        return await self._store.read(table)

    async def write(self, writes: Sequence[TableWrite]) -> list[WriteResult]:
        """Write tables, if this process may act."""
        self._check_lease()
        return await self._store.write(writes)

    async def close(self) -> None:
        """Close the store."""
        await self._store.close()
