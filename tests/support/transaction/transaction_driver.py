"""Drives one TransactionalId: named requests, a clock, records committed when told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairlead_broker.log.producers.end_marker import TRANSACTION_VERSION_2
from fairlead_broker.transaction.records import decode_value
from fairlead_broker.transaction.transaction_types import (
    NOTHING_YET,
    Effects,
    ProducerIdAndEpoch,
    TransactionAnswer,
    TransactionMetadata,
    TransactionState,
    Transition,
)
from fairlead_broker.transaction.transactional_id import TransactionalId
from fairlead_wire.errors import ErrorCode

if TYPE_CHECKING:
    from fairlead_broker.transaction.ending import EndingTransaction, TopicPartition

TV1, TV2 = 0, TRANSACTION_VERSION_2
PRODUCER_ID = 500
FIRST_SPARE_ID = 1000
WALL_MS = 1_700_000_000_000
TIMEOUT_MS = 60_000

EMPTY = TransactionState.EMPTY
ONGOING = TransactionState.ONGOING
PREPARE_COMMIT = TransactionState.PREPARE_COMMIT
PREPARE_ABORT = TransactionState.PREPARE_ABORT
COMPLETE_COMMIT = TransactionState.COMPLETE_COMMIT
COMPLETE_ABORT = TransactionState.COMPLETE_ABORT
IDLE = (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)
ALL = (*IDLE, ONGOING, PREPARE_COMMIT, PREPARE_ABORT)

NONE = ErrorCode.NONE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
FENCED = ErrorCode.PRODUCER_FENCED
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
INVALID = ErrorCode.INVALID_TXN_STATE
ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE
BEGINS = "begins"
"""In a table: no answer yet, because a record is in flight."""


def metadata(
    state: TransactionState, epoch: int = 5, *partitions: int, **others: Any
) -> TransactionMetadata:
    """Return the content of an id's record; its partitions are of the topic `t`."""
    is_empty = state is TransactionState.EMPTY
    found = TransactionMetadata(
        state,
        PRODUCER_ID,
        epoch,
        TIMEOUT_MS,
        frozenset(("t", index) for index in partitions),
        start_ms=-1 if is_empty else WALL_MS,
        update_ms=WALL_MS,
        previous_producer_id=PRODUCER_ID,
    )
    return found._replace(**others)


class TransactionDriver:
    """One id and its log. Records wait in `in_flight` until `commit` or `fail`."""

    def __init__(
        self, first: TransactionMetadata = NOTHING_YET, *, coordinator_epoch: int = 7
    ) -> None:
        self.now_ms = 0
        self.coordinator_epoch = coordinator_epoch
        self.machine = self._machine(first)
        self.logged: bytes | None = None
        self.in_flight: list[Transition] = []
        self.answers: dict[str, TransactionAnswer] = {}
        self.endings: list[EndingTransaction] = []
        self.has_producer_ids = True
        self._next_id = FIRST_SPARE_ID

    def _machine(self, first: TransactionMetadata) -> TransactionalId:
        return TransactionalId("x", first, shard_index=3, coordinator_epoch=self.coordinator_epoch)

    @property
    def wall_ms(self) -> int:
        return WALL_MS + self.now_ms

    @property
    def state(self) -> TransactionState:
        return self.machine.metadata.state

    @property
    def pair(self) -> tuple[int, int]:
        return self.machine.metadata.producer_id, self.machine.metadata.producer_epoch

    def take(self, effects: Effects) -> None:
        if effects.transition is not None:
            assert not effects.transition.violation, effects.transition.violation
            self.in_flight.append(effects.transition)
        if effects.ending is not None:
            self.endings.append(effects.ending)
        for waiter, answer in effects.answers:
            waiter(answer)

    def waiter(self, name: str) -> Any:
        self.answers.pop(name, None)

        def answer(answer: TransactionAnswer) -> None:
            assert name not in self.answers, f"{name} is answered twice"
            self.answers[name] = answer

        return answer

    def ensure_producer_id(self) -> None:
        machine = self.machine
        if machine.needs_producer_id and self.has_producer_ids:
            machine.spare_producer_id = self._next_id
            self._next_id += 1

    def init(
        self,
        name: str = "init",
        expected: tuple[int, int] | None = None,
        *,
        timeout_ms: int = TIMEOUT_MS,
    ) -> None:
        self.ensure_producer_id()
        self.take(
            self.machine.init_producer_id(
                self.waiter(name),
                timeout_ms=timeout_ms,
                expected=None if expected is None else ProducerIdAndEpoch(*expected),
                now_ms=self.wall_ms,
            )
        )

    def add(
        self,
        *partitions: int,
        pair: tuple[int, int] | None = None,
        version: int = TV1,
        name: str = "add",
    ) -> None:
        producer_id, epoch = pair or self.pair
        wanted: frozenset[TopicPartition] = frozenset(("t", index) for index in partitions)
        self.take(
            self.machine.add_partitions(
                self.waiter(name),
                producer_id,
                epoch,
                wanted,
                transaction_version=version,
                now_ms=self.wall_ms,
            )
        )

    def end(
        self,
        name: str = "end",
        *,
        commit: bool,
        version: int,
        pair: tuple[int, int] | None = None,
    ) -> None:
        self.ensure_producer_id()
        producer_id, epoch = pair or self.pair
        self.take(
            self.machine.end(
                self.waiter(name),
                producer_id,
                epoch,
                is_commit=commit,
                transaction_version=version,
                now_ms=self.wall_ms,
            )
        )

    def time_out(self) -> None:
        """Abort what has timed out, as the coordinator does every few seconds."""
        self.ensure_producer_id()
        self.take(self.machine.maybe_abort_timed_out(now_ms=self.wall_ms))

    def commit(self) -> None:
        """Commit all appended records; those that follow wait for the next commit."""
        self._settle(ErrorCode.NONE)

    def fail(self, code: ErrorCode = ErrorCode.COORDINATOR_NOT_AVAILABLE) -> None:
        self._settle(code)

    def _settle(self, code: ErrorCode) -> None:
        transitions, self.in_flight = self.in_flight, []
        assert transitions, "nothing is in flight"
        for transition in transitions:
            if code is ErrorCode.NONE:
                self.logged = transition.value
            self.take(
                self.machine.written(
                    transition, code, now_ms=self.wall_ms, now_monotonic_ms=self.now_ms
                )
            )

    def mark(self) -> None:
        """Write all markers; the record of the completed end is then in flight."""
        endings, self.endings = self.endings, []
        for ending in endings:
            self.take(self.machine.partitions_ended(ending, ending.partitions, now_ms=self.wall_ms))

    def tick(self) -> None:
        self.take(self.machine.tick())

    def finish(self) -> None:
        """Write all markers, and commit the record of the completed end."""
        self.mark()
        self.commit()

    def reload(self) -> None:
        """Continue with another coordinator, which has replayed the committed records."""
        self.in_flight.clear()
        self.endings.clear()
        self.coordinator_epoch += 1
        found = None if self.logged is None else decode_value(self.logged)
        self.machine = self._machine(NOTHING_YET if found is None else found)
        self.take(self.machine.resume(now_ms=self.wall_ms))

    def error(self, name: str) -> ErrorCode:
        return self.answers[name].error


def at(state: TransactionState, epoch: int = 5, **others: object) -> TransactionDriver:
    partitions = (0, 1) if state in (ONGOING, PREPARE_COMMIT, PREPARE_ABORT) else ()
    return TransactionDriver(metadata(state, epoch, *partitions, **others))


def outcome(driver: TransactionDriver, name: str) -> ErrorCode | str:
    """The answer, or that a record is in flight."""
    return driver.error(name) if name in driver.answers else BEGINS


def in_flight(driver: TransactionDriver) -> TransactionMetadata:
    (transition,) = driver.in_flight
    assert transition.metadata is not None
    return transition.metadata
