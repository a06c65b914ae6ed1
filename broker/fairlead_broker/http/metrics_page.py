"""`/metrics`: all metrics of a broker for Prometheus, made on request."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fairlead_broker.http.cleaner_families import expose_compaction
from fairlead_broker.http.disk_families import DiskMeter, expose_disks
from fairlead_broker.http.group_families import expose_groups, measure_groups
from fairlead_broker.http.process_families import (
    expose_certificates,
    expose_counters,
    expose_process,
    expose_session,
    expose_waiting,
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
    from collections.abc import Callable

    from fairlead_broker.broker import Broker
    from fairlead_broker.http.process_families import Session
    from fairlead_broker.http.readiness import Readiness


class MetricsPage:
    """`broker` and `session` are set once they exist; until then the page is short."""

    def __init__(self, readiness: Readiness) -> None:
        self.broker: Broker | None = None
        self.session: Session | None = None
        self.certificate_ends_s: Callable[[], dict[str, float]] = dict
        self._readiness = readiness
        self._requests = RequestFamilies()
        self._disks = DiskMeter()

    async def text(self) -> str:
        """Return the page. Between its parts other tasks run on the loop."""
        out = Exposition()
        broker = self.broker
        if broker is not None:
            sums = await measure_replicas(broker)
            groups = await measure_groups(broker)
            capacities = await self._disks.measure(broker.log_directories)
            self._requests.expose(out, broker.metrics)
            expose_counters(out, broker.metrics)
            expose_certificates(out, self.certificate_ends_s())
            expose_compaction(out, broker.metrics.cleaner)
            expose_waiting(out, broker)
            expose_groups(out, broker, groups)
            expose_transactions(
                out, broker.metrics, broker.transaction_coordinator.memory.total_bytes
            )
            if broker.settings.rest is not None:
                expose_rest(out, broker.metrics.rest)
            expose_session(out, self.session)
            expose_disks(out, broker.log_directories, capacities)
            await asyncio.sleep(0)
            expose_traffic(out, broker.metrics)
            expose_replicas(out, sums, broker.metrics)
            await asyncio.sleep(0)
            expose_logs(out, sums)
        expose_process(out, self._readiness)
        return out.text()

    async def capacity(self) -> tuple[int, int] | None:
        """Return size and free bytes of all disks together; None if one of them does not answer."""
        if self.broker is None:
            return None
        directories = self.broker.log_directories
        capacities = await self._disks.measure(directories)
        if len(capacities) < len(directories.live):
            return None
        totals, rooms = zip(*capacities.values(), strict=True)
        return sum(totals), sum(rooms)
