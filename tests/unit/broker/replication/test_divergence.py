"""Where two logs part: what a leader answers, and where a follower cuts."""

import pytest
from epoch_histories import History

from fairlead_broker.log.leader_epochs import LeaderEpochs
from fairlead_broker.replication.divergence import diverging_end, truncation_offset
from fairlead_wire.errors import ErrorCode, KafkaError

LEADER = History(LeaderEpochs([(2, 10), (5, 30)]), log_end_offset=40, log_start_offset=10)


@pytest.mark.parametrize(
    ("fetch_offset", "last_epoch", "end"),
    [
        (40, 5, None),
        (30, 2, None),
        (10, 2, None),
        (35, -1, None),
        (45, 5, (5, 40)),
        (35, 2, (2, 30)),
        (35, 3, (2, 30)),
        (20, 1, (1, 10)),
    ],
)
@pytest.mark.parametrize("is_replica", [True, False])
def test_logs_part_where_the_epoch_ends_that_both_know(
    fetch_offset: int, last_epoch: int, end: tuple[int, int] | None, is_replica: bool
) -> None:
    assert diverging_end(LEADER, fetch_offset, last_epoch, is_replica=is_replica) == end


@pytest.mark.parametrize(
    ("fetch_offset", "last_epoch"),
    [
        pytest.param(35, 6, id="an epoch above all of the leader's"),
        pytest.param(5, 2, id="below the start, in an epoch that the leader knows"),
        pytest.param(5, 1, id="below the start, in one that it has forgotten"),
    ],
)
@pytest.mark.parametrize("is_replica", [True, False])
def test_what_cannot_be_told_is_out_of_range(
    fetch_offset: int, last_epoch: int, is_replica: bool
) -> None:
    """Kafka's order: the start of the log counts first, whether or not the epochs diverge."""
    with pytest.raises(KafkaError) as refused:
        diverging_end(LEADER, fetch_offset, last_epoch, is_replica=is_replica)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_replica_that_ends_at_the_start_in_a_forgotten_epoch_begins_anew() -> None:
    """Its records below the start may never have been the leader's; a consumer only reads on."""
    with pytest.raises(KafkaError) as refused:
        diverging_end(LEADER, 10, 1, is_replica=True)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert diverging_end(LEADER, 10, 1, is_replica=False) is None
    assert diverging_end(LEADER, 0, -1, is_replica=True) is None


def test_a_replica_without_records_has_nothing_of_a_log_that_ends_before_it() -> None:
    """It would count as having all of it, and join the replicas in sync; it has to begin anew."""
    assert diverging_end(LEADER, 40, -1, is_replica=True) is None
    with pytest.raises(KafkaError) as refused:
        diverging_end(LEADER, 41, -1, is_replica=True)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(
    ("epochs", "told", "offset"),
    [
        ([(3, 0), (4, 50)], (4, 60), 60),
        ([(3, 0), (4, 50)], (4, 90), 80),
        ([(3, 0), (5, 50)], (4, 70), 50),
        ([(3, 0)], (6, 70), 70),
        ([(3, 0)], (6, 90), 80),
    ],
)
def test_a_follower_cuts_no_further_than_both_know(
    epochs: list[tuple[int, int]], told: tuple[int, int], offset: int
) -> None:
    assert truncation_offset(History(LeaderEpochs(epochs), 80), *told) == offset
