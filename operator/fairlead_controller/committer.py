"""Makes batches of changes durable: stage by stage, table by table, settling unknown outcomes.

Knows the versions of all tables, because it is the only one that writes them. A conflict under the
own epoch cannot happen unless another controller has sealed the tables: then this one is over.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from fairlead_controller.stores.metadata_store import (
    MetadataStore,
    SealedError,
    StoredTable,
    TableWrite,
    WriteOutcome,
    WriteResult,
)
from fairlead_controller.table_plan import Stage
from fairlead_model.ids import ControllerEpoch

logger = logging.getLogger(__name__)

SETTLE_DELAY_S: Final = 0.1
"""Pause between two looks at a table whose last write has an unknown outcome."""


class Committer:
    """One at a time: the caller awaits a batch before it hands over the next."""

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

    async def commit(self, stages: list[Stage]) -> None:
        """Write stages in order; SealedError if another controller has taken over."""
        for stage in stages:
            await self._write_stage(stage)

    async def _write_stage(self, stage: Stage) -> None:
        writes = [
            TableWrite(name, self._versions.get(name), self._epoch, lines)
            for name, lines in stage.items()
        ]
        results = await self._store.write(writes)
        for write, result in zip(writes, results, strict=True):
            settled = result
            if result.outcome is WriteOutcome.UNKNOWN:
                settled = await self._settle(write)
            if settled.outcome is not WriteOutcome.WRITTEN:
                raise SealedError(f"table {write.table} was changed by somebody else")
            self._versions[write.table] = settled.version

    async def _settle(self, write: TableWrite) -> WriteResult:
        """Find out how a write ended, or outdate it; nothing later is decided meanwhile."""
        number = write.write_number
        while True:
            logger.warning("the outcome of a write of table %s is unknown", write.table)
            table = await self._store.read(write.table)
            if table is not None and table.controller_epoch != self._epoch:
                raise SealedError(f"table {write.table} has epoch {table.controller_epoch}")
            if table is None and write.version is not None:
                raise SealedError(f"table {write.table} is gone")
            if table is not None and table.version != write.version:
                if not _holds(table, write):
                    # Somebody else has touched it, if only with a label: our write, which is
                    # based on the version before, can never land.
                    raise SealedError(f"table {write.table} was changed by somebody else")
                return WriteResult(WriteOutcome.WRITTEN, table.version)
            number += 1
            newer = TableWrite(
                write.table, write.version, write.controller_epoch, write.lines, number
            )
            (result,) = await self._store.write([newer])
            if result.outcome is WriteOutcome.WRITTEN:
                return result
            # The stuck write has landed in between, or this one is in doubt too: look again.
            await asyncio.sleep(SETTLE_DELAY_S)


def _holds(table: StoredTable, write: TableWrite) -> bool:
    """Whether a table is as a write would have it."""
    return all(table.lines.get(key) == line for key, line in write.lines.items())
