"""Metrics of the HTTP API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.measures.exposition import label_set

if TYPE_CHECKING:
    from fairlead_broker.measures.exposition import Exposition
    from fairlead_broker.measures.rest_metrics import RestMetrics


def expose_rest(out: Exposition, metrics: RestMetrics) -> None:
    """Add answers, their times, and the records that were produced and read."""
    out.family(
        "fairlead_rest_requests_total",
        "counter",
        "Requests to the HTTP API that were answered, by operation and status.",
        [
            (label_set(operation=operation, status=status), count)
            for (operation, status), count in sorted(metrics.answers.items())
        ],
    )
    out.histogram(
        "fairlead_rest_request_seconds",
        "From the head of a request to the HTTP API to its answer, waiting included.",
        [(label_set(operation=name), times) for name, times in sorted(metrics.times.items())],
    )
    out.one(
        "fairlead_rest_requests_in_flight",
        "gauge",
        "Requests to the HTTP API that are being answered.",
        metrics.in_flight,
    )
    out.one(
        "fairlead_rest_consumer_instances",
        "gauge",
        "Consumer instances of the HTTP API.",
        metrics.instances,
    )
    for name, meaning, value in (
        ("records_produced", "Records produced by HTTP.", metrics.records_in),
        ("records_read", "Records read by HTTP.", metrics.records_out),
        ("records_refused", "Records by HTTP that were refused.", metrics.records_refused),
        (
            "connections_refused",
            "Connections to the HTTP API that were too many.",
            metrics.connections_refused,
        ),
    ):
        out.one(f"fairlead_rest_{name}_total", "counter", meaning, value)
