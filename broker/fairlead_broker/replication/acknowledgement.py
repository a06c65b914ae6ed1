"""When a record that is in a leader's log may be acknowledged (I9, R13, R20). Pure.

Producers (`handlers/records/produce`) and coordinators (`coordinator/shard`) ask here, at the
append and each time that the partition has advanced. Source:
`Partition.checkEnoughReplicasReachOffset` of Kafka.
"""

from typing import TYPE_CHECKING

from fairlead_broker.replication.acks import ALL_IN_SYNC
from fairlead_broker.replication.committable import awaits_flush
from fairlead_wire.errors import ErrorCode

if TYPE_CHECKING:
    from fairlead_broker.replication.partition import Partition


def acknowledgement(
    partition: "Partition", acks: int, leader_epoch: int, end_offset: int
) -> ErrorCode | None:
    """Return the answer for a batch that was appended in `leader_epoch`; None while it waits.

    With acks=all: NONE once everything below `end_offset` is committed, or
    NOT_ENOUGH_REPLICAS_AFTER_APPEND if the ISR has become too small by then. With acks=1: NONE at
    once, or once the batch is flushed if `flush.messages` asks for that. NOT_LEADER_OR_FOLLOWER
    once this broker leads no more: the next leader may or may not have the batch, so a later high
    watermark proves nothing.
    """
    leader = partition.leader
    if leader is None or partition.leader_epoch != leader_epoch:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    log = partition.log
    if log.is_offline:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if acks != ALL_IN_SYNC:
        is_flushed = not awaits_flush(log) or log.recovery_point >= end_offset
        return ErrorCode.NONE if is_flushed else None
    if leader.high_watermark < end_offset:
        return None
    if not leader.has_enough_in_sync_replicas:
        return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    return ErrorCode.NONE


def time_out_code(partition: "Partition", acks: int) -> ErrorCode:
    """Return why a waiting batch was not acknowledged in time: the ISR is too small or too slow.

    Kafka answers REQUEST_TIMED_OUT for both; a producer retries after either.
    """
    leader = partition.leader
    if acks == ALL_IN_SYNC and leader is not None and not leader.has_enough_in_sync_replicas:
        return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    return ErrorCode.REQUEST_TIMED_OUT
