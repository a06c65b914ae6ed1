"""What the records of a compacted topic say about a query's last decision."""

import pytest

from fairlead_spark.errors import SinkError
from fairlead_spark.exactly_once.batch_decision import Decision
from fairlead_spark.exactly_once.decision_records import (
    ENDED_MAX,
    DecisionReplay,
    decode_decision,
    encode_decision,
)
from fairlead_spark.prepared_transaction import PreparedTransaction
from fairlead_wire.record_batch import decode_batch_header
from fairlead_wire.records import (
    ControlType,
    EndOfTransaction,
    Record,
    decode_batch,
    encode_batch,
    encode_end_of_transaction,
)

FIRST = Decision(1, "run", 5, (PreparedTransaction("id", 7, 3),), execution=2)
SECOND = Decision(2, "next", 6, is_ended=True, replaced=("run",), turn=9)


def written(
    offset: int, decision: Decision | None, producer_id: int = 1, *, name: str = "q"
) -> bytes:
    value = None if decision is None else encode_decision(decision)
    return encode_batch(
        [Record(offset, 0, name.encode(), value)],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )


def marker(offset: int, outcome: ControlType, producer_id: int = 1) -> bytes:
    return encode_end_of_transaction(
        EndOfTransaction(outcome, 0),
        offset=offset,
        timestamp=0,
        producer_id=producer_id,
        producer_epoch=0,
    )


def replayed(*batches: bytes, replay: DecisionReplay | None = None) -> DecisionReplay:
    replay = replay or DecisionReplay("q")
    for batch in batches:
        replay = replay.apply(decode_batch_header(batch), decode_batch(batch))
    return replay


def test_a_decision_survives_its_record() -> None:
    assert decode_decision(encode_decision(FIRST)) == FIRST
    assert decode_decision(encode_decision(SECOND)) == SECOND


def test_a_record_of_a_version_without_turns_is_read() -> None:
    older = encode_decision(FIRST).replace(b',"turn":0', b"")
    assert b"turn" not in older
    assert decode_decision(older) == FIRST


@pytest.mark.parametrize("value", [b"", b"{}", b"[1]", b"nonsense", b'{"version":1,"batch":"x"}'])
def test_what_is_no_decision_is_an_error(value: bytes) -> None:
    with pytest.raises(SinkError, match="holds a record that is no decision"):
        decode_decision(value)


def test_a_later_version_is_an_error_that_says_so() -> None:
    later = encode_decision(FIRST).replace(b'"version":1', b'"version":2')
    with pytest.raises(SinkError, match="a decision of version 2"):
        decode_decision(later)


def test_a_decision_counts_once_it_is_committed() -> None:
    replay = replayed(written(0, FIRST))
    assert replay.decision is None
    replay = replayed(marker(1, ControlType.COMMIT), replay=replay)
    assert replay.decision == FIRST
    replay = replayed(written(2, SECOND), marker(3, ControlType.ABORT), replay=replay)
    assert replay.decision == FIRST
    assert replay.next_offset == 4


def test_other_queries_and_other_producers_change_nothing() -> None:
    replay = replayed(
        written(0, FIRST),
        written(1, SECOND, 2, name="other"),
        marker(2, ControlType.COMMIT, 2),
        marker(3, ControlType.COMMIT, 9),
    )
    assert replay.decision is None
    assert replayed(marker(4, ControlType.COMMIT), replay=replay).decision == FIRST


def test_a_tombstone_forgets() -> None:
    forgotten = replayed(
        written(0, FIRST),
        marker(1, ControlType.COMMIT),
        written(2, None),
        marker(3, ControlType.COMMIT),
    )
    assert forgotten.decision is None


def test_tombstones_of_all_keys_are_remembered_as_far_as_they_count() -> None:
    replay = replayed(written(0, None, name="write"), written(1, FIRST), written(2, None, name="w"))
    assert replay.ended == ("write", "w")
    assert replay.decision is None
    assert replay.resumable().ended == ("write", "w")
    many = [written(3 + number, None, name=f"n{number}") for number in range(ENDED_MAX)]
    later = replayed(*many, replay=replay)
    assert (len(later.ended), later.ended[0]) == (ENDED_MAX, "n0")


def test_whoever_reads_on_begins_before_what_is_unsettled() -> None:
    replay = replayed(written(0, FIRST), marker(1, ControlType.COMMIT), written(2, SECOND))
    resumed = replay.resumable()
    assert (resumed.next_offset, resumed.decision, resumed.unsettled) == (2, FIRST, {})
    later = replayed(written(2, SECOND), marker(3, ControlType.COMMIT), replay=resumed)
    assert later.decision == SECOND
    assert later.resumable().next_offset == 4
