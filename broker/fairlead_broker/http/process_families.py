"""Metrics of the broker process itself: its loop, disk, connections and controller."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final, Protocol

from fairlead_broker.http.readiness import Phase
from fairlead_broker.measures.exposition import label_set

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairlead_broker.broker import Broker
    from fairlead_broker.http.readiness import Readiness
    from fairlead_broker.measures.broker_metrics import BrokerMetrics
    from fairlead_broker.measures.exposition import Exposition

    class Session(Protocol):
        """The metrics of the session with the controller."""

        broker_epoch: int
        controller_epoch: int

        @property
        def is_connected(self) -> bool: ...
        @property
        def silence_s(self) -> float: ...


_PAGE_SIZE: Final = os.sysconf("SC_PAGE_SIZE")
_RESIDENT_PAGES_FIELD: Final = 1
_BROKER_STATES: Final = {
    Phase.LOADING: 2,
    Phase.REGISTERING: 1,
    Phase.SERVING: 3,
    Phase.STOPPING: 6,
}
"""Kafka's numbers of the states: starting, recovery, running, pending controlled shutdown."""


def expose_process(out: Exposition, readiness: Readiness) -> None:
    """Add the metrics that are known before there is a broker."""
    out.one(
        "fairlead_ready", "gauge", "1 while the broker serves clients.", int(readiness.is_ready)
    )
    out.one(
        "kafka_server_kafkaserver_brokerstate",
        "gauge",
        "1 starting, 2 recovering logs, 3 running, 6 stopping.",
        _BROKER_STATES[readiness.phase],
    )
    out.one(
        "process_resident_memory_bytes",
        "gauge",
        "Resident memory.",
        _resident_pages() * _PAGE_SIZE,
    )
    out.one(
        "process_cpu_seconds_total", "counter", "User and system CPU time.", time.process_time()
    )


def expose_counters(out: Exposition, metrics: BrokerMetrics) -> None:
    """Add connections, the event loop, the disk and failures."""
    for name, meaning, value in (
        ("connections", "Open connections.", metrics.connections_open),
        (
            "loop_lag_seconds",
            "How late the event loop's last tick was.",
            metrics.loop_lag_ms / 1000,
        ),
        (
            "loop_lag_seconds_max",
            "Largest delay of an event loop tick in the last minute.",
            metrics.loop_lag_max_ms / 1000,
        ),
        (
            "quota_meters",
            "Clients with a quota whose use is measured one by one.",
            metrics.quota_meters,
        ),
        ("undeleted_files", "Deleted files that the disk could not remove.", metrics.undeleted),
    ):
        out.one(f"fairlead_{name}", "gauge", meaning, value)
    for name, meaning, value in (
        ("connections", "Connections accepted.", metrics.connections_opened),
        ("connections_refused", "Connections refused by a limit.", metrics.connections_refused),
        (
            "protocol_errors",
            "Connections closed because the peer broke the protocol.",
            metrics.protocol_errors,
        ),
        ("tls_handshakes_failed", "TLS handshakes that failed.", metrics.tls_handshakes_failed),
        ("logins", "Successful logins by SASL.", metrics.logins_succeeded),
        ("logins_failed", "Logins by SASL that failed.", metrics.logins_failed),
        (
            "certificates_refused",
            "New certificates that cannot be used.",
            metrics.certificates_refused,
        ),
        ("cold_reads", "Reads that were not in the page cache.", metrics.cold_reads),
        (
            "cold_read_bytes",
            "Bytes that cold reads brought into the page cache.",
            metrics.cold_read_bytes,
        ),
        (
            "recovery_processes_lost",
            "Processes that died while they recovered a log.",
            metrics.recovery_processes_lost,
        ),
        ("segments_deleted", "Segments removed by retention.", metrics.segments_deleted),
        ("flushes", "Logs flushed to the disk.", metrics.flushes),
        ("flush_failures", "Flushes that failed; the log is offline.", metrics.flush_failures),
        ("failed_moves", "Moves between log directories that failed.", metrics.failed_moves),
        (
            "task_failures",
            "Runs of background tasks that ended in an exception.",
            metrics.task_failures,
        ),
    ):
        out.one(f"fairlead_{name}_total", "counter", meaning, value)
    out.family(
        "kafka_server_socket_server_metrics_connection_count",
        "gauge",
        "Open connections of a listener.",
        [
            (label_set(listener=listener), count)
            for listener, count in sorted(metrics.connections_by_listener.items())
        ],
    )


def expose_certificates(out: Exposition, ends_s: Mapping[str, float]) -> None:
    """Add when the current certificates expire."""
    out.family(
        "fairlead_certificate_not_after_timestamp_seconds",
        "gauge",
        "Unix time at which a listener's certificate expires.",
        [(label_set(listener=listener), end) for listener, end in sorted(ends_s.items())],
    )


def expose_waiting(out: Exposition, broker: Broker) -> None:
    """Add the purgatories and fetch sessions."""
    fetches, produces = len(broker.fetch_purgatory), len(broker.produce_purgatory)
    out.one("fairlead_parked_fetches", "gauge", "Fetch requests that wait for records.", fetches)
    out.one(
        "fairlead_parked_produces",
        "gauge",
        "Produce requests that wait for replicas or the disk.",
        produces,
    )
    out.family(
        "kafka_server_delayedoperationpurgatory_purgatorysize",
        "gauge",
        "Requests that wait for records, replicas or the disk.",
        [
            (label_set(delayedOperation="Fetch"), fetches),
            (label_set(delayedOperation="Produce"), produces),
        ],
    )
    out.one(
        "kafka_server_fetchsessioncache_numincrementalfetchsessions",
        "gauge",
        "Fetch sessions of consumers.",
        len(broker.fetch_sessions),
    )
    out.one(
        "kafka_server_fetchsessioncache_numincrementalfetchpartitionscached",
        "gauge",
        "Partitions in fetch sessions.",
        broker.fetch_sessions.partitions_count,
    )


def expose_session(out: Exposition, session: Session | None) -> None:
    """Add the state of the session with the controller."""
    is_up = session is not None and session.is_connected
    out.one(
        "fairlead_controller_session_up",
        "gauge",
        "1 while an active controller has this broker registered.",
        int(is_up),
    )
    out.family(
        "fairlead_controller_silence_seconds",
        "gauge",
        "Time since the broker last heard from a controller.",
        [] if session is None else [("", max(session.silence_s, 0.0))],
    )
    out.family(
        "fairlead_session_controller_epoch",
        "gauge",
        "Epoch of the controller with which this broker last registered.",
        [] if session is None else [("", session.controller_epoch)],
    )
    out.family(
        "fairlead_broker_epoch",
        "gauge",
        "Epoch that the controller gave to this start of the broker.",
        [] if session is None else [("", session.broker_epoch)],
    )


def _resident_pages() -> int:
    descriptor = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
    try:
        return int(os.read(descriptor, 256).split()[_RESIDENT_PAGES_FIELD])
    finally:
        os.close(descriptor)
