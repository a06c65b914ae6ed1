"""How far a plan is: what became of each of its moves. Pure."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from fairlead_model.cluster import ClusterImage
from fairlead_model.ids import topic_id_text


class MoveState(StrEnum):
    """The progress of one move of a plan."""

    DONE = "done"
    """The partition is where the plan wants it."""
    MOVING = "moving"
    """It is on its way there, or waits for its turn."""
    NOT_MOVED = "not moved"
    """It is where it was: not begun, refused, or called back."""
    CHANGED = "changed since"
    """The partition was deleted, or another reassignment moves it or has moved it."""


def state_of_move(
    move: Mapping[str, Any], image: ClusterImage, target: Sequence[int] | None
) -> MoveState:
    """Tell what became of a move; `target` is where its partition is going, None if nowhere."""
    if target is not None and list(target) == move["after"]:
        return MoveState.MOVING
    topic = image.topic(move["topic"])
    if topic is None or topic_id_text(topic.topic_id) != move["topicId"]:
        return MoveState.CHANGED
    record = image.partition(move["topic"], move["partition"])
    if record is None:
        return MoveState.CHANGED
    if list(record.replicas) == move["after"]:
        return MoveState.DONE
    # A cancellation gives the brokers back, maybe in another order.
    if target is None and set(record.replicas) == set(move["before"]):
        return MoveState.NOT_MOVED
    return MoveState.CHANGED
