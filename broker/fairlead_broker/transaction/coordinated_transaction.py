"""A transactional id of a coordinator: its state machine, and what the shell keeps beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairlead_broker.transaction.waiting_requests import WaitingRequests

if TYPE_CHECKING:
    from fairlead_broker.coordinator.shard import Shard
    from fairlead_broker.transaction.transactional_id import TransactionalId
    from fairlead_broker.transaction.waiting_requests import WaitingRequest
    from fairlead_wire.errors import ErrorCode


class CoordinatedTransaction:
    """`scheduled_ms` is the deadline that the coordinator's timer has for it, or None.

    `counted_bytes` is what the id took when that was counted last. `is_gone` is true once the id is
    forgotten or coordinated elsewhere: nothing is written for it then. `waiting` are requests that
    arrived while it was busy; None if there never were any.
    """

    __slots__ = ("counted_bytes", "is_gone", "machine", "scheduled_ms", "shard", "waiting")

    def __init__(self, shard: Shard[Any], machine: TransactionalId) -> None:
        self.shard = shard
        self.machine = machine
        self.counted_bytes = 0
        self.scheduled_ms: int | None = None
        self.is_gone = False
        self.waiting: WaitingRequests | None = None

    def next_deadline_ms(self) -> int | None:
        """Return its next deadline."""
        deadline_ms = self.machine.next_deadline_ms()
        if self.waiting:
            waiting_ms = self.waiting.next_deadline_ms
            return waiting_ms if deadline_ms is None else min(deadline_ms, waiting_ms)
        return deadline_ms

    def wait(self, request: WaitingRequest) -> bool:
        """Queue a request; return False if the queue is full."""
        if self.waiting is None:
            self.waiting = WaitingRequests()
        return self.waiting.add(request)

    def refuse_waiting(self, code: ErrorCode) -> None:
        """Answer all requests that wait."""
        if self.waiting:
            self.waiting.refuse(code)
