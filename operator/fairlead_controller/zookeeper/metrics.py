"""The metrics of a candidate on ZooKeeper. Counters of a reign start at 0 with each reign."""

import asyncio
from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from fairlead_controller.metrics.certificate_end import certificate_family
from fairlead_controller.metrics.cluster_families import ReignView, reign_families
from fairlead_controller.metrics.loop_lag import LoopLag
from fairlead_controller.metrics.recent_page import RecentPage
from fairlead_controller.views.cluster_summary import ClusterSummaries, ClusterSummary
from fairlead_controller.zookeeper.reign import Reign
from fairlead_tls.followed_certificate import FollowedPeer


class CandidateMetrics(Collector):
    """Reads the process' state when it is scraped; nothing is stored twice."""

    def __init__(
        self,
        *,
        find_reign: Callable[[], Reign | None],
        is_connected: Callable[[], bool],
        waiting_brokers: Callable[[], int],
        lag: LoopLag,
        certificate: FollowedPeer | None,
    ) -> None:
        self._find_reign = find_reign
        self._is_connected = is_connected
        self._waiting_brokers = waiting_brokers
        self._lag = lag
        self._certificate = certificate
        self._summaries = ClusterSummaries()
        self._summary: ClusterSummary | None = None
        self._page = RecentPage(self._make)
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    async def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return await self._page.get()

    async def _make(self) -> bytes:
        reign = self._find_reign()
        self._summary = None
        if reign is not None:
            state = reign.parts.controller.committed
            self._summary = await asyncio.to_thread(self._summaries.look, state)
        return generate_latest(self._registry)

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics as of the newest summary of the cluster."""
        reign = self._find_reign()
        parts = None if reign is None else reign.parts
        for name, meaning, value in (
            (
                "fairlead_zookeeper_connected",
                "1 while this process has a connection to ZooKeeper.",
                float(self._is_connected()),
            ),
            (
                "fairlead_controller_waiting_brokers",
                "Brokers that wait for this process to take over.",
                float(self._waiting_brokers()),
            ),
            (
                "fairlead_event_loop_lag_seconds",
                "Longest delay of the event loop in the last minute.",
                self._lag.longest_s,
            ),
            (
                "fairlead_store_available",
                "0 while metadata is frozen.",
                float(reign is not None and reign.store.is_available),
            ),
            (
                "fairlead_controller_epoch",
                "0 while the tables are not taken over.",
                0.0 if parts is None else parts.controller.committed.controller_epoch,
            ),
            (
                "fairlead_controller_takeover_seconds",
                "From opening the tables to elected leaders.",
                0.0 if reign is None else reign.takeover_s,
            ),
        ):
            yield GaugeMetricFamily(name, meaning, value)
        yield certificate_family(self._certificate)
        yield from _zookeeper_counters(reign)
        views = []
        if parts is not None and self._summary is not None:
            views.append(ReignView((), parts.controller, parts.sessions, self._summary))
        yield from reign_families((), views)


def _zookeeper_counters(reign: Reign | None) -> Iterable[Metric]:
    yield CounterMetricFamily(
        "fairlead_zookeeper_mended_znodes",
        "Kafka's znodes that somebody else had changed and that were put back.",
        0 if reign is None else reign.sweep.mended,
    )
    refused = CounterMetricFamily(
        "fairlead_zookeeper_refused_requests",
        "Entries under /admin that were not carried out.",
        labels=["entry"],
    )
    for entry, count in ({} if reign is None else reign.requests.refused).items():
        refused.add_metric([entry], count)
    yield refused
