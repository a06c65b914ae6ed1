"""The coordinators of the transactional id, one after the other, and their log.

The state machine and the records are the product's. A record may be refused, take long, or be on
its way when the coordinator moves: then the next coordinator may or may not have it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairlead_broker.transaction.records import decode_value
from fairlead_broker.transaction.transaction_types import (
    NOTHING_YET,
    Effects,
    TransactionMetadata,
    TransactionState,
    Transition,
)
from fairlead_broker.transaction.transactional_id import TransactionalId
from fairlead_wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from .world import World

EXPIRATION_MS = 60_000
AFTER = {
    TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
    TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
}


class Coordinator:
    """`committed` is the log below the high watermark, `appended` the records above it."""

    def __init__(self, world: World, first: bytes | None) -> None:
        self.world = world
        self.epoch = 0
        self.committed: list[bytes | None] = [] if first is None else [first]
        self.appended: list[tuple[Transition, TransactionalId]] = []
        self.machine: TransactionalId | None = None
        self.next_producer_id = 1_000
        self.comparisons = 0
        self._load()

    @property
    def logged(self) -> TransactionMetadata | None:
        newest = self.committed[-1] if self.committed else None
        return None if newest is None else decode_value(newest)

    def _load(self) -> None:
        self.epoch += 1
        found = self.logged
        self.machine = None
        if found is not None:
            self.machine = self._build(found)
            self._carry_out(self.machine, self.machine.resume(now_ms=self.world.now_ms))

    def _build(self, metadata: TransactionMetadata) -> TransactionalId:
        return TransactionalId("x", metadata, shard_index=0, coordinator_epoch=self.epoch)

    def move(self) -> None:
        """Make another broker the coordinator, with some of the appended records."""
        appended, self.appended = self.appended, []
        survive = self.world.random.randint(0, len(appended))
        for transition, _ in appended[:survive]:
            self._commit(transition)
        before, self.machine = self.machine, None
        self._load()
        for transition, machine in appended:
            effects = self._written(machine, transition, ErrorCode.NOT_COORDINATOR)
            for waiter, answer in effects.answers:
                waiter(answer)
        del before

    def ask(self, what: Callable[[TransactionalId], Effects], *, is_init: bool = False) -> None:
        """Let the state machine handle a request; KafkaError if the id is unknown."""
        machine = self.machine
        if machine is None:
            if not is_init:
                raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
            machine = self.machine = self._build(NOTHING_YET)
        if machine.needs_producer_id and not self.world.happens("no producer id", 0.2):
            machine.spare_producer_id = self.next_producer_id
            self.next_producer_id += 1
        self._carry_out(machine, what(machine))

    def sweep(self) -> None:
        """Abort and expire what has timed out, as the product does every few seconds."""
        if self.machine is not None:
            now_ms = self.world.now_ms
            self.ask(lambda machine: machine.maybe_abort_timed_out(now_ms=now_ms))
        if self.machine is not None:
            self.ask(
                lambda machine: machine.maybe_expire(now_ms=now_ms, expiration_ms=EXPIRATION_MS)
            )
        machine = self.machine
        if machine is not None and machine.next_deadline_ms() is not None:
            self._carry_out(machine, machine.tick())

    def replicate(self) -> None:
        """Commit the oldest appended record."""
        if not self.appended:
            return
        transition, machine = self.appended.pop(0)
        self._commit(transition)
        self._carry_out(machine, self._written(machine, transition, ErrorCode.NONE))

    def _commit(self, transition: Transition) -> None:
        before = self.logged
        self.committed.append(transition.value)
        after = self.logged
        if before is not None and before.state in AFTER:
            assert after is not None and after.state is AFTER[before.state], (
                f"{after} after a decision, {before}"
            )

    def _written(
        self, machine: TransactionalId, transition: Transition, code: ErrorCode
    ) -> Effects:
        now_ms = self.world.now_ms
        return machine.written(transition, code, now_ms=now_ms, now_monotonic_ms=now_ms)

    def _carry_out(self, machine: TransactionalId, effects: Effects) -> None:
        transition = effects.transition
        if transition is not None:
            assert not transition.violation, transition.violation
            if self.world.happens("refused record", 0.1):
                self._carry_out(
                    machine,
                    self._written(machine, transition, ErrorCode.COORDINATOR_NOT_AVAILABLE),
                )
            else:
                self.appended.append((transition, machine))
        if effects.ending is not None:
            for partition in sorted(effects.ending.partitions):
                self.world.send_marker(effects.ending, partition)
        for waiter, answer in effects.answers:
            waiter(answer)
        if machine is self.machine:
            if machine.is_unused:
                self.machine = None
            self._compare()

    def _compare(self) -> None:
        """Check R22: the state in memory is the result of a replay."""
        known = None if self.machine is None else self.machine.metadata
        assert (None if known is NOTHING_YET else known) == self.logged
        self.comparisons += 1

    def partitions_ended(self, ending: Any, partition: tuple[str, int]) -> None:
        machine = self.machine
        if machine is not None and ending.marker.coordinator_epoch == self.epoch:
            now_ms = self.world.now_ms
            self._carry_out(machine, machine.partitions_ended(ending, [partition], now_ms=now_ms))

    def time_out(self) -> None:
        """Tell clients that wait for appended records that this takes too long."""
        for transition, machine in self.appended:
            self._carry_out(machine, machine.timed_out(transition))
