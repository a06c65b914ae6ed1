"""The offset at which the logs of a leader and of a fetching replica diverge (R2, R3). Pure.

The module has both sides of one rule. `diverging_end` is the leader's answer to a fetch that names
the epoch of its last record. `truncation_offset` is where a follower truncates after such an
answer. Sources: KIP-101, KIP-279, KIP-595, and `Partition.readRecords` and `AbstractFetcherThread`
of Kafka.
"""

from typing import TYPE_CHECKING

from fairlead_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from fairlead_broker.log.leader_epochs import EpochEndOffset
    from fairlead_broker.replication.replica_log import EpochHistory


def diverging_end(
    log: "EpochHistory", fetch_offset: int, last_fetched_epoch: int, *, is_replica: bool
) -> "EpochEndOffset | None":
    """Return where the fetching replica's log diverges from this leader's; None if it does not.

    A replica with an empty log, and a consumer that names no epoch, send epoch -1: nothing is
    compared. But an empty log of a replica must not begin above this log's end, because it has none
    of these records. KafkaError(OFFSET_OUT_OF_RANGE) in that case, if the offset is below the start
    of this log (whether or not the epochs diverge), and if the divergence cannot be determined.

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
    """Tell whether a log ends at the start of this one, in an epoch that this log no longer has.

    Nobody can tell any more whether its last records were ever the leader's. So a replica counts
    only once it has nothing below the start (R17). A consumer only reads on: a refusal would make
    it reset its position.
    """
    return (
        0 < fetch_offset <= log.log_start_offset
        and last_fetched_epoch < log.last_leader_epoch
        and end_offset <= log.log_start_offset
    )


def truncation_offset(log: "EpochHistory", leader_epoch: int, leader_end_offset: int) -> int:
    """Return where a follower truncates if its leader says that `leader_epoch` ends there (R2).

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
