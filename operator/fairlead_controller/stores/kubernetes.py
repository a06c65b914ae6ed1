"""The metadata store in the Kubernetes API server.

A table is an object, its version is the object's resourceVersion, and a write is a replacement that
names the version it is based on.

This module's main task is to interpret failed requests. A request that got no answer, or an error
of the server, may still be carried out. Then it is safe to send the same write again: it is based
on the same version, so at most one of the two can land. But if the second request is answered with
a conflict, the first may be the cause: the outcome is unknown rather than a conflict, and the
caller settles it.

While the server is not reachable, `read` waits and writes end as unknown: metadata is frozen, and
no process has to end. `is_available` shows that, even if nothing has to be written.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from fairlead_controller.decisions.tables.stored_table import StoredTable, StoreError
from fairlead_controller.decisions.tables.table_plan import CLUSTER_TABLE
from fairlead_controller.stores.availability import RemoteStore, Sort
from fairlead_controller.stores.kubernetes_tables import (
    CLUSTER_LABEL,
    SECURITY_LABEL,
    KnownTable,
    Manifest,
    adopt_answer,
    build_table,
    object_name,
    read_table,
    table_kind,
)
from fairlead_controller.stores.metadata_store import (
    CONFLICT,
    UNKNOWN,
    StoreUnavailableError,
    TableWrite,
    WriteOutcome,
    WriteResult,
)
from fairlead_kube.client import RETRY_AFTER_S_MAX, KubeClient, jittered
from fairlead_kube.errors import TOO_MANY_REQUESTS, ApiError, ApiUnavailableError
from fairlead_kube.kinds import CLUSTER_STATE, PARTITION_TABLE, SECRET, ResourceKind

logger = logging.getLogger(__name__)

WRITES_IN_FLIGHT_MAX: Final = 16
PAGE_SIZE: Final = 50
"""Tables per request: a full table has some 50 KB, and parsing a page blocks the loop."""
WRITE_RETRY_DELAYS_S: Final = (0.05, 0.1, 0.2, 0.4)
WRITE_RETRY_S_MAX: Final = 5.0
"""No attempt begins later than this after the first."""
READ_PAUSE_S_MIN: Final = 0.1
READ_PAUSE_S_MAX: Final = 1.0
CHECK_INTERVAL_S: Final = 5.0
"""How often the server is probed while there are no other requests."""

_REFUSED_FOR_NOW: Final = frozenset({401, 403, TOO_MANY_REQUESTS})
"""Statuses which mean that the request was not carried out, and may succeed later. A token or a
permission that is being renewed counts as an outage, and is no reason to end."""


class KubernetesStore(RemoteStore):
    """The tables of one cluster; `open_kubernetes_store` makes it."""

    def __init__(
        self,
        client: KubeClient,
        namespace: str,
        cluster: str,
        *,
        check_interval_s: float = CHECK_INTERVAL_S,
    ) -> None:
        super().__init__()
        self._client = client
        self._namespace = namespace
        self._cluster = cluster
        self._known: dict[str, KnownTable] = {}
        self._slots = asyncio.Semaphore(WRITES_IN_FLIGHT_MAX)
        self._check_interval_s = check_interval_s
        self._answered_at = time.monotonic()
        self._checks = asyncio.create_task(self._keep_checking(), name=f"check store {cluster}")

    async def load(self) -> dict[str, StoredTable]:
        """Return all tables; StoreUnavailableError if the server is not reachable."""
        known: dict[str, KnownTable] = {}
        try:
            # The cluster's table is read last: a controller names a new table there before adding
            # it.
            listing = await self._client.list(
                PARTITION_TABLE,
                self._namespace,
                label_selector=f"{CLUSTER_LABEL}={self._cluster}",
                limit=PAGE_SIZE,
            )
            self._note_answer()
            secrets = await self._list_secrets()
            cluster = await self._fetch(CLUSTER_TABLE)
        except (ApiError, ApiUnavailableError) as error:
            raise self._store_error("the tables cannot be read", error) from error
        for manifest in [*listing.items, *secrets]:
            table, content = read_table(manifest, self._cluster)
            known[table] = content
        if cluster is not None:
            known[CLUSTER_TABLE] = cluster
        self._known = known
        return {table: content.stored() for table, content in known.items()}

    async def _list_secrets(self) -> list[Manifest]:
        listing = await self._client.list(
            SECRET,
            self._namespace,
            label_selector=f"{SECURITY_LABEL}={self._cluster}",
            limit=PAGE_SIZE,
        )
        return listing.items

    async def read(self, table: str) -> StoredTable | None:
        """Return one table; wait while the server is not reachable."""
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
        """Write tables, several at a time, in the order given."""
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
        """Stop the checks; the client belongs to the caller and stays open."""
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
        """Return the table in the version on which a write is based, or as it is now."""
        if write.version is None:
            return None
        known = self._known.get(write.table)
        if known is not None and known.version == write.version:
            return known
        return await self._fetch(write.table)

    async def _send(
        self, write: TableWrite, manifest: Manifest, content: KnownTable
    ) -> WriteResult:
        """Send a write, several times if necessary; return what is certain about its outcome."""
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
        # The version differs from the known one: the write that was in doubt has been carried out.
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
        self._availability.note_answer(is_write=is_write)

    def _note_failure(self, error: ApiError | ApiUnavailableError, sort: Sort = "read") -> None:
        self._availability.note_failure(str(error), sort)

    def _store_error(
        self,
        what: str,
        error: ApiError | ApiUnavailableError,
        sort: Sort = "read",
    ) -> StoreError:
        """Return the error for a failed request; note whether the server can be reached at all."""
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

    StoreUnavailableError if the server is not reachable.
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
    """Delete the tables of a cluster that was deleted; return how many there were. Idempotent.

    Only for a LogCluster with `reclaimPolicy: Delete`, whose controller has ended. The cluster's
    table is deleted last, so that an interrupted deletion is recognised. ApiError or
    ApiUnavailableError if the caller has to try again.
    """
    slots = asyncio.Semaphore(WRITES_IN_FLIGHT_MAX)

    async def delete(kind: ResourceKind, found: Manifest) -> bool:
        async with slots:
            return await _ensure_deleted(client, namespace, kind, found)

    deleted: list[bool] = []
    for kind, label in ((PARTITION_TABLE, CLUSTER_LABEL), (SECRET, SECURITY_LABEL)):
        listing = await client.list(
            kind, namespace, label_selector=f"{label}={cluster}", limit=PAGE_SIZE
        )
        deleted += await asyncio.gather(*(delete(kind, found) for found in listing.items))
    state = await client.find(CLUSTER_STATE, namespace, cluster)
    is_cluster_deleted = state is not None and await delete(CLUSTER_STATE, state)
    return sum(deleted) + is_cluster_deleted


async def _ensure_deleted(
    client: KubeClient, namespace: str, kind: ResourceKind, found: Manifest
) -> bool:
    """Delete this object, but no later object of its name: a deletion may land late."""
    metadata = found["metadata"]
    try:
        await client.delete(kind, namespace, metadata["name"], uid=metadata["uid"])
    except ApiError as error:
        if not (error.is_not_found or error.is_conflict):
            raise
        return False
    return True
