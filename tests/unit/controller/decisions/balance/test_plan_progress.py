"""What became of each move of a plan."""

from typing import Any

import pytest

from fairlead_controller.decisions.balance.plan_progress import MoveState, state_of_move
from fairlead_model.cluster import (
    ClusterImage,
    PartitionChanged,
    TopicChanged,
    TopicHeader,
    empty_image,
)
from fairlead_model.ids import TopicId, topic_id_text
from fairlead_model.partition import PartitionRegistration

T = TopicId(b"t" * 16)
MOVE: dict[str, Any] = {
    "topic": "t",
    "topicId": topic_id_text(T),
    "partition": 0,
    "before": [0, 1],
    "after": [2, 1],
}


def image(*replicas: int, topic_id: TopicId = T) -> ClusterImage:
    return empty_image("c").apply(
        [
            TopicChanged(TopicHeader("t", topic_id, 1)),
            PartitionChanged(topic_id, 0, PartitionRegistration(replicas, replicas, replicas[0])),
        ]
    )


@pytest.mark.parametrize(
    ("replicas", "target", "state"),
    [
        ((0, 1), None, MoveState.NOT_MOVED),
        ((1, 0), None, MoveState.NOT_MOVED),
        ((0, 1), [2, 1], MoveState.MOVING),
        ((2, 1, 0), [2, 1], MoveState.MOVING),
        ((2, 1), None, MoveState.DONE),
        ((2, 1), [3, 1], MoveState.DONE),
        ((0, 1), [3, 1], MoveState.CHANGED),
        ((3, 1), None, MoveState.CHANGED),
        ((1, 2), None, MoveState.CHANGED),
    ],
)
def test_a_move_is_where_its_partition_is_and_goes(
    replicas: tuple[int, ...], target: list[int] | None, state: MoveState
) -> None:
    assert state_of_move(MOVE, image(*replicas), target) is state


def test_a_deleted_topic_and_another_one_of_its_name_are_not_the_plans() -> None:
    assert state_of_move(MOVE, empty_image("c"), None) is MoveState.CHANGED
    another = image(2, 1, topic_id=TopicId(b"u" * 16))
    assert state_of_move(MOVE, another, None) is MoveState.CHANGED
    assert state_of_move(MOVE | {"partition": 1}, image(2, 1), None) is MoveState.CHANGED
