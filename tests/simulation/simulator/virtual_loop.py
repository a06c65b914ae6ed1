"""An event loop in virtual time, and the processes that run on it.

The loop never waits: when nothing is ready, its clock jumps to the next timer. Every callback and
task belongs to a `Process` through its context, which asyncio propagates. So a process can be
stopped like a real one: if it is paused, its callbacks stay queued while time goes on; if it is
killed, they are dropped and none of its code runs again, not even a `finally`.

The order of calls is the only order, so a seed always gives the same history.
"""

from __future__ import annotations

import asyncio
import heapq
import warnings
from contextlib import suppress
from contextvars import Context, ContextVar
from typing import TYPE_CHECKING, Any, TypeVarTuple, Unpack

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Coroutine

Arguments = TypeVarTuple("Arguments")

PROCESS: ContextVar[Process | None] = ContextVar("PROCESS", default=None)


class SimulationStuckError(Exception):
    """Nothing can ever happen any more."""


class _NoSelector:
    """The object that asyncio's base class closes."""

    def close(self) -> None: ...


class VirtualLoop(asyncio.BaseEventLoop):
    """`after_step` is called after each callback that belongs to a process or to the network."""

    def __init__(self, start_s: float = 1000.0) -> None:
        super().__init__()
        self._selector = _NoSelector()
        self._now = start_s
        self.after_step: Callable[[], None] = lambda: None
        self.steps = 0
        self.failure: BaseException | None = None
        self.threads: Any = None
        """Decides how long blocking calls take that have no thread of their own."""
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timers_made = 0
        self.set_exception_handler(self._on_exception)
        self._tasks: list[tuple[asyncio.Task[Any], Process | None]] = []
        self.spawned: list[Coroutine[Any, Any, Any]] = []
        """What processes run under guard."""
        self.set_task_factory(self._make_task)

    def _make_task(
        self, _: asyncio.AbstractEventLoop, work: Any, context: Context | None = None
    ) -> asyncio.Task[Any]:
        """Keep every task: a collected task would run its `finally` clauses, which a killed process
        never does."""
        task = asyncio.Task(work, loop=self, context=context)
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        owner = PROCESS.get() if context is None else context.get(PROCESS)
        self._tasks.append((task, owner))
        return task

    def unheard_failure(self) -> BaseException | None:
        """The error of a task that nobody awaited; a killed process may have been about to."""
        for task, owner in self._tasks:
            was_killed = owner is not None and not owner.is_alive
            if task.done() and task._log_traceback and not was_killed:
                return task.exception()
        return None

    def bury(self) -> None:
        """End all tasks for good; what they do now does not count."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Some tasks had not begun.
            for task, _ in self._tasks:
                if not task.done():
                    with suppress(BaseException):
                        task.get_coro().close()
            # From Python 3.13 on, a guard that had not begun does not let go of its work yet.
            for work in self.spawned:
                with suppress(BaseException):
                    work.close()
        self._tasks.clear()
        self.spawned.clear()
        self.close()

    def time(self) -> float:
        return self._now

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Arguments]], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Set a timer; timers of the same moment fire in the order in which they were set."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._timers_made += 1
        heapq.heappush(self._timers, (when, self._timers_made, timer))
        return timer

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None: ...

    def now_ms(self) -> int:
        """Monotonic milliseconds, the same for all processes."""
        return int(self._now * 1000)

    def _on_exception(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Note an error in a callback, or in a task that nobody awaits, as a finding."""
        error = context.get("exception")
        if error is not None and self.failure is None:
            self.failure = error

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Run all of it at once, a little later, as part of the caller's process."""
        future = self.create_future()

        def run() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except Exception as error:
                future.set_exception(error)

        self.call_later((executor or self.threads).delay_s(), run)
        return future

    def _write_to_self(self) -> None: ...

    def _process_events(self, event_list: list[Any]) -> None: ...

    def _run_once(self) -> None:
        timers = self._timers
        ready: deque[asyncio.Handle] = self._ready  # type: ignore[attr-defined]
        if not ready:
            while timers and timers[0][2]._cancelled:
                heapq.heappop(timers)
            if not timers:
                raise SimulationStuckError("no timer is left")
            self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= self._now:
            ready.append(heapq.heappop(timers)[2])
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            process = handle._context.get(PROCESS)  # type: ignore[attr-defined]  # private
            if process is not None:
                if not process.is_alive:
                    continue
                if process.is_paused:
                    process.held.append(handle)
                    continue
            handle._run()
            self.steps += 1
            self.after_step()
            if self.failure is not None:
                failure, self.failure = self.failure, None
                raise failure


class Process:
    """One process start; a restart makes another one under the same name."""

    def __init__(self, loop: VirtualLoop, name: str) -> None:
        self.loop = loop
        self.name = name
        self.is_alive = True
        self.is_paused = False
        self.held: list[asyncio.Handle] = []
        self.context = Context()
        self.context.run(PROCESS.set, self)
        self.on_end: list[Callable[[], None]] = []
        """What the operating system does when the process ends."""

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run a coroutine as part of the process."""
        self.loop.spawned.append(work)
        return self.loop.create_task(self._guarded(work), context=self.context)

    async def _guarded(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run a coroutine that nobody awaits: any error is a finding."""
        try:
            await work
        except Exception as error:
            self.loop.failure = error

    def call_soon(self, callback: Callable[..., None], *args: Any) -> asyncio.Handle:
        return self.loop.call_soon(callback, *args, context=self.context)

    def call_later(
        self, delay_s: float, callback: Callable[..., None], *args: Any
    ) -> asyncio.TimerHandle:
        return self.loop.call_later(delay_s, callback, *args, context=self.context)

    def pause(self) -> None:
        """Handle SIGSTOP: time goes on without the process."""
        self.is_paused = True

    def resume(self) -> None:
        """Handle SIGCONT: everything that was due meanwhile happens now, in order."""
        self.is_paused = False
        held, self.held = self.held, []
        self.loop._ready.extendleft(reversed(held))  # type: ignore[attr-defined]

    def end(self) -> None:
        """Handle SIGKILL, or an exit: nothing of the process runs any more."""
        if self.is_alive:
            self.is_alive = False
            self.is_paused = False
            self.held.clear()
            callbacks, self.on_end = self.on_end, []
            for callback in callbacks:
                callback()
