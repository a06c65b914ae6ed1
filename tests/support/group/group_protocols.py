"""Returns a coordinated group with its own type: classic, or of KIP-848."""

from fairlead_broker.group.classic.classic_group import ClassicGroup
from fairlead_broker.group.consumer.consumer_group import ConsumerGroup
from fairlead_broker.group.coordinated_group import CoordinatedGroup


def classic_of(group: CoordinatedGroup) -> ClassicGroup:
    assert isinstance(group.protocol, ClassicGroup)
    return group.protocol


def consumer_of(group: CoordinatedGroup) -> ConsumerGroup:
    assert isinstance(group.protocol, ConsumerGroup)
    return group.protocol
