"""The counters of a broker. Values that can be computed at a scrape are not here.

The hot path adds to plain integers: those of `BrokerMetrics`, of a topic's `TopicTraffic` and of an
API's `RequestTimes`. `http.metrics_page` makes Prometheus' text of them. Labels are bounded: names
of APIs and errors, and the `METRIC_…` limits for topics, partitions and brokers; never a client's
or a group's id.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from fairlead_broker.measures.durations import Durations, RequestTimes
from fairlead_broker.measures.rest_metrics import RestMetrics
from fairlead_broker.measures.traffic import Traffic

API_KEYS: Final = 128


def _all_request_times() -> list[RequestTimes]:
    return [RequestTimes() for _ in range(API_KEYS)]


@dataclass(slots=True)
class CleanerMetrics:
    """Counters of compaction; gauges say so."""

    runs: int = 0
    """Cleanings of a log that were finished."""
    failures: int = 0
    """Cleanings that ended in an error of the disk or of the child."""
    read_bytes: int = 0
    written_bytes: int = 0
    records_removed: int = 0
    null_keys_removed: int = 0
    """Of them, records that had no key."""
    last_run_ms: int = 0
    """A gauge: how long the last finished cleaning took."""
    is_running: int = 0
    """A gauge: 1 while a log is being compacted."""
    dirty_ratio_max: float = 0.0
    """A gauge: the largest dirty ratio of the logs that were due at the last check."""
    uncleanable: int = 0
    """A gauge: logs that are not compacted because they are damaged."""
    without_room: int = 0
    """A gauge: logs that are not compacted because the disk has no room for it."""


@dataclass(slots=True)
class BrokerMetrics:
    """Counters since the process started; gauges say so."""

    requests: list[int] = field(default_factory=lambda: [0] * API_KEYS)
    """By API key; keys that this broker doesn't serve are never counted."""
    client_times: list[RequestTimes] = field(default_factory=_all_request_times)
    """By API key: requests that were answered on listeners for clients."""
    peer_times: list[RequestTimes] = field(default_factory=_all_request_times)
    """The same on the brokers' listener, where every fetch is a follower's."""
    errors: Counter[str] = field(default_factory=Counter)
    """Refusals by the name of their error code."""
    throttles: Counter[str] = field(default_factory=Counter)
    """Answers that told a client to wait, by the kind of its quota."""
    throttle_ms: Counter[str] = field(default_factory=Counter)
    """How long clients were told to wait, in total, by the kind of the quota."""
    quota_meters: int = 0
    """A gauge: clients with a quota whose use is measured one by one."""
    denials: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Denied resources by the class of the principal and the type of the resource."""
    traffic: Traffic = field(default_factory=Traffic)
    replicated_out_bytes: int = 0
    """Bytes of records sent to followers."""
    preferred_read_replicas: int = 0
    """Partitions in fetches for which consumers were sent to a follower in their rack."""
    follower_reads: int = 0
    """Partitions led by another broker whose records this broker sent to consumers."""
    replicated_in_bytes: int = 0
    """Bytes of records fetched from leaders."""
    isr_shrinks: int = 0
    """Proposals of this broker that the controller has accepted, like the next counter."""
    isr_expands: int = 0
    isr_changes_failed: int = 0
    """Proposals that were refused or not answered; some of them are sent again."""
    connections_open: int = 0
    """A gauge: client connections at this moment."""
    connections_by_listener: Counter[str] = field(default_factory=Counter)
    """Gauges: the same by the name of the listener."""
    connections_opened: int = 0
    connections_refused: int = 0
    protocol_errors: int = 0
    """Connections closed because the peer broke the protocol."""
    tls_handshakes_failed: int = 0
    logins_succeeded: int = 0
    logins_failed: int = 0
    """Failed SASL logins; a login whose client disconnects before the end counts as neither."""
    certificates_refused: int = 0
    """How often new certificates were found that cannot be used."""
    loop_lag_ms: int = 0
    """A gauge: how late the last tick of the event loop was."""
    loop_lag_max_ms: int = 0
    """A gauge: the worst tick of the last minute."""
    cold_reads: int = 0
    """Slices that were not in the page cache when they had to be sent; up to a second old."""
    cold_read_bytes: int = 0
    recovery_processes_lost: int = 0
    """Child processes that died while they recovered this broker's logs, at its start."""
    segments_deleted: int = 0
    undeleted: int = 0
    """A gauge: deleted files and directories that the disk failed to remove; tried again."""
    cleaner: CleanerMetrics = field(default_factory=CleanerMetrics)
    flushes: int = 0
    flush_failures: int = 0
    flush_times: Durations = field(default_factory=Durations)
    """How long fsyncs of a log took, including failed ones."""
    verification_failures: int = 0
    """Partitions for which no coordinator confirmed that they are in a transaction."""
    verification_times: Durations = field(default_factory=Durations)
    """How long answers of transaction coordinators took, repetitions included."""
    leaderless_markers: int = 0
    """A gauge: markers of transactions that wait for their partitions to have a leader."""
    rest: RestMetrics = field(default_factory=RestMetrics)
    task_failures: int = 0
    """Rounds of a background task that ended in an exception; each is in the log."""
    failed_moves: int = 0
    """Moves of replicas between log directories that failed."""

    def note_throttle(self, kind: str, throttle_ms: int) -> None:
        """Count that a client has to wait."""
        self.throttles[kind] += 1
        self.throttle_ms[kind] += throttle_ms

    def times_on(self, *, is_internal: bool) -> list[RequestTimes]:
        """Return the times to which connections of a listener add their requests."""
        return self.peer_times if is_internal else self.client_times
