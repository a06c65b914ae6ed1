"""`GET /topics/{topic}/partitions/{partition}/records`: records without a group.

The path and the format are those of Redpanda's HTTP proxy. `Accept`, as in v2, or `format` chooses
the form of keys and values. A header of the answer says where the next read begins. A client that
accepts only an event stream follows the partition instead (`tailing`).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlencode

from fairlead_broker.authorization import Operation as Right
from fairlead_broker.authorization import ResourceType
from fairlead_broker.limits import (
    REST_LEADER_ANSWER_MS,
    REST_READ_BYTES,
    REST_READ_BYTES_MAX,
    REST_READ_STEP_BYTES,
    REST_READ_TIMEOUT_MAX_MS,
    REST_READ_TIMEOUT_MS,
)
from fairlead_broker.rest.documents.schemas import (
    ID,
    INT,
    OFFSET,
    TEXT,
    TEXT_OR_NULL,
    array_of,
    object_of,
)
from fairlead_broker.rest.negotiation import accept_of, require_answer
from fairlead_broker.rest.offset_lookup import EARLIEST, LATEST
from fairlead_broker.rest.operations import (
    EVENT_STREAM,
    INT32_MAX,
    INT64_MAX,
    JSON,
    V2,
    V2_BINARY,
    V2_JSON,
    V2_SHORT,
    V2_TEXT,
    Answer,
    Operation,
    Parameter,
)
from fairlead_broker.rest.problems import UNKNOWN_PARTITION, ProblemError, shown, unknown_topic
from fairlead_broker.rest.reading import PartitionReader
from fairlead_broker.rest.records.embedding import EmbeddingError, read_timestamp
from fairlead_broker.rest.records.rendering import Form, RecordShape
from fairlead_broker.rest.tailing import follow, last_event_offset
from fairlead_broker.rest.topic_reading import find_offset

if TYPE_CHECKING:
    from aiohttp import web

    from fairlead_broker.rest.request import RestRequest

NEXT_OFFSET: Final = "Fairlead-Next-Offset"
TYPE_OF_FORM: Final = {Form.BINARY: V2_BINARY, Form.JSON: V2_JSON, Form.STRING: V2_TEXT}
_FORM_OF_TYPE: Final = {media_type: form for form, media_type in TYPE_OF_FORM.items()}
ANY_FORM: Final = (V2, V2_SHORT, JSON)
_NAMED_OFFSETS: Final = {"earliest": EARLIEST, "latest": LATEST}
ISOLATION_LEVELS: Final = ("read_uncommitted", "read_committed")


async def read_records(request: RestRequest) -> web.StreamResponse:
    """Answer with records of a partition, at the deadline with those that exist."""
    form = _choose_form(request)
    is_stream = request.answer_type == EVENT_STREAM
    deadline_s = _set_deadline(request)
    topic, partition = find_partition(request)
    level = ISOLATION_LEVELS.index(request.query["isolation_level"])
    offset = last_event_offset(request.http.headers) if is_stream else None
    if offset is None:
        default = "latest" if is_stream else "earliest"
        offset = await _begin(request, topic, partition, level, default)
    bytes_max = min(request.query["max_bytes"], REST_READ_BYTES_MAX)
    reader = PartitionReader(
        request, RecordShape(topic, partition, form), offset=offset, isolation_level=level
    )
    if is_stream:
        return await follow(request, reader)
    records = await reader.read(
        deadline_s,
        min_bytes=min(request.query["min_bytes"], REST_READ_STEP_BYTES),
        bytes_max=bytes_max,
    )
    headers = {
        NEXT_OFFSET: str(reader.offset),
        "Link": f'<{_next_link(request, reader.offset)}>; rel="next"',
        "Cache-Control": "no-store",
    }
    return request.encoded(
        b"[" + b",".join([each.data for each in records]) + b"]", headers=headers
    )


def find_partition(request: RestRequest) -> tuple[str, int]:
    """Return the partition of the path, if the client may read it; ProblemError 404."""
    topic, index = request.path["topic_name"], request.path["partition_id"]
    request.kafka.require(Right.READ, ResourceType.TOPIC, topic)
    known = request.broker.image.topic(topic)
    if known is None:
        raise unknown_topic(topic)
    if index >= len(known.partitions):
        message = f"there is no partition {index} of {shown(topic)}"
        raise ProblemError(404, message, code=UNKNOWN_PARTITION)
    return topic, index


def _choose_form(request: RestRequest) -> Form:
    """Return the form of keys and values; ProblemError 406 if Accept excludes it."""
    name = request.query["format"]
    if name is None:
        return _FORM_OF_TYPE.get(request.answer_type, Form.BINARY)
    form = Form(name)
    if request.answer_type == EVENT_STREAM:
        return form
    offered = (TYPE_OF_FORM[form], *ANY_FORM)
    request.answer_type = require_answer(accept_of(request.http), offered)
    return form


def _set_deadline(request: RestRequest) -> float:
    """Return until when to wait; a lookup before it gets at least REST_LEADER_ANSWER_MS."""
    timeout_ms: int = min(request.query["timeout"], REST_READ_TIMEOUT_MAX_MS)
    now_s = asyncio.get_running_loop().time()
    request.deadline_s = now_s + max(timeout_ms, REST_LEADER_ANSWER_MS) / 1000
    return now_s + timeout_ms / 1000


async def _begin(
    request: RestRequest, topic: str, partition: int, isolation_level: int, default: str
) -> int:
    """Return the offset at which the query asks to begin; ProblemError 400."""
    asked, timestamp = request.query["offset"], request.query["timestamp"]
    if timestamp is not None:
        if asked is not None:
            raise ProblemError(400, "a read begins at an offset or at a timestamp, not at both")
        sought = _timestamp(timestamp)
        found = await find_offset(request, topic, partition, sought, isolation_level)
        if found >= 0:
            return found
        asked = "latest"
    elif asked is None:
        asked = default
    if asked in _NAMED_OFFSETS:
        sentinel = _NAMED_OFFSETS[asked]
        return await find_offset(request, topic, partition, sentinel, isolation_level)
    if not (asked.isascii() and asked.isdecimal() and len(asked) <= 19 and int(asked) <= INT64_MAX):
        raise ProblemError(400, f"offset={shown(asked)}: a whole number, earliest or latest")
    return int(asked)


def _timestamp(text: str) -> int:
    is_number = text.isascii() and text.isdecimal() and len(text) <= 19
    try:
        found = read_timestamp(int(text) if is_number else text)
    except EmbeddingError as error:
        raise ProblemError(400, error.message) from error
    return 0 if found is None else found


def _next_link(request: RestRequest, offset: int) -> str:
    """Return the URL of the same read from `offset` on."""
    given = request.http.rel_url.query
    kept = {
        parameter.name: given[parameter.name]
        for parameter in request.operation.query
        if parameter.name in given and parameter.name not in ("offset", "timestamp")
    }
    topic = quote(request.path["topic_name"], safe="")
    path = f"/topics/{topic}/partitions/{request.path['partition_id']}/records"
    return f"{path}?{urlencode({'offset': offset, **kept})}"


RECORD: Final = object_of(
    {
        "topic": TEXT,
        "key": {},
        "value": {},
        "partition": ID,
        "offset": OFFSET,
        "timestamp": INT,
        "headers": array_of(object_of({"key": TEXT, "value": TEXT_OR_NULL})),
    },
    {"error": object_of({"error_code": INT, "message": TEXT})},
)

QUERY: Final = (
    Parameter(
        "offset",
        {"type": "string", "pattern": "^(earliest|latest|[0-9]{1,18})$"},
        "Where to begin: an offset, `earliest` (where nothing is said) or `latest` "
        "(the same for an event stream).",
    ),
    Parameter(
        "timestamp",
        TEXT,
        "Instead of an offset: the first record of that time or later, as milliseconds since 1970 "
        "or such as 2026-01-02T03:04:05Z.",
    ),
    Parameter(
        "timeout",
        {"type": "integer", "minimum": 0, "maximum": INT32_MAX},
        f"Milliseconds to wait for records, {REST_READ_TIMEOUT_MAX_MS} at most; 0 answers at once.",
        REST_READ_TIMEOUT_MS,
    ),
    Parameter(
        "min_bytes",
        {"type": "integer", "minimum": 0, "maximum": INT32_MAX},
        f"Bytes in the log to wait for, {REST_READ_STEP_BYTES} at most.",
        1,
    ),
    Parameter(
        "max_bytes",
        {"type": "integer", "minimum": 1, "maximum": INT32_MAX},
        f"Size of the answer, {REST_READ_BYTES_MAX} at most; a larger record comes alone.",
        REST_READ_BYTES,
    ),
    Parameter(
        "isolation_level",
        {"type": "string", "enum": list(ISOLATION_LEVELS)},
        "With `read_committed` nothing of transactions that are open or aborted.",
        "read_uncommitted",
    ),
    Parameter(
        "format",
        {"type": "string", "enum": [form.value for form in Form]},
        "What keys and values are given as, where Accept does not say it.",
    ),
)

OPERATIONS = (
    Operation(
        "readRecords",
        "GET",
        "/topics/{topic_name}/partitions/{partition_id}/records",
        "Read records of a partition, by the deadline those that are there.",
        read_records,
        {
            200: Answer(
                "Records, perhaps none. Fairlead-Next-Offset and Link say where to go on.",
                array_of(RECORD),
                (V2_BINARY, V2_JSON, V2_TEXT, *ANY_FORM),
                (EVENT_STREAM,),
            )
        },
        query=QUERY,
    ),
)
