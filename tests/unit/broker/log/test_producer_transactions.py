"""Opening, verifying and ending transactions in what a log remembers of producers."""

from collections.abc import Callable

import pytest
from log_batches import record_batch
from present import present

from fairlead_broker.log.producers.end_marker import EndMarker
from fairlead_broker.log.producers.producer_snapshot import decode_snapshot, encode_snapshot
from fairlead_broker.log.producers.producer_state import ProducedBatch, ProducerState
from fairlead_broker.log.producers.verification import VerificationGuard
from fairlead_wire.errors import ErrorCode, KafkaError
from fairlead_wire.record_batch import decode_batch_header
from fairlead_wire.records import Record

LIMIT = "fairlead_broker.log.producers.producer_state.PRODUCERS_PER_LOG_MAX"


class Log:
    """Appends to a state one record at a time, as a log would."""

    def __init__(self) -> None:
        self.state = ProducerState()
        self.end_offset = 0

    def verify(
        self, producer: int, epoch: int = 0, sequence: int = 0, *, bumps: bool = False
    ) -> VerificationGuard | None:
        return self.state.begin_verification(producer, epoch, sequence, supports_epoch_bump=bumps)

    def add(
        self,
        producer: int,
        sequence: int,
        guard: VerificationGuard | None = None,
        *,
        epoch: int = 0,
        from_coordinator: bool = False,
    ) -> int:
        """Append a record of a transaction; its offset, or that of the record it repeats."""
        original = self.state.check_transactional(
            producer, epoch, sequence, sequence, guard, is_from_coordinator=from_coordinator
        )
        if original is not None:
            return original.first_offset
        offset = self.end_offset
        batch = ProducedBatch(sequence, sequence, offset, offset, 1_000 + offset)
        self.state.record_transactional(producer, epoch, batch, 100)
        self.end_offset += 1
        return offset

    def open(self, producer: int, epoch: int = 0, sequence: int = 0) -> int:
        return self.add(producer, sequence, self.verify(producer, epoch, sequence), epoch=epoch)

    def end(self, producer: int, epoch: int = 0, coordinator: int = 0, version: int = 1) -> int:
        self.state.check_marker(EndMarker(producer, epoch, coordinator, True, version))
        self.state.end_transaction(
            producer, epoch, coordinator, offset=self.end_offset, timestamp=5, now_ms=100
        )
        self.end_offset += 1
        return self.end_offset - 1


def refusal(act: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        act()
    return caught.value.code


@pytest.fixture
def log() -> Log:
    return Log()


def test_a_batch_opens_a_transaction_only_with_its_guard(log: Log) -> None:
    assert refusal(lambda: log.add(1, 0)) == ErrorCode.INVALID_TXN_STATE
    guard = log.verify(1)
    assert refusal(lambda: log.add(1, 0)) == ErrorCode.INVALID_TXN_STATE
    assert refusal(lambda: log.add(1, 0, VerificationGuard())) == ErrorCode.INVALID_TXN_STATE
    assert log.add(1, 0, guard) == 0
    # It is open now: nothing needs to be asked.
    assert log.verify(1, sequence=1) is None
    assert log.add(1, 1) == 1
    assert log.state.first_unstable_offset == 0


def test_batches_that_wait_together_share_a_guard(log: Log) -> None:
    first, second = log.verify(1, sequence=0), log.verify(1, sequence=1)
    assert first is second
    # The one sent later was verified first: it has to come again behind the other.
    assert refusal(lambda: log.add(1, 1, second)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [log.add(1, 0, first), log.add(1, 1, second)] == [0, 1]


def test_a_marker_takes_the_guard_away(log: Log) -> None:
    """R25: the coordinator agreed, then ended the transaction; nobody would end what came now."""
    guard = log.verify(1)
    log.end(1)
    assert refusal(lambda: log.add(1, 0, guard)) == ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize(
    ("bumps", "marker_epoch", "code"),
    [
        # It ended the transaction before, whose client was answered early.
        (True, 5, None),
        (True, 6, ErrorCode.INVALID_PRODUCER_EPOCH),
        (False, 5, ErrorCode.INVALID_TXN_STATE),
        (True, 4, ErrorCode.INVALID_TXN_STATE),
    ],
)
def test_a_marker_of_the_transaction_before_leaves_the_guard(
    log: Log, bumps: bool, marker_epoch: int, code: ErrorCode | None
) -> None:
    log.open(1, epoch=4)
    guard = log.verify(1, 5, 0, bumps=bumps)
    log.end(1, marker_epoch)
    if code is None:
        assert log.add(1, 0, guard, epoch=5) == 2
    else:
        assert refusal(lambda: log.add(1, 0, guard, epoch=5)) == code


def test_an_epoch_for_each_transaction_starts_with_sequence_zero(log: Log) -> None:
    guard = log.verify(1, sequence=7, bumps=True)
    assert refusal(lambda: log.add(1, 7, guard)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    # An older client's records may just have been deleted.
    guard = log.verify(2, sequence=7)
    assert log.add(2, 7, guard) == 0


def test_an_epoch_that_was_superseded_is_refused_before_anybody_is_asked(log: Log) -> None:
    log.open(1, epoch=3)
    assert refusal(lambda: log.verify(1, 2)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(lambda: log.add(1, 1, epoch=2)) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_retry_is_answered_also_when_the_transaction_is_over(log: Log) -> None:
    log.open(1)
    log.end(1)
    assert log.add(1, 0) == 0
    assert refusal(lambda: log.add(1, 1)) == ErrorCode.INVALID_TXN_STATE
    # With the same epoch the sequence goes on.
    assert log.open(1, sequence=1) == 2


@pytest.mark.parametrize("last", [9, 2, 2**31 - 1])
def test_a_batch_that_comes_again_late_does_not_hold_up_the_next_transaction(
    log: Log, last: int
) -> None:
    """It was sent twice, and the second arrives when the next transaction has begun elsewhere."""
    first = (last - 2) & 0x7FFFFFFF
    log.open(1, sequence=first)
    for sequence in (first + 1, last):
        log.add(1, sequence & 0x7FFFFFFF)
    log.end(1)
    late = log.verify(1, sequence=first)
    assert late is None
    assert log.add(1, first, late) == 0
    assert log.open(1, sequence=(last + 1) & 0x7FFFFFFF) == 4


def test_a_new_epoch_begins_a_new_sequence(log: Log) -> None:
    log.open(1, epoch=1)
    log.end(1, epoch=2, version=2)
    wrong = log.verify(1, 2, 1)
    assert refusal(lambda: log.add(1, 1, wrong, epoch=2)) == (
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    )
    assert log.open(1, epoch=2, sequence=0) == 2


def test_other_batches_have_no_place_beside_an_open_transaction(log: Log) -> None:
    log.open(1)
    state = log.state
    assert refusal(lambda: state.find_duplicate(1, 0, 1, 1)) == ErrorCode.INVALID_TXN_STATE
    assert present(state.find_duplicate(1, 0, 0, 0)).first_offset == 0
    log.end(1)
    assert state.find_duplicate(1, 0, 1, 1) is None


def test_what_a_group_coordinator_writes_has_no_sequences(log: Log) -> None:
    guard = log.verify(1, 0, -1)
    log.add(1, -1, guard, from_coordinator=True)
    log.add(1, -1, from_coordinator=True)
    entry = present(log.state.get(1))
    assert (entry.batches, entry.transaction_first_offset) == ([], 0)
    assert refusal(lambda: log.add(2, -1, from_coordinator=True)) == ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize(
    ("version", "is_open", "epoch", "coordinator", "code"),
    [
        (0, True, 5, 3, None),
        (1, True, 5, 3, None),
        (1, True, 6, 3, None),
        (1, True, 4, 3, ErrorCode.INVALID_PRODUCER_EPOCH),
        # The transaction that is open in this epoch is a later one.
        (2, True, 5, 3, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, True, 6, 3, None),
        (2, True, 4, 3, ErrorCode.INVALID_PRODUCER_EPOCH),
        # A repeated marker.
        (2, False, 5, 3, None),
        (2, False, 4, 3, ErrorCode.INVALID_PRODUCER_EPOCH),
        (1, True, 5, 2, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        (2, True, 6, 2, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        (2, False, 5, 2, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        (1, True, 5, 4, None),
    ],
)
def test_markers_are_as_strict_as_their_transaction_version(
    log: Log, version: int, is_open: bool, epoch: int, coordinator: int, code: ErrorCode | None
) -> None:
    log.open(1, epoch=4)
    log.end(1, epoch=5, coordinator=3, version=2)
    if is_open:
        log.open(1, epoch=5)
    if code is None:
        log.end(1, epoch, coordinator, version)
        assert present(log.state.get(1)).epoch == epoch
        assert present(log.state.get(1)).coordinator_epoch == coordinator
        assert log.state.transaction_of(1) is None
    else:
        before = log.state.transaction_of(1)
        assert refusal(lambda: log.end(1, epoch, coordinator, version)) == code
        assert log.state.transaction_of(1) == before


def test_the_last_epoch_of_a_producer_id_is_ended_by_itself(log: Log) -> None:
    """A state that an old fault left at 32767 must be abortable (KAFKA-20090)."""
    log.open(1, epoch=32767)
    log.end(1, epoch=32767, version=2)
    assert log.state.transaction_of(1) is None


def test_an_ended_transaction_counts_until_its_marker_is_committed(log: Log) -> None:
    """R27."""
    log.open(1)
    log.open(2)
    marker = log.end(1)
    stable = log.state.last_stable_offset
    assert [stable(marker), stable(marker + 1)] == [0, 1]
    log.end(2)
    assert [stable(marker + 1), stable(marker + 2)] == [1, marker + 2]
    assert log.state.first_unstable_offset is None


def test_a_late_marker_without_a_transaction_holds_nothing_back(log: Log) -> None:
    log.end(7, epoch=3)
    assert log.state.last_stable_offset(0) == 0
    assert log.state.first_unstable_offset is None
    assert refusal(lambda: log.verify(7, 2)) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_an_open_transaction_is_never_forgotten(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LIMIT, 2)
    log.open(1)
    for producer in range(10, 20):
        log.state.record(producer, 0, ProducedBatch(0, 0, 50, 50, 7), 100)
    assert log.state.expire(10**9, 1) == 2
    assert [entry.producer_id for entry in log.state] == [1]
    log.open(2)
    # Room for no more: whoever comes may try again when one of them is over.
    guard = log.verify(3)
    assert refusal(lambda: log.add(3, 0, guard)) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert log.state.find_duplicate(4, 0, 0, 0) is None
    log.end(1)
    assert log.add(3, 0, guard) == 3


def test_guards_are_bounded_and_grow_old(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead_broker.log.producers.verification.PRODUCERS_PER_LOG_MAX", 2)
    guards = [log.verify(producer) for producer in (1, 2, 3)]
    assert refusal(lambda: log.add(1, 0, guards[0])) == ErrorCode.INVALID_TXN_STATE
    log.add(2, 0, guards[1])
    log.state.expire(1_000, 500)
    log.state.expire(1_500, 500)
    assert refusal(lambda: log.add(3, 0, guards[2])) == ErrorCode.INVALID_TXN_STATE


def test_a_snapshot_brings_open_transactions_back_in_their_order(log: Log) -> None:
    for producer in (3, 1, 2):
        log.open(producer)
    log.end(1, coordinator=9)
    state = ProducerState()
    state.restore(decode_snapshot(encode_snapshot(log.state)), 7)
    assert present(state.oldest_open).producer_id == 3
    assert [state.transaction_of(producer) for producer in (1, 2, 3)] == [None, 2, 0]
    assert (state.first_unstable_offset, present(state.get(1)).coordinator_epoch) == (0, 9)
    assert present(state.get(1)).last_timestamp == 5


def test_a_batch_that_compaction_has_emptied_opens_nothing_again(log: Log) -> None:
    """It is kept for its sequence alone, and outlives the marker of its transaction."""
    batch = record_batch(
        Record(0, 1_000, None, b"v"),
        producer_id=1,
        producer_epoch=0,
        base_sequence=4,
        is_transactional=True,
    )
    header = decode_batch_header(batch)
    log.state.replay(header._replace(records_count=0), 100)
    assert log.state.first_unstable_offset is None
    assert present(log.state.get(1)).batches[-1].last_sequence == 4
    log.state.replay(header._replace(base_offset=1, base_sequence=5), 100)
    assert log.state.first_unstable_offset == 1
