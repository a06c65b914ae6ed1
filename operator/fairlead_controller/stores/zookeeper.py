"""The metadata store in ZooKeeper.

A table is a znode, its version the znode's dataVersion and mzxid, and a write is one multi
(`zookeeper_multis`) that begins with a check of `/controller_epoch`. Several multis are in flight
at once, on one connection, so they land in their order.

How a write ends: all of it was carried out (WRITTEN); the fence had changed, which ends this
controller (SealedError); the table did not have the expected version (CONFLICT); or the connection
broke or no answer came in time (UNKNOWN). An unknown write may land later without harm: the fence
or the table's version refuses it, or it is the same write that the committer repeats.

While there is no connection, nothing is sent, reads wait and writes end as unknown: metadata is
frozen, and no process has to end. The end of the session is a StoreError.

Texts of tables and Kafka's znodes are built in the store's own thread, so that the event loop can
serve brokers.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeVar

from kazoo.exceptions import NoAuthError, NodeExistsError, NoNodeError, NotEmptyError

from fairlead_controller.decisions.tables.stored_table import StoredTable, StoreError
from fairlead_controller.decisions.tables.table_plan import CLUSTER_TABLE
from fairlead_controller.stores.availability import RemoteStore
from fairlead_controller.stores.metadata_store import (
    CONFLICT,
    UNKNOWN,
    SealedError,
    StoreUnavailableError,
    TableWrite,
    WriteOutcome,
    WriteResult,
)
from fairlead_controller.stores.zookeeper_multis import (
    Fence,
    Multi,
    PlannedWrite,
    Refused,
    pack,
    plan_write,
)
from fairlead_controller.stores.zookeeper_projections import (
    Projections,
    ZnodeChange,
    is_same_value,
)
from fairlead_controller.stores.zookeeper_tables import KnownTable, next_table, read_table
from fairlead_model.ids import ControllerEpoch
from fairlead_zookeeper.client import (
    AccessDeniedError,
    ConnectionState,
    InDoubtError,
    MultiError,
    NotConnectedError,
    ZooKeeperClient,
    ZooKeeperError,
)
from fairlead_zookeeper.operations import Delete, Operation, Stat, Znode
from fairlead_zookeeper.znodes import (
    BROKER_TOPICS,
    CONFIG_BROKERS,
    CONFIG_TOPICS,
    CONTROLLER_EPOCH,
    TABLES,
    decode,
    table_path,
    topic_path,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")

WRITES_IN_FLIGHT_MAX: Final = 8
"""Tables that are written at once. More would only queue in kazoo and in the server, where their
time-outs would run."""
WRITE_TIMEOUT_S: Final = 1.0
"""After this time the outcome of a write counts as unknown; a server whose disk is that slow counts
as unable to write."""
PROJECTION_TRIES: Final = 3
"""Attempts of one write that may fail because of others' changes of Kafka's znodes. Then the table
is written without these znodes, because no manual edit may delay a failover."""
MENDING_TRIES: Final = 3
"""How often a sweep repairs differences before it leaves the rest to the next sweep."""
SWEEP_CHUNK: Final = 200
"""Znodes that a sweep reads at once."""
SWEEP_PAUSE_S: Final = 0.02
READ_RETRY_S: Final = 0.1


class ZooKeeperStore(RemoteStore):
    """The tables of one cluster, for the controller whose election returned the fence."""

    def __init__(self, client: ZooKeeperClient, fence: Fence | None) -> None:
        """Without a fence, tables can only be read. The client belongs to the caller."""
        super().__init__()
        self.mended: int = 0
        """Number of Kafka's znodes that somebody else had changed or removed, and that were
        restored."""
        self._client = client
        self._fence = fence
        self._known: dict[str, KnownTable] = {}
        self._projections: Projections | None = None
        """Used in the store's thread; None until they are needed."""
        self._named: set[str] = set()
        """Znodes that are no topics, or that an ACL keeps from being compared or mended; the log
        names each once."""
        self._is_closed = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="zookeeper store")
        self._in_doubt: dict[str, tuple[KnownTable, list[ZnodeChange]]] = {}
        """The content that the last write of a table, whose outcome is unknown, would give it."""
        self._unsettled: dict[str, list[ZnodeChange]] = {}
        """All of Kafka's znodes that the last write of a table should change, until it has
        landed."""
        self.has_lag = asyncio.Event()
        """Set when some of Kafka's znodes are known to be outdated; a sweep clears it."""
        self._slots = asyncio.Semaphore(WRITES_IN_FLIGHT_MAX)
        client.listeners.append(self._on_state)
        self._on_state(client.state)

    def next_epoch(self, tables: Mapping[str, StoredTable]) -> ControllerEpoch:
        """Return the epoch of the election: a predecessor may have died before it sealed."""
        if self._fence is None:
            return super().next_epoch(tables)
        return self._fence.controller_epoch

    async def load(self) -> dict[str, StoredTable]:
        """Return all tables; StoreUnavailableError if there is no connection."""
        try:
            await self._client.sync(TABLES)
            names = await self._client.children(TABLES) or []
            # The cluster's table is read last: a controller names a new table there before adding
            # it.
            names.sort(key=lambda name: (name == CLUSTER_TABLE, name))
            found = await asyncio.gather(*(self._client.get(table_path(name)) for name in names))
        except ZooKeeperError as error:
            raise self._failed("the tables cannot be read", error) from error
        self._availability.note_answer()
        znodes = {name: znode for name, znode in zip(names, found, strict=True) if znode}
        return await self._in_thread(self._adopt, znodes)

    async def read(self, table: str) -> StoredTable | None:
        """Return one table; wait while there is no connection."""
        known = await self._fetch_when_possible(table)
        return None if known is None else await self._in_thread(known.stored)

    async def public_tables(self, prefix: str) -> list[str]:
        """Return the tables with such names that everybody who reaches ZooKeeper may read.

        ACLs are set when a znode is made, so a table can be older than `zookeeper.set.acl=true`.
        """
        names = sorted(name for name in self._known if name.startswith(prefix))
        try:
            found = await asyncio.gather(*(self._client.is_public(table_path(n)) for n in names))
        except ZooKeeperError as error:
            raise self._failed("the ACLs of tables cannot be read", error) from error
        return [name for name, is_public in zip(names, found, strict=True) if is_public]

    async def write(self, writes: Sequence[TableWrite]) -> list[WriteResult]:
        """Write tables, several at a time, in the order given."""
        if self._fence is None:
            raise StoreError("this store was opened for reading only")
        fence = self._fence
        results = await asyncio.gather(
            *(self._write_in_turn(write, fence) for write in writes), return_exceptions=True
        )
        answers: list[WriteResult] = []
        for result in results:
            if isinstance(result, BaseException):
                raise result
            answers.append(result)
        return answers

    async def close(self) -> None:
        """Stop the store's thread; the client belongs to the caller and stays open."""
        self._is_closed = True
        self._client.listeners.remove(self._on_state)
        self._thread.shutdown(wait=False)

    async def wait_connected(self) -> None:
        """Return when there is a connection; SessionLostError if the session has ended."""
        await self._client.wait_connected()

    async def expect(self, path: str) -> None:
        """Note an entry of `/admin/delete_topics`; the durable deletion of its topic removes it."""
        await self._projected(lambda view: view.expect(path))

    async def knows_topic(self, name: str) -> bool:
        """Tell whether a topic of this name has znodes."""
        return await self._projected(lambda view: view.knows_topic(name))

    async def sweep(self) -> int:
        """Compare Kafka's znodes with the tables, and repair differences; return their number.

        A difference is checked twice, because a write may be under way. The sync shows what was
        done before the sweep, even if the server lags behind.
        """
        mended = 0
        self.has_lag.clear()
        await self._client.sync(TABLES)
        wanted = await self._projected(Projections.wanted)
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
            if await self.knows_topic(name):
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
        names = await self._projected(Projections.topics)
        for start in range(0, len(names), SWEEP_CHUNK):
            above = [f"{topic_path(name)}/partitions" for name in names[start:][:SWEEP_CHUNK]]
            below = await asyncio.gather(*map(self._names_below, above))
            found = [
                f"{path}/{child}"
                for path, children in zip(above, below, strict=True)
                for child in children
                if child.isdecimal()
            ]
            for path in await self._projected(partial(Projections.unwanted, paths=found)):
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
            await self._projected(partial(Projections.note_found, found={path: False}))
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
            if not await self.knows_topic(name):
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
        fence = self._fence
        if fence is None:
            raise StoreError("this store was opened for reading only")
        try:
            await self._commit([fence.check, Delete(path)], fence)
        except MultiError as error:
            if not isinstance(error.cause, NoNodeError):
                raise
            # A write beside the sweep has deleted it.

    async def _is_wanted(self, path: str) -> bool:
        return await self._projected(partial(Projections.value, path=path)) is not None

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

    async def _commit(self, operations: Sequence[Operation], fence: Fence) -> None:
        """Carry out a multi of a sweep; SealedError if another controller has been elected.

        A controller that has nothing to write would otherwise not notice the election, and reign
        on.
        """
        try:
            await self._client.multi(operations)
        except MultiError as error:
            if error.operation == fence.check and not isinstance(error.cause, NoAuthError):
                raise _sealed() from error
            raise

    async def _write_in_turn(self, write: TableWrite, fence: Fence) -> WriteResult:
        async with self._slots:
            return await self._write_one(write, fence)

    async def _write_one(self, write: TableWrite, fence: Fence) -> WriteResult:
        known: KnownTable | None = None
        if write.version is not None:
            try:
                known = await self._base_of(write)
            except (NotConnectedError, InDoubtError) as error:
                self._availability.note_failure(str(error), "write")
                return UNKNOWN
            except ZooKeeperError as error:
                raise self._failed(f"table {write.table} cannot be read", error) from error
            if known is None or known.version != write.version:
                return CONFLICT
            if known.controller_epoch > write.controller_epoch:
                return CONFLICT
        unsettled = self._unsettled.pop(write.table, [])
        changes = await self._projected(
            lambda view: view.plan(write.lines, write.controller_epoch, unsettled)
        )
        self._unsettled[write.table] = changes
        for attempt in range(PROJECTION_TRIES + 1):
            if attempt == PROJECTION_TRIES:
                logger.warning("table %s is written without Kafka's znodes", write.table)
                changes = []
                self.has_lag.set()
            plan, prepared = await self._in_thread(self._plan, write, known, changes, fence)
            try:
                return await self._send(plan, prepared)
            except MultiError as error:
                part = plan.multis[0].part_of(error.index)
                if part is not Refused.PROJECTION:
                    return self._refused(write, part, error)
                logger.warning("a znode is not as it was left: %s", error)
                await self._look_at(changes)
        raise StoreError(f"table {write.table} cannot be written: every attempt was refused")

    async def _send(self, plan: PlannedWrite, prepared: list[Any]) -> WriteResult:
        """Send the multis of a write, and wait for the multi that writes the table."""
        first, *others = [
            asyncio.ensure_future(self._client.commit(multi.operations, transaction))
            for multi, transaction in zip(plan.multis, prepared, strict=True)
        ]
        for multi, future in zip(plan.multis[1:], others, strict=True):
            future.add_done_callback(partial(self._note_follower, multi))
        self._in_doubt[plan.content.name] = (plan.content, plan.multis[0].changes)
        try:
            async with asyncio.timeout(WRITE_TIMEOUT_S):
                results = await first
        except TimeoutError:
            self._availability.note_failure("no answer to a write in time", "write")
            return UNKNOWN
        except (NotConnectedError, InDoubtError) as error:
            self._availability.note_failure(str(error), "write")
            return UNKNOWN
        except MultiError:
            raise
        except ZooKeeperError as error:
            raise self._failed(f"table {plan.content.name} cannot be written", error) from error
        self._availability.note_answer(is_write=True)
        written = plan.content.at(results[plan.multis[0].first_projection - 1])
        self._known[written.name] = written
        await self._note_landed(written)
        return WriteResult(WriteOutcome.WRITTEN, written.version)

    async def _note_landed(self, table: KnownTable) -> bool:
        """Tell whether the table's last write in doubt made this; if so, note its Kafka znodes.

        False if that write was noted before. One that is not seen yet may still land.
        """
        content, changes = self._in_doubt.pop(table.name, (None, []))
        has_landed = (
            content is not None
            and content.at(Stat(table.znode_version, 0, table.mzxid, 0)) == table
        )
        if has_landed:
            self._unsettled.pop(table.name, None)
            await self._projected(lambda view: view.note_written(changes))
        elif content is not None:
            self.has_lag.set()
            await self._projected(lambda view: view.note_doubt(changes))
        return has_landed

    def _note_follower(self, multi: Multi, done: "asyncio.Future[Any]") -> None:
        """Note how a multi with only Kafka's znodes ended; the sweep repairs what failed."""
        if done.cancelled() or self._is_closed:
            return
        if error := done.exception():
            logger.warning("%d of Kafka's znodes are behind: %s", len(multi.changes), error)
            self.has_lag.set()
            self._thread.submit(self._view().note_doubt, multi.changes)
            return
        self._thread.submit(self._view().note_written, multi.changes)

    def _refused(self, write: TableWrite, part: Refused, error: MultiError) -> WriteResult:
        if isinstance(error.cause, NoAuthError):
            raise StoreError(
                f"ZooKeeper does not let this user write {error.operation.path}: see its ACL, and "
                "the user that the settings name"
            ) from error
        self._availability.note_answer(is_write=True)
        if part is Refused.FENCE:
            raise _sealed() from error
        logger.info("table %s was not as expected: %s", write.table, error)
        return CONFLICT

    async def _look_at(self, changes: Sequence[ZnodeChange]) -> None:
        """Find out which of Kafka's znodes exist, for the next attempt of a write."""
        try:
            await self._note_present(changes)
        except (NotConnectedError, InDoubtError):
            return  # The next attempt ends as unknown, too.
        except ZooKeeperError as error:
            raise self._failed("Kafka's znodes cannot be read", error) from error

    async def _note_present(self, changes: Sequence[ZnodeChange]) -> None:
        """Ask which of the znodes exist that changes depend on: their own, and those above."""
        paths = await self._projected(lambda view: view.involved(changes))
        are_there = await asyncio.gather(*map(self._client.is_there, paths))
        found = dict(zip(paths, are_there, strict=True))
        await self._projected(lambda view: view.note_found(found))

    async def _differing(self, paths: Sequence[str]) -> list[str]:
        """Return those of these znodes that differ from the tables' present content."""
        found = await self._read_all(paths)
        wanted = await self._projected(lambda view: [view.value(path) for path in found])
        differing = [
            path
            for (path, znode), value in zip(found.items(), wanted, strict=True)
            if value is not None and (znode is None or not is_same_value(value, znode.data))
        ]
        # Some may have been made by a multi whose outcome was unknown.
        seen = [path for path, znode in found.items() if znode is not None]
        await self._projected(partial(Projections.note_seen, paths=seen))
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
        fence = self._fence
        if fence is None:
            raise StoreError("this store was opened for reading only")
        wanted = await self._projected(lambda view: _changes_of(view, paths))
        # Parents too: a multi whose outcome was unknown may have made one that nobody noted.
        await self._note_present(wanted)
        mended: list[str] = []
        for multi in await self._in_thread(self._plan_mending, paths, fence):
            changed = [change.path for change in multi.changes]
            try:
                await self._commit(multi.operations, fence)
            except MultiError as error:
                if len(changed) == 1:
                    self._note_refusal(changed[0], error)
                    continue
                # One znode that cannot be mended must not keep the others from being mended.
                for path in changed:
                    mended += await self._mend([path])
                continue
            written = multi.changes
            await self._projected(partial(Projections.note_written, changes=written))
            for path in changed:
                logger.warning("put back %s, which is not what the tables say", path)
            mended += changed
        return mended

    def _plan_mending(self, paths: Sequence[str], fence: Fence) -> list[Multi]:
        view = self._view()
        return pack(_changes_of(view, paths), view, [fence.check], [fence.check])

    def _plan(
        self,
        write: TableWrite,
        known: KnownTable | None,
        changes: Sequence[ZnodeChange],
        fence: Fence,
    ) -> tuple[PlannedWrite, list[Any]]:
        plan = plan_write(next_table(write, known), known, changes, self._view(), fence)
        return plan, [self._client.prepare(multi.operations) for multi in plan.multis]

    def _adopt(self, znodes: Mapping[str, Any]) -> dict[str, StoredTable]:
        self._known = {name: read_table(name, znode) for name, znode in znodes.items()}
        self._projections = None
        return {name: known.stored() for name, known in self._known.items()}

    def _view(self) -> Projections:
        """Return Kafka's znodes of the loaded tables; call this in the store's thread."""
        if self._projections is None:
            self._projections = Projections()
            known = list(self._known.values())
            self._projections.assume((each.controller_epoch, each.lines) for each in known)
        return self._projections

    async def _projected(self, call: Callable[[Projections], T]) -> T:
        return await self._in_thread(lambda: call(self._view()))

    async def _base_of(self, write: TableWrite) -> KnownTable | None:
        """Return the table in the version on which a write is based, or as it is now."""
        known = self._known.get(write.table)
        if known is not None and known.version == write.version:
            return known
        return await self._fetch(write.table)

    async def _fetch_when_possible(self, table: str) -> KnownTable | None:
        while True:
            try:
                await self._client.wait_connected()
                return await self._fetch(table)
            except (NotConnectedError, InDoubtError) as error:
                self._availability.note_failure(str(error))
                await asyncio.sleep(READ_RETRY_S)
            except ZooKeeperError as error:
                raise self._failed(f"table {table} cannot be read", error) from error

    async def _fetch(self, table: str) -> KnownTable | None:
        """Read the newest version of a table: after a reconnect the new server may lag behind."""
        path = table_path(table)
        await self._client.sync(path)
        znode = await self._client.get(path)
        self._availability.note_answer()
        if znode is None:
            self._known.pop(table, None)
            return None
        known = await self._in_thread(read_table, table, znode)
        self._known[table] = known
        if await self._note_landed(known):
            self._availability.note_answer(is_write=True)
        return known

    def _failed(self, what: str, error: ZooKeeperError) -> StoreError:
        """Return the error for a failed request; note whether a server can be reached at all."""
        text = f"{what}: {error}"
        if isinstance(error, NotConnectedError | InDoubtError):
            self._availability.note_failure(text)
            return StoreUnavailableError(text)
        return StoreError(text)

    def _on_state(self, state: ConnectionState) -> None:
        if state is ConnectionState.CONNECTED:
            self._availability.note_answer()
        else:
            where = self._client.access.connect_string
            self._availability.note_failure(f"no connection to ZooKeeper at {where}")

    async def _in_thread(self, call: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, *arguments)


def _changes_of(view: Projections, paths: Sequence[str]) -> list[ZnodeChange]:
    """Return what znodes should hold now, without those that should not exist."""
    values = [(path, view.value(path)) for path in paths]
    return [ZnodeChange(path, value) for path, value in values if value is not None]


def _sealed() -> SealedError:
    return SealedError(f"another controller has been elected: {CONTROLLER_EPOCH} has moved on")


async def load_tables(client: ZooKeeperClient) -> dict[str, StoredTable]:
    """Return all tables of a cluster, without being its controller."""
    store = ZooKeeperStore(client, None)
    try:
        return await store.load()
    finally:
        await store.close()
