"""The metadata store in the Kubernetes API server: a table is an object, its version is the
object's resourceVersion, and a write is a replacement that names the version it is based on.

What a failed request means decides everything here. A request that got no answer, or an answer of
a server in trouble, may still be carried out. Sending the same write again is safe then, because it
is based on the same version and at most one can land; but if it is answered with a conflict, the
first one may be the reason: the outcome is unknown, not a conflict, and the caller settles it.

While the server is away, `read` waits and writes end as unknown: metadata is frozen, and nobody
needs to end for it. `is_available` tells, also when nothing is to be written.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, Literal

from fairlead_controller.kube.client import RETRY_AFTER_S_MAX, KubeClient, jittered
from fairlead_controller.kube.errors import TOO_MANY_REQUESTS, ApiError, ApiUnavailableError
from fairlead_controller.kube.kinds import CLUSTER_STATE, PARTITION_TABLE
from fairlead_controller.stores.kubernetes_tables import (
    CLUSTER_LABEL,
    KnownTable,
    Manifest,
    adopt_answer,
    build_table,
    object_name,
    read_table,
    table_kind,
)
from fairlead_controller.stores.metadata_store import (
    MetadataStore,
    StoredTable,
    StoreError,
    TableWrite,
    WriteOutcome,
    WriteResult,
)
from fairlead_controller.table_plan import CLUSTER_TABLE

logger = logging.getLogger(__name__)

WRITES_IN_FLIGHT_MAX: Final = 16
PAGE_SIZE: Final = 50
"""Tables asked for at a time: a full one has some 50 KB, and reading a page holds up the loop."""
WRITE_RETRY_DELAYS_S: Final = (0.05, 0.1, 0.2, 0.4)
WRITE_RETRY_S_MAX: Final = 5.0
"""No attempt is begun later than this after the first."""
READ_PAUSE_S_MIN: Final = 0.1
READ_PAUSE_S_MAX: Final = 1.0
CHECK_INTERVAL_S: Final = 5.0
"""Without other requests, the server is asked so often whether it is there."""

_REFUSED_FOR_NOW: Final = frozenset({401, 403, TOO_MANY_REQUESTS})
"""Answers that a request certainly was not carried out, and may be later: a token or a permission
that is being renewed is an outage too, not a reason to give up."""

UNKNOWN: Final = WriteResult(WriteOutcome.UNKNOWN)
CONFLICT: Final = WriteResult(WriteOutcome.CONFLICT)


class StoreUnavailableError(StoreError):
    """The API server cannot be asked now; trying again later may succeed."""


class KubernetesStore(MetadataStore):
    """The tables of one cluster; made by `open_kubernetes_store`."""

    def __init__(
        self,
        client: KubeClient,
        namespace: str,
        cluster: str,
        *,
        check_interval_s: float = CHECK_INTERVAL_S,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._cluster = cluster
        self._known: dict[str, KnownTable] = {}
        self._slots = asyncio.Semaphore(WRITES_IN_FLIGHT_MAX)
        self._check_interval_s = check_interval_s
        self._answered_at = time.monotonic()
        self._failing_since: dict[str, float] = {}
        """"read" and "write", where they fail, with the Unix time of the first failure."""
        self.problem = ""
        """Why the store is not available, empty while it is."""
        self._checks = asyncio.create_task(self._keep_checking(), name=f"check store {cluster}")

    @property
    def is_available(self) -> bool:
        """Whether tables can be read and written; if not, metadata is frozen."""
        return not self._failing_since

    @property
    def unavailable_since(self) -> float | None:
        """Unix time of the first of the requests that fail now; None while the store is available.

        A server whose disk is full still answers reads: only a write that was carried out proves
        that writes are again.
        """
        return min(self._failing_since.values(), default=None)

    async def load(self) -> dict[str, StoredTable]:
        """Give all tables; StoreUnavailableError if the server is away."""
        known: dict[str, KnownTable] = {}
        try:
            # The table of the cluster last: whoever adds a numbered one names it there first.
            listing = await self._client.list(
                PARTITION_TABLE,
                self._namespace,
                label_selector=f"{CLUSTER_LABEL}={self._cluster}",
                limit=PAGE_SIZE,
            )
            self._note_answer()
            cluster = await self._fetch(CLUSTER_TABLE)
        except (ApiError, ApiUnavailableError) as error:
            raise self._store_error("the tables cannot be read", error) from error
        for manifest in listing.items:
            table, content = read_table(manifest, self._cluster)
            known[table] = content
        if cluster is not None:
            known[CLUSTER_TABLE] = cluster
        self._known = known
        return {table: content.stored() for table, content in known.items()}

    async def read(self, table: str) -> StoredTable | None:
        """Give one table; waits while the server is away."""
        pause_s = READ_PAUSE_S_MIN
        while True:
            try:
                known = await self._fetch(table)
                return None if known is None else known.stored()
            except (ApiError, ApiUnavailableError) as error:
                failure = self._store_error(f"table {table} cannot be read", error)
                if not isinstance(failure, StoreUnavailableError):
                    raise failure from error
            await asyncio.sleep(jittered(pause_s))
            pause_s = min(2 * pause_s, READ_PAUSE_S_MAX)

    async def write(self, writes: Sequence[TableWrite]) -> list[WriteResult]:
        """Write tables, some at a time, beginning in the order given."""
        results = await asyncio.gather(
            *(self._write_in_turn(write) for write in writes), return_exceptions=True
        )
        answers: list[WriteResult] = []
        for result in results:
            if isinstance(result, BaseException):
                raise result
            answers.append(result)
        return answers

    async def close(self) -> None:
        """End the checks; the client stays open, it is the caller's."""
        self._checks.cancel()
        with suppress(asyncio.CancelledError):
            await self._checks

    async def _write_in_turn(self, write: TableWrite) -> WriteResult:
        async with self._slots:
            try:
                known = await self._base_of(write)
            except (ApiError, ApiUnavailableError) as error:
                failure = self._store_error(f"table {write.table} cannot be read", error)
                if not isinstance(failure, StoreUnavailableError):
                    raise failure from error
                return UNKNOWN
            if write.version is not None and (
                known is None
                or known.version != write.version
                or known.controller_epoch > write.controller_epoch
            ):
                return CONFLICT
            manifest, content = build_table(
                write, known, namespace=self._namespace, cluster=self._cluster
            )
            return await self._send(write, manifest, content)

    async def _base_of(self, write: TableWrite) -> KnownTable | None:
        """Give the table as it was in the version that a write is based on, or as it is now."""
        if write.version is None:
            return None
        known = self._known.get(write.table)
        if known is not None and known.version == write.version:
            return known
        return await self._fetch(write.table)

    async def _send(
        self, write: TableWrite, manifest: Manifest, content: KnownTable
    ) -> WriteResult:
        """Send a write, some times if need be; give what is certain about its outcome."""
        started = time.monotonic()
        may_have_landed = False
        for delay_s in (*WRITE_RETRY_DELAYS_S, None):
            pause_s = delay_s or 0.0
            try:
                answer = await self._send_once(write, manifest)
            except ApiUnavailableError as error:
                may_have_landed |= error.may_have_landed
                self._note_failure(error, "write")
            except ApiError as error:
                if error.is_conflict or (error.is_not_found and write.version is not None):
                    self._note_answer(is_write=True)
                    return UNKNOWN if may_have_landed else CONFLICT
                failure = self._store_error(
                    f"table {write.table} cannot be written", error, "write"
                )
                if not isinstance(failure, StoreUnavailableError):
                    raise failure from error
                may_have_landed |= error.status not in _REFUSED_FOR_NOW
                pause_s += min(error.retry_after_s or 0.0, RETRY_AFTER_S_MAX)
            else:
                self._note_answer(is_write=True)
                adopted = adopt_answer(content, answer)
                self._known[write.table] = adopted
                return WriteResult(WriteOutcome.WRITTEN, adopted.version)
            if delay_s is None or time.monotonic() - started + pause_s > WRITE_RETRY_S_MAX:
                break
            await asyncio.sleep(jittered(pause_s))
        return UNKNOWN

    async def _send_once(self, write: TableWrite, manifest: Manifest) -> Manifest:
        kind = table_kind(write.table)
        if write.version is None:
            return await self._client.create(kind, self._namespace, manifest)
        name = manifest["metadata"]["name"]
        return await self._client.replace(kind, self._namespace, name, manifest, metadata_only=True)

    async def _fetch(self, table: str) -> KnownTable | None:
        name = object_name(self._cluster, table)
        try:
            manifest = await self._client.get(table_kind(table), self._namespace, name)
        except ApiError as error:
            if not error.is_not_found:
                raise
            self._note_answer()
            self._known.pop(table, None)
            return None
        _, known = read_table(manifest, self._cluster)
        before = self._known.get(table)
        # Another version than the known one: the write that was in doubt has been carried out.
        self._note_answer(is_write=before is None or before.version != known.version)
        self._known[table] = known
        return known

    async def _keep_checking(self) -> None:
        while True:
            await asyncio.sleep(self._check_interval_s)
            if time.monotonic() - self._answered_at < self._check_interval_s:
                continue
            try:
                await self._client.check(CLUSTER_STATE, self._namespace)
            except (ApiError, ApiUnavailableError) as error:
                self._note_failure(error)
            else:
                self._note_answer()

    def _note_answer(self, *, is_write: bool = False) -> None:
        self._answered_at = time.monotonic()
        since = self.unavailable_since
        if since is None:
            return
        self._failing_since.pop("read", None)
        if is_write:
            self._failing_since.pop("write", None)
        if self.is_available:
            self.problem = ""
            logger.info("the store answers again after %.1f s", time.time() - since)

    def _note_failure(
        self, error: ApiError | ApiUnavailableError, sort: Literal["read", "write"] = "read"
    ) -> None:
        self.problem = str(error)
        if self.is_available:
            logger.warning("the store is not available, metadata is frozen: %s", error)
        self._failing_since.setdefault(sort, time.time())

    def _store_error(
        self,
        what: str,
        error: ApiError | ApiUnavailableError,
        sort: Literal["read", "write"] = "read",
    ) -> StoreError:
        """Give the error for a failed request, and note whether the server can be asked at all."""
        text = f"{what}: {error}"
        if isinstance(error, ApiError) and not (
            error.is_passing or error.status in _REFUSED_FOR_NOW
        ):
            self._note_answer(is_write=sort == "write")
            return StoreError(text)
        self._note_failure(error, sort)
        return StoreUnavailableError(text)


async def open_kubernetes_store(
    client: KubeClient,
    namespace: str,
    cluster: str,
    *,
    check_interval_s: float = CHECK_INTERVAL_S,
) -> KubernetesStore:
    """Open the store of a cluster; StoreError if the API server does not have its kinds.

    StoreUnavailableError if the server is away.
    """
    store = KubernetesStore(client, namespace, cluster, check_interval_s=check_interval_s)
    try:
        await client.check(CLUSTER_STATE, namespace)
        await client.check(PARTITION_TABLE, namespace)
    except (ApiError, ApiUnavailableError) as error:
        failure = store._store_error("the store cannot be opened", error)
        await store.close()
        raise failure from error
    return store


async def delete_tables(client: KubeClient, namespace: str, cluster: str) -> int:
    """Delete the tables of a cluster that is no more; give how many there were. Idempotent.

    Only for a LogCluster with `reclaimPolicy: Delete`, whose controller has ended. The table of the
    cluster goes last, so that an interrupted deletion is seen as unfinished. ApiError or
    ApiUnavailableError if it has to be tried again.
    """
    listing = await client.list(
        PARTITION_TABLE,
        namespace,
        label_selector=f"{CLUSTER_LABEL}={cluster}",
        limit=PAGE_SIZE,
    )
    slots = asyncio.Semaphore(WRITES_IN_FLIGHT_MAX)

    async def delete(name: str) -> bool:
        async with slots:
            return await _ensure_deleted(client, namespace, name, is_cluster=False)

    names = [manifest["metadata"]["name"] for manifest in listing.items]
    deleted = await asyncio.gather(*(delete(name) for name in names))
    is_cluster_deleted = await _ensure_deleted(client, namespace, cluster, is_cluster=True)
    return sum(deleted) + is_cluster_deleted


async def _ensure_deleted(
    client: KubeClient, namespace: str, name: str, *, is_cluster: bool
) -> bool:
    try:
        await client.delete(CLUSTER_STATE if is_cluster else PARTITION_TABLE, namespace, name)
    except ApiError as error:
        if not error.is_not_found:
            raise
        return False
    return True
