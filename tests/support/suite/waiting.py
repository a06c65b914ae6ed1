"""How tests wait: until a condition is true.

What another process, thread or task does is not done when the call that asked for it returns: a
signal has not arrived, a broker does not know a topic yet, a line is not written. A test that
checks only once checks too early on a busy machine. The deadline is far longer than anything takes
here; only what never happens reaches it.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

DEADLINE_S = 60.0
POLL_S = 0.01
NEVER = "it never came true"

T = TypeVar("T")
What = str | Callable[[], str]


def wait_until(
    condition: Callable[[], T | None], what: What = NEVER, *, deadline_s: float = DEADLINE_S
) -> T:
    """Return the condition's result when it is true; AssertionError with `what` if it never is."""
    deadline = time.monotonic() + deadline_s
    while not (found := condition()):
        assert time.monotonic() < deadline, _told(what)
        time.sleep(POLL_S)
    return found


async def until(
    condition: Callable[[], Any],
    what: What = NEVER,
    *,
    deadline_s: float = DEADLINE_S,
) -> Any:
    """Do the same on an event loop; the condition may be a coroutine function."""
    deadline = time.monotonic() + deadline_s
    while not (found := await _answer(condition)):
        assert time.monotonic() < deadline, _told(what)
        await asyncio.sleep(POLL_S)
    return found


async def _answer(condition: Callable[[], Any]) -> Any:
    answer = condition()
    return await answer if isinstance(answer, Awaitable) else answer


def _told(what: What) -> str:
    return what if isinstance(what, str) else what()
