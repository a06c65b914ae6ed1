"""When brokers in service may restart: maintenance windows, and a temporary permission. Pure.

A window begins at a local time and lasts a number of minutes, however clocks are changed meanwhile.
If clocks skip its local time, it begins that much later; if they show it twice, the first time
counts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from fairlead_operator.conditions import api_time
from fairlead_operator.resources.maintenance_window import MaintenanceWindow
from fairlead_operator.specs.names import RESTARTS_ALLOWED_ANNOTATION

_WEEK: Final = timedelta(days=7)
_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartHold:
    """Why brokers are not restarted now."""

    until: str
    """When the next window begins, in the API's format of times."""
    message: str


def find_hold(
    windows: Sequence[MaintenanceWindow], allowed_until: str, now_ms: int
) -> RestartHold | None:
    """Return why no broker in service may restart now; None if one may.

    `allowed_until` is the annotation by which a person permits restarts until that time.
    """
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    if not windows or any(_is_open(window, now) for window in windows):
        return None
    allowed = _read_time(allowed_until)
    if allowed is not None and now < allowed:
        return None
    begins = api_time(min(_next_start(window, now) for window in windows))
    message = f"the next maintenance window begins at {begins}"
    if allowed_until and allowed is None:
        message += (
            f"; the annotation {RESTARTS_ALLOWED_ANNOTATION} says {allowed_until[:64]!r}, which is "
            "no time with a zone such as 2026-01-31T22:00:00Z"
        )
    return RestartHold(until=begins, message=message)


def _is_open(window: MaintenanceWindow, now: datetime) -> bool:
    length = timedelta(minutes=window.duration_minutes)
    return any(start <= now < start + length for start in _starts(window, now))


def _next_start(window: MaintenanceWindow, now: datetime) -> datetime:
    return next(start for start in _starts(window, now) if start > now)


def _starts(window: MaintenanceWindow, now: datetime) -> Iterator[datetime]:
    """Yield the starts of a window, in order, from the earliest that may still be open."""
    zone = ZoneInfo(window.time_zone)
    day = (now - _WEEK).astimezone(zone).date() - timedelta(days=1)
    clock = time.fromisoformat(window.start)
    last = (now + _WEEK).astimezone(zone).date() + timedelta(days=1)
    while day <= last:
        if not window.days or _DAYS[day.weekday()] in window.days:
            yield _moment(day, clock, zone)
        day += timedelta(days=1)


def _moment(day: date, clock: time, zone: ZoneInfo) -> datetime:
    return datetime.combine(day, clock, zone).astimezone(UTC)


def _read_time(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None
