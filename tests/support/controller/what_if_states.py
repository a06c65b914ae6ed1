"""A state of two brokers, for tests of forecasts."""

from typing import Any

from fairlead_cli.whatif.group_row import OFFSETS_TOPIC
from fairlead_controller.decisions.state import BrokerConfirmed, CountersChanged, initial_state
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

T, OFFSETS = TopicId(b"t" * 16), TopicId(b"o" * 16)


def make_state(*assignments: tuple[int, ...], minimum: int = 1) -> Any:
    """Return a state of brokers 0 and 1; the last partition is that of the coordinator."""
    image = empty_image("c").apply(
        [
            *(BrokerChanged(BrokerRegistration(each, 1, fenced=False)) for each in range(2)),
            TopicChanged(TopicHeader("t", T, len(assignments))),
            *(
                PartitionChanged(
                    T,
                    index,
                    PartitionRegistration(each, each, each[0], min_insync_replicas=minimum),
                )
                for index, each in enumerate(assignments)
            ),
            TopicChanged(TopicHeader(OFFSETS_TOPIC, OFFSETS, 1)),
            PartitionChanged(OFFSETS, 0, PartitionRegistration((0, 1), (0, 1), 0)),
        ]
    )
    state = initial_state(image, controller_epoch=1, counters=CountersChanged(1, 0))
    return state.apply([BrokerConfirmed(0), BrokerConfirmed(1)])
