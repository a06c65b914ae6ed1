"""`/metrics` of a controller that is a process of its own and acts for one cluster."""

import asyncio
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from fairlead_controller.controller import Controller
from fairlead_controller.metrics.certificate_end import certificate_family
from fairlead_controller.metrics.cluster_families import ReignView, reign_families
from fairlead_controller.metrics.loop_lag import LoopLag
from fairlead_controller.metrics.recent_page import RecentPage
from fairlead_controller.sessions.server import SessionServer
from fairlead_controller.views.cluster_summary import ClusterSummaries, ClusterSummary
from fairlead_tls.followed_certificate import FollowedPeer


class LocalMetrics(Collector):
    """Reads the controller when it is scraped."""

    def __init__(
        self,
        controller: Controller,
        sessions: SessionServer,
        lag: LoopLag,
        certificate: FollowedPeer | None = None,
    ) -> None:
        self._controller = controller
        self._certificate = certificate
        self._sessions = sessions
        self._lag = lag
        self._summaries = ClusterSummaries()
        self._summary: ClusterSummary | None = None
        self._page = RecentPage(self._make)
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._registry.register(self)

    async def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return await self._page.get()

    async def _make(self) -> bytes:
        state = self._controller.committed
        self._summary = await asyncio.to_thread(self._summaries.look, state)
        return generate_latest(self._registry)

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics as of the newest summary of the cluster."""
        yield GaugeMetricFamily(
            "fairlead_event_loop_lag_seconds",
            "Longest delay of the event loop in the last minute.",
            self._lag.longest_s,
        )
        yield GaugeMetricFamily(
            "fairlead_controller_epoch",
            "Controller epoch, 0 before the controller has taken over.",
            self._controller.committed.controller_epoch,
        )
        yield certificate_family(self._certificate)
        views = []
        if self._summary is not None:
            views.append(ReignView((), self._controller, self._sessions, self._summary))
        yield from reign_families((), views)
