"""A seeded fuzzer over a live broker: whatever the bytes, a reply or a closed connection.

After each burst another client is served as if nothing had happened, and in the end nothing is
held: no memory, no connection, no parked request, no exception that escaped to the loop.
"""

import contextlib
import gc
import logging
import random
import resource
import socket
import struct
from typing import Any

import pytest
from hostile_bytes import mutate, provoke
from waiting import DEADLINE_S

from fairlead_broker.limits import PEER_LOG_WINDOW_S
from fairlead_wire.errors import RemoteProtocolError
from fairlead_wire.framing import FrameDecoder
from fairlead_wire.header import encode_request_frame
from fairlead_wire.messages.api_versions import ApiVersionsRequest
from fairlead_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from fairlead_wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from fairlead_wire.records import Record, encode_batch

SEEDS = range(8)
CASES_PER_SEED = 120
MEMORY_GROWTH_MAX = 96 << 20


def valid_frames(chance: random.Random) -> bytes:
    """One request as a well-behaved client would send it."""
    message: Any
    match chance.randrange(4):
        case 0:
            message, version = ApiVersionsRequest("fuzz", "1"), chance.randrange(5)
        case 1:
            message, version = fetch_request(chance), chance.randrange(4, 18)
        case _:
            message, version = produce_request(chance), chance.randrange(3, 10)
    segments = encode_request_frame(
        message.API_KEY, version, chance.randrange(1 << 31), "fuzzer", message
    )
    return b"".join(bytes(segment) for segment in segments)  # type: ignore[arg-type]


def produce_request(chance: random.Random) -> ProduceRequest:
    values = [chance.randbytes(chance.choice((0, 10, 3000))) for _ in range(chance.randrange(1, 5))]
    records = encode_batch([Record(i, 1_700_000_000_000, b"k", v) for i, v in enumerate(values)])
    data = [PartitionProduceData(index, records) for index in range(chance.randrange(3))]
    acks = chance.choice((-1, 0, 1, 1, 1))
    return ProduceRequest(None, acks, 100, [TopicProduceData("t", partition_data=data)])


def fetch_request(chance: random.Random) -> FetchRequest:
    partitions = [
        FetchPartition(index, fetch_offset=chance.randrange(4), partition_max_bytes=1 << 20)
        for index in range(chance.randrange(3))
    ]
    return FetchRequest(
        max_wait_ms=chance.choice((0, 1, 5)),
        min_bytes=1,
        session_id=0,
        session_epoch=chance.choice((-1, 0)),
        topics=[FetchTopic("t", partitions=partitions)],
        forgotten_topics_data=[],
    )


def hostile_bytes(chance: random.Random) -> bytes:
    """Good requests, then a damaged one, perhaps more behind it."""
    pieces = [valid_frames(chance) for _ in range(chance.randrange(3))]
    pieces.append(mutate(valid_frames(chance), chance))
    pieces += [valid_frames(chance) for _ in range(chance.randrange(2))]
    return b"".join(pieces)


def resident_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.mark.parametrize("seed", SEEDS)
def test_hostile_bytes_are_answered_or_cut_off(
    live: Any, seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "fairlead_broker")
    for _ in range(PEER_LOG_WINDOW_S):
        live.run(live.server.peer_log.tick)
    chance = random.Random(seed)
    gc.collect()
    before = resident_bytes()
    answered = 0
    for _ in range(CASES_PER_SEED):
        answered += provoke(live.port, hostile_bytes(chance)) > 0
    assert answered > CASES_PER_SEED // 10, "good requests before a bad one are answered"
    with_client(live)
    live.eventually(lambda: not live.server.connections)
    live.eventually(lambda: len(live.broker.fetch_purgatory) == 0)
    assert live.run(lambda: live.server.memory.used_bytes) == 0
    assert live.run(lambda: live.server.memory.waiting_count) == 0
    assert live.errors == []
    assert [record for record in caplog.records if record.exc_info] == []
    assert caplog.records, "each cut-off is logged with its reason"
    assert resident_bytes() - before < MEMORY_GROWTH_MAX


def with_client(live: Any) -> None:
    """A client that behaves is served."""
    with socket.create_connection(("127.0.0.1", live.port), timeout=DEADLINE_S) as sock:
        segments = encode_request_frame(18, 0, 1, "good", ApiVersionsRequest())
        sock.sendall(b"".join(bytes(segment) for segment in segments))  # type: ignore[arg-type]
        (size,) = struct.unpack(">i", sock.recv(4, socket.MSG_WAITALL))
        assert len(sock.recv(size, socket.MSG_WAITALL)) == size


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(struct.pack(">i", -1), id="negative length"),
        pytest.param(struct.pack(">i", 7) + bytes(7), id="too short for a header"),
        pytest.param(struct.pack(">i", (100 << 20) + 1), id="too long"),
        pytest.param(struct.pack(">ihhih", 10, 200, 0, 1, -1), id="unknown API key"),
        pytest.param(struct.pack(">ihhih", 10, -1, 0, 1, -1), id="negative API key"),
        pytest.param(struct.pack(">ihhih", 10, 0, 2, 1, -1), id="Produce 2, which is advertised"),
        pytest.param(struct.pack(">ihhih", 10, 1, 99, 1, -1), id="unknown version of Fetch"),
        pytest.param(struct.pack(">ihhih", 10, 0, 7, 1, -1), id="no body"),
        pytest.param(struct.pack(">ihhih", 10, 0, 7, 1, 500), id="client id beyond the frame"),
        pytest.param(
            struct.pack(">ihhih", 12, 18, 3, 1, 2) + b"\xff\xfe", id="client id that isn't UTF-8"
        ),
        pytest.param(
            struct.pack(">ihhihhhii", 22, 0, 7, 1, -1, -1, 1, 1000, 0x7FFFFFFF),
            id="two billion topics",
        ),
        pytest.param(struct.pack(">ihhihBB", 12, 18, 3, 1, -1, 0xFF, 0xFF), id="endless tag count"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", id="HTTP"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(32), id="TLS hello"),
    ],
)
def test_known_bad_frames_close_the_connection(live: Any, frame: bytes) -> None:
    refused = live.broker.metrics.protocol_errors
    with socket.create_connection(("127.0.0.1", live.port), timeout=DEADLINE_S) as sock:
        sock.sendall(frame)
        with contextlib.suppress(ConnectionResetError):
            assert sock.recv(1) == b""
    live.eventually(lambda: live.broker.metrics.protocol_errors == refused + 1)
    with_client(live)


@pytest.mark.parametrize("seed", range(20))
def test_the_frame_decoder_holds_what_it_was_fed_and_no_more(seed: int) -> None:
    chance = random.Random(seed)
    decoder = FrameDecoder(max_size=10_000)
    stream = b"".join(
        valid_frames(chance) if chance.random() < 0.9 else hostile_bytes(chance) for _ in range(20)
    )
    frames = 0
    with contextlib.suppress(RemoteProtocolError):
        while stream:
            size = chance.choice((1, 3, 100, 5000))
            decoder.feed(stream[:size])
            stream = stream[size:]
            for frame in decoder.frames():
                assert len(frame) <= 10_000
                frames += 1
            assert decoder.buffered_size <= 10_004 + 5000
    assert frames > 0


def test_a_session_of_many_forgotten_topics_is_harmless(live: Any) -> None:
    request = FetchRequest(
        session_epoch=0,
        forgotten_topics_data=[ForgottenTopic("t", partitions=list(range(5000)))],
    )
    segments = encode_request_frame(1, 12, 1, "fuzz", request)
    data = b"".join(bytes(segment) for segment in segments)  # type: ignore[arg-type]
    assert provoke(live.port, data) > 0
    with_client(live)
