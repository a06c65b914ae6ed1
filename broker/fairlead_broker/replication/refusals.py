"""The errors that a replica answers with, and their messages. Pure.

`replica` is the partition, as the message names it.
"""

from typing import TYPE_CHECKING, NamedTuple

from fairlead_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from fairlead_broker.replication.leader_state import LeaderState


class PassingRefusal(NamedTuple):
    """A batch of a client was refused for a temporary reason."""

    code: ErrorCode
    at_ms: int
    """By the monotonic clock."""


def not_leading(replica: object) -> KafkaError:
    """Another broker leads; producers and consumers find out which."""
    return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"not the leader of {replica}")


def append_refusal(replica: object, leader: "LeaderState | None", isr_size: int) -> KafkaError:
    """Tell why nothing may be appended with acks=all: it could not be acknowledged (R13)."""
    if leader is None:
        return not_leading(replica)
    return KafkaError(
        ErrorCode.NOT_ENOUGH_REPLICAS,
        f"{replica} has {isr_size} in-sync replicas, "
        f"min.insync.replicas is {leader.effective_min_insync_replicas}",
    )


def not_followed_by(replica: object, replica_id: int) -> KafkaError:
    """Refuse a fetch of a broker without a replica, or a fetch from a broker that does not lead."""
    return KafkaError(
        ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{replica_id} does not follow {replica} here"
    )


def fetch_of_earlier_start(replica: object, replica_id: int, broker_epoch: int) -> KafkaError:
    """Refuse a fetch that is older than the latest start of its broker (R11)."""
    return KafkaError(
        ErrorCode.STALE_BROKER_EPOCH,
        f"broker {replica_id} fetches {replica} with the epoch {broker_epoch} of an earlier start",
    )


def beyond_last_stable_offset(
    replica: object, offset: int, last_stable_offset: int, high_watermark: int
) -> KafkaError:
    """Refuse to delete records of transactions that have not ended yet."""
    return KafkaError(
        ErrorCode.OFFSET_OUT_OF_RANGE,
        f"offset {offset} is beyond the last stable offset {last_stable_offset}"
        f" of {replica}, whose high watermark is {high_watermark}",
    )
