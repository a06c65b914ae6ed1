"""An API server in memory, as far as a client, an informer and a metadata store need it.

Collections of objects with increasing resourceVersions, compare-and-swap, pages, watches with
bookmarks that remember everything since `compact`, and selectors of one label. An object that is
too large for etcd is refused.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from aiohttp import web

if TYPE_CHECKING:
    from collections.abc import Iterator

Manifest = dict[str, Any]

ETCD_REQUEST_BYTES_MAX = 3 << 19
"""etcd's default; the server answers 500 "etcdserver: request is too large"."""


class FakeApiServer:
    """Listens on a free port of 127.0.0.1."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Manifest]] = {}
        """Path of a collection → name → object."""
        self.version = 100
        self.oldest_version = 0
        """Watches from an earlier version fail with 410 Gone."""
        self.bookmark_lead_s = 0.1
        self.lists = 0
        self.watches = 0
        self._log: list[tuple[int, str, str, Manifest]] = []
        self._news = asyncio.Condition()
        self._runner: web.AppRunner | None = None
        self._port = 0
        self._is_stopping = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def start(self) -> None:
        application = web.Application(client_max_size=8 << 20)
        application.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(application, shutdown_timeout=0.05)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        assert isinstance(site._server, asyncio.Server)
        self._port = site._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self._is_stopping = True
        async with self._news:
            self._news.notify_all()
        assert self._runner is not None
        await self._runner.cleanup()

    async def put(self, path: str, name: str, **spec: object) -> Manifest:
        """Make or change an object."""
        old = self.objects.get(path, {}).get(name)
        metadata = {"name": name, "namespace": path.split("/")[-2]}
        if old is not None:
            metadata = old["metadata"]
        return await self._store(path, {"metadata": metadata, "spec": spec}, old)

    async def remove(self, path: str, name: str) -> None:
        """Delete an object."""
        gone = self.objects[path].pop(name)
        self.version += 1
        gone = {**gone, "metadata": {**gone["metadata"], "resourceVersion": str(self.version)}}
        await self._tell(path, "DELETED", gone)

    def compact(self) -> None:
        """Forget the history of all objects."""
        self._log.clear()
        self.oldest_version = self.version

    async def _store(self, path: str, manifest: Manifest, old: Manifest | None) -> Manifest:
        metadata = manifest["metadata"]
        self.version += 1
        uid = f"uid-{self.version}" if old is None else old["metadata"]["uid"]
        stamps: Manifest = {"resourceVersion": str(self.version), "uid": uid, "managedFields": []}
        manifest = {**manifest, "metadata": {**metadata, **stamps}}
        self.objects.setdefault(path, {})[metadata["name"]] = manifest
        await self._tell(path, "ADDED" if old is None else "MODIFIED", manifest)
        return manifest

    async def _tell(self, path: str, sort: str, manifest: Manifest) -> None:
        self._log.append((self.version, path, sort, manifest))
        async with self._news:
            self._news.notify_all()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        parts = request.path.strip("/").split("/")
        depth = 5 if parts[0] == "api" else 6  # Paths of collections in a namespace, or of objects.
        path = "/" + "/".join(parts[:depth])
        name = parts[depth] if len(parts) > depth else ""
        if "watch" in request.query:
            return await self._watch(request, path)
        if request.method == "GET":
            return self._get(request, path, name)
        body = await request.json()
        if len(json.dumps(body)) > ETCD_REQUEST_BYTES_MAX:
            return _status(500, "InternalError")
        if request.method == "POST":
            name = body["metadata"]["name"]
            if name in self.objects.get(path, {}):
                return _status(409, "AlreadyExists")
            return web.json_response(await self._store(path, body, None), status=201)
        old = self.objects.get(path, {}).get(name)
        if old is None:
            return _status(404, "NotFound")
        if request.method == "DELETE":
            expected = (body.get("preconditions") or {}).get("uid")
            if expected not in {None, old["metadata"]["uid"]}:
                return _status(409, "Conflict")
            await self.remove(path, name)
            return web.json_response({"kind": "Status", "status": "Success"})
        if body["metadata"].get("resourceVersion") != old["metadata"]["resourceVersion"]:
            return _status(409, "Conflict")
        if all(body.get(key) == old.get(key) for key in ("metadata", "spec")):
            return web.json_response(old)  # As in the real one: no difference, no new version.
        return web.json_response(await self._store(path, body, old))

    def _get(self, request: web.Request, path: str, name: str) -> web.Response:
        if name:
            found = self.objects.get(path, {}).get(name)
            return _status(404, "NotFound") if found is None else web.json_response(found)
        self.lists += 1
        token = request.query.get("continue", "0/")
        start, _, version = token.partition("/")
        if version and int(version) < self.oldest_version:
            return _status(410, "Expired")
        first, limit = int(start), int(request.query.get("limit", "100000"))
        items = list(_selected(request, self.objects.get(path, {}).values()))
        metadata = {"resourceVersion": str(self.version)}
        if first + limit < len(items):
            metadata["continue"] = f"{first + limit}/{self.version}"
        return web.json_response({"metadata": metadata, "items": items[first : first + limit]})

    async def _watch(self, request: web.Request, path: str) -> web.StreamResponse:
        self.watches += 1
        version = int(request.query["resourceVersion"])
        if version < self.oldest_version:
            return _status(410, "Expired")
        response = web.StreamResponse()
        response.content_type = "application/json"
        await response.prepare(request)
        timeout_s = float(request.query["timeoutSeconds"])
        loop = asyncio.get_running_loop()
        bookmark_at = loop.time() + timeout_s - self.bookmark_lead_s
        while not self._is_stopping:
            news = [entry for entry in self._log if entry[0] > version and entry[1] == path]
            for number, _, sort, manifest in news:
                version = number
                if not any(_selected(request, [manifest])):
                    if sort != "MODIFIED":
                        continue
                    sort = "DELETED"  # noqa: PLW2901 (it may have had the label until now)
                await response.write(_line(sort, manifest))
            left = bookmark_at - loop.time()
            if left <= 0:
                bookmark = {"metadata": {"resourceVersion": str(max(version, self.version))}}
                await response.write(_line("BOOKMARK", bookmark))
                return response
            async with self._news:
                try:
                    await asyncio.wait_for(self._news.wait(), left)
                except TimeoutError:
                    continue
        return response


def _selected(request: web.Request, manifests: Any) -> Iterator[Manifest]:
    """Yield the objects with a label, or with a label's value if the request has one."""
    key, is_equal, value = request.query.get("labelSelector", "").partition("=")
    for manifest in manifests:
        labels = manifest["metadata"].get("labels") or {}
        if not key or (labels.get(key) == value if is_equal else key in labels):
            yield manifest


def _line(sort: str, manifest: Manifest) -> bytes:
    return json.dumps({"type": sort, "object": manifest}).encode() + b"\n"


def _status(code: int, reason: str, message: str = "") -> web.Response:
    answer = {"kind": "Status", "code": code, "reason": reason, "message": message}
    return web.json_response(answer, status=code)
