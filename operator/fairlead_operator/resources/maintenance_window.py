"""Maintenance windows of a LogCluster: when its brokers may be restarted."""

from dataclasses import dataclass
from typing import Annotated, Final, Literal, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from fairlead_model.resources.resource_shape import Bound, Text, Whole

Day: TypeAlias = Literal[
    "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"
]
WEEK_MINUTES: Final = 7 * 24 * 60


def is_time_zone(name: str) -> bool:
    """Tell whether a time zone of this name is known."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return False
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceWindow:
    """One window, which comes back every week or every day."""

    days: Annotated[
        tuple[Day, ...], "Days on which the window begins. Default: every day.", Bound(7)
    ] = ()
    start: Annotated[
        str,
        "Time at which the window begins, HH:MM in its time zone.",
        Text(
            5, 5, pattern="([01][0-9]|2[0-3]):[0-5][0-9]", hint="a time is HH:MM, such as '02:30'"
        ),
    ]
    duration_minutes: Annotated[
        int, "How long the window lasts; it may end after midnight.", Whole(10, WEEK_MINUTES)
    ]
    time_zone: Annotated[
        str,
        "Name of a time zone, such as Europe/Berlin.",
        Text(64, 1, pattern="[A-Za-z0-9_+/-]+", hint="a time zone is a name such as Etc/UTC"),
    ] = "Etc/UTC"
