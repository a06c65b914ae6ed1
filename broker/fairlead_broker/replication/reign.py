"""How a reign over a partition begins, or goes on with other replicas in the same leader epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_broker.replication.committable import committable_offset
from fairlead_broker.replication.isr import first_isr_state
from fairlead_broker.replication.leader_state import LeaderState

if TYPE_CHECKING:
    from fairlead_broker.replication.broker_epochs import BrokerEpochs
    from fairlead_broker.replication.replica_log import ReplicaLog
    from fairlead_model.partition import PartitionRegistration


def begin_reign(
    registration: PartitionRegistration,
    log: ReplicaLog,
    *,
    before: LeaderState | None,
    broker_id: int,
    resumed_epoch: int,
    high_watermark: int,
    brokers: BrokerEpochs,
    now_ms: int,
) -> LeaderState:
    """Return the state of the leader in `registration`, whose log has entered its epoch.

    `before` is the state of the same leader epoch, if there is one. `resumed_epoch` is the epoch in
    which the process before this one led, if this one goes on in it (R34).
    """
    leader = LeaderState(
        broker_id=broker_id,
        replicas=tuple(registration.replicas),
        leader_epoch=registration.leader_epoch,
        epoch_start_offset=log.log_end_offset if before is None else before.epoch_start_offset,
        isr_state=first_isr_state(registration, None if before else resumed_epoch),
        min_insync_replicas=registration.effective_min_isr,
        log_end_offset=committable_offset(log),
        high_watermark=max(high_watermark, log.log_start_offset),
        partition_epoch=registration.partition_epoch,
        brokers=brokers,
        began_ms=now_ms,
    )
    if before is not None:
        # Other replicas in the same epoch: the leader keeps what it knows of those that stay.
        leader.take_over(before)
    leader.maybe_advance_high_watermark()
    return leader
