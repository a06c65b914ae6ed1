"""The reigns of this process, one for each LogCluster. Level-triggered.

When a LogCluster has been removed, its reign ends. Its tables are deleted only if it had
`reclaimPolicy: Delete`, and only once the API server confirms that this LogCluster, by its uid, no
longer exists. The tables of a LogCluster that was removed while no controller ran are deleted if
they were marked before; otherwise they stay, because its `reclaimPolicy` is unknown.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, Final

from fairlead_controller.kubernetes.cluster_spec import ClusterSpec, read_cluster_spec
from fairlead_controller.kubernetes.leftovers import find_marked_tables
from fairlead_controller.kubernetes.reign import Reign, Surroundings
from fairlead_controller.kubernetes.session_gate import ClusterKey
from fairlead_controller.stores.kubernetes import delete_tables
from fairlead_kube.errors import ApiError, ApiUnavailableError
from fairlead_kube.kinds import LOG_CLUSTER

logger = logging.getLogger(__name__)

DELETE_RETRY_S: Final = 1.0
LIST_RETRY_S: Final = 0.2


class Reigns:
    """All reigns; it exists while this process holds the Lease."""

    def __init__(
        self,
        clusters: Mapping[ClusterKey, dict[str, Any]],
        is_known: Callable[[], bool],
        surroundings: Surroundings,
        *,
        namespaces: Collection[str] = (),
    ) -> None:
        """`clusters` are the LogClusters' manifests, valid once `is_known` returns True.

        `namespaces` are those that are served, empty for all.
        """
        self.by_key: dict[ClusterKey, Reign] = {}
        self._clusters = clusters
        self._is_known = is_known
        self._surroundings = surroundings
        self._namespaces = namespaces
        self._tasks: dict[ClusterKey, asyncio.Task[None]] = {}
        self._wake = asyncio.Event()
        self._wake.set()

    def look_again(self) -> None:
        """Compare again, because LogClusters have changed."""
        self._wake.set()

    async def run(self) -> None:
        """Adapt the reigns to the LogClusters until cancelled, then end all reigns."""
        try:
            await self._begin_deletions()
            while True:
                await self._wake.wait()
                self._wake.clear()
                if self._is_known():
                    self._align()
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _begin_deletions(self) -> None:
        """Start the deletions that an earlier process left, before any reign of the same name."""
        client = self._surroundings.client
        while True:
            try:
                marked = await find_marked_tables(client, self._namespaces)
            except (ApiError, ApiUnavailableError) as error:
                # The API server fails, so no tables could be taken over now either.
                logger.warning("marked tables cannot be listed yet: %s", error)
                await asyncio.sleep(LIST_RETRY_S)
                continue
            for key, uid in marked.items():
                deletion = self._delete_leftover(key, uid)
                self._tasks[key] = asyncio.create_task(deletion, name=f"delete {key}")
            return

    async def _delete_leftover(self, key: ClusterKey, uid: str) -> None:
        """Delete marked tables; a LogCluster that is still being deleted keeps its reign."""
        while True:
            if await self._delete_tables(key, uid) or self._is_seen(key, uid):
                break
            await asyncio.sleep(DELETE_RETRY_S)
        del self._tasks[key]
        self._wake.set()

    def _is_seen(self, key: ClusterKey, uid: str) -> bool:
        manifest = self._clusters.get(key)
        return manifest is not None and bool(manifest["metadata"]["uid"] == uid)

    def _align(self) -> None:
        wanted = {key: read_cluster_spec(manifest) for key, manifest in self._clusters.items()}
        for key, spec in wanted.items():
            reign = self.by_key.get(key)
            if reign is None and key not in self._tasks:
                self._begin(key, spec)
            elif reign is not None and reign.spec.uid == spec.uid:
                reign.update(spec)
        for key, reign in list(self.by_key.items()):
            if key not in wanted or wanted[key].uid != reign.spec.uid:
                self._finish(key, reign)

    def _begin(self, key: ClusterKey, spec: ClusterSpec) -> None:
        reign = Reign(key, spec, self._surroundings)
        self.by_key[key] = reign
        self._tasks[key] = asyncio.create_task(reign.run(), name=f"reign {key}")

    def _finish(self, key: ClusterKey, reign: Reign) -> None:
        """End a reign; only then may another reign of the same name begin."""
        logger.info("%s/%s: the LogCluster is gone", *key)
        del self.by_key[key]
        self._tasks[key] = asyncio.create_task(self._end_reign(key, reign, self._tasks[key]))

    async def _end_reign(
        self, key: ClusterKey, reign: Reign, reigning: "asyncio.Task[None]"
    ) -> None:
        reigning.cancel()
        with suppress(asyncio.CancelledError):
            await reigning
        if reign.spec.deletes_tables:
            await self._delete_tables(key, reign.spec.uid)
        del self._tasks[key]
        self._wake.set()

    async def _delete_tables(self, key: ClusterKey, uid: str) -> bool:
        """Delete the tables of a LogCluster; return False if it still exists."""
        client = self._surroundings.client
        while True:
            self._surroundings.check_lease()
            try:
                if not await self._is_gone(key, uid):
                    return False
                count = await delete_tables(client, *key)
            except (ApiError, ApiUnavailableError) as error:
                logger.warning("%s/%s: the tables are not deleted yet: %s", *key, error)
                await asyncio.sleep(DELETE_RETRY_S)
            else:
                logger.info("%s/%s: deleted %d tables", *key, count)
                return True

    async def _is_gone(self, key: ClusterKey, uid: str) -> bool:
        try:
            manifest = await self._surroundings.client.get(LOG_CLUSTER, *key)
        except ApiError as error:
            if error.is_not_found:
                return True
            raise
        return bool(manifest["metadata"]["uid"] != uid)
