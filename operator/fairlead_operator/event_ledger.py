"""Which Events are worth a write. Pure; the time is a parameter.

Each object gets a bounded number of writes a minute. A repeated Event is a series: its count is
written at most once a minute. Events beyond the bound are counted, and the next Event of that
reason says how many were left out.
"""

from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field
from typing import Final

WRITES_PER_MINUTE_MAX: Final = 10
"""Writes for one object in a minute, new Events and counts together."""
OBJECTS_MAX: Final = 4_096
"""Objects that are remembered; the one without Events for the longest time is dropped first."""
SERIES_IDLE_S: Final = 360.0
"""Silence after which the same Event is a new one."""
SERIES_WRITE_INTERVAL_S: Final = 60.0
_MINUTE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class EventKey:
    """The fields by which two Events are the same."""

    object_uid: str
    type: str
    reason: str
    note: str


@dataclass(frozen=True, slots=True)
class NewEvent:
    """Write an Event; so many of its reason were left out before it."""

    left_out: int


@dataclass(frozen=True, slots=True)
class RepeatedEvent:
    """Write the new count into the Event of this name."""

    name: str
    count: int


@dataclass(slots=True)
class _Series:
    name: str
    seen_at_s: float
    written_at_s: float
    count: int = 1


@dataclass(slots=True)
class _History:
    write_times_s: deque[float] = field(default_factory=deque)
    series: dict[EventKey, _Series] = field(default_factory=dict)
    left_out: Counter[str] = field(default_factory=Counter)

    def forget_before(self, now_s: float) -> None:
        while self.write_times_s and now_s - self.write_times_s[0] >= _MINUTE_S:
            self.write_times_s.popleft()
        over = [k for k, series in self.series.items() if now_s - series.seen_at_s > SERIES_IDLE_S]
        for key in over:
            del self.series[key]

    @property
    def is_full(self) -> bool:
        return len(self.write_times_s) >= WRITES_PER_MINUTE_MAX


class EventLedger:
    """Events that were written recently, by object."""

    def __init__(self) -> None:
        self._histories: OrderedDict[str, _History] = OrderedDict()
        self.left_out = 0
        """Events that were not written because their object had too many."""

    def decide(self, key: EventKey, name: str, now_s: float) -> NewEvent | RepeatedEvent | None:
        """Decide about an Event that would be called `name`; return None for nothing to write."""
        history = self._histories.setdefault(key.object_uid, _History())
        self._histories.move_to_end(key.object_uid)
        if len(self._histories) > OBJECTS_MAX:
            self._histories.popitem(last=False)
        history.forget_before(now_s)
        series = history.series.get(key)
        if series is not None:
            series.count += 1
            series.seen_at_s = now_s
            if history.is_full or now_s - series.written_at_s < SERIES_WRITE_INTERVAL_S:
                return None
            series.written_at_s = now_s
            history.write_times_s.append(now_s)
            return RepeatedEvent(series.name, series.count)
        if history.is_full:
            history.left_out[key.reason] += 1
            self.left_out += 1
            return None
        history.write_times_s.append(now_s)
        history.series[key] = _Series(name, seen_at_s=now_s, written_at_s=now_s)
        return NewEvent(left_out=history.left_out.pop(key.reason, 0))

    def forget(self, key: EventKey) -> None:
        """Drop a series whose Event is not in the API: the next one is a new Event."""
        history = self._histories.get(key.object_uid)
        if history is not None:
            history.series.pop(key, None)
