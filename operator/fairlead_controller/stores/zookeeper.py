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

from kazoo.exceptions import NoAuthError

from fairlead_controller.decisions.tables.stored_table import StoredTable, StoreError
from fairlead_controller.decisions.tables.table_plan import CLUSTER_TABLE
from fairlead_controller.stores.availability import RemoteStore
from fairlead_controller.stores.metadata_store import (
    CONFLICT,
    UNKNOWN,
    StoreUnavailableError,
    TableWrite,
    WriteOutcome,
    WriteResult,
)
from fairlead_controller.stores.zookeeper_fence import sealed_error
from fairlead_controller.stores.zookeeper_multis import (
    Fence,
    Multi,
    PlannedWrite,
    Refused,
    plan_write,
)
from fairlead_controller.stores.zookeeper_projections import (
    Projections,
    ZnodeChange,
)
from fairlead_controller.stores.zookeeper_tables import KnownTable, next_table, read_table
from fairlead_model.ids import ControllerEpoch
from fairlead_zookeeper.client import (
    ConnectionState,
    InDoubtError,
    MultiError,
    NotConnectedError,
    ZooKeeperClient,
    ZooKeeperError,
)
from fairlead_zookeeper.operations import Stat
from fairlead_zookeeper.znodes import (
    TABLES,
    table_path,
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
READ_RETRY_S: Final = 0.1


class ZooKeeperStore(RemoteStore):
    """The tables of one cluster, for the controller whose election returned the fence."""

    def __init__(self, client: ZooKeeperClient, fence: Fence | None) -> None:
        """Without a fence, tables can only be read. The client belongs to the caller."""
        super().__init__()
        self._client = client
        self._fence = fence
        self._known: dict[str, KnownTable] = {}
        self._projections: Projections | None = None
        """Used in the store's thread; None until they are needed."""
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

    async def expect(self, path: str) -> None:
        """Note an entry of `/admin/delete_topics`; the durable deletion of its topic removes it."""
        await self.projected(lambda view: view.expect(path))

    async def projected(self, call: Callable[[Projections], T]) -> T:
        """Return what a function finds in Kafka's znodes as the tables have them now."""
        return await self._in_thread(lambda: call(self._view()))

    async def note_present(self, changes: Sequence[ZnodeChange]) -> None:
        """Ask which of the znodes exist that changes depend on: their own, and those above."""
        paths = await self.projected(lambda view: view.involved(changes))
        are_there = await asyncio.gather(*map(self._client.is_there, paths))
        found = dict(zip(paths, are_there, strict=True))
        await self.projected(lambda view: view.note_found(found))

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
        changes = await self.projected(
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
            await self.projected(lambda view: view.note_written(changes))
        elif content is not None:
            self.has_lag.set()
            await self.projected(lambda view: view.note_doubt(changes))
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
            raise sealed_error() from error
        logger.info("table %s was not as expected: %s", write.table, error)
        return CONFLICT

    async def _look_at(self, changes: Sequence[ZnodeChange]) -> None:
        """Find out which of Kafka's znodes exist, for the next attempt of a write."""
        try:
            await self.note_present(changes)
        except (NotConnectedError, InDoubtError):
            return  # The next attempt ends as unknown, too.
        except ZooKeeperError as error:
            raise self._failed("Kafka's znodes cannot be read", error) from error

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


async def load_tables(client: ZooKeeperClient) -> dict[str, StoredTable]:
    """Return all tables of a cluster, without being its controller."""
    store = ZooKeeperStore(client, None)
    try:
        return await store.load()
    finally:
        await store.close()
