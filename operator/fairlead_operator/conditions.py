"""Conditions of a status: a list with one entry a type, as `kubectl wait` understands it.

Pure: lists in, lists out. A time changes only when the status of a condition changes, so that an
unchanged status is equal to the one before and is not written again.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from fairlead_model.resources.hibernation import HIBERNATED, SLEEP_REASONS
from fairlead_operator.resources.condition import MESSAGE_LENGTH_MAX

Condition = dict[str, Any]
PAUSED: Final = "Paused"
"""Type of the condition that is set while the operator does not act on changes of a spec."""
_WORDS: Final = {True: "True", False: "False", None: "Unknown"}


def set_condition(
    conditions: Sequence[Mapping[str, Any]],
    type: str,
    status: bool | None,
    reason: str,
    message: str,
    *,
    generation: int,
    now: datetime,
) -> list[Condition]:
    """Return the conditions with this one in its place, or at the end if it is new.

    `status` is None for what is not known; `generation` is that of the spec it is about.
    `lastTransitionTime` is `now` only if the status differs from before.
    """
    before = find_condition(conditions, type)
    word = _WORDS[status]
    is_same = before is not None and before.get("status") == word
    claim = {
        "type": type,
        "status": word,
        "reason": reason,
        "message": shortened(message),
        "lastTransitionTime": before["lastTransitionTime"]
        if before is not None and is_same
        else api_time(now),
        "observedGeneration": generation,
    }
    if before is None:
        return [*map(dict, conditions), claim]
    return [claim if entry.get("type") == type else dict(entry) for entry in conditions]


def set_paused(
    conditions: Sequence[Mapping[str, Any]], message: str, *, generation: int, now: datetime
) -> list[Condition]:
    """Return the conditions with `Paused`; without it if no message says what waits."""
    if not message:
        return without_condition(conditions, PAUSED)
    return set_condition(
        conditions, PAUSED, True, "AskedFor", message, generation=generation, now=now
    )


def find_condition(conditions: Sequence[Mapping[str, Any]], type: str) -> Mapping[str, Any] | None:
    """Return the condition of a type."""
    return next((entry for entry in conditions if entry.get("type") == type), None)


def is_asleep(log_cluster: Mapping[str, Any]) -> bool:
    """Tell whether brokers of a LogCluster stop or have stopped to sleep, and are not all back."""
    conditions = (log_cluster.get("status") or {}).get("conditions") or ()
    return (find_condition(conditions, HIBERNATED) or {}).get("reason") in SLEEP_REASONS


def without_condition(conditions: Sequence[Mapping[str, Any]], type: str) -> list[Condition]:
    """Return the conditions without that of a type."""
    return [dict(entry) for entry in conditions if entry.get("type") != type]


def shortened(message: str, maximum: int = MESSAGE_LENGTH_MAX) -> str:
    """Cut a text to the length that a condition may hold; a cut text ends with an ellipsis."""
    return message if len(message) <= maximum else f"{message[: maximum - 1]}…"


def api_time(moment: datetime) -> str:
    """Write a time as the API does: UTC, to the second."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
