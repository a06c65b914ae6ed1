"""Producers of one transactional id, which fence each other; each is a generator of requests.

A request of version 2 may be delivered again, however late. In version 1 the coordinator cannot
distinguish a late EndTxn from that of the next transaction (KIP-890), so a client repeats a request
only when the last one is no longer on its way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairlead_wire.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Generator

    from .world import World

RETRIABLE = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}
TRANSACTIONS = 4
NO_PAIR = (-1, -1)
"""Of a client that was given no producer id and epoch yet."""


class Client:
    """One process of a producer; each has its own number."""

    def __init__(self, world: World, number: int, *, version: int) -> None:
        self.world = world
        self.number = number
        self.version = version
        self.pair = NO_PAIR
        self.is_dead = False
        self.refusal: ErrorCode | None = None
        """The error after which it ended."""
        self._has_lost_write = False
        self.asked = 0
        self.waits_for = 0
        self.story = self._live()
        self.request: tuple[Any, ...] = ()
        self.resume(None)

    def resume(self, answer: Any) -> None:
        """Continue with the answer to the last request; None if there was no answer."""
        try:
            self.request = self.story.send(answer)
        except StopIteration:
            self.is_dead = True
            return
        self.asked += 1
        self.waits_for = self.asked
        self.world.send(self)

    def _until_answered(self, *request: Any) -> Generator[Any, Any, Any]:
        """Repeat a request until its answer is final."""
        while True:
            answer = yield request
            if answer is not None and answer.error not in RETRIABLE:
                return answer

    def _written(self, index: int, transaction: tuple[int, int]) -> Generator[Any, Any, Any]:
        """Write until there is an answer; return None if a write may still arrive.

        In version 2 the end of the transaction refuses that; in version 1 the client needs another
        epoch.
        """
        while True:
            answer = yield "write", index, transaction
            if answer is None:
                self._has_lost_write = self.version == 0
                return None
            if answer.error not in RETRIABLE:
                return answer

    def _live(self) -> Generator[Any, Any, None]:
        expected = None
        for count in range(TRANSACTIONS):
            if count == 0 or self._has_lost_write or self.world.random.random() < 0.2:
                # At first, or to continue after an error (KIP-360).
                self._has_lost_write = False
                answer = yield from self._until_answered("init", expected)
                if answer.error is not ErrorCode.NONE:
                    self.refusal = answer.error
                    return
                self._given(answer)
            expected = self.pair
            may_go_on = yield from self._transaction((self.number, count))
            if not may_go_on:
                return

    def _given(self, answer: Any) -> None:
        self.pair = answer.producer_id, answer.producer_epoch
        self.world.checker.given(self.number, self.pair)

    def _transaction(self, transaction: tuple[int, int]) -> Generator[Any, Any, bool]:
        chance = self.world.random
        indexes = sorted(chance.sample(range(3), chance.randint(1, 3)))
        commits = chance.random() < 0.7
        if self.version == 0:
            answer = yield from self._until_answered("add", tuple(indexes))
            if answer.error is not ErrorCode.NONE:
                self.refusal = answer.error
                return False
        for index in indexes:
            answer = yield from self._written(index, transaction)
            if answer is None or answer.error is not ErrorCode.NONE:
                commits = False
                break
        if chance.random() < 0.1:
            # The client hangs, or was killed.
            return False
        answer = yield from self._until_answered("end", commits)
        if answer.error is not ErrorCode.NONE:
            self.refusal = answer.error
            return False
        self.world.checker.ended(transaction, is_commit=commits, indexes=indexes)
        if self.version:
            self._given(answer)
        return True
