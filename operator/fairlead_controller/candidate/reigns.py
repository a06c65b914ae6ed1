"""The reigns of this process, one for each LogCluster that there is. Level-triggered.

A LogCluster that is gone ends its reign. Its tables go only if it said `reclaimPolicy: Delete`, and
only when the API server confirms that this very LogCluster is no more. Those of one removed
while nobody reigned go if they were marked before; else they stay: nobody knows what it had
said.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from fairlead_controller.candidate.cluster_spec import ClusterSpec, read_cluster_spec
from fairlead_controller.candidate.leftovers import find_marked_tables
from fairlead_controller.candidate.reign import Reign, Surroundings
from fairlead_controller.candidate.session_gate import ClusterKey
from fairlead_controller.kube.errors import ApiError, ApiUnavailableError
from fairlead_controller.kube.kinds import LOG_CLUSTER
from fairlead_controller.stores.kubernetes import delete_tables

logger = logging.getLogger(__name__)

DELETE_RETRY_S: Final = 1.0
LIST_RETRY_S: Final = 0.2


class Reigns:
    """Exists while this process holds the Lease."""

    def __init__(
        self,
        clusters: Mapping[ClusterKey, dict[str, Any]],
        is_known: Callable[[], bool],
        surroundings: Surroundings,
        *,
        namespace: str = "",
    ) -> None:
        """`clusters` are the LogClusters' manifests; they count once `is_known` says so.

        `namespace` is where they are, empty for all.
        """
        self.by_key: dict[ClusterKey, Reign] = {}
        self._clusters = clusters
        self._is_known = is_known
        self._surroundings = surroundings
        self._namespace = namespace
        self._tasks: dict[ClusterKey, asyncio.Task[None]] = {}
        self._wake = asyncio.Event()
        self._wake.set()

    def look_again(self) -> None:
        """LogClusters have changed."""
        self._wake.set()

    async def run(self) -> None:
        """Bring reigns in line with LogClusters until cancelled, then end them all."""
        try:
            await self._begin_burials()
            while True:
                await self._wake.wait()
                self._wake.clear()
                if self._is_known():
                    self._align()
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _begin_burials(self) -> None:
        """Take on what a predecessor left; a LogCluster of the same name is reigned after that."""
        client = self._surroundings.client
        while True:
            try:
                marked = await find_marked_tables(client, self._namespace)
            except (ApiError, ApiUnavailableError) as error:
                # No tables could be taken over now either.
                logger.warning("marked tables cannot be listed yet: %s", error)
                await asyncio.sleep(LIST_RETRY_S)
                continue
            for key, uid in marked.items():
                burial = self._bury_leftover(key, uid)
                self._tasks[key] = asyncio.create_task(burial, name=f"bury {key}")
            return

    async def _bury_leftover(self, key: ClusterKey, uid: str) -> None:
        """Delete marked tables, unless their LogCluster is still going: then it is as ever."""
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
        """End a reign; only then may another of the same name begin."""
        logger.info("%s/%s: the LogCluster is gone", *key)
        del self.by_key[key]
        self._tasks[key] = asyncio.create_task(self._bury(key, reign, self._tasks[key]))

    async def _bury(self, key: ClusterKey, reign: Reign, reigning: "asyncio.Task[None]") -> None:
        reigning.cancel()
        with suppress(asyncio.CancelledError):
            await reigning
        if reign.spec.deletes_tables:
            await self._delete_tables(key, reign.spec.uid)
        del self._tasks[key]
        self._wake.set()

    async def _delete_tables(self, key: ClusterKey, uid: str) -> bool:
        """Delete the tables of a LogCluster; False if it is still there."""
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
