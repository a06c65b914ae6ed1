"""The metrics of a candidate. Counters of a reign start at 0 with each reign.

Every page covers all clusters, and counts again only the topics that have changed since the last
page. `cluster_families` adds the metrics of their controllers.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
)
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from fairlead_controller.kubernetes.reign import Reign
from fairlead_controller.kubernetes.session_gate import ClusterKey
from fairlead_controller.metrics.certificate_end import certificates_family
from fairlead_controller.metrics.cluster_families import ReignView, reign_families
from fairlead_controller.metrics.loop_lag import LoopLag
from fairlead_controller.metrics.recent_page import RecentPage
from fairlead_controller.sessions.session_gate import SessionGate
from fairlead_controller.views.cluster_summary import ClusterSummaries, ClusterSummary
from fairlead_kube.client import KubeClient
from fairlead_kube.informer import Informer
from fairlead_kube.request_families import ApiRequests


class CandidateMetrics(Collector):
    """Reads the process' state when it is scraped; nothing is stored twice."""

    def __init__(
        self,
        *,
        clients: Mapping[str, KubeClient],
        find_informers: Callable[[], Mapping[str, Informer]],
        reigns: Mapping[ClusterKey, Reign],
        gate: SessionGate[ClusterKey],
        find_certificate_end: Callable[[ClusterKey], float | None],
        lag: LoopLag,
    ) -> None:
        self.is_lease_held = False
        self.reigns = reigns
        self._find_informers = find_informers
        self._gate = gate
        self._find_certificate_end = find_certificate_end
        self._certificate_ends: dict[ClusterKey, float] = {}
        self._lag = lag
        self._looks: dict[ClusterKey, ClusterSummaries] = {}
        self._summaries: dict[ClusterKey, ClusterSummary] = {}
        self._page = RecentPage(self._make)
        self._registry = CollectorRegistry()
        self._registry.register(self)
        self._registry.register(ApiRequests(clients))
        ProcessCollector(registry=self._registry)

    async def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return await self._page.get()

    async def _make(self) -> bytes:
        self._looks = {key: self._looks.get(key) or ClusterSummaries() for key in self.reigns}
        self._summaries = {}
        for key, reign in list(self.reigns.items()):
            if reign.parts is not None:
                # In a thread: the first summary of a large cluster takes a while.
                state = reign.parts.controller.committed
                look = self._looks[key].look
                self._summaries[key] = await asyncio.to_thread(look, state)
        self._certificate_ends = await asyncio.to_thread(self._find_ends, list(self.reigns))
        return generate_latest(self._registry)

    def _find_ends(self, keys: Iterable[ClusterKey]) -> dict[ClusterKey, float]:
        found = {key: self._find_certificate_end(key) for key in keys}
        return {key: end for key, end in found.items() if end is not None}

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics as of the newest summary of the clusters."""
        yield GaugeMetricFamily(
            "fairlead_lease_held", "1 while this process may act.", float(self.is_lease_held)
        )
        yield GaugeMetricFamily(
            "fairlead_controller_waiting_brokers",
            "Brokers that wait for this process to take over.",
            self._gate.waiting,
        )
        yield GaugeMetricFamily(
            "fairlead_event_loop_lag_seconds",
            "Longest delay of the event loop in the last minute.",
            self._lag.longest_s,
        )
        yield certificates_family(self._certificate_ends)
        yield from self._informer_metrics()
        yield from self._store_metrics()
        yield from self._reign_metrics()

    def _informer_metrics(self) -> Iterable[Metric]:
        ages = GaugeMetricFamily(
            "fairlead_informer_age_seconds",
            "Time since the last proof that nothing is missing.",
            labels=["kind"],
        )
        relists = CounterMetricFamily(
            "fairlead_informer_relists", "Lists of everything.", labels=["kind"]
        )
        for kind, informer in self._find_informers().items():
            ages.add_metric([kind], informer.age_s)
            relists.add_metric([kind], informer.relists)
        return ages, relists

    def _store_metrics(self) -> Iterable[Metric]:
        labels = ["namespace", "cluster"]
        available = GaugeMetricFamily(
            "fairlead_store_available", "0 while metadata is frozen.", labels=labels
        )
        asleep = GaugeMetricFamily(
            "fairlead_cluster_hibernated",
            "1 while the brokers of a cluster have been stopped on purpose.",
            labels=labels,
        )
        for key, reign in self.reigns.items():
            available.add_metric(list(key), float(reign.is_store_available))
            asleep.add_metric(list(key), float(reign.spec.is_down))
        return available, asleep

    def _reign_metrics(self) -> Iterable[Metric]:
        labels = ["namespace", "cluster"]
        epoch = GaugeMetricFamily(
            "fairlead_controller_epoch", "0 while the tables are not taken over.", labels=labels
        )
        takeover = GaugeMetricFamily(
            "fairlead_controller_takeover_seconds",
            "From opening the tables to elected leaders.",
            labels=labels,
        )
        views = []
        for key, reign in self.reigns.items():
            epoch.add_metric(list(key), reign.controller_epoch)
            takeover.add_metric(list(key), reign.takeover_s)
            parts, summary = reign.parts, self._summaries.get(key)
            if parts is not None and summary is not None:
                views.append(ReignView(key, parts.controller, parts.sessions, summary))
        yield from (epoch, takeover)
        yield from reign_families(labels, views)
