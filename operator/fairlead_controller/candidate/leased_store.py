"""A metadata store that only a holder of the Lease gets to write to.

The check costs nothing and stands before every write. It is not what keeps a deposed controller
from harm (the seal is, I11); it makes a process that was paused end before it does anything.
"""

from collections.abc import Callable, Sequence

from fairlead_controller.stores.kubernetes import KubernetesStore
from fairlead_controller.stores.metadata_store import (
    MetadataStore,
    StoredTable,
    TableWrite,
    WriteResult,
)


class LeasedStore(MetadataStore):
    """Hands everything on; `check_lease` does not return if the Lease is not held."""

    def __init__(self, store: KubernetesStore, check_lease: Callable[[], None]) -> None:
        self._store = store
        self._check_lease = check_lease

    @property
    def is_available(self) -> bool:
        """Whether the API server answers; if not, metadata is frozen."""
        return self._store.is_available

    @property
    def unavailable_since(self) -> float | None:
        """Unix time of the first request that failed since the last one that did not."""
        return self._store.unavailable_since

    @property
    def problem(self) -> str:
        """Why the store is not available, empty while it is."""
        return self._store.problem

    async def load(self) -> dict[str, StoredTable]:
        """Read all tables."""
        return await self._store.load()

    async def read(self, table: str) -> StoredTable | None:
        """Read one table."""
        return await self._store.read(table)

    async def write(self, writes: Sequence[TableWrite]) -> list[WriteResult]:
        """Write tables, if this process may."""
        self._check_lease()
        return await self._store.write(writes)

    async def close(self) -> None:
        """Let go of the store."""
        await self._store.close()
