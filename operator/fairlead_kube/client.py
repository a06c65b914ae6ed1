"""A small asynchronous client of the Kubernetes API.

Reads are tried again, on new connections. Writes are not: the caller of a compare-and-swap has to
find out how a write of unknown outcome ended (`ApiUnavailableError.may_have_landed`).
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from fairlead_kube.credentials import Credentials
from fairlead_kube.errors import ApiError, ApiUnavailableError
from fairlead_kube.kinds import ResourceKind
from fairlead_kube.transport import JSON, Manifest, RequestCounters, Transport
from fairlead_kube.watch_stream import WatchDecoder, WatchEvent

CONNECT_TIMEOUT_S: Final = 0.5
REQUEST_TIMEOUT_S: Final = 2.0
READ_RETRY_DELAYS_S: Final = (0.05, 0.1, 0.2)
RETRY_AFTER_S_MAX: Final = 5.0
"""The longest delay before the next request that a server can ask for."""
PAGE_SIZE: Final = 500
WATCH_TIMEOUT_S: Final = 300.0
TEXT_BYTES_MAX: Final = 8 << 20
TEXT_SILENCE_S: Final = 10.0
FIELD_MANAGER: Final = "fairlead-operator"

MERGE_PATCH: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"
UNPROCESSABLE: Final = 422
CONFLICT: Final = 409
METADATA_ONLY: Final = f"{JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
METADATA_LIST_ONLY: Final = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


@dataclass(frozen=True, slots=True)
class ObjectList:
    """All objects of a collection as of one version."""

    items: list[Manifest]
    resource_version: str
    """The version from which a watch continues."""


def jittered(delay_s: float) -> float:
    """Return a delay, varied by up to a half, so that not all callers come at the same time."""
    return delay_s * (0.5 + random.random())  # noqa: S311


class KubeClient:
    """A client in a running loop; every method raises ApiError or ApiUnavailableError."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        user_agent: str = FIELD_MANAGER,
    ) -> None:
        self.credentials = credentials
        self._transport = Transport(
            credentials,
            connect_timeout_s=connect_timeout_s,
            request_timeout_s=request_timeout_s,
            user_agent=user_agent,
        )

    @property
    def counters(self) -> RequestCounters:
        """Counts of requests, and since when none was answered."""
        return self._transport.counters

    async def close(self) -> None:
        """Close all connections."""
        await self._transport.close()

    async def get(self, kind: ResourceKind, namespace: str | None, name: str) -> Manifest:
        """Read an object."""
        return await self._read("get", kind.path(namespace, name))

    async def find(self, kind: ResourceKind, namespace: str | None, name: str) -> Manifest | None:
        """Read an object; None if it does not exist."""
        try:
            return await self.get(kind, namespace, name)
        except ApiError as error:
            if error.is_not_found:
                return None
            raise

    async def list(
        self,
        kind: ResourceKind,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        limit: int = PAGE_SIZE,
    ) -> ObjectList:
        """Read a collection, in pages of the same version."""
        path = kind.path(namespace)
        params = {"limit": str(limit)}
        if label_selector:
            params["labelSelector"] = label_selector
        items: list[Manifest] = []
        while True:
            try:
                page = await self._read("list", path, params)
            except ApiError as error:
                if not error.is_gone or "continue" not in params:
                    raise
                # The server no longer has the version of the first page: read all in one page.
                items.clear()
                params.pop("continue")
                params.pop("limit")
                continue
            for item in page.get("items") or ():
                # Items of a list lack these two fields, which the objects of watch events have.
                item["apiVersion"], item["kind"] = kind.api_version, kind.kind
                items.append(item)
            metadata = page["metadata"]
            if not metadata.get("continue"):
                return ObjectList(items, metadata["resourceVersion"])
            params["continue"] = metadata["continue"]

    async def check(self, kind: ResourceKind, namespace: str | None = None) -> None:
        """Prove that a collection can be read: read at most one object, at its present version."""
        await self._read("check", kind.path(namespace), {"limit": "1"}, accept=METADATA_LIST_ONLY)

    async def read_text(
        self, path: str, params: Mapping[str, str] | None = None, *, size_max: int = TEXT_BYTES_MAX
    ) -> str:
        """Read what is not an object, such as a pod's log, once; the last bytes if it is long."""
        content = bytearray()
        async with self._transport.stream(
            "text", path, params=params or {}, silence_timeout_s=TEXT_SILENCE_S
        ) as stream:
            async for piece in stream.iter_any():
                content += piece
                if len(content) > 2 * size_max:
                    del content[:-size_max]
        return content[-size_max:].decode(errors="replace")

    async def create(
        self,
        kind: ResourceKind,
        namespace: str | None,
        body: Manifest,
        *,
        is_dry_run: bool = False,
    ) -> Manifest:
        """Create an object; a conflict if it exists. A dry run only returns what would happen."""
        params = {"dryRun": "All"} if is_dry_run else None
        return await self._write("create", "POST", kind.path(namespace), body, params=params)

    async def replace(
        self,
        kind: ResourceKind,
        namespace: str | None,
        name: str,
        body: Manifest,
        *,
        subresource: str | None = None,
        metadata_only: bool = False,
    ) -> Manifest:
        """Replace an object; a conflict if its resourceVersion is not the one in the body.

        With `metadata_only` the answer has the new metadata and not the object.
        """
        path = kind.path(namespace, name, subresource)
        accept = METADATA_ONLY if metadata_only else JSON
        return await self._write("replace", "PUT", path, body, accept=accept)

    async def apply(
        self,
        kind: ResourceKind,
        namespace: str | None,
        name: str,
        body: Manifest,
        *,
        field_manager: str = FIELD_MANAGER,
        subresource: str | None = None,
        force: bool = True,
    ) -> Manifest:
        """Apply a manifest on the server: its fields become ours, those it omits are removed."""
        params = {"fieldManager": field_manager, "force": "true" if force else "false"}
        path = kind.path(namespace, name, subresource)
        return await self._write(
            "apply", "PATCH", path, body, params=params, content_type=APPLY_PATCH
        )

    async def patch(
        self,
        kind: ResourceKind,
        namespace: str | None,
        name: str,
        patch: object,
        *,
        subresource: str | None = None,
        content_type: str = MERGE_PATCH,
    ) -> Manifest:
        """Change an object by a merge patch or a JSON patch.

        A conflict if a merge patch names another version than the object has, or another uid. The
        server compares the uid only in a patch of the object itself, not of a subresource.
        """
        path = kind.path(namespace, name, subresource)
        try:
            return await self._write("patch", "PATCH", path, patch, content_type=content_type)
        except ApiError as error:
            if not _means_another(patch, error):
                raise
            raise ApiError(CONFLICT, "Conflict", error.message) from error

    async def write_status(
        self, kind: ResourceKind, namespace: str, name: str, status: Manifest, *, uid: str
    ) -> Manifest:
        """Replace the status of an object; a conflict if the object was deleted and created again.

        This is a JSON patch: in a merge patch of a status the server ignores the uid.
        """
        steps = [
            {"op": "test", "path": "/metadata/uid", "value": uid},
            {"op": "add", "path": "/status", "value": _without_nulls(status)},
        ]
        try:
            return await self.patch(
                kind, namespace, name, steps, subresource="status", content_type=JSON_PATCH
            )
        except ApiError as error:
            # An invalid status is refused with causes; a failed test of the uid has none.
            if error.status != UNPROCESSABLE or error.causes:
                raise
            message = f"{kind.kind} {namespace}/{name} was made anew"
            raise ApiError(CONFLICT, "Conflict", message) from error

    async def delete(
        self,
        kind: ResourceKind,
        namespace: str | None,
        name: str,
        *,
        grace_period_s: int | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
        keeps_dependents: bool = False,
    ) -> None:
        """Delete an object; a conflict if it has another uid or version than the given one.

        With `keeps_dependents` the objects that it owns remain, as orphans.
        """
        expected = {"uid": uid, "resourceVersion": resource_version}
        preconditions = {key: value for key, value in expected.items() if value is not None}
        options: Manifest = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if grace_period_s is not None:
            options["gracePeriodSeconds"] = grace_period_s
        if preconditions:
            options["preconditions"] = preconditions
        if keeps_dependents:
            options["propagationPolicy"] = "Orphan"
        await self._write(
            "delete", "DELETE", kind.path(namespace, name), options, accept=METADATA_ONLY
        )

    async def watch(
        self,
        kind: ResourceKind,
        namespace: str | None = None,
        *,
        resource_version: str,
        label_selector: str = "",
        timeout_s: float = WATCH_TIMEOUT_S,
        silence_timeout_s: float | None = None,
    ) -> AsyncGenerator[WatchEvent, None]:
        """Yield the events after a version, with bookmarks, until the server ends the watch.

        The server is asked to end it after `timeout_s`, shortly before which it sends a bookmark.
        ApiUnavailableError if the connection breaks or stays silent for `silence_timeout_s`;
        ApiError for an ERROR event. Close the iterator (`contextlib.aclosing`) when leaving early.
        """
        params = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(max(1, round(timeout_s))),
        }
        if label_selector:
            params["labelSelector"] = label_selector
        path = kind.path(namespace)
        decoder = WatchDecoder()
        silence_s = silence_timeout_s if silence_timeout_s is not None else timeout_s + 10.0
        async with self._transport.stream(
            "watch", path, params=params, silence_timeout_s=silence_s
        ) as content:
            async for piece in content.iter_any():
                for event in decoder.feed(piece):
                    yield event

    async def _read(
        self, verb: str, path: str, params: Mapping[str, str] | None = None, *, accept: str = JSON
    ) -> Manifest:
        """Read; try again after a failure that may be temporary."""
        for delay_s in READ_RETRY_DELAYS_S:
            pause_s = jittered(delay_s)
            try:
                return await self._transport.request(
                    verb, "GET", path, params=params, accept=accept
                )
            except ApiUnavailableError:
                pass
            except ApiError as error:
                if not error.is_passing:
                    raise
                pause_s += min(error.retry_after_s or 0.0, RETRY_AFTER_S_MAX)
            await asyncio.sleep(pause_s)
        return await self._transport.request(verb, "GET", path, params=params, accept=accept)

    async def _write(
        self,
        verb: str,
        method: str,
        path: str,
        body: object,
        *,
        params: Mapping[str, str] | None = None,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> Manifest:
        return await self._transport.request(
            verb, method, path, params=params, body=body, content_type=content_type, accept=accept
        )


def _means_another(patch: object, error: ApiError) -> bool:
    """Tell whether a patch was refused because the object was deleted and created again.

    The server then reports the uid as an immutable field that the patch would change.
    """
    metadata = patch.get("metadata") if isinstance(patch, Mapping) else None
    if error.status != UNPROCESSABLE or not isinstance(metadata, Mapping):
        return False
    return "uid" in metadata and "metadata.uid" in error.message


def _without_nulls(value: Any) -> Any:
    """Leave out fields that are null, as a merge patch does."""
    if not isinstance(value, Mapping):
        return value
    return {name: _without_nulls(each) for name, each in value.items() if each is not None}
