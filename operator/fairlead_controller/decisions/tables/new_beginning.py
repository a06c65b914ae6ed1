"""Makes metadata safe that is older than what was seen of it: from an export, or rolled back. Pure.

It says what was true once. Since then brokers may have seen higher epochs, ids may have been given
out, and replicas may have fallen behind. So:

* controller, broker, leader and partition epochs, that of the features and producer ids jump past
  any that somebody can have seen since;
* no replica counts as in sync: each may hold acknowledged records that the others lack. A
  partition gets its leader when all its replicas are back, the one whose log goes furthest;
* none counts as removed, because a broker deletes what is removed: it may hold the partition again.
  Whoever reports a replica is one of its holders (`restored_holders`).

Who is known to have seen more than the metadata tells is listened to (`HighestSeen`), because the
jump alone is not enough where metadata that had jumped before is replaced by an older copy.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from fairlead_controller.decisions.state import ControllerState, CountersChanged
from fairlead_controller.decisions.tables.stored_table import HighestSeen, StoreError
from fairlead_model.broker import BrokerRegistration
from fairlead_model.cluster import BrokerChanged, FeaturesChanged, PartitionChanged
from fairlead_model.features import FinalizedFeatures
from fairlead_model.ids import NO_LEADER, ControllerEpoch
from fairlead_model.partition import PartitionRegistration

EPOCH_JUMP: Final = 1 << 20
"""Far more reigns, starts and elections than can happen between an export and its restore."""
PRODUCER_ID_JUMP: Final = 1 << 40
LEADER_EPOCH_MAX: Final = (1 << 31) - 1
"""The protocol carries leader epochs in four bytes: there is room for some 2,000 jumps."""
CONTROLLER_EPOCH_MAX: Final = (1 << 31) - 1
"""Each reign has 2^32 producer ids of its own, which the protocol carries in eight bytes."""
COUNTER_MAX: Final = (1 << 63) - 1
"""Broker epochs and producer ids have eight bytes, too."""

NOTHING_HIGHER: Final = HighestSeen()


class NoRoomError(StoreError):
    """An epoch or id is so high that it cannot jump any more."""


def jumped_epoch(
    controller_epoch: ControllerEpoch, seen: HighestSeen = NOTHING_HIGHER
) -> ControllerEpoch:
    """Return the controller epoch of a new beginning; NoRoomError."""
    known = max(controller_epoch, seen.controller_epoch)
    return _jumped("a controller epoch", known, EPOCH_JUMP, CONTROLLER_EPOCH_MAX)


def jumped_counters(
    counters: CountersChanged, seen: HighestSeen = NOTHING_HIGHER
) -> CountersChanged:
    """Return the counters of a new beginning; NoRoomError.

    Producer ids do not depend on brokers: each reign has its own range, by its epoch.
    """
    broker_epoch = max(counters.next_broker_epoch, seen.broker_epoch + 1)
    return CountersChanged(
        _jumped("a broker epoch", broker_epoch, EPOCH_JUMP, COUNTER_MAX),
        _jumped("a producer id", counters.next_producer_id, PRODUCER_ID_JUMP, COUNTER_MAX),
    )


def _jumped(what: str, number: int, jump: int, most: int) -> int:
    if number + jump > most:
        raise NoRoomError(f"{what} of {number} leaves no room")
    return number + jump


def forgotten_start(broker: BrokerRegistration) -> BrokerRegistration:
    """Return a broker's record without its start: its next registration is one of a new start."""
    return replace(broker, fenced=True, start_id="", is_clean=False)


def jumped_features(features: FinalizedFeatures) -> FinalizedFeatures:
    """Return the same levels with an epoch above those that clients have seen since."""
    return replace(features, epoch=features.epoch + EPOCH_JUMP)


def jumped_partition(
    partition: PartitionRegistration, seen: HighestSeen = NOTHING_HIGHER
) -> PartitionRegistration:
    """Return the first record of a partition in the new beginning; NoRoomError."""
    leader_epoch = max(partition.leader_epoch, seen.leader_epoch)
    return replace(
        partition,
        leader=NO_LEADER,
        leader_epoch=_jumped("a leader epoch", leader_epoch, EPOCH_JUMP, LEADER_EPOCH_MAX),
        partition_epoch=max(partition.partition_epoch, seen.partition_epoch) + EPOCH_JUMP,
        isr=(),
        elr=(),
        last_known_elr=partition.replicas,
        unconfirmed_removals=(),
    )


def new_beginning(
    state: ControllerState, seen: HighestSeen
) -> Iterator[BrokerChanged | CountersChanged | FeaturesChanged | PartitionChanged]:
    """Yield the changes that make a state safe that was loaded from a store; NoRoomError."""
    yield jumped_counters(state.counters, seen)
    if state.image.features.epoch:
        yield FeaturesChanged(jumped_features(state.image.features))
    for broker in state.image.brokers.values():
        yield BrokerChanged(forgotten_start(broker))
    for topic in state.image.topics_by_id.values():
        for index, partition in enumerate(topic.partitions):
            yield PartitionChanged(topic.topic_id, index, jumped_partition(partition, seen))
