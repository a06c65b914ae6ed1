"""Requests for a transactional id that wait a moment for what is under way for it.

A producer begins its next transaction as soon as the last one is decided, a few milliseconds before
the markers are written. CONCURRENT_TRANSACTIONS, the answer to that, costs it a pause of its own:
20 ms, or 100 for offsets, in librdkafka. So the request waits here, and is asked again as if it had
just come: the state machine knows nothing of it.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from fairlead_broker.limits import TRANSACTION_REQUESTS_WAITING_MAX
from fairlead_broker.transaction.transaction_types import TransactionAnswer

if TYPE_CHECKING:
    from collections.abc import Callable

    from fairlead_broker.transaction.transaction_types import Effects, Waiter
    from fairlead_wire.errors import ErrorCode


class WaitingRequest(NamedTuple):
    """What was asked: `ask` asks it again, for the same waiter. Times are monotonic."""

    ask: Callable[[], Effects]
    waiter: Waiter
    deadline_ms: int


class WaitingRequests:
    """Those of one id, in the order in which they came; all wait equally long."""

    __slots__ = ("_requests",)

    def __init__(self) -> None:
        self._requests: deque[WaitingRequest] = deque()

    def __len__(self) -> int:
        return len(self._requests)

    def add(self, request: WaitingRequest) -> bool:
        """Have one wait behind the others; False if enough do."""
        if len(self._requests) >= TRANSACTION_REQUESTS_WAITING_MAX:
            return False
        self._requests.append(request)
        return True

    @property
    def next_deadline_ms(self) -> int:
        """When the first one has waited long enough; there must be one."""
        return self._requests[0].deadline_ms

    def take(self) -> WaitingRequest:
        """Return the first one, which waits no longer."""
        return self._requests.popleft()

    def refuse(self, code: ErrorCode, *, due_ms: int | None = None) -> None:
        """Answer those whose time is over at `due_ms`, or all."""
        while self._requests and (due_ms is None or self._requests[0].deadline_ms <= due_ms):
            self._requests.popleft().waiter(TransactionAnswer(code))
