"""Clusters as the controller reports them, with the data that their brokers report."""

from __future__ import annotations

from typing import Any

from fairlead_controller.decisions.state import (
    BrokerConfirmed,
    ControllerState,
    CountersChanged,
    initial_state,
)
from fairlead_model.broker import BrokerRegistration
from fairlead_model.cluster import (
    BrokerChanged,
    PartitionChanged,
    TopicChanged,
    TopicHeader,
    empty_image,
)
from fairlead_model.ids import TopicId
from fairlead_model.partition import PartitionRegistration

GB = 10**9
MB = 10**6


def state_of(brokers: int, topics: dict[str, list[tuple[int, ...]]]) -> ControllerState:
    """Brokers in service, and topics with their assignments; the first replica leads."""
    changes: list[Any] = [
        BrokerChanged(BrokerRegistration(each, 1, fenced=False)) for each in range(brokers)
    ]
    for name, assignments in topics.items():
        topic_id = TopicId(name.encode().ljust(16, b"."))
        changes.append(TopicChanged(TopicHeader(name, topic_id, len(assignments))))
        changes += [
            PartitionChanged(
                topic_id, index, PartitionRegistration(replicas, replicas, replicas[0])
            )
            for index, replicas in enumerate(assignments)
        ]
    image = empty_image("c").apply(changes)
    state = initial_state(image, controller_epoch=1, counters=CountersChanged(1, 0))
    return state.apply(map(BrokerConfirmed, range(brokers)))


def answer(broker_id: int, topics: dict[str, list[list[Any]]], **fields: Any) -> dict[str, Any]:
    told = {"version": 1, "brokerId": broker_id, "totalBytes": 100 * GB, "freeBytes": 90 * GB}
    return {**told, "copyBytesPerSecond": 32 * MB, "topics": topics, **fields}
