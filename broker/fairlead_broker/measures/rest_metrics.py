"""The counters of the HTTP API. Labels are names of operations and statuses: bounded."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from fairlead_broker.measures.durations import Durations


@dataclass(slots=True)
class RestMetrics:
    """Counters since the process started; gauges say so."""

    answers: Counter[tuple[str, int]] = field(default_factory=Counter)
    """Answers by the name of the operation and the status."""
    times: dict[str, Durations] = field(default_factory=dict)
    """By the name of the operation: time from the head of a request to its answer."""
    in_flight: int = 0
    """A gauge: requests that are being answered."""
    instances: int = 0
    """A gauge: consumer instances."""
    connections_refused: int = 0
    records_in: int = 0
    """Records that were produced."""
    records_refused: int = 0
    """Records that were answered with their own error."""

    records_out: int = 0
    """Records that were read."""

    def note(self, operation: str, status: int, duration_ns: int) -> None:
        """Count one answer."""
        self.answers[operation, status] += 1
        times = self.times.get(operation)
        if times is None:
            times = self.times[operation] = Durations()
        times.note(duration_ns)
