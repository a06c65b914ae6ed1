"""States of groups, of which librdkafka names those of the classic protocol."""

import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupType, Node
from confluent_kafka.admin import ConsumerGroupDescription

from fairlead_operator.consumer_groups.kafka_client import state_name

CLASSIC, CONSUMER = ConsumerGroupType.CLASSIC, ConsumerGroupType.CONSUMER


@pytest.mark.parametrize(
    ("kind", "state", "name"),
    [
        (CLASSIC, ConsumerGroupState.STABLE, "Stable"),
        (CLASSIC, ConsumerGroupState.PREPARING_REBALANCING, "PreparingRebalance"),
        (CLASSIC, ConsumerGroupState.COMPLETING_REBALANCING, "CompletingRebalance"),
        (CLASSIC, ConsumerGroupState.UNKNOWN, "Unknown"),
        (CONSUMER, ConsumerGroupState.EMPTY, "Empty"),
        (CONSUMER, ConsumerGroupState.UNKNOWN, "Reconciling"),
    ],
)
def test_a_state_without_a_name_is_that_of_the_newer_protocol(
    kind: ConsumerGroupType, state: ConsumerGroupState, name: str
) -> None:
    group = ConsumerGroupDescription("g", False, [], "uniform", state, Node(1, "h", 1), type=kind)
    assert state_name(group) == name
