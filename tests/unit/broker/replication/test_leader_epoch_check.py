"""Which leader epochs a request may name."""

import pytest

from fairlead_broker.replication.leader_epoch_check import LATEST_KNOWN_EPOCH, check_leader_epoch
from fairlead_wire.errors import ErrorCode, KafkaError


@pytest.mark.parametrize("named", [2, LATEST_KNOWN_EPOCH, -2, -(2**31)])
def test_the_epoch_of_the_replica_or_none_may_be_named(named: int) -> None:
    check_leader_epoch(named, 2)


@pytest.mark.parametrize(
    ("named", "code"),
    [(1, ErrorCode.FENCED_LEADER_EPOCH), (3, ErrorCode.UNKNOWN_LEADER_EPOCH)],
)
def test_leader_epochs_of_clients_are_compared(named: int, code: ErrorCode) -> None:
    """R5."""
    with pytest.raises(KafkaError) as refusal:
        check_leader_epoch(named, 2)
    assert refusal.value.code is code
