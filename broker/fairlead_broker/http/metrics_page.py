"""`/metrics`: everything that a broker tells Prometheus, made when it is asked for."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from fairlead_broker.http.cleaner_families import expose_compaction
from fairlead_broker.http.group_families import expose_groups, measure_groups
from fairlead_broker.http.process_families import (
    expose_counters,
    expose_disk,
    expose_process,
    expose_session,
    expose_waiting,
    measure_disk,
)
from fairlead_broker.http.replica_families import (
    expose_logs,
    expose_replicas,
    expose_traffic,
    measure_replicas,
)
from fairlead_broker.http.request_families import RequestFamilies
from fairlead_broker.http.rest_families import expose_rest
from fairlead_broker.http.transaction_families import expose_transactions
from fairlead_broker.measures.exposition import Exposition

if TYPE_CHECKING:
    from fairlead_broker.broker import Broker
    from fairlead_broker.http.process_families import Session
    from fairlead_broker.http.readiness import Readiness

DISK_WAIT_S: Final = 0.2
"""How long a scrape waits for the file system; a disk that hangs must not hide everything else."""


class MetricsPage:
    """`broker` and `session` are set once they are there; until then the page is short."""

    def __init__(self, readiness: Readiness) -> None:
        self.broker: Broker | None = None
        self.session: Session | None = None
        self._readiness = readiness
        self._requests = RequestFamilies()
        self._disk: asyncio.Future[tuple[int, int]] | None = None

    async def text(self) -> str:
        """Return the page. Between its parts others get their turn of the loop."""
        out = Exposition()
        broker = self.broker
        if broker is not None:
            sums = await measure_replicas(broker)
            groups = await measure_groups(broker)
            capacity = await self.capacity(broker.log_directory.path)
            self._requests.expose(out, broker.metrics)
            expose_counters(out, broker.metrics)
            expose_compaction(out, broker.metrics.cleaner)
            expose_waiting(out, broker)
            expose_groups(out, broker, groups)
            expose_transactions(out, broker.metrics)
            if broker.settings.rest is not None:
                expose_rest(out, broker.metrics.rest)
            expose_session(out, self.session)
            expose_disk(out, capacity)
            await asyncio.sleep(0)
            expose_traffic(out, broker.metrics)
            expose_replicas(out, sums, broker.metrics)
            await asyncio.sleep(0)
            expose_logs(out, sums)
        expose_process(out, self._readiness)
        return out.text()

    async def capacity(self, path: str) -> tuple[int, int] | None:
        """Ask the file system in a thread; one question at a time, however long it takes."""
        if self._disk is None:
            loop = asyncio.get_running_loop()
            self._disk = loop.run_in_executor(None, measure_disk, path)
        asked = self._disk
        await asyncio.wait((asked,), timeout=DISK_WAIT_S)
        if not asked.done():
            return None
        self._disk = None
        return None if asked.exception() is not None else asked.result()
