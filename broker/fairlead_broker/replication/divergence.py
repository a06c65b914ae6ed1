"""Where the logs of a leader and of whoever fetches from it part (R2, R3). Pure.

Both ends of one rule: `diverging_end` is what a leader answers to a fetch that names the epoch
of its last record, `truncation_offset` is where a follower cuts when it is answered so. Sources:
KIP-101, KIP-279, KIP-595, and `Partition.readRecords` and `AbstractFetcherThread` of Kafka.
"""

from typing import TYPE_CHECKING

from fairlead_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from fairlead_broker.log.leader_epochs import EpochEndOffset
    from fairlead_broker.replication.replica_log import EpochHistory


def diverging_end(
    log: "EpochHistory", fetch_offset: int, last_fetched_epoch: int, *, is_replica: bool
) -> "EpochEndOffset | None":
    """Return where the log that is fetched into parts from this leader's; None if it does not.

    A log without records, and a consumer that does not say, name epoch -1: nothing is compared.
    But such a log of a replica must not begin behind this one's end: it has none of what is here.
    KafkaError(OFFSET_OUT_OF_RANGE) there, where it cannot be told, and below the start of the log:
    there the start counts, whether or not the epochs diverge.

    entries (2, 10) (5, 30), start 10, end 40:
    fetch 40, last epoch 5 -> None        the same log
    fetch 45, last epoch 5 -> (5, 40)     longer than ours
    fetch 35, last epoch 3 -> (2, 30)     an epoch that is unknown here
    fetch 35, last epoch 6 -> an error    an epoch above all of ours
    """
    if last_fetched_epoch < 0:
        if is_replica and fetch_offset > log.log_end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        return None
    end = log.end_offset_for_epoch(last_fetched_epoch)
    if end.end_offset < 0 or fetch_offset < log.log_start_offset:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if end.leader_epoch < last_fetched_epoch or end.end_offset < fetch_offset:
        return end
    if is_replica and _is_forgotten(log, fetch_offset, last_fetched_epoch, end.end_offset):
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    return None


def _is_forgotten(
    log: "EpochHistory", fetch_offset: int, last_fetched_epoch: int, end_offset: int
) -> bool:
    """Tell whether a log ends at the start of this one, in an epoch that is gone from here.

    Whether its last records ever were the leader's cannot be told any more, so a replica counts
    only once it holds nothing below the start (R17). A consumer only reads on: to be refused
    would make it reset its position.
    """
    return (
        0 < fetch_offset <= log.log_start_offset
        and last_fetched_epoch < log.last_leader_epoch
        and end_offset <= log.log_start_offset
    )


def truncation_offset(log: "EpochHistory", leader_epoch: int, leader_end_offset: int) -> int:
    """Return where a follower cuts whose leader says that `leader_epoch` ends there (R2).

    own (3, 0) (4, 50), end 80; the leader's epoch 4 ends at 60   -> 60
    own (3, 0) (5, 50), end 80; the leader's epoch 4 ends at 70   -> 50, own end of epoch 3;
                                asked again, the leader says where its epoch 3 ends
    """
    own = log.end_offset_for_epoch(leader_epoch)
    if own.end_offset < 0:
        return min(leader_end_offset, log.log_end_offset)
    if own.leader_epoch != leader_epoch:
        return min(own.end_offset, log.log_end_offset)
    return min(own.end_offset, leader_end_offset, log.log_end_offset)
