"""When something is due, by cron's five fields. Pure."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError


class ScheduleError(Exception):
    """The schedule cannot be read, or is never due; the text says why."""


def next_time(schedule: str, after: datetime, time_zone: str = "UTC") -> datetime:
    """Return the first time after `after` that the schedule names by the clocks of a time zone."""
    try:
        zone = ZoneInfo(time_zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ScheduleError(
            f"spec.timeZone: there is no time zone {time_zone}: write a name such as Europe/Berlin"
        ) from error
    try:
        found = next(CronSim(schedule, after.astimezone(zone)))
    except CronSimError as error:
        raise ScheduleError(
            f"spec.schedule: {str(error) or 'not five fields of cron'}: write minute, hour, day of "
            "month, month and day of week, such as '0 3 * * *'"
        ) from error
    except StopIteration:
        raise ScheduleError(f"spec.schedule: {schedule} is never due") from None
    return found.astimezone(UTC)
