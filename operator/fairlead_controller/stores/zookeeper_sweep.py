"""The sweep of Kafka's znodes: it compares them with the tables, and repairs differences.

Others may change or delete these znodes, a write may have had to do without them, and a crash may
have left some of a topic that is gone. Nobody of Fairlead reads them, so it is enough to look when
a controller takes over, every few minutes, and soon after a write has left some outdated.
"""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import Final

from kazoo.exceptions import NoAuthError, NodeExistsError, NoNodeError, NotEmptyError

from fairlead_controller.stores.zookeeper import ZooKeeperStore
from fairlead_controller.stores.zookeeper_fence import sealed_error
from fairlead_controller.stores.zookeeper_multis import Fence, Multi, pack
from fairlead_controller.stores.zookeeper_projections import (
    Projections,
    ZnodeChange,
    is_same_value,
)
from fairlead_zookeeper.client import AccessDeniedError, MultiError, ZooKeeperClient
from fairlead_zookeeper.operations import Delete, Operation, Znode
from fairlead_zookeeper.znodes import (
    BROKER_TOPICS,
    CONFIG_BROKERS,
    CONFIG_TOPICS,
    TABLES,
    decode,
    topic_path,
)

logger = logging.getLogger(__name__)

MENDING_TRIES: Final = 3
"""How often a sweep repairs differences before it leaves the rest to the next sweep."""
SWEEP_CHUNK: Final = 200
"""Znodes that a sweep reads at once."""
SWEEP_PAUSE_S: Final = 0.02


class ZnodeSweep:
    """The sweeps of one reign."""

    def __init__(self, client: ZooKeeperClient, fence: Fence, store: ZooKeeperStore) -> None:
        """Sweep for the controller of this fence, whose store uses this client."""
        self.mended: int = 0
        """Number of Kafka's znodes that somebody else had changed or removed, and that were
        restored."""
        self._client = client
        self._fence = fence
        self._store = store
        self._named: set[str] = set()
        """Znodes that are no topics, or that an ACL keeps from being compared or mended; the log
        names each once."""

    @property
    def has_lag(self) -> asyncio.Event:
        """Set when some of Kafka's znodes are known to be outdated; a sweep clears it."""
        return self._store.has_lag

    async def wait_connected(self) -> None:
        """Return when there is a connection; SessionLostError if the session has ended."""
        await self._client.wait_connected()

    async def run(self) -> int:
        """Compare Kafka's znodes with the tables, and repair differences; return their number.

        A difference is checked twice, because a write may be under way. The sync shows what was
        done before the sweep, even if the server lags behind.
        """
        mended = 0
        self.has_lag.clear()
        await self._client.sync(TABLES)
        wanted = await self._store.projected(Projections.wanted)
        for start in range(0, len(wanted), SWEEP_CHUNK):
            paths = [change.path for change in wanted[start : start + SWEEP_CHUNK]]
            for _ in range(MENDING_TRIES):
                for _ in range(2):
                    paths = await self._differing(paths)
                if not paths:
                    break
                # A write that is sent meanwhile may land first, and be overwritten: compare again.
                paths = await self._mend(paths)
                mended += len(paths)
            await asyncio.sleep(SWEEP_PAUSE_S)
        mended += await self._remove_leftovers()
        self.mended += mended
        return mended

    async def _remove_leftovers(self) -> int:
        """Remove znodes of deleted topics that a crash may have left; return their number.

        A znode without a topic id was made by a tool that created topics without a controller
        (Kafka before 2.2): it stays, does not count as a topic, and the log names it.
        """
        removed = 0
        for name in await self._names_below(BROKER_TOPICS):
            if await self._knows_topic(name):
                continue
            path = topic_path(name)
            znode = (await self._read_all([path])).get(path)
            if znode is None:
                continue
            if "topic_id" in (decode(znode.data) or {}):
                removed += await self._remove(path, "whose topic is gone")
            else:
                self._name(path, "was made by a tool: it is no topic of this cluster")
        removed += await self._remove_leftover_partitions()
        removed += await self._remove_leftover_configs()
        return removed + await self._remove_leftover_broker_configs()

    async def _remove_leftover_partitions(self) -> int:
        """Remove partitions that an earlier topic of the same name had; return their number."""
        removed = 0
        names = await self._store.projected(Projections.topics)
        for start in range(0, len(names), SWEEP_CHUNK):
            above = [f"{topic_path(name)}/partitions" for name in names[start:][:SWEEP_CHUNK]]
            below = await asyncio.gather(*map(self._names_below, above))
            found = [
                f"{path}/{child}"
                for path, children in zip(above, below, strict=True)
                for child in children
                if child.isdecimal()
            ]
            for path in await self._store.projected(partial(Projections.unwanted, paths=found)):
                # One that is wanted by now may have been made.
                if not await self._is_wanted(path):
                    removed += await self._remove(path, "which is not what the tables say")
            await asyncio.sleep(SWEEP_PAUSE_S)
        return removed

    async def _remove_leftover_broker_configs(self) -> int:
        """Remove configs of brokers that the tables do not have; return their number.

        They are those of a broker that was unregistered, or whose configs were all deleted, in a
        write that had to do without Kafka's znodes.
        """
        removed = 0
        for name in await self._names_below(CONFIG_BROKERS):
            path = f"{CONFIG_BROKERS}/{name}"
            if await self._is_wanted(path) or not await self._remove(
                path, "which is not what the tables say"
            ):
                continue
            await self._store.projected(partial(Projections.note_found, found={path: False}))
            removed += 1
        return removed

    async def _remove_leftover_configs(self) -> int:
        """Remove configs of topics that have no other znode any more; return their number.

        A topic's configs are deleted last, so a crash may have left them alone.
        """
        removed = 0
        configs = await self._names_below(CONFIG_TOPICS)
        topics = await self._names_below(BROKER_TOPICS)
        for name in sorted(set(configs) - set(topics)):
            if not await self._knows_topic(name):
                removed += await self._remove(f"{CONFIG_TOPICS}/{name}", "whose topic is gone")
        return removed

    async def _names_below(self, path: str) -> list[str]:
        """Return the names of a znode's children; none if this user may not read them."""
        try:
            return await self._client.children(path) or []
        except AccessDeniedError as error:
            self._note_refusal(path, error)
            return []

    async def _remove(self, path: str, why: str) -> bool:
        """Remove a znode and all below it; tell whether it is gone.

        One that cannot be removed keeps no other from being removed.
        """
        try:
            await self._delete_tree(path)
        except (MultiError, AccessDeniedError) as error:
            self._note_refusal(path, error)
            return False
        logger.warning("removed %s, %s", path, why)
        if await self._is_wanted(path):
            # It was made again meanwhile, and what is new may be gone, too.
            self.has_lag.set()
        return True

    async def _delete_tree(self, path: str) -> None:
        """Delete a znode and everything below it, children first."""
        for child in await self._client.children(path) or []:
            await self._delete_tree(f"{path}/{child}")
        try:
            await self._commit([self._fence.check, Delete(path)])
        except MultiError as error:
            if not isinstance(error.cause, NoNodeError):
                raise
            # A write beside the sweep has deleted it.

    async def _is_wanted(self, path: str) -> bool:
        return await self._store.projected(partial(Projections.value, path=path)) is not None

    def _note_refusal(self, path: str, error: MultiError | AccessDeniedError) -> None:
        """Note that a znode could not be compared or mended.

        If somebody else changed it meanwhile, another sweep follows soon.
        """
        cause = error.cause if isinstance(error, MultiError) else None
        if isinstance(cause, NoNodeError | NodeExistsError | NotEmptyError):
            self.has_lag.set()
        else:
            self._name(path, f"cannot be compared with the tables, or mended: {error}")

    def _name(self, path: str, problem: str) -> None:
        if path not in self._named:
            self._named.add(path)
            logger.warning("%s %s", path, problem)

    async def _commit(self, operations: Sequence[Operation]) -> None:
        """Carry out a multi of a sweep; SealedError if another controller has been elected.

        A controller that has nothing to write would otherwise not notice the election, and reign
        on.
        """
        try:
            await self._client.multi(operations)
        except MultiError as error:
            if error.operation == self._fence.check and not isinstance(error.cause, NoAuthError):
                raise sealed_error() from error
            raise

    async def _differing(self, paths: Sequence[str]) -> list[str]:
        """Return those of these znodes that differ from the tables' present content."""
        found = await self._read_all(paths)
        wanted = await self._store.projected(lambda view: [view.value(path) for path in found])
        differing = [
            path
            for (path, znode), value in zip(found.items(), wanted, strict=True)
            if value is not None and (znode is None or not is_same_value(value, znode.data))
        ]
        # Some may have been made by a multi whose outcome was unknown.
        seen = [path for path, znode in found.items() if znode is not None]
        await self._store.projected(partial(Projections.note_seen, paths=seen))
        return differing

    async def _read_all(self, paths: Sequence[str]) -> dict[str, Znode | None]:
        """Return znodes by their paths, without those that this user may not read."""
        results = await asyncio.gather(
            *(self._client.get(path) for path in paths), return_exceptions=True
        )
        found: dict[str, Znode | None] = {}
        for path, result in zip(paths, results, strict=True):
            if isinstance(result, AccessDeniedError):
                self._note_refusal(path, result)
            elif isinstance(result, BaseException):
                raise result
            else:
                found[path] = result
        return found

    async def _mend(self, paths: Sequence[str]) -> list[str]:
        """Restore Kafka's znodes; return which. The others were refused."""
        wanted = await self._store.projected(lambda view: _changes_of(view, paths))
        # Parents too: a multi whose outcome was unknown may have made one that nobody noted.
        await self._store.note_present(wanted)
        mended: list[str] = []
        for multi in await self._store.projected(partial(self._plan, paths)):
            changed = [change.path for change in multi.changes]
            try:
                await self._commit(multi.operations)
            except MultiError as error:
                if len(changed) == 1:
                    self._note_refusal(changed[0], error)
                    continue
                # One znode that cannot be mended must not keep the others from being mended.
                for path in changed:
                    mended += await self._mend([path])
                continue
            written = multi.changes
            await self._store.projected(partial(Projections.note_written, changes=written))
            for path in changed:
                logger.warning("put back %s, which is not what the tables say", path)
            mended += changed
        return mended

    def _plan(self, paths: Sequence[str], view: Projections) -> list[Multi]:
        check = self._fence.check
        return pack(_changes_of(view, paths), view, [check], [check])

    async def _knows_topic(self, name: str) -> bool:
        """Tell whether a topic of this name has znodes."""
        return await self._store.projected(lambda view: view.knows_topic(name))


def _changes_of(view: Projections, paths: Sequence[str]) -> list[ZnodeChange]:
    """Return what znodes should hold now, without those that should not exist."""
    values = [(path, view.value(path)) for path in paths]
    return [ZnodeChange(path, value) for path, value in values if value is not None]
