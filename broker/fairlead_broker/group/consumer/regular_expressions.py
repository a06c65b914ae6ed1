"""When the topics of a group's patterns are looked up again (Kafka's `TopicRegexResolver`).

Pure. All patterns of a group are looked up together, off the loop, whenever a heartbeat comes and
there is a reason: a pattern that was not looked up yet, topics created or deleted since, or the
refresh interval. There is a pause between two lookups, so that a group whose members disagree does
not do it all the time. A group that knows the topics of none of its patterns does not pause, unless
its last lookup came to nothing: its members would read nothing meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from fairlead_broker.group.records.consumer_state import ConsumerGroupState

PAUSE_MS: Final = 10_000


class PatternWatch:
    """The look-ups of one group."""

    __slots__ = ("_began_ms", "_is_running", "_topics_number")

    def __init__(self) -> None:
        self._began_ms: int | None = None
        self._is_running = False
        self._topics_number: int | None = None
        """The topics at the last lookup; None if its result is unknown."""

    def is_due(
        self, state: ConsumerGroupState, topics_number: int, *, now_ms: int, refresh_ms: int
    ) -> bool:
        """Whether to look the group's patterns up now."""
        patterns = state.patterns()
        if not patterns or self._is_running:
            return False
        # All members of a lookup may be gone since: who joins then waits for nobody's turn.
        may_pause = bool(state.regular_expressions) or self._topics_number is None
        if may_pause and self._began_ms is not None and now_ms - self._began_ms < PAUSE_MS:
            return False
        return (
            not patterns <= state.regular_expressions.keys()
            or self._topics_number != topics_number
            or self._began_ms is None
            or now_ms - self._began_ms >= refresh_ms
        )

    def begin(self, topics_number: int, *, now_ms: int) -> None:
        """Note that they are being looked up."""
        self._began_ms, self._topics_number, self._is_running = now_ms, topics_number, True

    def end(self) -> None:
        """Note that this is over, whatever came of it."""
        self._is_running = False

    def forget(self) -> None:
        """Note that what was found is not in the log: it is looked up again after the pause."""
        self._topics_number = None
