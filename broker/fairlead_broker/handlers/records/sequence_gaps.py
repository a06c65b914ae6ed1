"""Gaps in a producer's sequences that are none: what is missing was refused, and comes again.

Clients send requests one behind the other. Where the first is refused for something that passes,
and the next finds that it has passed, the next has a gap before it. For
OUT_OF_ORDER_SEQUENCE_NUMBER librdkafka takes a new epoch, and writes under it again whatever is
not acknowledged yet, in all partitions: what was written there before is there twice. So such a gap
is answered with a refusal that passes, too, and all come again, in their order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairlead_broker.limits import NEW_LEADER_MS, REFUSED_BEFORE_GAP_MS
from fairlead_broker.replication.refusals import PassingRefusal
from fairlead_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from fairlead_broker.broker import Broker
    from fairlead_broker.replication.partition import Partition

_PASSING: Final = frozenset(
    {
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)


def note_refusal(error: KafkaError, partition: Partition, broker: Broker) -> None:
    """Take note of a refused batch; raise another refusal for a gap that may not be one.

    * The leader is new. A client may hear of it, from the old one, before it does itself.
    * The leader may be replaced, and lacks what its successor may have taken since.
    * A batch was refused here a while ago, for a temporary reason.
    """
    now_ms = broker.clock.monotonic_ms()
    note_passing(error.code, partition, broker)
    if error.code is not ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
        return
    leader = partition.leader
    if leader is not None and now_ms - leader.began_ms < NEW_LEADER_MS:
        raise KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, f"has just become the leader of {partition}: {error}"
        )
    if broker.may_be_replaced:
        raise KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER, f"may not lead {partition} any more: {error}"
        )
    refusal = partition.passing_refusal
    if refusal is not None and now_ms - refusal.at_ms < REFUSED_BEFORE_GAP_MS:
        raise KafkaError(
            refusal.code, f"the batch before may have been refused by {partition}: {error}"
        )


def note_passing(code: ErrorCode, partition: Partition, broker: Broker) -> None:
    """Take note that a batch was refused, if that passes; it may not have come to the log."""
    if code in _PASSING:
        partition.passing_refusal = PassingRefusal(code, broker.clock.monotonic_ms())
