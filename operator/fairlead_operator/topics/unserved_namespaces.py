"""Reports LogClusters whose `spec.topicNamespaces` name a namespace that cannot be read.

Topics there are neither accepted nor released, and no object of that namespace can show it.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any

from fairlead_operator.events import EventWriter
from fairlead_operator.topics.namespace_rules import read_namespace_rules
from fairlead_operator.topics.topic_resource import ClusterKey
from fairlead_operator.topics.work_queue import UNEXPECTED_DELAY_S, WorkQueue

logger = logging.getLogger(__name__)

REASON = "NamespaceNotServed"


class UnservedNamespaces:
    """Writes an Event for each such namespace, when the operator starts and when it is named.

    `served` are all namespaces that are followed; empty for all. `closed` are others that are to be
    followed, and do not permit it now.
    """

    def __init__(
        self,
        events: EventWriter,
        find: Callable[[ClusterKey], Mapping[str, Any] | None],
        *,
        served: Collection[str],
        closed: Collection[str],
        now: Callable[[], float],
    ) -> None:
        self._events = events
        self._find = find
        self._served = frozenset(served)
        self._closed = frozenset(closed)
        self._queue: WorkQueue[ClusterKey] = WorkQueue(now)

    def look_at(self, cluster: ClusterKey) -> None:
        """Check a LogCluster that is new, or whose rules have changed."""
        self._queue.add(cluster)

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            for cluster in await self._queue.batch(1):
                try:
                    await self._tell(cluster)
                    self._queue.succeeded(cluster)
                except Exception:
                    # The error concerns only this LogCluster: the others go on.
                    logger.exception("namespaces of %s/%s: an unexpected error", *cluster)
                    self._queue.retry(cluster, backoff_s_max=UNEXPECTED_DELAY_S)
                finally:
                    self._queue.finish(cluster)

    async def _tell(self, cluster: ClusterKey) -> None:
        manifest = self._find(cluster)
        if manifest is None or not self._served:
            return
        for name in sorted(read_namespace_rules(manifest).keys() - self._served):
            why = (
                "the operator may not read it, because the namespace or its RoleBinding for the "
                "operator is gone: its Topics, and what they declare, stay as they are meanwhile"
                if name in self._closed
                else "it is not among the namespaces that this operator serves (watchNamespaces)"
            )
            message = f"spec.topicNamespaces: namespace {name}: {why}"
            await self._events.emit(manifest, REASON, message, "Warning")
