"""A metadata store whose requests have faults, and a second store without faults."""

from typing import Generic, TypeVar

from fairlead_controller.decisions.tables.stored_table import StoredTable
from fairlead_controller.stores.availability import RemoteStore
from fairlead_controller.stores.committer import Committer
from fairlead_controller.stores.metadata_store import TableWrite, WriteOutcome

TABLE = "partitions-00000"


S = TypeVar("S", bound=RemoteStore)


class WatchedStore(Generic[S]):
    """A store behind a proxy with faults, and a witness: the same tables without faults."""

    def __init__(self, store: S, witness: S) -> None:
        self.store = store
        self.witness = witness

    async def table(self) -> StoredTable:
        """Return the table as it really is."""
        table = await self.witness.read(TABLE)
        assert table is not None
        return table

    async def put(self, **lines: str) -> StoredTable:
        """Create or change the table without faults."""
        present = await self.witness.read(TABLE)
        version = None if present is None else present.version
        (result,) = await self.witness.write([TableWrite(TABLE, version, 1, lines)])
        assert result.outcome is WriteOutcome.WRITTEN
        return await self.table()

    async def write(self, version: str | None, **lines: str) -> WriteOutcome:
        """Write the table with the store that has faults."""
        (result,) = await self.store.write([TableWrite(TABLE, version, 1, lines)])
        return result.outcome

    def committer(self, table: StoredTable | None) -> Committer:
        """Return the controller's committer on the store, which knows this table."""
        return Committer(self.store, {} if table is None else {TABLE: table}, 1)
