"""A coordinated group as what it is: one of the classic protocol, or one of KIP-848's."""

from fairlead_broker.group.classic.classic_group import ClassicGroup
from fairlead_broker.group.consumer.consumer_group import ConsumerGroup
from fairlead_broker.group.coordinated_group import CoordinatedGroup


def classic_of(group: CoordinatedGroup) -> ClassicGroup:
    assert isinstance(group.protocol, ClassicGroup)
    return group.protocol


def consumer_of(group: CoordinatedGroup) -> ConsumerGroup:
    assert isinstance(group.protocol, ConsumerGroup)
    return group.protocol
