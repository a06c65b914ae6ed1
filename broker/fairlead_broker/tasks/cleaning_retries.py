"""When a log whose compaction failed is tried again. Pure.

At first soon, because most errors pass (a full disk, a child that was killed for its memory), then
after twice as long each time, because a damaged batch stays and each attempt reads the log up to
it. New settings of its topic give a log another chance at once: that is how an operator answers.
One that finds no room on the disk has cost nothing, and waits no longer the next time: compaction
may be what makes room.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Collection

    from fairlead_model.configs.log_config import LogConfig

FIRST_MS: Final = 30_000
LONGEST_MS: Final = 3_600_000

Name = TypeVar("Name")


@dataclass(frozen=True, slots=True)
class _Failure:
    config: LogConfig
    wait_ms: int
    retry_ms: int
    is_uncleanable: bool = False
    is_without_room: bool = False


class CleaningRetries(Generic[Name]):
    """The logs whose last cleaning failed, by whatever names them; times are monotonic."""

    def __init__(self, first_ms: int = FIRST_MS) -> None:
        self._first_ms = first_ms
        self._failures: dict[Name, _Failure] = {}

    @property
    def uncleanable(self) -> int:
        """How many of them hold something that cannot be compacted."""
        return sum(failure.is_uncleanable for failure in self._failures.values())

    @property
    def without_room(self) -> int:
        """How many of them wait for room on the disk."""
        return sum(failure.is_without_room for failure in self._failures.values())

    def may_try(self, name: Name, config: LogConfig, now_ms: int) -> bool:
        """Tell whether a log has waited long enough, or has other settings now."""
        failure = self._failures.get(name)
        return failure is None or now_ms >= failure.retry_ms or config != failure.config

    def note_failure(
        self, name: Name, config: LogConfig, now_ms: int, *, is_uncleanable: bool = False
    ) -> int:
        """Note that a cleaning has failed; return how many milliseconds the log waits now."""
        before = self._failures.get(name)
        wait_ms = self._first_ms
        if before is not None and before.config == config:
            wait_ms = min(before.wait_ms * 2, LONGEST_MS)
        self._failures[name] = _Failure(config, wait_ms, now_ms + wait_ms, is_uncleanable)
        return wait_ms

    def note_no_room(self, name: Name, config: LogConfig, now_ms: int) -> tuple[int, bool]:
        """Note that a cleaning was not begun, or not finished, because the disk is full.

        Answers how many milliseconds the log waits now, and whether this is news.
        """
        before = self._failures.get(name)
        self._failures[name] = _Failure(
            config, self._first_ms, now_ms + self._first_ms, is_without_room=True
        )
        return self._first_ms, before is None or not before.is_without_room

    def note_success(self, name: Name) -> bool:
        """Note that a cleaning was finished; return whether the one before had failed."""
        return self._failures.pop(name, None) is not None

    def keep_only(self, names: Collection[Name]) -> None:
        """Forget logs that left this broker, or need no compaction any more."""
        for name in [name for name in self._failures if name not in names]:
            del self._failures[name]
