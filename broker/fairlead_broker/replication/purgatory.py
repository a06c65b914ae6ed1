"""Where requests wait for partitions to advance: parked produces and fetches.

Pure: it knows operations, keys and deadlines. A key is `(topic, partition index)`. Three things end
a wait: `check` after a partition has advanced (the broker calls it once a turn of the loop with all
such keys), `expire` at the deadline, and `cancel` when the client is gone. Each operation leaves
exactly once.

    operation.try_complete()   answers if its condition holds now, and says whether it did
    operation.on_expire()      answers with what there is
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

PurgatoryKey: TypeAlias = tuple[str, int]

_STALE_ENTRIES_MIN: Final = 64
PARKED_FAULT: Final = "a request of it that waited has failed"
"""Why a connection is closed."""


class Operation(Protocol):
    """What can be parked. Only the purgatory calls its methods."""

    def try_complete(self) -> bool: ...
    def on_expire(self) -> None: ...
    def on_fault(self) -> None:
        """End without an answer, because one of the other methods has raised an exception."""


class ParkedOperation:
    """A parked operation; `cancel` forgets it without an answer.

    `moved` are the keys for which it was checked, if the operation asks for them; the operation
    empties it.
    """

    __slots__ = ("deadline_ms", "is_parked", "keys", "moved", "operation", "purgatory")

    def __init__(
        self,
        purgatory: Purgatory,
        operation: Operation,
        keys: tuple[PurgatoryKey, ...],
        deadline_ms: int,
    ) -> None:
        self.purgatory = purgatory
        self.operation = operation
        self.keys = keys
        self.deadline_ms = deadline_ms
        self.moved: set[PurgatoryKey] | None = None
        self.is_parked = True

    def cancel(self) -> None:
        self.purgatory.forget(self)


class Purgatory:
    """Parked operations by key and by deadline.

    `operations_max` limits the operations and `keys_max` their keys: beyond either `park` refuses,
    and the caller answers at once. Deadlines are times of any one clock of the caller.
    `on_earlier_deadline` is called when the next deadline is earlier than before, so that a shell
    can set one timer for all. `on_fault` is called with an operation that raised an exception and
    was taken out: the others and the request that caused the check go on. Without `on_fault` the
    exception is raised.
    """

    def __init__(self, *, operations_max: int, keys_max: int, tells_moves: bool = False) -> None:
        """`tells_moves`: some operations have a set for the keys that advanced."""
        self.tells_moves = tells_moves
        self.on_earlier_deadline: Callable[[int], None] | None = None
        self.on_fault: Callable[[Operation], None] | None = None
        self._operations_max = operations_max
        self._keys_max = keys_max
        self._watchers: dict[PurgatoryKey, dict[ParkedOperation, None]] = {}
        self._deadlines: list[tuple[int, int, ParkedOperation]] = []
        self._sequence = 0
        self._size = 0
        self._keys_count = 0

    def __len__(self) -> int:
        return self._size

    @property
    def keys_count(self) -> int:
        """Keys waited for, over all operations."""
        return self._keys_count

    def park(
        self, operation: Operation, keys: Sequence[PurgatoryKey], deadline_ms: int
    ) -> ParkedOperation | None:
        """Hold `operation` until one of `keys` lets it complete; None when there is no room."""
        keys_count = self._keys_count + len(keys)
        if self._size >= self._operations_max or keys_count > self._keys_max:
            return None
        distinct = tuple(dict.fromkeys(keys)) if len(keys) > 1 else tuple(keys)
        parked = ParkedOperation(self, operation, distinct, deadline_ms)
        watchers = self._watchers
        for key in parked.keys:
            watching = watchers.get(key)
            if watching is None:
                watchers[key] = {parked: None}
            else:
                watching[parked] = None
        self._size += 1
        self._keys_count += len(parked.keys)
        self._sequence += 1
        is_earliest = not self._deadlines or deadline_ms < self._deadlines[0][0]
        heapq.heappush(self._deadlines, (deadline_ms, self._sequence, parked))
        if is_earliest and self.on_earlier_deadline is not None:
            self.on_earlier_deadline(deadline_ms)
        return parked

    def check_all(self) -> int:
        """Let every operation try to complete, once each; return how many did."""
        return self.check(list(self._watchers))

    def check(self, keys: Iterable[PurgatoryKey]) -> int:
        """Let each operation that waits for `keys` try to complete once; return how many did."""
        concerned: dict[ParkedOperation, None] = {}
        for key in keys:
            watching = self._watchers.get(key)
            if watching:
                concerned |= watching
                if self.tells_moves:
                    _note_moved(key, watching)
        completed = 0
        for parked in concerned:
            # An earlier completion may have closed the connection of this one.
            if not parked.is_parked:
                continue
            try:
                is_complete = parked.operation.try_complete()
            except Exception:
                self._give_up(parked)
                continue
            if is_complete:
                self.forget(parked)
                completed += 1
        return completed

    def expire(self, now_ms: int) -> int:
        """End every wait whose deadline has come; return how many there were."""
        expired = 0
        deadlines = self._deadlines
        while deadlines and (deadlines[0][0] <= now_ms or not deadlines[0][2].is_parked):
            parked = heapq.heappop(deadlines)[2]
            if parked.is_parked:
                # Remove it first: the answer may park the connection's next request here.
                self.forget(parked)
                try:
                    parked.operation.on_expire()
                except Exception:
                    self._give_up(parked)
                expired += 1
        return expired

    def _give_up(self, parked: ParkedOperation) -> None:
        """Report the exception of an operation, or raise it: called while it is handled."""
        self.forget(parked)
        if self.on_fault is None:
            raise  # noqa: PLE0704
        self.on_fault(parked.operation)

    def next_deadline_ms(self) -> int | None:
        """Return the earliest deadline of anything parked."""
        deadlines = self._deadlines
        while deadlines and not deadlines[0][2].is_parked:
            heapq.heappop(deadlines)
        return deadlines[0][0] if deadlines else None

    def forget(self, parked: ParkedOperation) -> None:
        """Remove an operation, if it is still there, without a call to it."""
        if not parked.is_parked:
            return
        parked.is_parked = False
        for key in parked.keys:
            watching = self._watchers[key]
            del watching[parked]
            if not watching:
                del self._watchers[key]
        self._size -= 1
        self._keys_count -= len(parked.keys)
        if len(self._deadlines) > 2 * self._size + _STALE_ENTRIES_MIN:
            # Most fetches complete long before their deadline: their entries must not pile up. In
            # place, because `expire` may iterate over it.
            self._deadlines[:] = [entry for entry in self._deadlines if entry[2].is_parked]
            heapq.heapify(self._deadlines)


def _note_moved(key: PurgatoryKey, watching: Iterable[ParkedOperation]) -> None:
    for parked in watching:
        if parked.moved is not None:
            parked.moved.add(key)
