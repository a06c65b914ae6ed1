"""Which records of producers' transactions count, as a log is replayed.

Pure. Records of a transaction are *staged* until its marker: a commit makes them count like other
records, an abort drops them. Of several records of a key the one with the highest offset counts,
wherever the markers are, because compaction keeps that one (R22). So while a transaction is open,
the offset of each key's last change is noted; this costs nothing in a log without transactions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class UndecidedRecord(NamedTuple):
    """A record of a transaction that is open where the log ends.

    `batch_offset`, the base offset of its batch, is its order among other records. `value` is None
    if a commit would change nothing: a later record of its key counts already.
    """

    producer_id: int
    key: bytes
    batch_offset: int
    value: bytes | None


class ReplayedTransactions:
    """`open` has by producer and key the base offset of a staged record's batch, and its value."""

    def __init__(self) -> None:
        self.open: dict[int, dict[bytes, tuple[int, bytes | None]]] = {}
        self._changed_at: dict[bytes, int] = {}
        """While a transaction is open: by key, the offset of its last change since."""
        self._removed_at: dict[bytes, int] = {}
        """Of these changes, those that were tombstones."""

    def stage(self, producer_id: int, offset: int, records: Mapping[bytes, bytes | None]) -> None:
        """Take a batch of a transaction; None stands for a tombstone."""
        staged = self.open.setdefault(producer_id, {})
        for key, value in records.items():
            staged[key] = (offset, value)

    def overtake(
        self, offset: int, records: Mapping[bytes, bytes | None], newest: dict[bytes, bytes]
    ) -> None:
        """Take a batch without a transaction while others are open; `newest` changes."""
        for key, value in records.items():
            self._change(key, value, offset, newest)

    def end(self, producer_id: int, *, is_commit: bool, newest: dict[bytes, bytes]) -> None:
        """Take a marker; after a commit `newest` has what the transaction had staged."""
        staged = self.open.pop(producer_id, {})
        if is_commit:
            changed_at = self._changed_at
            for key, (offset, value) in staged.items():
                if changed_at.get(key, -1) < offset:
                    self._change(key, value, offset, newest)
        if not self.open:
            # Records staged from here on have higher offsets than all of these.
            self._changed_at.clear()
            self._removed_at.clear()

    def _change(
        self, key: bytes, value: bytes | None, offset: int, newest: dict[bytes, bytes]
    ) -> None:
        self._changed_at[key] = offset
        if value is None:
            newest.pop(key, None)
            self._removed_at[key] = offset
        else:
            newest[key] = value

    def undecided(self) -> Iterator[UndecidedRecord]:
        """Yield records that are staged at the end of the log and were not removed meanwhile."""
        changed_at, removed_at = self._changed_at, self._removed_at
        for producer_id, staged in self.open.items():
            for key, (offset, value) in staged.items():
                if removed_at.get(key, -1) < offset:
                    is_overtaken = changed_at.get(key, -1) > offset
                    yield UndecidedRecord(producer_id, key, offset, None if is_overtaken else value)
