"""The observer of transactions: who wrote what, how it ended, and what readers may see of it.

It uses only what is committed: the records and markers of each partition in order, the decisions in
the log of transactional ids, and the answers to producers. From these it computes, slowly but
simply, the outcome of every record and, for every high watermark, the last stable offset. Brokers
must return the same.

    R25  No batch opens a transaction that its coordinator does not end.
    R27  The last stable offset is where the first transaction begins that is open, or whose marker
         is not below the high watermark; a consumer never sees it go back.
    T4   A marker follows a decision that is durable, and the end is complete with all markers.
    T5   A transaction has one outcome, in all partitions, and the one that its producer was told.
    T7   What was decided gets its marker in every partition in the end.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from simulator.transactional_records import ABORT, COMMIT, IdState, decode_state

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from simulator.checker import Checker, PartitionKey
    from simulator.transactional_records import LoggedRecord

    from fairlead_broker.log.index.transaction_index import AbortedTransaction
    from fairlead_broker.replication.partition import Partition

MARKER = "marker"
OPEN = "open"


@dataclass(eq=False, slots=True)
class Transaction:
    """A producer's transaction; `told` is its outcome, as far as the producer knows it."""

    name: str
    values: dict[PartitionKey, list[int]] = field(default_factory=lambda: defaultdict(list))
    told: str = ""
    found: str = ""
    """Its outcome by the markers."""
    ended_in: set[PartitionKey] = field(default_factory=set)


@dataclass(slots=True)
class Aborted:
    """The entry of a transaction in an index."""

    producer_id: int
    offsets: list[int]
    """Offsets of its records."""
    marker_offset: int
    last_stable_offset: int


class Account:
    """The state that follows from the records of one partition, added one by one."""

    def __init__(self, start: int = 0) -> None:
        self.start = start
        self.fates: list[str] = []
        """The outcome of each record: COMMIT, ABORT, OPEN, or MARKER if it is one."""
        self.stable = [start]
        """By the number of records: the stable offset if no more are committed."""
        self.aborted: list[Aborted] = []
        self.open: dict[int, list[int]] = {}
        """Producer id → offsets of the records in its open transaction."""

    @property
    def end(self) -> int:
        return self.start + len(self.fates)

    def fate(self, offset: int) -> str:
        return self.fates[offset - self.start]

    def stable_at(self, high_watermark: int) -> int:
        return self.stable[high_watermark - self.start]

    def add(self, entry: LoggedRecord) -> list[int]:
        """Add the next record; return the offsets that it decides, if it is a marker."""
        offset = self.end
        decided: list[int] = []
        if entry.end:
            self.fates.append(MARKER)
            decided = self.open.pop(entry.producer_id, [])
            for each in decided:
                self.fates[each - self.start] = entry.end
        elif entry.is_transactional:
            self.fates.append(OPEN)
            self.open.setdefault(entry.producer_id, []).append(offset)
        else:
            self.fates.append(COMMIT)
        stable = min((offsets[0] for offsets in self.open.values()), default=self.end)
        self.stable.append(stable)
        if decided and entry.end == ABORT:
            self.aborted.append(Aborted(entry.producer_id, decided, offset, stable))
        return decided


class TransactionWatch:
    """A part of the checker, which raises for it."""

    def __init__(self, checker: Checker) -> None:
        self._checker = checker
        self.transactions: list[Transaction] = []
        self.accounts: dict[PartitionKey, Account] = {}
        self.state_key: PartitionKey | None = None
        """The partition with the transactional ids."""
        self.topic = ""
        self._transaction_of: dict[int, Transaction] = {}
        self._places: set[int] = set()
        """Values that were committed."""
        self._last_values: dict[tuple[PartitionKey, str], int] = {}
        self._states: dict[str, IdState] = {}
        self._decided: Counter[tuple[PartitionKey, int]] = Counter()
        """Partition and producer id → transactions whose end was decided."""
        self._ended: Counter[tuple[PartitionKey, int]] = Counter()
        """Partition and producer id → transactions that a marker ended."""
        self._decisions: dict[tuple[PartitionKey, int, int], str] = {}
        """Partition, producer id, epoch → the newest decision."""
        self._marked: set[tuple[PartitionKey, int, int, str]] = set()

    def follow(self, topic: str, keys: Iterable[PartitionKey], state_key: PartitionKey) -> None:
        """Check a topic from now on."""
        self.topic = topic
        self.accounts = {key: Account() for key in keys}
        self.state_key = state_key

    def begin(self, name: str) -> Transaction:
        transaction = Transaction(name)
        self.transactions.append(transaction)
        return transaction

    def sends(self, transaction: Transaction, key: PartitionKey, values: Sequence[int]) -> None:
        """Note values that a producer is about to send for the first time."""
        transaction.values[key].extend(values)
        for value in values:
            self._transaction_of[value] = transaction

    def tell(self, transaction: Transaction, outcome: str) -> None:
        """Check the outcome that a producer gets for its transaction (T5)."""
        transaction.told = outcome
        if transaction.found not in ("", outcome) and not self.is_forgiven:
            self._checker.fail("T5: %s, and its producer is told %s", transaction, outcome)

    @property
    def is_forgiven(self) -> bool:
        """Whether decisions may be lost, or markers."""
        keys = [*self.accounts, *([] if self.state_key is None else [self.state_key])]
        return any(self._checker.truths[key].is_forgiven for key in keys)

    def on_committed(self, key: PartitionKey, offset: int, entry: LoggedRecord) -> None:
        """Add a record that is below a high watermark for the first time."""
        if self.is_forgiven:
            return
        if key == self.state_key:
            self._on_state(entry)
            return
        account = self.accounts[key]
        if entry.end:
            self._on_marker(key, entry)
        else:
            self._on_data(key, offset, entry)
        decided = account.add(entry)
        if decided:
            self._on_decided(key, entry, decided)

    def _on_state(self, entry: LoggedRecord) -> None:
        name, value = entry.content
        if name is None or value is None:
            return
        state = decode_state(name, value)
        before = self._states.get(state.transactional_id)
        self._states[state.transactional_id] = state
        if state.decision:
            for key in self._keys(state):
                self._decided[key, state.producer_id] += 1
                self._decisions[key, state.producer_id, state.producer_epoch] = state.decision
        if state.is_complete and before is not None:
            self._check_marked(before, "it is complete")

    def _keys(self, state: IdState) -> list[PartitionKey]:
        return [key for key in self.accounts if (self.topic, key[1]) in state.partitions]

    def _check_marked(self, state: IdState, why: str) -> None:
        """Check that every partition of a decision has its marker (T4, T7)."""
        for key in self._keys(state):
            marker = (key, state.producer_id, state.producer_epoch, state.decision)
            if marker not in self._marked:
                self._checker.fail("T4: %s, and partition %d has no marker: %s", why, key[1], state)

    def _on_marker(self, key: PartitionKey, entry: LoggedRecord) -> None:
        decision = self._decisions.get((key, entry.producer_id, entry.producer_epoch))
        if decision != entry.end:
            self._checker.fail("T4: %s, but what is decided is %r", entry, decision)
        self._marked.add((key, entry.producer_id, entry.producer_epoch, entry.end))

    def _on_data(self, key: PartitionKey, offset: int, entry: LoggedRecord) -> None:
        transaction = self._transaction_of[entry.value]
        if entry.value in self._places:
            self._checker.fail("%s is there twice, at %d of %s", entry, offset, transaction.name)
        self._places.add(entry.value)
        if key in transaction.ended_in:
            self._checker.fail("R25: %s comes after the end of %s", entry, transaction)
        last = self._last_values.get((key, transaction.name), -1)
        if entry.value < last:
            self._checker.fail("%s of %s comes after %d", entry, transaction.name, last)
        self._last_values[key, transaction.name] = entry.value

    def _on_decided(self, key: PartitionKey, entry: LoggedRecord, offsets: list[int]) -> None:
        """Check that a marker ended what the newest decision was about, and nothing else."""
        self._ended[key, entry.producer_id] += 1
        if self._ended[key, entry.producer_id] > self._decided[key, entry.producer_id]:
            self._checker.fail("T4: %s ends what nobody has decided about", entry)
        committed = self._checker.truths[key].committed
        for transaction in {self._transaction_of[committed[at].value] for at in offsets}:
            if transaction.found not in ("", entry.end) or transaction.told not in ("", entry.end):
                self._checker.fail("T5: %s ends %s", entry, transaction)
            transaction.found = entry.end
            transaction.ended_in.add(key)

    def on_told(self, partition: Partition, high_watermark: int, last_stable_offset: int) -> None:
        """Check up to where a leader lets a consumer read (R27)."""
        key = (partition.topic_id, partition.index)
        account = self.accounts.get(key)
        if account is None or self.is_forgiven:
            return
        expected = account.stable_at(high_watermark)
        start = partition.log_start_offset
        if expected < start:
            # A process that started since may not know what is deleted.
            is_right = start <= last_stable_offset <= high_watermark
        else:
            is_right = last_stable_offset == expected
        if not is_right:
            self._checker.fail(
                "R27: %s tells %d as stable at the high watermark %d, it is %d",
                partition,
                last_stable_offset,
                high_watermark,
                expected,
            )

    def on_seen(self, key: PartitionKey, offset: int) -> None:
        """Check a record that a read_committed consumer has got."""
        fate = self.accounts[key].fate(offset) if not self.is_forgiven else COMMIT
        if fate != COMMIT:
            self._checker.fail("a consumer of what is committed saw %d, which is %s", offset, fate)

    def on_skipped(self, key: PartitionKey, start: int, end: int) -> None:
        """Check offsets for which a read_committed consumer got nothing."""
        if self.is_forgiven:
            return
        account = self.accounts[key]
        for offset in range(max(start, self._checker.truths[key].forgotten), end):
            if offset >= account.end or account.fate(offset) not in (ABORT, MARKER):
                self._checker.fail("a consumer of what is committed missed %d", offset)

    def on_sequence_gap(
        self, transaction: Transaction, key: PartitionKey, values: Sequence[int]
    ) -> None:
        """Check a leader that lacks what a batch's producer was told that it has."""
        if not self.is_forgiven:
            self._checker.fail(
                "%s: records before %s of %d are gone", transaction.name, values, key[1]
            )

    def on_stable_back(self, key: PartitionKey, before: int, now: int) -> None:
        if not self.is_forgiven:
            self._checker.fail(
                "R27: the end of what is stable was told as %d, then %d", before, now
            )

    def unsettled(self) -> str | None:
        """Return what is not ended yet, or ended and not marked (T7)."""
        if self.is_forgiven:
            return None
        for key, account in self.accounts.items():
            if account.open:
                return f"R25: partition {key[1]} has open transactions: {account.open}"
        for state in self._states.values():
            if state.decision:
                return f"T7: the end of {state} is not complete"
        return None

    def check_history(self) -> None:
        """Check that each record that a producer knows as committed is there, once, in order."""
        if self.is_forgiven:
            return
        for transaction in self.transactions:
            sent = [value for values in transaction.values.values() for value in values]
            is_there = [value in self._places for value in sent]
            if transaction.told == COMMIT and not all(is_there):
                self._checker.fail("%s is not whole", transaction)
            if any(is_there) and not transaction.found:
                self._checker.fail("%s never ended", transaction)

    def check_replica(self, partition: Partition) -> None:
        """Check a replica's view of its own records: the last stable offset, and its index."""
        log = partition.log
        start, end = log.log_start_offset, log.log_end_offset
        contents = log.contents  # type: ignore[attr-defined]
        account = Account(start)
        for offset in range(start, end):
            account.add(contents[offset])
        stable = partition.last_stable_offset
        if partition.high_watermark == end and stable != account.stable_at(end):
            self._checker.fail(
                "R27: %s is stable to %d, not %d", log.path, stable, account.stable_at(end)
            )
        _check_index(self._checker, partition, account, log.aborted_transactions(start, end))


def _check_index(
    checker: Checker, partition: Partition, account: Account, found: list[AbortedTransaction]
) -> None:
    """Check that an index has what was aborted, and else only what began below the log's start."""
    by_marker = {each.last_offset: each for each in found}
    for expected in account.aborted:
        entry = by_marker.pop(expected.marker_offset, None)
        if (
            entry is None
            or entry.producer_id != expected.producer_id
            or entry.first_offset > expected.offsets[0]
        ):
            checker.fail("%s: the index has %s for %s", partition, entry, expected)
    for entry in by_marker.values():
        if entry.first_offset >= account.start:
            checker.fail("%s: the index has %s, which nobody aborted", partition, entry)
