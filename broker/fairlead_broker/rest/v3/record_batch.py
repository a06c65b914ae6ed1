"""`POST …/topics/{topic}/records:batch`: several records in one document, each with an id.

The status is 207 if the document can be read. The outcome of each record has its id, among the
successes or the failures. A refused record does not stop the others.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from fairlead_broker.limits import REST_BATCH_RECORDS_MAX
from fairlead_broker.rest.documents.json_text import SMALL_BYTES
from fairlead_broker.rest.documents.schemas import INT, TEXT, array_of, object_of
from fairlead_broker.rest.operations import JSON, Answer, Body, Operation
from fairlead_broker.rest.problems import ProblemError, shown
from fairlead_broker.rest.producing import Producer, Refused, require_topic
from fairlead_broker.rest.records.embedding import EmbeddingError, read_v3_record
from fairlead_broker.rest.v3.records import PLACE, place_of

if TYPE_CHECKING:
    from aiohttp import web

    from fairlead_broker.rest.operations import Schema
    from fairlead_broker.rest.records.embedding import EmbeddedRecord
    from fairlead_broker.rest.request import RestRequest

_BAD_BATCH: Final = 42208
_MULTI_STATUS: Final = 207


async def produce_batch(request: RestRequest) -> web.StreamResponse:
    """Write the records of a document."""
    topic = request.path["topic_name"]
    request.body_type()
    require_topic(request.kafka, topic)
    entries = (await request.document(_BAD_BATCH, has_records=True))["entries"]
    request.begin_time()
    counts = Counter(entry["id"] for entry in entries)
    repeated = next((entry_id for entry_id, count in counts.items() if count > 1), None)
    if repeated is not None:
        raise ProblemError(422, f"two entries have the id {repeated}", code=_BAD_BATCH)
    records: dict[str, EmbeddedRecord] = {}
    failures = []
    for entry in entries:
        entry_id = entry.pop("id")
        try:
            if request.document_bytes > SMALL_BYTES:
                read = await request.slices.aside(read_v3_record, entry, is_large=True)
            else:
                read = read_v3_record(entry)
            records[entry_id] = read
        except EmbeddingError as error:
            failures.append(_failure(entry_id, error.code, error.message))
        await request.slices.rest()
    producer = Producer(request.kafka, topic, request.slices)
    outcomes = await producer.write(list(records.values()), request.deadline_s)
    successes = []
    for (entry_id, record), outcome in zip(records.items(), outcomes, strict=True):
        if isinstance(outcome, Refused):
            failures.append(_failure(entry_id, outcome.code, outcome.message))
        else:
            place = place_of(record, outcome, request.broker.cluster_id, topic)
            successes.append({"id": entry_id, **place})
    return request.answer({"successes": successes, "failures": failures}, status=_MULTI_STATUS)


def _failure(entry_id: str, code: int, message: str) -> dict[str, Any]:
    return {"id": entry_id, "error_code": code, "message": shown(message)}


_ID: Schema = {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,80}$"}
_ENTRY: Schema = {
    "type": "object",
    "description": "A record as of produceRecords, with an id that no other entry has.",
    "properties": {"id": _ID},
    "required": ["id"],
}

OPERATIONS = (
    Operation(
        "produceBatch",
        "POST",
        "/v3/clusters/{cluster_id}/topics/{topic_name}/records:batch",
        "Write some records to a topic. Each is told of under its id, whatever became of it.",
        produce_batch,
        {
            _MULTI_STATUS: Answer(
                "What became of each record.",
                object_of(
                    {
                        "successes": array_of(object_of({"id": TEXT, **PLACE})),
                        "failures": array_of(
                            object_of({"id": TEXT, "error_code": INT, "message": TEXT})
                        ),
                    }
                ),
            )
        },
        body=Body(
            {
                JSON: object_of(
                    {"entries": array_of(_ENTRY, minItems=1, maxItems=REST_BATCH_RECORDS_MAX)}
                )
            },
            example={"entries": [{"id": "1", "value": {"type": "JSON", "data": 1}}]},
        ),
    ),
)
