"""A decision in the making: the state as it would be, and the changes so far.

Later parts of one decision see what earlier parts changed, so that two topics of one request
cannot take the same name, and placement counts what it has just placed.
"""

from collections.abc import Sequence
from typing import Final

from fairlead_controller.decisions.events import Decision, Event, PartitionMove
from fairlead_controller.decisions.record_rules import (
    BrokenDecisionError,
    next_state,
    require_records,
)
from fairlead_controller.decisions.state import ControllerChange, ControllerState
from fairlead_controller.decisions.tables.table_room import TableRoom
from fairlead_model.cluster import PartitionChanged
from fairlead_model.invariants import InvariantViolation

LEFT_OUT: Final = "the controller's next record of the partition was wrong and is not written"
"""The answer for a partition that a decision leaves out."""


class Draft:
    """One decision while it is being made; it lives for one call of `decide`.

    With a `room`, additions have to fit the tables. A decision that must not be refused has none.
    """

    def __init__(self, state: ControllerState, room: TableRoom | None = None) -> None:
        self.state = state
        self._room = room
        self._changes: list[ControllerChange] = []
        self._explanations: list[str] = []
        self._moves: list[PartitionMove] = []
        self._violations: list[str] = []
        self._rest: list[Event] = []
        self.left_out: set[tuple[bytes, int]] = set()
        """Partitions, by topic id and index, that keep their records because the next was wrong."""

    def add(self, *changes: ControllerChange) -> None:
        """Take changes that hold from now on.

        RefusedError, and none does, if they do not fit the tables or break a rule of the records.
        """
        if changes:
            try:
                self._take(changes)
            except BrokenDecisionError as broken:
                self._violations.append(broken.violation)
                raise

    def move(self, moves: list[PartitionMove], *, all_or_none: bool = False) -> int:
        """Take other records of partitions, all at once; give how many leaders they change.

        A partition whose record would break a rule keeps the one that it has, and the others move.
        With `all_or_none`, where that would not be safe, BrokenDecisionError and none moves.
        """
        try:
            self._take(_changes_of(moves))
        except BrokenDecisionError:
            if not all_or_none:
                moves = [move for move in moves if self._is_sound(move)]
            self.add(*_changes_of(moves))
        self._moves.extend(moves)
        return sum(move.changes_leader for move in moves)

    def _take(self, changes: Sequence[ControllerChange]) -> None:
        state = next_state(self.state, changes)
        if self._room is not None:
            self._room.take(changes)
        self._changes.extend(changes)
        self.state = state

    def _is_sound(self, move: PartitionMove) -> bool:
        """Tell whether one record keeps the rules; note that it is left out if not."""
        try:
            require_records(self.state.image, _changes_of([move]))
        except InvariantViolation as violation:
            self._violations.append(str(violation))
            self.left_out.add((move.topic_id, move.index))
            return False
        return True

    def leave(self, event: Event) -> None:
        """Leave a part to a decision after this one, so that the loop runs in between."""
        self._rest.append(event)

    def explain(self, sentence: str) -> None:
        """Note what happens and why, for the log."""
        self._explanations.append(sentence)

    def decision(self, reply: object = None) -> Decision:
        """Return the finished decision."""
        return Decision(
            changes=tuple(self._changes),
            reply=reply,  # type: ignore[arg-type]
            explanations=tuple(self._explanations),
            moves=tuple(self._moves),
            violations=tuple(self._violations),
            rest=tuple(self._rest),
            after=self.state,
        )


def _changes_of(moves: list[PartitionMove]) -> list[PartitionChanged]:
    return [PartitionChanged(move.topic_id, move.index, move.after) for move in moves]
