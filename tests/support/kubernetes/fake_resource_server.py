"""The API server in memory, with what reconcilers need besides: merge patches, finalizers, labels.

Objects get a generation and a creation time. An object with finalizers is marked as being deleted,
and removed with the last of them; its dependents are removed with it. Nothing is validated.
"""

from __future__ import annotations

from typing import Any

from aiohttp import web
from fake_api_server import FakeApiServer, Manifest, _status

CREATED = "2026-01-01T00:00:{:02d}Z"


class FakeResourceServer(FakeApiServer):
    """Listens on a free port of 127.0.0.1."""

    async def _store(self, path: str, manifest: Manifest, old: Manifest | None) -> Manifest:
        metadata = dict(manifest["metadata"])
        metadata.setdefault("namespace", path.split("/")[-2])
        if old is None:
            metadata |= {"generation": 1, "creationTimestamp": CREATED.format(self.version % 60)}
        elif old.get("spec") != manifest.get("spec"):
            metadata["generation"] = old["metadata"]["generation"] + 1
        stored = await super()._store(path, {**manifest, "metadata": metadata}, old)
        if "deletionTimestamp" in metadata and not metadata.get("finalizers"):
            await self.remove(path, metadata["name"])
        return stored

    async def remove(self, path: str, name: str) -> None:
        uid = self.objects[path][name]["metadata"]["uid"]
        await super().remove(path, name)
        for place, held in list(self.objects.items()):
            for child in list(held.values()):
                owners = child["metadata"].get("ownerReferences") or ()
                if any(owner["uid"] == uid for owner in owners):
                    await self.remove(place, child["metadata"]["name"])

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        parts = request.path.strip("/").split("/")
        depth = 5 if parts[0] == "api" else 6
        path, rest = "/" + "/".join(parts[:depth]), parts[depth:]
        old = self.objects.get(path, {}).get(rest[0]) if rest else None
        if request.method == "DELETE" and old is not None and old["metadata"].get("finalizers"):
            going = old["metadata"] | {"deletionTimestamp": CREATED.format(59)}
            await self._store(path, {**old, "metadata": going}, old)
            return web.json_response({"kind": "Status", "status": "Success"})
        if request.method not in {"PATCH", "PUT"} or old is None:
            return await super()._handle(request)
        body = await request.json()
        if isinstance(body, list):
            return await self._take_steps(path, body, old)
        version = body["metadata"].get("resourceVersion") if "metadata" in body else None
        if version not in {None, old["metadata"]["resourceVersion"]}:
            return _status(409, "Conflict")
        if request.method == "PATCH" and not rest[1:]:
            meant = (body.get("metadata") or {}).get("uid")
            if meant not in {None, old["metadata"]["uid"]}:
                # Of a subresource it takes no notice.
                message = f"metadata.uid: Invalid value: {meant}: field is immutable"
                return _status(422, "Invalid", message)
        if request.method == "PATCH":
            part = {"status": body["status"]} if rest[1:] == ["status"] else body
            body = merged(old, part)
        if body == old:
            return web.json_response(old)
        return web.json_response(await self._store(path, body, old))

    async def _take_steps(
        self, path: str, steps: list[Manifest], old: Manifest
    ) -> web.StreamResponse:
        """Take the steps of a JSON patch (RFC 6902) that concern the uid and a whole field."""
        changed = dict(old)
        for step in steps:
            if step["op"] == "test":
                assert step["path"] == "/metadata/uid"
                if step["value"] != old["metadata"]["uid"]:
                    return _status(422, "Invalid")
            else:
                changed[step["path"].removeprefix("/")] = step["value"]
        return web.json_response(await self._store(path, changed, old))


def merged(old: Any, patch: Any) -> Any:
    """Apply a merge patch (RFC 7396)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result
