"""A remote metadata store: compare-and-swap tables behind delays, outages and lost answers.

One `StoreService` stands for the API server and etcd; each controller process has its own
`SimStore`. A write with an unknown outcome is done before the time-out, long after it, or never,
even if the controller that sent it has died meanwhile.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from fairlead_controller.decisions.tables.stored_table import StoredTable, StoreError
from fairlead_controller.stores.metadata_store import (
    MetadataStore,
    TableWrite,
    WriteOutcome,
    WriteResult,
)

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

    from simulator.network import Network
    from simulator.virtual_loop import Process, VirtualLoop

TRAVEL_S = (0.0005, 0.006)
SLOW_TRAVEL_S = (0.02, 0.6)
TIMEOUT_S = 1.0
LATE_S = 6.0

Tables = dict[str, StoredTable]
HOST = "store"


class StoreService:
    """The tables, and the faults on the way to them."""

    def __init__(self, loop: VirtualLoop, network: Network, rng: random.Random) -> None:
        self.loop = loop
        self.network = network
        self.rng = rng
        self.tables: Tables = {}
        self.is_slow = False
        self.is_away = False
        self.unknown_chance = 0.0
        self.failure_chance = 0.0
        self.after_write: Callable[[TableWrite, StoredTable | None, StoredTable], None] = (
            lambda *_: None
        )
        self._version = 0
        self._returned: list[asyncio.Future[None]] = []

    def travel_s(self) -> float:
        low, high = SLOW_TRAVEL_S if self.is_slow else TRAVEL_S
        return low + (high - low) * self.rng.random()

    def land(self, write: TableWrite) -> WriteResult:
        """Compare and swap by version only."""
        before = self.tables.get(write.table)
        if (None if before is None else before.version) != write.version:
            return WriteResult(WriteOutcome.CONFLICT)
        kept = {} if before is None else dict(before.lines)
        for key, line in write.lines.items():
            if line is None:
                kept.pop(key, None)
            else:
                kept[key] = line
        self._version += 1
        count = 1 if before is None else before.write_count + 1
        after = StoredTable(
            str(self._version), write.controller_epoch, write.write_number, kept, count
        )
        self.tables[write.table] = after
        self.after_write(write, before, after)
        return WriteResult(WriteOutcome.WRITTEN, after.version)

    def touch(self, table: str) -> None:
        """Change only the version of a table, as somebody who is no controller may do."""
        self._version += 1
        self.tables[table] = replace(self.tables[table], version=str(self._version))

    def put_back(self, copy: Tables, *names: str) -> None:
        """Restore some or all tables from a copy; each gets a new version, as objects do that were
        deleted and created again."""
        for name in names or sorted(copy):
            self._version += 1
            self.tables[name] = replace(copy[name], version=str(self._version))
        for name in set(self.tables) - set(copy) if not names else ():
            del self.tables[name]

    def go_away(self) -> None:
        self.is_away = True

    def come_back(self) -> None:
        self.is_away = False
        waiting, self._returned = self._returned, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    async def reachable(self, host: str) -> None:
        """Wait until a host can reach the store."""
        while self.is_away or self.network.is_cut(host, HOST):
            if self.is_away:
                waiter = self.loop.create_future()
                self._returned.append(waiter)
                await waiter
            else:
                await asyncio.sleep(0.2)


class SimStore(MetadataStore):
    """One controller process's client of the store."""

    def __init__(self, service: StoreService, process: Process) -> None:
        self._service = service
        self._process = process

    async def load(self) -> Tables:
        await self._ask()
        return dict(self._service.tables)

    async def read(self, table: str) -> StoredTable | None:
        await self._ask()
        return self._service.tables.get(table)

    async def close(self) -> None: ...

    async def _ask(self) -> None:
        service = self._service
        await service.reachable(self._process.name)
        await asyncio.sleep(service.travel_s())
        if service.rng.random() < service.failure_chance:
            raise StoreError("the store failed to answer")

    async def write(self, writes: Sequence[TableWrite]) -> list[WriteResult]:
        """Write tables, each by itself, in any order; return when all have an outcome."""
        return list(await asyncio.gather(*[self._begin(write) for write in writes]))

    def _begin(self, write: TableWrite) -> asyncio.Future[WriteResult]:
        service, loop = self._service, self._service.loop
        answer: asyncio.Future[WriteResult] = loop.create_future()
        is_unreachable = service.is_away or service.network.is_cut(self._process.name, HOST)
        context = service.network.context
        if is_unreachable or service.rng.random() < service.unknown_chance:
            loop.call_later(
                TIMEOUT_S, _answer, answer, WriteResult(WriteOutcome.UNKNOWN), context=context
            )
            fate = service.rng.random()
            if fate < 0.35 and not is_unreachable:
                loop.call_later(service.travel_s(), service.land, write, context=context)
            elif fate < 0.7:
                late_s = TIMEOUT_S + service.rng.random() ** 2 * LATE_S
                loop.call_later(late_s, service.land, write, context=context)
            return answer

        def land() -> None:
            result = service.land(write)
            loop.call_later(service.travel_s(), _answer, answer, result, context=context)

        loop.call_later(service.travel_s(), land, context=context)
        return answer


def _answer(future: asyncio.Future[WriteResult], result: WriteResult) -> None:
    if not future.done():
        future.set_result(result)
