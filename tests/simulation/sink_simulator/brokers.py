"""Kafka's transactions, version 1, as coordinators and leaders handle them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from fairlead_spark.errors import TakenOverError
from fairlead_spark.prepared_transaction import PreparedTransaction

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from fairlead_spark.exactly_once.batch_decision import Decision

EMPTY, ONGOING, COMMITTED, ABORTED = "Empty", "Ongoing", "CompleteCommit", "CompleteAbort"


class Row(NamedTuple):
    """A row that a task writes."""

    batch: int
    plan: int
    partition: int
    index: int  # type: ignore[assignment]  # nobody calls `index` of the tuple


@dataclass
class Transaction:
    """The state of one transactional id."""

    producer_id: int
    epoch: int = 0
    state: str = EMPTY
    written: list[Any] = field(default_factory=list)


class Brokers:
    """Rows visible to `read_committed`, committed decisions, and open transactions."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._ids: dict[str, Transaction] = {}
        self.output: Counter[Row] = Counter()
        self.decisions: list[Decision | None] = [None]
        self.given_up: set[str] = set()
        self.timed_out: set[PreparedTransaction] = set()

    def begin(self, name: str) -> PreparedTransaction:
        held = self._ids.get(name)
        if held is None:
            held = self._ids[name] = Transaction(len(self._ids))
        else:
            self._settle(held, ABORTED)
            held.epoch += 1
            held.state = EMPTY
        return PreparedTransaction(name, held.producer_id, held.epoch)

    def open(self, by: PreparedTransaction) -> None:
        held = self._ids[by.transactional_id]
        if (held.producer_id, held.epoch) != by[1:]:
            raise TakenOverError(by.transactional_id)
        if held.state != ONGOING:
            held.state, held.written = ONGOING, []

    def write(self, by: PreparedTransaction, what: Row | Decision) -> None:
        self.open(by)
        self._ids[by.transactional_id].written.append(what)

    def end(self, by: PreparedTransaction, *, is_commit: bool) -> bool:
        held = self._ids[by.transactional_id]
        if (held.producer_id, held.epoch) != by[1:]:
            return False
        wanted = COMMITTED if is_commit else ABORTED
        self._settle(held, wanted)
        return held.state == wanted

    def is_open(self, by: PreparedTransaction) -> bool:
        held = self._ids[by.transactional_id]
        return held.state == ONGOING and (held.producer_id, held.epoch) == by[1:]

    def time_out(self, is_chosen: Callable[[str], bool]) -> PreparedTransaction | None:
        """Abort one of the chosen open transactions, and return it."""
        names = [
            name for name, held in self._ids.items() if held.state == ONGOING and is_chosen(name)
        ]
        if not names:
            return None
        name = self._rng.choice(names)
        held = self._ids[name]
        ended = PreparedTransaction(name, held.producer_id, held.epoch)
        self._settle(held, ABORTED)
        held.epoch += 1
        self.timed_out.add(ended)
        return ended

    def abort_open(self, may_abort: Callable[[str], bool]) -> list[str]:
        open_ids = [name for name, held in self._ids.items() if held.state == ONGOING]
        return [name for name in open_ids if may_abort(name)]

    def read(self, *, may_be_old: bool) -> Decision | None:
        """Return the last decision; an earlier one if a replaced leader answers."""
        if may_be_old and self._rng.random() < 0.1:
            return self._rng.choice(self.decisions[-3:])
        return self.decisions[-1]

    def _settle(self, held: Transaction, outcome: str) -> None:
        if held.state != ONGOING:
            return
        held.state = outcome
        if outcome == COMMITTED:
            for each in held.written:
                if isinstance(each, Row):
                    self.output[each] += 1
                else:
                    self.decisions.append(each)
        held.written = []
