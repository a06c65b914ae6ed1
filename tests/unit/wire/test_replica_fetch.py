"""The fetch between brokers that is laid out by hand, against the generated messages."""

from collections.abc import Sequence
from typing import Any, cast

import pytest

from fairlead_wire.errors import LocalProtocolError, RemoteProtocolError
from fairlead_wire.header import encode_request_frame, encode_response_frame
from fairlead_wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ReplicaState,
)
from fairlead_wire.replica_fetch import VERSION, Position, decode_reply, encode_fetch

FETCH = FetchRequest.API_KEY
TOPICS = [b"first topic's id", b"and a second one"]
SESSION = 77_000_001
FORGOTTEN = [(TOPICS[0], 3), (TOPICS[1], 0)]


def positions(count: int) -> list[Position]:
    return [
        (index, 7, (1 << 40) + index, 6 - index % 8, (1 << 39) - index, 1 << 20)
        for index in range(count)
    ]


@pytest.mark.parametrize("forgotten", [[], FORGOTTEN, FORGOTTEN * 100])
@pytest.mark.parametrize("counts", [[], [1], [2, 1], [200], [126, 127]])
def test_a_fetch_has_the_bytes_of_the_generated_message(
    counts: Sequence[int], forgotten: list[tuple[bytes, int]]
) -> None:
    named = {topic: positions(count) for topic, count in zip(TOPICS, counts, strict=False)}
    frame = encode_fetch(
        correlation_id=5,
        client_id=b"replica-12",
        replica_id=12,
        replica_epoch=1 << 33,
        max_wait_ms=500,
        max_bytes=10 << 20,
        session_id=SESSION,
        session_epoch=9,
        topics=named,
        forgotten=forgotten,
    )
    message = FetchRequest(
        replica_state=ReplicaState(12, 1 << 33),
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=10 << 20,
        session_id=SESSION,
        session_epoch=9,
        topics=[
            FetchTopic(
                topic_id=topic,
                partitions=[
                    FetchPartition(
                        index,
                        current_leader_epoch=leader_epoch,
                        fetch_offset=offset,
                        last_fetched_epoch=last_epoch,
                        log_start_offset=log_start,
                        partition_max_bytes=max_bytes,
                    )
                    for index, leader_epoch, offset, last_epoch, log_start, max_bytes in each
                ],
            )
            for topic, each in named.items()
        ],
        forgotten_topics_data=[
            ForgottenTopic(topic_id=topic, partitions=[index]) for topic, index in forgotten
        ],
    )
    expected = encode_request_frame(FETCH, VERSION, 5, "replica-12", message)
    assert frame == b"".join(expected)  # type: ignore[arg-type]


def test_a_fetch_of_what_cannot_be_said_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="cannot be encoded"):
        encode_fetch(
            correlation_id=1,
            client_id=b"c",
            replica_id=1 << 31,
            replica_epoch=1,
            max_wait_ms=0,
            max_bytes=0,
            session_id=0,
            session_epoch=0,
            topics={},
            forgotten=[],
        )


def answer(index: int = 0, **fields: Any) -> PartitionData:
    usual: dict[str, Any] = {
        "partition_index": index,
        "high_watermark": 1 << 40,
        "log_start_offset": 3,
        "records": b"r" * 10,
    }
    return PartitionData(**(usual | fields))


def topic_of(*answers: PartitionData, topic_id: bytes = TOPICS[0]) -> FetchableTopicResponse:
    return FetchableTopicResponse(topic_id=topic_id, partitions=list(answers))


REPLIES = {
    "nothing new": FetchResponse(session_id=SESSION),
    "an error": FetchResponse(error_code=70),
    "one": FetchResponse(session_id=SESSION, responses=[topic_of(answer())]),
    "long records": FetchResponse(responses=[topic_of(answer(records=b"r" * 40_000))]),
    "no records": FetchResponse(responses=[topic_of(answer(records=b""), answer(1, records=None))]),
    "a failure": FetchResponse(
        responses=[topic_of(answer(error_code=6, aborted_transactions=None, high_watermark=-1))]
    ),
    "many": FetchResponse(
        session_id=SESSION,
        responses=[
            topic_of(*(answer(index) for index in range(300))),
            topic_of(answer(4), topic_id=TOPICS[1]),
        ],
    ),
    "a divergence": FetchResponse(
        responses=[topic_of(answer(), answer(1, diverging_epoch=EpochEndOffset(4, 90)))]
    ),
    "aborted transactions": FetchResponse(
        responses=[topic_of(answer(aborted_transactions=[AbortedTransaction(1, 2)]))]
    ),
    "another leader": FetchResponse(
        responses=[topic_of(answer(current_leader=LeaderIdAndEpoch(2, 8)))],
        node_endpoints=[NodeEndpoint(2, "elsewhere", 9092)],
    ),
}


def framed(message: FetchResponse) -> memoryview:
    segments = encode_response_frame(FETCH, VERSION, 5, message)
    return memoryview(b"".join(segments))[4:]  # type: ignore[arg-type]


def told(message: FetchResponse) -> list[tuple[Any, ...]]:
    """The same as `FetchedRange`, of a message."""
    return [
        (
            (topic.topic_id, data.partition_index),
            data.error_code,
            data.high_watermark,
            data.log_start_offset,
            bytes(cast("bytes", data.records or b"")),
            -1 if data.diverging_epoch is None else data.diverging_epoch.epoch,
            -1 if data.diverging_epoch is None else data.diverging_epoch.end_offset,
        )
        for topic in message.responses
        for data in topic.partitions
    ]


@pytest.mark.parametrize("name", REPLIES)
def test_an_answer_says_what_the_generated_decoder_reads(name: str) -> None:
    message = REPLIES[name]
    error_code, session_id, ranges = decode_reply(framed(message))
    assert (error_code, session_id) == (message.error_code, message.session_id)
    assert [(*each[:4], bytes(each.records), *each[5:]) for each in ranges] == told(message)


@pytest.mark.parametrize("name", [name for name in REPLIES if name != "long records"])
def test_an_answer_that_is_cut_off_or_too_long_is_refused(name: str) -> None:
    frame = framed(REPLIES[name])
    for end in range(min(len(frame), 200)):
        with pytest.raises(RemoteProtocolError):
            decode_reply(frame[:end])
    with pytest.raises(RemoteProtocolError):
        decode_reply(memoryview(bytes(frame) + b"\0"))


def test_an_answer_with_any_byte_changed_says_what_the_generated_decoder_reads() -> None:
    """Or both refuse it: no bytes are understood differently by the two."""
    from fairlead_wire import replica_fetch

    frame = framed(FetchResponse(session_id=SESSION, responses=[topic_of(answer(), answer(1))]))
    for position in range(len(frame)):
        for value in (0, 1, 2, 3, 37, 127, 128, 129, 255):
            changed = bytearray(frame)
            changed[position] = value
            assert outcome(decode_reply, changed) == outcome(replica_fetch._decode_any, changed)


def outcome(decode: Any, frame: bytearray) -> Any:
    try:
        error_code, session_id, ranges = decode(memoryview(frame))
    except RemoteProtocolError:
        return "refused"
    return error_code, session_id, [(*each[:4], bytes(each.records), *each[5:]) for each in ranges]
