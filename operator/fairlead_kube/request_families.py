"""The metrics of a process' requests to the Kubernetes API."""

from collections.abc import Iterable, Mapping

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from fairlead_kube.client import KubeClient


class ApiRequests(Collector):
    """Reads the counters of clients, each under a name."""

    def __init__(self, clients: Mapping[str, KubeClient]) -> None:
        self._clients = clients

    def collect(self) -> Iterable[Metric]:
        """Yield the metrics."""
        requests = CounterMetricFamily(
            "fairlead_api_requests",
            "Requests to the Kubernetes API.",
            labels=["client", "verb", "outcome"],
        )
        seconds = CounterMetricFamily(
            "fairlead_api_request_seconds",
            "Time that they took; watches only until they began.",
            labels=["client", "verb"],
        )
        for name, client in self._clients.items():
            for (verb, outcome), count in client.counters.requests.items():
                requests.add_metric([name, verb, outcome], count)
            for verb, spent in client.counters.seconds.items():
                seconds.add_metric([name, verb], spent)
        return requests, seconds
