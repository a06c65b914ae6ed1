"""Makes batches of changes durable: stage by stage, table by table, settling unknown outcomes.

The committer knows the versions of all tables, because no other process writes them. After a
conflict it reads the table and finds the cause: another controller has sealed the table, somebody
has restored an older copy, or somebody has changed the object otherwise, for example by a label.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from fairlead_controller.decisions.tables import lines
from fairlead_controller.decisions.tables.stored_table import (
    HighestSeen,
    StoredTable,
    StoreError,
    StoreRolledBackError,
)
from fairlead_controller.decisions.tables.table_plan import CLUSTER_TABLE, Stage
from fairlead_controller.stores.metadata_store import (
    MetadataStore,
    SealedError,
    TableTouchedError,
    TableWrite,
    WriteOutcome,
)
from fairlead_model.ids import ControllerEpoch

logger = logging.getLogger(__name__)

NOTE_ATTEMPTS: Final = 10
SETTLE_DELAY_S: Final = 0.1
"""Pause between two reads of a table whose last write has an unknown outcome."""


class Committer:
    """Commits one batch at a time: the caller awaits it before the next batch."""

    def __init__(
        self,
        store: MetadataStore,
        tables: Mapping[str, StoredTable],
        controller_epoch: ControllerEpoch,
    ) -> None:
        self._store = store
        self._epoch = controller_epoch
        self._versions: dict[str, str | None] = {
            name: table.version for name, table in tables.items()
        }
        self._counts = {name: table.write_count for name, table in tables.items()}
        self.writes = sum(self._counts.values())
        """How many durable writes all tables have had."""

    async def commit(self, stages: list[Stage]) -> None:
        """Write stages in order.

        Raise SealedError if another controller has taken over. Raise StoreRolledBackError or
        TableTouchedError if anything other than a controller has changed a table. In each case this
        reign cannot go on.
        """
        for stage in stages:
            await self._write_stage(stage)

    async def explain_epoch(self, seen: HighestSeen) -> StoreError:
        """Return why a broker has seen a higher controller epoch than this controller's."""
        table = await self._store.read(CLUSTER_TABLE)
        if table is None or table.controller_epoch > self._epoch:
            return self._other_hand(CLUSTER_TABLE, table)
        return StoreRolledBackError(
            f"brokers have followed controller epoch {seen.controller_epoch}, the tables know of "
            f"{self._epoch}",
            seen,
        )

    async def note_rollback(self, rolled_back: StoreRolledBackError) -> None:
        """Write a note into the cluster's table that stops all controllers from reigning.

        Without the note, the next controller would find the same problem only after it has raised
        the epoch.
        """
        try:
            for _ in range(NOTE_ATTEMPTS):
                table = await self._store.read(CLUSTER_TABLE)
                if table is None or table.controller_epoch > self._epoch:
                    return  # Another controller decides now.
                line = lines.rolled_back_line(rolled_back.finding, rolled_back.seen)
                write = TableWrite(
                    CLUSTER_TABLE, table.version, self._epoch, {lines.ROLLED_BACK_KEY: line}
                )
                (result,) = await self._store.write([write])
                if result.outcome is WriteOutcome.WRITTEN:
                    return
        except StoreError as error:
            logger.warning("that tables are rolled back could not be noted: %s", error)

    async def _write_stage(self, stage: Stage) -> None:
        writes = [
            TableWrite(name, self._versions.get(name), self._epoch, lines)
            for name, lines in stage.items()
        ]
        results = await self._store.write(writes)
        for write, result in zip(writes, results, strict=True):
            match result.outcome:
                case WriteOutcome.WRITTEN:
                    self._note_written(write.table, result.version)
                case WriteOutcome.UNKNOWN:
                    await self._settle(write)
                case WriteOutcome.CONFLICT:
                    raise self._other_hand(write.table, await self._store.read(write.table))

    def _note_written(self, name: str, version: str | None) -> None:
        self._versions[name] = version
        self._note_count(name, self._counts.get(name, 0) + 1)

    def _note_count(self, name: str, count: int) -> None:
        self.writes += count - self._counts.get(name, 0)
        self._counts[name] = count

    def _other_hand(self, name: str, table: StoredTable | None) -> StoreError:
        """Return the error for a table that is not as this controller left it."""
        if table is None:
            return TableTouchedError(f"table {name} is gone")
        if table.controller_epoch > self._epoch:
            return SealedError(f"table {name} has epoch {table.controller_epoch}")
        known = self._counts.get(name, 0)
        if table.controller_epoch < self._epoch or table.write_count < known:
            return StoreRolledBackError(
                f"table {name} went back to write {table.write_count} of controller epoch "
                f"{table.controller_epoch}, after write {known} of epoch {self._epoch}"
            )
        return TableTouchedError(f"table {name} was changed by somebody else")

    async def _settle(self, write: TableWrite) -> None:
        """Find out how a write ended, or write a newer version; commit nothing else meanwhile."""
        number = write.write_number
        while True:
            logger.warning("the outcome of a write of table %s is unknown", write.table)
            table = await self._store.read(write.table)
            is_ours = table is not None and table.controller_epoch == self._epoch
            if not is_ours and (table is not None or write.version is not None):
                raise self._other_hand(write.table, table)
            if table is not None and table.version != write.version:
                is_older = table.write_count < self._counts.get(write.table, 0)
                if is_older or not _holds(table, write):
                    # Somebody else has changed the table, perhaps only by a label. Our write is
                    # based on the version before, so it can never land.
                    raise self._other_hand(write.table, table)
                self._versions[write.table] = table.version
                self._note_count(write.table, table.write_count)
                return
            number += 1
            newer = TableWrite(
                write.table, write.version, write.controller_epoch, write.lines, number
            )
            (result,) = await self._store.write([newer])
            if result.outcome is WriteOutcome.WRITTEN:
                self._note_written(write.table, result.version)
                return
            # The stuck write landed in between, or the newer one is in doubt, too: read again.
            await asyncio.sleep(SETTLE_DELAY_S)


def _holds(table: StoredTable, write: TableWrite) -> bool:
    """Tell whether a table has the lines that a write gives it."""
    return all(table.lines.get(key) == line for key, line in write.lines.items())
