"""All operations of the HTTP API, and the document that describes them."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from fairlead_broker.rest.documents.json_text import dump_json
from fairlead_broker.rest.documents.openapi import build_document
from fairlead_broker.rest.operations import JSON, Answer, Operation
from fairlead_broker.rest.v2 import consumers, metadata, partition_records, produce
from fairlead_broker.rest.v3 import clusters, configs, groups, record_batch, records, topics
from fairlead_model.release import RELEASE

if TYPE_CHECKING:
    from aiohttp import web

    from fairlead_broker.rest.request import RestOperation, RestRequest


@cache
def _document() -> bytes:
    return dump_json(build_document(OPERATIONS, version=RELEASE))


async def get_document(request: RestRequest) -> web.StreamResponse:
    """Answer with the OpenAPI document."""
    return request.encoded(_document())


OPERATIONS: Final[tuple[RestOperation, ...]] = (
    Operation(
        "getOpenApi",
        "GET",
        "/openapi.json",
        "Return this document.",
        get_document,
        {200: Answer("An OpenAPI 3.1 document.", {"type": "object"}, (JSON,))},
    ),
    *clusters.OPERATIONS,
    *topics.OPERATIONS,
    *configs.OPERATIONS,
    *records.OPERATIONS,
    *record_batch.OPERATIONS,
    *groups.OPERATIONS,
    *metadata.OPERATIONS,
    *produce.OPERATIONS,
    *partition_records.OPERATIONS,
    *consumers.OPERATIONS,
)
