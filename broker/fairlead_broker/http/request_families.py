"""Metrics of requests: their number, their times, and refusals.

They are Kafka's `RequestMetrics`, under the names that the usual rules of the JMX exporter give
them, and Fairlead's own histogram, which unlike quantiles can be summed over brokers.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from fairlead_broker.measures.durations import WINDOW_NS, RecentDurations, RequestTimes
from fairlead_broker.measures.exposition import label_set
from fairlead_wire.api_keys import ApiKey

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fairlead_broker.measures.broker_metrics import BrokerMetrics
    from fairlead_broker.measures.exposition import Exposition

_PREFIX: Final = "kafka_network_requestmetrics"
_BY_THEMSELVES: Final = ("Produce", "FetchConsumer", "FetchFollower")
"""Requests with their own histogram; the others share one."""
FLUSH: Final = "flush"
VERIFICATION: Final = "verification"


def _request_name(api_key: int) -> str:
    return "".join(word.capitalize() for word in ApiKey(api_key).name.split("_"))


def _merge(all_times: Iterable[RequestTimes]) -> RequestTimes:
    merged = RequestTimes()
    for times in all_times:
        merged.counts = [a + b for a, b in zip(merged.counts, times.counts, strict=True)]
        merged.total_ns += times.total_ns
        merged.local_ns += times.local_ns
        merged.remote_ns += times.remote_ns
    return merged


def _times_by_request(metrics: BrokerMetrics) -> dict[str, RequestTimes]:
    """Return the times of every API that was ever requested, by Kafka's name of the request."""
    found: dict[str, RequestTimes] = {}
    for api_key, count in enumerate(metrics.requests):
        clients, peers = metrics.client_times[api_key], metrics.peer_times[api_key]
        if api_key == ApiKey.FETCH:
            found["FetchConsumer"] = clients
            found["FetchFollower"] = peers
        elif count or api_key == ApiKey.PRODUCE:
            found[_request_name(api_key)] = _merge((clients, peers))
    return found


class RequestFamilies:
    """Lives as long as the process, to know which requests are recent."""

    def __init__(self) -> None:
        self._recent = RecentDurations()
        self._busy_before = (time.perf_counter_ns(), 0)
        self._busy_after = self._busy_before

    def expose(self, out: Exposition, metrics: BrokerMetrics) -> None:
        """Add all families of requests and flushes."""
        now_ns = time.perf_counter_ns()
        by_request = _times_by_request(metrics)
        self._recent.turn(
            now_ns,
            {name: times.counts for name, times in by_request.items()}
            | {
                FLUSH: metrics.flush_times.counts,
                VERIFICATION: metrics.verification_times.counts,
            },
        )
        self._expose_counts(out, metrics)
        self._expose_times(out, by_request)
        for key, name, meaning, times in (
            (
                FLUSH,
                "kafka_log_logflushstats_logflushrateandtimems",
                "What fsyncs of a log took, in milliseconds.",
                metrics.flush_times,
            ),
            (
                VERIFICATION,
                "kafka_server_addpartitionstotxnmanager_verificationtimems",
                "What answers of coordinators about transactions took, in milliseconds.",
                metrics.verification_times,
            ),
        ):
            recent = self._recent.since(key, times.counts)
            out.summary(name, meaning, [("", times.count, times.total_ns, recent)])
        out.one(
            "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
            "gauge",
            "Share of the last minutes that handling requests left to the event loop, 0 to 1.",
            self._idle_share(now_ns, sum(times.local_ns for times in by_request.values())),
        )

    def _expose_counts(self, out: Exposition, metrics: BrokerMetrics) -> None:
        asked = [(key, count) for key, count in enumerate(metrics.requests) if count]
        out.family(
            "fairlead_requests_total",
            "counter",
            "Requests received, by API.",
            [(label_set(api=ApiKey(key).name.lower()), count) for key, count in asked],
        )
        out.family(
            "fairlead_errors_total",
            "counter",
            "Refusals answered, by error code.",
            [(label_set(error=name), count) for name, count in sorted(metrics.errors.items())],
        )
        out.family(
            "fairlead_authorization_denials_total",
            "counter",
            "Resources that were denied to who asked for them.",
            [
                (label_set(principal=who, resource=what), count)
                for (who, what), count in sorted(metrics.denials.items())
            ],
        )

        out.family(
            "fairlead_throttles_total",
            "counter",
            "Clients that were told to wait, by the quota that they have used up.",
            [(label_set(quota=kind), count) for kind, count in sorted(metrics.throttles.items())],
        )
        out.family(
            "fairlead_throttle_time_seconds_total",
            "counter",
            "How long they were told to wait, by the quota that they have used up.",
            [
                (label_set(quota=kind), total_ms / 1000)
                for kind, total_ms in sorted(metrics.throttle_ms.items())
            ],
        )

    def _expose_times(self, out: Exposition, by_request: dict[str, RequestTimes]) -> None:
        labelled = [
            (label_set(request=name), name, times, times.count)
            for name, times in sorted(by_request.items())
        ]
        out.family(
            f"{_PREFIX}_requests_total",
            "counter",
            "Requests answered, by Kafka's name of the request.",
            [(labels, count) for labels, _, _, count in labelled],
        )
        out.summary(
            f"{_PREFIX}_totaltimems",
            "From the last byte of a request to its reply, waiting included, in milliseconds.",
            [
                (labels, count, times.total_ns, self._recent.since(name, times.counts))
                for labels, name, times, count in labelled
            ],
        )
        out.summary(
            f"{_PREFIX}_localtimems",
            "What the event loop spent on requests, in milliseconds.",
            [(labels, count, times.local_ns, ()) for labels, _, times, count in labelled],
        )
        out.summary(
            f"{_PREFIX}_remotetimems",
            "What requests waited for other brokers, for records or for a flush, in milliseconds.",
            [(labels, count, times.remote_ns, ()) for labels, _, times, count in labelled],
        )
        out.summary(
            f"{_PREFIX}_requestqueuetimems",
            "What requests waited behind earlier ones of their connection, in milliseconds.",
            [
                (labels, count, max(times.total_ns - times.local_ns - times.remote_ns, 0), ())
                for labels, _, times, count in labelled
            ],
        )
        others = [times for name, times in by_request.items() if name not in _BY_THEMSELVES]
        out.histogram(
            "fairlead_request_seconds",
            "From the last byte of a request to its reply, waiting included.",
            [(label_set(request=name), by_request[name]) for name in _BY_THEMSELVES]
            + [(label_set(request="Other"), _merge(others))],
        )

    def _idle_share(self, now_ns: int, busy_ns: int) -> float:
        if now_ns - self._busy_after[0] >= WINDOW_NS:
            self._busy_before, self._busy_after = self._busy_after, (now_ns, busy_ns)
        then_ns, then_busy_ns = self._busy_before
        passed_ns = max(now_ns - then_ns, 1)
        return min(max(1 - (busy_ns - then_busy_ns) / passed_ns, 0.0), 1.0)
