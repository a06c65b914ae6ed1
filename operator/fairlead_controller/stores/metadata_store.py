"""Where the controller keeps what must survive it: numbered tables of text lines.

A store knows nothing of brokers and topics. It keeps tables. A table has lines by key, a version
that changes with every write, the epoch of the controller that wrote it last, and the number of
that write. A write is a compare-and-swap of one table. Tables of one call are written independently
and possibly at the same time; a caller that needs an order makes several calls.

Fencing: `seal` writes the new controller's epoch into every table. A write of an older controller
then fails on each of them, because the version has changed (I11).

Unknown outcomes: a write may time out and still land. The writer reads the table again. If its
write is not there, it writes again, with a higher write number, on the version that it read. Either
the newer write lands and the stuck one no longer can, or the newer write conflicts because the
stuck one has landed, which the next read shows.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from fairlead_controller.decisions.tables.stored_table import StoredTable, StoreError
from fairlead_model.ids import ControllerEpoch


class StoreHeldError(StoreError):
    """Another process has the store open; the text names it."""


class SealedError(StoreError):
    """Another controller has taken over: a table carries an epoch that is not this one's."""


class TableTouchedError(StoreError):
    """Something that is not a controller has changed or removed a table: read the table again."""


class StoreUnavailableError(StoreError):
    """The store cannot be reached now; a later attempt may succeed."""


class WriteOutcome(Enum):
    """How the write of one table ended."""

    WRITTEN = "written"
    CONFLICT = "conflict"
    """The table's version was not the expected one; nothing was written."""
    UNKNOWN = "unknown"
    """The write may have landed, may land later, or never."""


@dataclass(frozen=True, slots=True)
class TableWrite:
    """A change of one table: its new lines by key (None removes a line)."""

    table: str
    version: str | None
    """The expected version; None if the table must not exist."""
    controller_epoch: ControllerEpoch
    lines: Mapping[str, str | None] = field(default_factory=dict)
    write_number: int = 0


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The end of one table's write."""

    outcome: WriteOutcome
    version: str | None = None
    """The new version, if written."""


UNKNOWN: Final = WriteResult(WriteOutcome.UNKNOWN)
CONFLICT: Final = WriteResult(WriteOutcome.CONFLICT)


class MetadataStore(ABC):
    """Where tables are kept.

    `tests/support/controller/metadata_store_contract.py` tests what each store promises.
    """

    @abstractmethod
    async def load(self) -> dict[str, StoredTable]:
        """Read all tables; StoreError if they cannot be read."""

    @abstractmethod
    async def read(self, table: str) -> StoredTable | None:
        """Read one table, None if it does not exist."""

    @abstractmethod
    async def write(self, writes: Sequence[TableWrite]) -> list[WriteResult]:
        """Write tables, independently of each other; results are in the order of the writes.

        A result WRITTEN means durable. StoreError if the store cannot continue.
        """

    @abstractmethod
    async def close(self) -> None:
        """Close the store."""

    def next_epoch(self, tables: Mapping[str, StoredTable]) -> ControllerEpoch:
        """Return the epoch of a controller that takes over the tables from `load`."""
        return 1 + max(table.controller_epoch for table in tables.values())

    async def seal(
        self,
        controller_epoch: ControllerEpoch,
        tables: Mapping[str, StoredTable] | None = None,
        *,
        first: str = "",
    ) -> dict[str, StoredTable]:
        """Write an epoch into every table, then load them; from then on older writers fail.

        `tables` are those that were just loaded, if any. The table `first` is sealed before the
        others: no crash leaves another table with a higher epoch. SealedError if a table has this
        epoch or a higher one, or changes meanwhile.
        """
        if tables is None:
            tables = await self.load()
        writes = []
        for name, table in sorted(tables.items()):
            if table.controller_epoch >= controller_epoch:
                raise SealedError(f"table {name} has epoch {table.controller_epoch} already")
            writes.append(TableWrite(name, table.version, controller_epoch))
        await self._seal([write for write in writes if write.table == first])
        await self._seal([write for write in writes if write.table != first])
        sealed = await self.load()
        for name, table in sorted(sealed.items()):
            if table.controller_epoch != controller_epoch:
                # Another controller has sealed the table since, or an older one has created it:
                # with the versions that were just read, our writes would get past its seal.
                raise SealedError(f"table {name} has epoch {table.controller_epoch} by now")
        return sealed

    async def _seal(self, writes: list[TableWrite]) -> None:
        results = await self.write(writes) if writes else []
        for write, result in zip(writes, results, strict=True):
            if result.outcome is not WriteOutcome.WRITTEN:
                raise SealedError(
                    f"table {write.table} could not be sealed: {result.outcome.value}"
                )
