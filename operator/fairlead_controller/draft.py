"""A decision in the making: the state as it would be, and the changes so far.

Later parts of one decision see what earlier parts changed, so that two topics of one request
cannot take the same name, and placement counts what it has just placed.
"""

from fairlead_controller.events import Decision, PartitionMove
from fairlead_controller.state import ControllerChange, ControllerState
from fairlead_model.cluster import PartitionChanged


class Draft:
    """Lives for one call of `decide`."""

    def __init__(self, state: ControllerState) -> None:
        self.state = state
        self._changes: list[ControllerChange] = []
        self._explanations: list[str] = []
        self._moves: list[PartitionMove] = []

    def add(self, *changes: ControllerChange) -> None:
        """Take changes that hold from now on."""
        if changes:
            self._changes.extend(changes)
            self.state = self.state.apply(changes)

    def move(self, moves: list[PartitionMove]) -> int:
        """Take other records of partitions, all at once; give how many leaders they change."""
        self._moves.extend(moves)
        self.add(*(PartitionChanged(move.topic_id, move.index, move.after) for move in moves))
        return sum(move.changes_leader for move in moves)

    def explain(self, sentence: str) -> None:
        """Note what happens and why, for the log."""
        self._explanations.append(sentence)

    def decision(self, reply: object = None) -> Decision:
        """Give the finished decision."""
        return Decision(
            changes=tuple(self._changes),
            reply=reply,  # type: ignore[arg-type]
            explanations=tuple(self._explanations),
            moves=tuple(self._moves),
        )
