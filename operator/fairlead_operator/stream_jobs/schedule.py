"""When a load is due, by cron's five fields in UTC. Pure."""

from datetime import UTC, datetime

from cronsim import CronSim, CronSimError


class ScheduleError(Exception):
    """The schedule cannot be read, or is never due; the text says why."""


def next_time(schedule: str, after: datetime) -> datetime:
    """Return the first time after `after` that the schedule names."""
    try:
        found = next(CronSim(schedule, after.astimezone(UTC)))
    except CronSimError as error:
        raise ScheduleError(
            f"spec.schedule: {str(error) or 'not five fields of cron'}: write minute, hour, day of "
            "month, month and day of week, such as '0 3 * * *'"
        ) from error
    except StopIteration:
        raise ScheduleError(f"spec.schedule: {schedule} is never due") from None
    return found
