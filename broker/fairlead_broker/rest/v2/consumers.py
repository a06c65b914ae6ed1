"""v2's consumer instances: `/consumers/{group}`.

An instance lives on the broker that created it, which `base_uri` names; other brokers forward
requests for it. Commits work as in Confluent's proxy: a client names the last offset that it has
processed, and the broker commits the next one.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from fairlead_broker.authorization import Operation as Right
from fairlead_broker.authorization import ResourceType
from fairlead_broker.limits import (
    REST_INSTANCE_NAME_LENGTH_MAX,
    REST_INSTANCE_PARTITIONS_MAX,
    REST_READ_BYTES,
    REST_READ_BYTES_MAX,
    REST_READ_HOP_MS,
    REST_READ_STEP_BYTES,
    REST_READ_TIMEOUT_MAX_MS,
    REST_READ_TIMEOUT_MS,
    TOPIC_PATTERN_BYTES_MAX,
    TOPIC_PATTERN_LENGTH_MAX,
)
from fairlead_broker.patterns import compile_pattern
from fairlead_broker.rest.documents.schemas import ID, OFFSET, TEXT, array_of, object_of
from fairlead_broker.rest.instances.group_member import Subscription
from fairlead_broker.rest.instances.group_offsets import Committed
from fairlead_broker.rest.instances.instance import RESETS, InstanceConfig
from fairlead_broker.rest.instances.registry import instance_exists
from fairlead_broker.rest.negotiation import accept_of, require_answer
from fairlead_broker.rest.offset_lookup import EARLIEST, LATEST
from fairlead_broker.rest.operations import (
    INT32_MAX,
    INT64_MAX,
    JSON,
    V2,
    V2_ANSWERS,
    V2_BINARY,
    V2_JSON,
    V2_SHORT,
    V2_TEXT,
    Answer,
    Body,
    Operation,
    Parameter,
)
from fairlead_broker.rest.problems import (
    INVALID_INSTANCE_CONFIG,
    RETRIABLE,
    RETRY_AFTER,
    UNKNOWN_PARTITION,
    ProblemError,
    shown,
    unknown_topic,
)
from fairlead_broker.rest.records.rendering import Form
from fairlead_broker.rest.v2.partition_records import (
    ANY_FORM,
    ISOLATION_LEVELS,
    RECORD,
    TYPE_OF_FORM,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from aiohttp import web

    from fairlead_broker.rest.instances.instance import ConsumerInstance
    from fairlead_broker.rest.instances.positions import TopicPartition
    from fairlead_broker.rest.operations import Schema
    from fairlead_broker.rest.request import RestHandler, RestRequest

    InstanceHandler = Callable[[RestRequest, ConsumerInstance], Awaitable[web.StreamResponse]]

_FORM_OF_FORMAT: Final = {"binary": Form.BINARY, "json": Form.JSON, "text": Form.STRING}
_ALIASES: Final = {
    "id": "name",
    "responseMinBytes": "fetch.min.bytes",
    "requestWaitMs": "consumer.request.timeout.ms",
    "enable.auto.commit": "auto.commit.enable",
}
"""Other names of members, which Confluent's older clients and Strimzi's bridge use."""
_MIN_BYTES_MAX: Final = 10_000_000
_NO_MIN_BYTES: Final = -1


async def create_instance(request: RestRequest) -> web.StreamResponse:
    """Create an instance on this broker."""
    group_id = request.path["consumer_group_id"]
    request.kafka.require(Right.READ, ResourceType.GROUP, group_id)
    asked = await request.document(INVALID_INSTANCE_CONFIG) or {}
    given = {_ALIASES.get(name, name): value for name, value in asked.items() if value is not None}
    config = InstanceConfig(
        form=_FORM_OF_FORMAT[given.get("format", "binary")],
        auto_offset_reset=given.get("auto.offset.reset", "latest"),
        auto_commit=str(given.get("auto.commit.enable", True)).lower() == "true",
        isolation_level=ISOLATION_LEVELS.index(given.get("isolation.level", ISOLATION_LEVELS[0])),
        min_bytes=min(max(_number(given, "fetch.min.bytes", 1), 1), REST_READ_STEP_BYTES),
        timeout_ms=_number(given, "consumer.request.timeout.ms", None),
    )
    name = given.get("name")
    if name is not None:
        request.instances.check_name(group_id, name)
        path = f"{_path(group_id, name)}/subscription"
        if await request.forwarding.exists_elsewhere(request, path, name):
            raise instance_exists(name)
    instance = request.instances.create(request.kafka, group_id, name, config)
    return request.answer(
        {
            "instance_id": instance.name,
            "base_uri": request.base_url + _path(group_id, instance.name),
        }
    )


def _path(group_id: str, name: str) -> str:
    return f"/consumers/{quote(group_id, safe='')}/instances/{quote(name, safe='')}"


def _number(given: dict[str, Any], name: str, default: Any) -> Any:
    return default if name not in given else int(given[name])


def of_instance(handle: InstanceHandler, *, is_read: bool = False) -> RestHandler:
    """Return a handler that first finds the instance of the path, here or on another broker."""

    async def find_and_handle(request: RestRequest) -> web.StreamResponse:
        instance = request.instances.find(
            request.kafka.principal,
            request.path["consumer_group_id"],
            request.path["instance_name"],
        )
        if instance is None:
            if is_read:
                timeout_ms = request.query["timeout"]
                _set_deadline(request, timeout_ms, REST_READ_TIMEOUT_MAX_MS)
            return await request.forwarding.forward(request)
        return await handle(request, instance)

    return find_and_handle


def in_turn(handle: InstanceHandler) -> RestHandler:
    """Return a handler that waits for its turn, and then uses the instance alone."""

    async def wait_and_handle(
        request: RestRequest, instance: ConsumerInstance
    ) -> web.StreamResponse:
        try:
            await instance.take_turn(request, request.deadline_s)
        except TimeoutError as error:
            message = "the requests before this one are not answered yet"
            raise ProblemError(503, message, code=RETRIABLE, headers=RETRY_AFTER) from error
        return await handle(request, instance)

    return of_instance(wait_and_handle)


async def delete_instance(request: RestRequest, instance: ConsumerInstance) -> web.StreamResponse:
    """End the instance; all records that it has read count as received."""
    await request.instances.remove(instance, confirm=True)
    return request.done()


async def subscribe(request: RestRequest, instance: ConsumerInstance) -> web.StreamResponse:
    """Read topics, or those that match a pattern, as a member of the group."""
    document = await request.document()
    pattern, topics = document.get("topic_pattern") or "", document.get("topics") or []
    for topic in topics:
        request.kafka.require(Right.READ, ResourceType.TOPIC, topic)
    if pattern:
        compile_pattern(
            pattern, length_max=TOPIC_PATTERN_LENGTH_MAX, bytes_max=TOPIC_PATTERN_BYTES_MAX
        )
    if pattern or topics:
        await instance.subscribe(Subscription(tuple(sorted(set(topics))), pattern))
    elif instance.subscription is not None:
        # An empty list unsubscribes, as in Kafka's own consumer.
        await instance.unsubscribe()
    return request.done()


async def get_subscription(request: RestRequest, instance: ConsumerInstance) -> web.StreamResponse:
    """List the subscribed topics; for a pattern, the topics that the instance reads now."""
    subscription = instance.subscription
    topics: Iterable[str] = ()
    if subscription is not None:
        topics = subscription.topics or {topic for topic, _ in instance.positions}
    return request.answer({"topics": sorted(topics)})


async def unsubscribe(request: RestRequest, instance: ConsumerInstance) -> web.StreamResponse:
    """Stop reading, and leave the group."""
    await instance.unsubscribe()
    return request.done()


async def assign(request: RestRequest, instance: ConsumerInstance) -> web.StreamResponse:
    """Read these partitions, whatever the other members of the group read."""
    document = await request.document()
    await instance.assign(set(_partitions(request, document["partitions"])))
    return request.done()


async def get_assignments(request: RestRequest, instance: ConsumerInstance) -> web.StreamResponse:
    """Tell which partitions the instance reads."""
    partitions = [
        {"topic": topic, "partition": index} for topic, index in sorted(instance.positions)
    ]
    return request.answer({"partitions": partitions})


async def seek(request: RestRequest, instance: ConsumerInstance) -> web.StreamResponse:
    """Read partitions from these offsets on."""
    entries = (await request.document())["offsets"]
    offsets = dict(
        zip(_partitions(request, entries), (each["offset"] for each in entries), strict=True)
    )
    await instance.seek(offsets, request.deadline_s)
    return request.done()


async def seek_to_beginning(request: RestRequest, instance: ConsumerInstance) -> web.StreamResponse:
    """Read partitions from their first records on."""
    return await _seek_to(request, instance, EARLIEST)


async def seek_to_end(request: RestRequest, instance: ConsumerInstance) -> web.StreamResponse:
    """Read what is written to partitions from now on."""
    return await _seek_to(request, instance, LATEST)


async def _seek_to(
    request: RestRequest, instance: ConsumerInstance, offset: int
) -> web.StreamResponse:
    document = await request.document()
    partitions = _partitions(request, document["partitions"])
    await instance.seek(dict.fromkeys(partitions, offset), request.deadline_s)
    return request.done()


async def commit(request: RestRequest, instance: ConsumerInstance) -> web.StreamResponse:
    """Commit what the client has processed; without a body, all that has been read."""
    document = await request.document()
    entries = None if document is None else document.get("offsets")
    offsets = None
    if entries is not None:
        committed = (Committed(each["offset"] + 1, each.get("metadata") or "") for each in entries)
        offsets = dict(zip(_partitions(request, entries), committed, strict=True))
    return _answer_offsets(request, await instance.commit(offsets, request.deadline_s))


async def get_committed(request: RestRequest, instance: ConsumerInstance) -> web.StreamResponse:
    """Return the offsets that the group has committed: the next ones to read."""
    document = await request.document()
    entries = [] if document is None else document["partitions"]
    if request.query["partitions"] is not None:
        entries += _read_partitions(request.query["partitions"])
    partitions = set(_partitions(request, entries))
    return _answer_offsets(request, await instance.committed(partitions, request.deadline_s))


def _answer_offsets(request: RestRequest, offsets: Any) -> web.StreamResponse:
    return request.answer(
        {
            "offsets": [
                {
                    "topic": topic,
                    "partition": index,
                    "offset": each.offset,
                    "metadata": each.metadata,
                }
                for (topic, index), each in sorted(offsets.items())
            ]
        }
    )


async def read_records(request: RestRequest, instance: ConsumerInstance) -> web.StreamResponse:
    """Answer with records of all partitions that the instance reads, by the deadline."""
    config = instance.config
    offered = (TYPE_OF_FORM[config.form], *ANY_FORM)
    request.answer_type = require_answer(accept_of(request.http), offered)
    records: list[bytes] = []
    # A HEAD request would read records that the client never sees.
    if request.http.method != "HEAD":
        timeout_ms = request.query["timeout"]
        if config.timeout_ms is not None:
            given = config.timeout_ms if timeout_ms is None else timeout_ms
            timeout_ms = min(given, config.timeout_ms)
        deadline_s = _set_deadline(request, timeout_ms, REST_READ_TIMEOUT_MS)
        bytes_max = min(request.query["max_bytes"], REST_READ_BYTES_MAX)
        # If its turn does not come in time, the answer is empty: other requests use the instance.
        with suppress(TimeoutError):
            await instance.take_turn(request, deadline_s, is_read=True)
            records = await instance.read(request, deadline_s, bytes_max)
    request.broker.metrics.rest.records_out += len(records)
    return request.encoded(b"[" + b",".join(records) + b"]", headers={"Cache-Control": "no-store"})


def _set_deadline(request: RestRequest, timeout_ms: int | None, default_ms: int) -> float:
    """Return until when to wait; the requests on the way get at least REST_READ_HOP_MS."""
    chosen_ms = min(default_ms if timeout_ms is None else timeout_ms, REST_READ_TIMEOUT_MAX_MS)
    now_s = asyncio.get_running_loop().time()
    request.deadline_s = now_s + max(chosen_ms, REST_READ_HOP_MS) / 1000
    return now_s + chosen_ms / 1000


def _partitions(request: RestRequest, entries: Iterable[dict[str, Any]]) -> list[TopicPartition]:
    """Return the partitions that a body names; ProblemError 404 if one does not exist."""
    image = request.broker.image
    found = []
    for entry in entries:
        topic, index = entry["topic"], entry["partition"]
        request.kafka.require(Right.DESCRIBE, ResourceType.TOPIC, topic)
        known = image.topic(topic)
        if known is None:
            raise unknown_topic(topic)
        if index >= len(known.partitions):
            message = f"there is no partition {index} of {topic}"
            raise ProblemError(404, message, code=UNKNOWN_PARTITION)
        found.append((topic, index))
    return found


def _read_partitions(text: str) -> list[dict[str, Any]]:
    """Read `topic-0,topic-1`, as Kafka writes partitions; ProblemError 400."""
    entries = []
    for part in text.split(","):
        topic, _, index = part.rpartition("-")
        if not topic or not (index.isascii() and index.isdecimal() and len(index) <= 9):
            raise ProblemError(400, f"partitions={shown(text)}: such as topic-0,topic-1")
        entries.append({"topic": topic, "partition": int(index)})
    return entries


def _number_or_text(lowest: int, highest: int, pattern: str) -> Schema:
    return {
        "anyOf": [
            {"type": "integer", "minimum": lowest, "maximum": highest},
            {"type": "string", "pattern": pattern},
            {"type": "null"},
        ]
    }


def _one_of(*names: str) -> Schema:
    return {"enum": [*names, None]}


# Clients take `.` and `..` out of a path before they send it (RFC 3986, section 5.2.4), so nobody
# would find an instance of that name.
_NAME: Schema = {
    "type": ["string", "null"],
    "pattern": f"^(?![.]{{1,2}}$)[A-Za-z0-9._~:@+-]{{1,{REST_INSTANCE_NAME_LENGTH_MAX}}}$",
}
_FLAG: Schema = {"enum": [True, False, "true", "false", None]}
_MIN_BYTES = _number_or_text(_NO_MIN_BYTES, _MIN_BYTES_MAX, "^(-1|[0-9]{1,7})$")
_TIMEOUT = _number_or_text(0, INT32_MAX, "^[0-9]{1,9}$")
_CONFIG = object_of(
    optional={
        "name": _NAME,
        "id": _NAME,
        "format": _one_of(*_FORM_OF_FORMAT),
        "auto.offset.reset": _one_of(*RESETS),
        "auto.commit.enable": _FLAG,
        "enable.auto.commit": _FLAG,
        "isolation.level": _one_of(*ISOLATION_LEVELS),
        "fetch.min.bytes": _MIN_BYTES,
        "responseMinBytes": _MIN_BYTES,
        "consumer.request.timeout.ms": _TIMEOUT,
        "requestWaitMs": _TIMEOUT,
    }
)
_TOPIC: Schema = {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,249}$"}
_NAMED: Final = "[A-Za-z0-9._-]{1,249}-[0-9]{1,9}"
_PARTITION = {"topic": _TOPIC, "partition": ID}
_MANY = {"maxItems": REST_INSTANCE_PARTITIONS_MAX}
_PARTITIONS = object_of({"partitions": array_of(object_of(_PARTITION), **_MANY)})
_POSITION: Schema = {"type": "integer", "minimum": 0, "maximum": INT64_MAX - 1}
_METADATA: Schema = {"type": ["string", "null"]}
_NULL: Schema = {"type": "null"}
_SUBSCRIPTION: Schema = {
    "anyOf": [
        object_of({"topics": array_of(_TOPIC, **_MANY)}, {"topic_pattern": _NULL}),
        object_of(
            {
                "topic_pattern": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": TOPIC_PATTERN_LENGTH_MAX,
                }
            },
            {"topics": _NULL},
        ),
    ]
}
_TYPES: Final = (V2, V2_SHORT, JSON)
_OFFSETS = Answer(
    "Offsets that are committed: the next ones to read.",
    object_of(
        {
            "offsets": array_of(
                object_of({"topic": TEXT, "partition": ID, "offset": OFFSET, "metadata": TEXT})
            )
        }
    ),
    V2_ANSWERS,
)
_DONE: Final = {204: Answer("It is done.")}
_GROUP: Final = "/consumers/{consumer_group_id}"
_INSTANCE: Final = f"{_GROUP}/instances/{{instance_name}}"


def _body(schema: Schema, *, is_required: bool = True) -> Body:
    return Body(dict.fromkeys(_TYPES, schema), is_required=is_required)


OPERATIONS = (
    Operation(
        "createConsumerInstance",
        "POST",
        _GROUP,
        "Make a consumer in a group. It is at the broker that base_uri names.",
        create_instance,
        {
            200: Answer(
                "Its name and its address.",
                object_of({"instance_id": TEXT, "base_uri": TEXT}),
                V2_ANSWERS,
            )
        },
        body=_body(_CONFIG, is_required=False),
        refusals=(409,),
    ),
    Operation(
        "deleteConsumerInstance",
        "DELETE",
        _INSTANCE,
        "End a consumer; it leaves its group.",
        in_turn(delete_instance),
        _DONE,
    ),
    Operation(
        "subscribe",
        "POST",
        f"{_INSTANCE}/subscription",
        "Read topics, or those that match a regular expression (RE2) as a whole.",
        in_turn(subscribe),
        _DONE,
        body=_body(_SUBSCRIPTION),
        refusals=(409,),
    ),
    Operation(
        "getSubscription",
        "GET",
        f"{_INSTANCE}/subscription",
        "Tell what a consumer is subscribed to.",
        of_instance(get_subscription),
        {200: Answer("The topics.", object_of({"topics": array_of(TEXT)}), V2_ANSWERS)},
    ),
    Operation(
        "unsubscribe",
        "DELETE",
        f"{_INSTANCE}/subscription",
        "Read nothing more, and leave the group.",
        in_turn(unsubscribe),
        _DONE,
    ),
    Operation(
        "assign",
        "POST",
        f"{_INSTANCE}/assignments",
        "Read these partitions, without being a member of the group.",
        in_turn(assign),
        _DONE,
        body=_body(_PARTITIONS),
        refusals=(409,),
    ),
    Operation(
        "getAssignments",
        "GET",
        f"{_INSTANCE}/assignments",
        "Tell which partitions a consumer reads.",
        of_instance(get_assignments),
        {
            200: Answer(
                "The partitions.",
                object_of({"partitions": array_of(object_of({"topic": TEXT, "partition": ID}))}),
                V2_ANSWERS,
            )
        },
    ),
    Operation(
        "seek",
        "POST",
        f"{_INSTANCE}/positions",
        "Read partitions from these offsets on.",
        in_turn(seek),
        _DONE,
        body=_body(
            object_of(
                {"offsets": array_of(object_of({**_PARTITION, "offset": _POSITION}), **_MANY)}
            )
        ),
        refusals=(409,),
    ),
    Operation(
        "seekToBeginning",
        "POST",
        f"{_INSTANCE}/positions/beginning",
        "Read partitions from their beginning on.",
        in_turn(seek_to_beginning),
        _DONE,
        body=_body(_PARTITIONS),
        refusals=(409,),
    ),
    Operation(
        "seekToEnd",
        "POST",
        f"{_INSTANCE}/positions/end",
        "Read partitions from their end on.",
        in_turn(seek_to_end),
        _DONE,
        body=_body(_PARTITIONS),
        refusals=(409,),
    ),
    Operation(
        "commitOffsets",
        "POST",
        f"{_INSTANCE}/offsets",
        "Commit the offsets behind these, which the client has dealt with; without a body all that "
        "it has read.",
        in_turn(commit),
        {200: _OFFSETS},
        body=_body(
            object_of(
                optional={
                    "offsets": {
                        **array_of(
                            object_of({**_PARTITION, "offset": _POSITION}, {"metadata": _METADATA}),
                            **_MANY,
                        ),
                        "type": ["array", "null"],
                    }
                }
            ),
            is_required=False,
        ),
        refusals=(409,),
    ),
    Operation(
        "getCommittedOffsets",
        "GET",
        f"{_INSTANCE}/offsets",
        "Tell what the group has committed: of these partitions, or of all that the consumer "
        "reads. A body says the same as the query.",
        of_instance(get_committed),
        {200: _OFFSETS},
        query=(
            Parameter(
                "partitions",
                {"type": "string", "pattern": f"^{_NAMED}(,{_NAMED})*$"},
                "Partitions as Kafka writes them, such as `topic-0,topic-1`.",
            ),
        ),
        body=_body(_PARTITIONS, is_required=False),
    ),
    Operation(
        "readConsumerRecords",
        "GET",
        f"{_INSTANCE}/records",
        "Read records of all partitions that a consumer has, by the deadline those that are there.",
        of_instance(read_records, is_read=True),
        {
            200: Answer(
                "Records, perhaps none.",
                array_of(RECORD),
                (V2_BINARY, V2_JSON, V2_TEXT, *ANY_FORM),
            )
        },
        query=(
            Parameter(
                "timeout",
                {"type": "integer", "minimum": 0, "maximum": INT32_MAX},
                "Milliseconds to wait for records; consumer.request.timeout.ms of the consumer and "
                f"{REST_READ_TIMEOUT_MAX_MS} at most. 0 answers at once.",
            ),
            Parameter(
                "max_bytes",
                {"type": "integer", "minimum": 1, "maximum": INT32_MAX},
                f"Size of the answer, {REST_READ_BYTES_MAX} at most; a larger record comes alone.",
                REST_READ_BYTES,
            ),
        ),
        refusals=(409,),
    ),
)
