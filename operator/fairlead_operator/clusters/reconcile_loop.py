"""When each cluster is reconciled: one task per cluster, woken by changes and by the clock.

A cluster that waits for nothing but a change, as one that is gone, has no task.
"""

import asyncio
import logging
import random
from typing import Final

from fairlead_kube.errors import ApiError, ApiUnavailableError
from fairlead_operator.clusters.reconciler import ClusterReconciler
from fairlead_operator.controller_client import ControllerError
from fairlead_operator.live_objects import ClusterKey
from fairlead_operator.metrics import OperatorMetrics

logger = logging.getLogger(__name__)

BACKOFF_S_MIN: Final = 1.0
BACKOFF_S_MAX: Final = 30.0
PASS_S_MAX: Final = 30.0
"""A pass that takes longer is cancelled and repeated. Its finished writes are not repeated."""
CHANGES_SETTLE_S: Final = 0.05
"""Changes come in bursts; those within this time after the first are handled together."""


class ReconcileLoop:
    """Runs passes over one cluster one after another, and over several clusters concurrently."""

    def __init__(self, metrics: OperatorMetrics) -> None:
        self._metrics = metrics
        self._reconciler: ClusterReconciler | None = None
        self._tasks: dict[ClusterKey, asyncio.Task[None]] = {}
        self._wakes: dict[ClusterKey, asyncio.Event] = {}

    def request(self, key: ClusterKey) -> None:
        """Reconcile a cluster soon."""
        self._wakes.setdefault(key, asyncio.Event()).set()
        if self._reconciler is not None and key not in self._tasks:
            task = asyncio.get_running_loop().create_task(
                self._follow(self._reconciler, key), name=f"reconcile {key[0]}/{key[1]}"
            )
            self._tasks[key] = task
            task.add_done_callback(lambda ended: self._begin_anew(key, ended))

    async def run(self, reconciler: ClusterReconciler) -> None:
        """Work until cancelled; earlier requests are reconciled now."""
        self._reconciler = reconciler
        for key in list(self._wakes):
            self.request(key)
        try:
            await asyncio.Event().wait()
        finally:
            self._reconciler = None
            tasks, self._tasks = list(self._tasks.values()), {}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _begin_anew(self, key: ClusterKey, ended: asyncio.Task[None]) -> None:
        """Start a new task for a cluster whose task ended unexpectedly, unless all are to end."""
        if self._reconciler is not None and self._tasks.get(key) is ended:
            logger.error("%s/%s: its reconciliation ended; it begins anew", *key)
            del self._tasks[key]
            self.request(key)

    async def _follow(self, reconciler: ClusterReconciler, key: ClusterKey) -> None:
        wake, failures = self._wakes[key], 0
        while True:
            wake.clear()
            delay_s: float | None
            try:
                with self._metrics.reconciling("LogCluster"):
                    async with asyncio.timeout(PASS_S_MAX):
                        delay_s = await reconciler.reconcile(key)
                failures = 0
            except (ApiError, ApiUnavailableError, ControllerError) as error:
                failures += 1
                logger.warning("%s/%s: trying again: %s", *key, error)
                delay_s = _backoff_s(failures)
            except (Exception, asyncio.CancelledError) as error:
                if isinstance(error, asyncio.CancelledError) and _is_cancelled():
                    if self._reconciler is not None:
                        logger.exception("%s/%s: cancelled by somebody else", *key)
                    raise
                # A cancellation of what the pass awaited also arrives here: no reason to end.
                failures += 1
                logger.exception("%s/%s: trying again after an unexpected error", *key)
                delay_s = _backoff_s(failures)
            if failures:
                # Changes do not shorten this pause: our own writes may have caused them.
                await asyncio.sleep(delay_s or BACKOFF_S_MIN)
                continue
            if delay_s is None and not wake.is_set():
                del self._tasks[key], self._wakes[key]  # the next change begins a new task
                return
            try:
                # Not wait_for: until Python 3.12 it loses a cancellation that arrives at the same
                # time as a change, and this task would never end.
                async with asyncio.timeout(delay_s):
                    await wake.wait()
                await asyncio.sleep(CHANGES_SETTLE_S)
            except TimeoutError:
                pass


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _backoff_s(failures: int) -> float:
    delay_s: float = min(BACKOFF_S_MAX, BACKOFF_S_MIN * 2 ** min(failures - 1, 10))
    return delay_s * (0.5 + random.random())  # noqa: S311
