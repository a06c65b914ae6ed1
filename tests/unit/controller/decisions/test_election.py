import pytest

from fairlead_controller.decisions.leader_election import (
    ElectionReason,
    elect_leader,
    with_elected_leader,
    without_broker,
)
from fairlead_model.partition import PartitionRegistration


def partition(
    replicas: str, isr: str, leader: int, elr: str = "", epoch: int = 5, minimum: int = 1
) -> PartitionRegistration:
    def ids(text: str) -> tuple[int, ...]:
        return tuple(int(digit) for digit in text)

    return PartitionRegistration(
        ids(replicas),
        ids(isr),
        leader,
        leader_epoch=epoch,
        partition_epoch=epoch,
        elr=ids(elr),
        min_insync_replicas=minimum,
    )


ELECTIONS = [
    # replicas, isr, leader, elr, live → leader, reason
    ("1", "1", 1, "", "1", 1, ElectionReason.STAYS),
    ("1", "1", -1, "", "1", 1, ElectionReason.FIRST_IN_SYNC),
    ("1", "1", 1, "", "", -1, ElectionReason.NOBODY),
    ("123", "123", 2, "", "123", 2, ElectionReason.STAYS),
    ("123", "123", 2, "", "13", 1, ElectionReason.FIRST_IN_SYNC),
    ("123", "32", -1, "", "123", 2, ElectionReason.FIRST_IN_SYNC),
    ("123", "3", 3, "", "12", -1, ElectionReason.NOBODY),
    ("123", "3", 3, "2", "12", 2, ElectionReason.FIRST_ELIGIBLE),
    ("123", "1", -1, "", "23", -1, ElectionReason.NOBODY),
]


@pytest.mark.parametrize(
    ("replicas", "isr", "leader", "elr", "live", "elected", "reason"), ELECTIONS
)
def test_elections(
    replicas: str, isr: str, leader: int, elr: str, live: str, elected: int, reason: ElectionReason
) -> None:
    """I4."""
    outcome = elect_leader(
        partition(replicas, isr, leader, elr), lambda broker: str(broker) in live
    )
    assert (outcome.leader, outcome.reason) == (elected, reason)


def test_the_last_isr_member_stays_recorded_when_it_goes() -> None:
    gone = without_broker(partition("1", "1", 1), 1, lambda broker: True)
    assert (gone.leader, gone.isr, gone.leader_epoch, gone.partition_epoch) == (-1, (1,), 6, 6)
    back = with_elected_leader(gone, lambda broker: True)
    assert (back.leader, back.leader_epoch, back.partition_epoch) == (1, 7, 7)


def test_a_leaving_follower_leaves_the_isr_and_not_the_epoch() -> None:
    gone = without_broker(partition("123", "123", 1), 3, lambda broker: broker != 3)
    assert (gone.leader, gone.isr, gone.leader_epoch, gone.partition_epoch) == (1, (1, 2), 5, 6)


def test_a_leaving_leader_hands_over_in_the_same_step() -> None:
    # Still electable by all signs: a controlled shutdown moves leaders before the process ends.
    gone = without_broker(partition("123", "123", 1), 1, lambda broker: True)
    assert (gone.leader, gone.isr, gone.leader_epoch, gone.partition_epoch) == (2, (2, 3), 6, 6)


def test_an_eligible_leader_takes_over_alone() -> None:
    waiting = partition("123", "3", 3, "12", minimum=2)
    elected = with_elected_leader(waiting, lambda broker: broker < 3)
    assert (elected.leader, elected.isr, elected.elr) == (1, (1,), (2, 3))
    assert elected.problems() == []


def test_converged_input_changes_nothing() -> None:
    steady = partition("123", "123", 1)
    assert with_elected_leader(steady, lambda broker: True) is steady
    assert without_broker(partition("123", "12", 1), 3, lambda broker: True).partition_epoch == 5
