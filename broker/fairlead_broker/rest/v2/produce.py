"""v2's `POST /topics/{topic}` and `…/partitions/{partition}`: an array of records.

The whole body is read before the first record is written, so one unreadable record refuses all.
Headers and timestamps are optional members, as in Karapace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fairlead_broker.limits import (
    REST_BATCH_RECORDS_MAX,
    REST_DOCUMENT_BYTES_MAX,
    REST_JSON_DEPTH_MAX,
    REST_RECORD_BYTES_MAX,
    REST_RECORD_TOKENS_MAX,
    REST_RECORDS_PER_REQUEST_MAX,
)
from fairlead_broker.rest.documents.json_frames import OversizedError, RecordsFrames
from fairlead_broker.rest.documents.json_text import (
    SMALL_BYTES,
    JsonError,
    dump_json,
    load_json,
)
from fairlead_broker.rest.documents.schemas import TEXT, TEXT_OR_NULL, array_of, object_of
from fairlead_broker.rest.operations import (
    INT32_MAX,
    V2_ANSWERS,
    V2_BINARY,
    V2_JSON,
    Answer,
    Body,
    Operation,
)
from fairlead_broker.rest.problems import UNKNOWN_PARTITION, ProblemError, shown
from fairlead_broker.rest.producing import Producer, Refused, Written, require_topic
from fairlead_broker.rest.records.embedding import (
    BINARY_DATA,
    JSON_DATA,
    EmbeddedRecord,
    EmbeddingError,
    read_v2_record,
)

if TYPE_CHECKING:
    from aiohttp import web

    from fairlead_broker.rest.operations import Schema
    from fairlead_broker.rest.request import RestRequest

_AFTER_OFFSETS: Final = b'],"key_schema_id":null,"value_schema_id":null}'
_UNREADABLE: Final = 42203
_DATA_TYPES: Final = {V2_JSON: JSON_DATA, V2_BINARY: BINARY_DATA}
_SCHEMA_MEMBERS: Final = ("key_schema", "key_schema_id", "value_schema", "value_schema_id")


async def produce(request: RestRequest) -> web.StreamResponse:
    """Write records to the partitions that they name, or that their keys choose."""
    return await _produce(request, None)


async def produce_to_partition(request: RestRequest) -> web.StreamResponse:
    """Write records to one partition."""
    return await _produce(request, request.path["partition_id"])


async def _produce(request: RestRequest, partition: int | None) -> web.StreamResponse:
    topic = request.path["topic_name"]
    data_type = _DATA_TYPES[request.body_type()]
    require_topic(request.kafka, topic)
    image = request.broker.image.topic(topic)
    if partition is not None and image is not None and partition >= len(image.partitions):
        message = f"there is no partition {partition} of {topic}"
        raise ProblemError(404, message, code=UNKNOWN_PARTITION)
    records = await _read(request, data_type, partition)
    request.begin_time()
    producer = Producer(request.kafka, topic, request.slices)
    offsets: list[bytes] = []
    for at in range(0, len(records), REST_BATCH_RECORDS_MAX):
        part = records[at : at + REST_BATCH_RECORDS_MAX]
        outcomes = await producer.write(part, request.deadline_s)
        offsets.append(dump_json(list(map(_entry, part, outcomes)))[1:-1])
        await request.slices.rest()
    return request.encoded(b'{"offsets":[' + b",".join(offsets) + _AFTER_OFFSETS)


async def _read(
    request: RestRequest, data_type: str, partition: int | None
) -> list[EmbeddedRecord]:
    """Read the whole body; ProblemError 400, 413 or 422."""
    frames = RecordsFrames(
        bytes_max=REST_RECORD_BYTES_MAX,
        tokens_max=REST_RECORD_TOKENS_MAX,
        depth_max=REST_JSON_DEPTH_MAX,
        around_bytes_max=REST_DOCUMENT_BYTES_MAX,
    )
    records: list[EmbeddedRecord] = []
    try:
        async for piece in request.body.pieces():
            await request.slices.rest()
            found: list[bytes] = []
            frames.feed(piece, found)
            more_bytes = 0
            for frame in found:
                if len(frame) > SMALL_BYTES:
                    record = await request.slices.aside(_read_large, frame, data_type)
                else:
                    record = read_v2_record(load_json(frame), data_type)
                more_bytes += max(record.memory - len(frame), 0)
                records.append(record if partition is None else _in_partition(record, partition))
            # A few hundred KiB may have 100,000 records, and one piece some thousands.
            request.body.keep_more(more_bytes)
            if len(records) > REST_RECORDS_PER_REQUEST_MAX:
                raise ProblemError(
                    413, f"more than {REST_RECORDS_PER_REQUEST_MAX} records", closes=True
                )
        if frames.around_bytes > SMALL_BYTES:
            document = await request.slices.aside(frames.finish)
        else:
            document = frames.finish()
    except OversizedError as error:
        raise ProblemError(413, str(error), closes=True) from error
    except JsonError as error:
        raise ProblemError(400, f"the body is no JSON of use: {error}", closes=True) from error
    except EmbeddingError as error:
        code = error.code if error.code == UNKNOWN_PARTITION else _UNREADABLE
        status = 404 if error.code == UNKNOWN_PARTITION else 422
        raise ProblemError(status, error.message, code=code, closes=True) from error
    for name, value in document.items():
        if name != "records" and (name not in _SCHEMA_MEMBERS or value is not None):
            message = f"{shown(name)!a} has no meaning here: there is no schema registry"
            raise ProblemError(422, message, code=_UNREADABLE)
    return records


def _read_large(frame: bytes, data_type: str) -> EmbeddedRecord:
    return read_v2_record(load_json(frame), data_type, is_large=True)


def _in_partition(record: EmbeddedRecord, partition: int) -> EmbeddedRecord:
    if record.partition not in (None, partition):
        raise EmbeddingError(f"a record names partition {record.partition}, the path {partition}")
    return record._replace(partition=partition)


def _entry(record: EmbeddedRecord, outcome: Written | Refused) -> dict[str, Any]:
    if isinstance(outcome, Refused):
        return {
            "partition": record.partition,
            "offset": None,
            "error_code": outcome.code,
            "error": shown(outcome.message),
        }
    return {
        "partition": outcome.partition,
        "offset": outcome.offset,
        "error_code": None,
        "error": None,
    }


_BASE64: Schema = {"type": ["string", "null"], "contentEncoding": "base64"}
_NOTHING: Schema = {"type": "null"}


def _body(data: Schema) -> Schema:
    record = object_of(
        optional={
            "key": data,
            "value": data,
            "partition": {"type": ["integer", "null"], "minimum": 0, "maximum": INT32_MAX},
            "headers": {
                "type": ["array", "null"],
                "items": object_of({"key": TEXT}, {"value": _BASE64}),
            },
            "timestamp": {"type": ["integer", "string", "null"], "minimum": 0},
        }
    )
    return object_of(
        {"records": array_of(record, minItems=1)},
        dict.fromkeys(_SCHEMA_MEMBERS, _NOTHING),
    )


_BODY = Body({V2_JSON: _body({}), V2_BINARY: _body(_BASE64)})
_ANSWER = Answer(
    "Where each record stands, in their order; an entry with an error_code is not written.",
    object_of(
        {
            "offsets": array_of(
                object_of(
                    {
                        "partition": {"type": ["integer", "null"]},
                        "offset": {"type": ["integer", "null"]},
                        "error_code": {"type": ["integer", "null"]},
                        "error": TEXT_OR_NULL,
                    }
                )
            ),
            "key_schema_id": _NOTHING,
            "value_schema_id": _NOTHING,
        }
    ),
    V2_ANSWERS,
)

OPERATIONS = (
    Operation(
        "produceV2",
        "POST",
        "/topics/{topic_name}",
        "Write records to a topic.",
        produce,
        {200: _ANSWER},
        body=_BODY,
    ),
    Operation(
        "produceToPartitionV2",
        "POST",
        "/topics/{topic_name}/partitions/{partition_id}",
        "Write records to a partition.",
        produce_to_partition,
        {200: _ANSWER},
        body=_BODY,
    ),
)
