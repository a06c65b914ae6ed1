"""The form of all resources in v3: `kind`, `metadata`, links to related resources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from fairlead_broker.rest.documents.schemas import TEXT, TEXT_OR_NULL, array_of, object_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiohttp import web

    from fairlead_broker.rest.operations import Schema
    from fairlead_broker.rest.request import RestRequest

LINK: Schema = object_of({"related": TEXT})
LINK_OR_NULL: Schema = {"anyOf": [LINK, {"type": "null"}]}
_METADATA: Schema = object_of({"self": TEXT, "resource_name": TEXT_OR_NULL})


class Place:
    """The place of a resource: its URL and its resource name."""

    def __init__(self, request: RestRequest, *parts: str | int) -> None:
        """`parts` are kinds and names in turn, such as `"topics", "orders", "configs"`."""
        self._request = request
        self._parts = tuple(str(part) for part in parts)

    @property
    def cluster_id(self) -> str:
        """Id of the cluster, which each resource has."""
        return self._request.broker.cluster_id

    def url(self, *more: str | int) -> str:
        """Return the URL of the resource, or of `more` in it."""
        path = "/".join(quote(str(part), safe=":") for part in (*self._parts, *more))
        base = f"{self._request.base_url}/v3/clusters/{quote(self.cluster_id)}"
        return f"{base}/{path}" if path else base

    def link(self, *more: str | int) -> dict[str, str]:
        """Return a link to the resource, or to `more` in it."""
        return {"related": self.url(*more)}

    def describe(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Return the resource of this place, with these fields."""
        names = {
            "topics": "topic",
            "partitions": "partition",
            "replicas": "replica",
            "brokers": "broker",
            "configs": "config",
            "consumer-groups": "consumer-group",
            "consumers": "consumer",
            "lags": "lag",
            "assignments": "assignment",
        }
        crn = f"crn:///kafka={self.cluster_id}"
        parts = self._parts
        for at in range(0, len(parts), 2):
            name = f"={quote(parts[at + 1])}" if at + 1 < len(parts) else ""
            crn += f"/{names.get(parts[at], parts[at])}{name}"
        return {
            "kind": kind,
            "metadata": {"self": self.url(), "resource_name": crn},
            "cluster_id": self.cluster_id,
            **fields,
        }

    async def list(self, kind: str, items: Iterable[dict[str, Any]]) -> web.Response:
        """Return the answer with the list of this place."""
        head = {"kind": kind, "metadata": {"self": self.url(), "next": None}}
        return await self._request.answer_items(head, "data", items)


def resource(kind: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a resource."""
    return object_of({"kind": {"const": kind}, "metadata": _METADATA, "cluster_id": TEXT, **fields})


def list_of(kind: str, item: Schema) -> dict[str, Any]:
    """Return the schema of a list of resources."""
    return object_of(
        {
            "kind": {"const": kind},
            "metadata": object_of({"self": TEXT, "next": TEXT_OR_NULL}),
            "data": array_of(item),
        }
    )
