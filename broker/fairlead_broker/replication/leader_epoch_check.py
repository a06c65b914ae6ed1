"""Whether a request names the leader epoch in which this replica is (R5). Pure.

Clients and followers name for each partition the leader epoch that they know (KIP-320).
"""

from typing import Final

from fairlead_wire.errors import ErrorCode, KafkaError

LATEST_KNOWN_EPOCH: Final = -1
"""`current_leader_epoch` of a client that knows none: not checked, nor is a lower value."""


def check_leader_epoch(current_leader_epoch: int, leader_epoch: int) -> None:
    """Compare the epoch that a request names with the replica's `leader_epoch`.

    KafkaError FENCED_LEADER_EPOCH for an older one, UNKNOWN_LEADER_EPOCH for a newer one.
    """
    if current_leader_epoch == leader_epoch or current_leader_epoch <= LATEST_KNOWN_EPOCH:
        return
    if current_leader_epoch < leader_epoch:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
    raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
