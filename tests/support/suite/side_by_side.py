"""Which worker runs which tests, when `make test` runs them in parallel.

Tests with processes and clients wait most of the time: two workers for them leave more than half of
two cores idle. Another worker has all tests of Spark, which share a JVM. The worker with the first
test of ZooKeeper gets all of them, also those of the command: they share an ensemble. The last
worker has the tests that compute, at a low priority, so that the others always get a core at once.
Long files come first, and simulated clusters are assigned one by one, so that all workers are busy
to the end. Other files stay whole, because their tests share state.
"""

import os

from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

COMPUTING_NICENESS = 10
# At the lowest priority, tests on a busy machine have a tenth of a core or less.
COMPUTING_TIMEOUT_S = 3600
# None of these starts a server or measures time.
COMPUTING = (
    "tests/simulation/test_seeds.py",
    "tests/simulation/",
    "tests/property/",
    "tests/crash/test_power_loss.py",
    "tests/test_tidy.py",
    "tests/unit/wire/",
    "tests/unit/model/",
)
SPARK = "tests/spark/"
ZOOKEEPER = "tests/zookeeper/"
ON_ZOOKEEPER = (ZOOKEEPER, "tests/cli/test_zookeeper_store.py")
WAITING_LONG = (
    *(SPARK, ZOOKEEPER, "tests/examples/", "tests/clients/", "tests/cli/"),
    *("tests/kubernetes/test_operator_reconcile.py", "tests/kubernetes/test_rebalances.py"),
)
ONE_BY_ONE = "tests/simulation/"


def computing_worker(workers: int) -> str:
    """Return the last of at least four workers; fewer workers all run any tests."""
    return f"gw{workers - 1}" if workers > 3 else ""


def lower_priority_where_computing() -> None:
    """Lower the priority of this process and its children, if its tests compute."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "0"))
    if workers and os.environ["PYTEST_XDIST_WORKER"] == computing_worker(workers):
        os.nice(COMPUTING_NICENESS)


def scope_of(nodeid: str) -> str:
    """Return the group of a test, which one worker runs as a whole."""
    if nodeid.startswith(SPARK):
        return SPARK
    if nodeid.startswith(ON_ZOOKEEPER):
        return ZOOKEEPER
    return nodeid if nodeid.startswith(ONE_BY_ONE) else nodeid.split("::", 1)[0]


def turn(scope: str, *, is_computing: bool) -> tuple[bool, int]:
    """Return the sort key of a scope: a worker takes the lowest one first."""
    order = COMPUTING if scope.startswith(COMPUTING) else WAITING_LONG
    place = next((at for at, folder in enumerate(order) if scope.startswith(folder)), len(order))
    return (order is COMPUTING) != is_computing, place


class SideBySide(LoadScopeScheduling):
    """Hands scopes out in the order of `turn`; within one place, those of many tests first."""

    def _split_scope(self, nodeid: str) -> str:
        return scope_of(nodeid)

    def _assign_work_unit(self, node: WorkerController) -> None:
        is_computing = self._is_computing(node)
        first = min(self.workqueue, key=lambda scope: turn(scope, is_computing=is_computing))
        self.workqueue.move_to_end(first, last=False)
        super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        """End the computing worker when only other work is left: it would be too slow."""
        is_done = not any(scope.startswith(COMPUTING) for scope in self.workqueue)
        if self._is_computing(node) and is_done and not node.shutting_down:
            node.shutdown()
        else:
            super()._reschedule(node)

    def _is_computing(self, node: WorkerController) -> bool:
        return str(node.gateway.id) == computing_worker(self.numnodes)
