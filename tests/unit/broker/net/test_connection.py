"""What a peer sees of one connection: frames in any pieces, replies in order, bounds that hold."""

import socket
import struct
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import pytest
from live_broker import FrameClient, LiveBroker, batch, has_no_connection_left
from waiting import wait_until

from fairlead_broker.limits import (
    FRAME_DEADLINE_S,
    IDLE_CONNECTION_S,
    PARKED_WAIT_MAX_MS,
    REQUESTS_IN_FLIGHT_MAX,
    UNSENT_BYTES_MAX,
    WRITE_STALL_S,
)
from fairlead_broker.net.connection import Connection
from fairlead_broker.net.hang_up import has_hung_up
from fairlead_broker.net.server import idle_limit_s
from fairlead_model.configs.config_values import validate_broker_config
from fairlead_wire.messages.api_versions import ApiVersionsRequest
from fairlead_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from fairlead_wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

Connect = Callable[..., FrameClient]


def produce(*values: bytes, acks: int = 1, topic: str = "t", timeout_ms: int = 5000) -> Any:
    data = [PartitionProduceData(0, batch(*values))]
    return ProduceRequest(None, acks, timeout_ms, [TopicProduceData(topic, partition_data=data)])


def fetch(offset: int, *, max_wait_ms: int = 0, max_bytes: int = 1 << 26) -> Any:
    partition = FetchPartition(0, fetch_offset=offset, partition_max_bytes=max_bytes)
    return FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=1, topics=[FetchTopic("t", partitions=[partition])]
    )


def offsets(client: FrameClient, count: int, version: int = 7) -> list[tuple[int, int]]:
    """(correlation id, base offset) of the next produce replies."""
    answered = []
    for _ in range(count):
        correlation_id, response = client.receive(0, version)
        slot = response.responses[0].partition_responses[0]
        assert slot.error_code == 0
        answered.append((correlation_id, slot.base_offset))
    return answered


def connections(live: LiveBroker) -> list[Connection]:
    return list(live.server.connections)


def test_many_frames_of_one_write_are_answered_in_order(live: LiveBroker, connect: Connect) -> None:
    live.add_partition("t")
    client = connect()
    frames = b"".join(client.encode(produce(b"v"), 7) for _ in range(500))
    client.socket.sendall(frames)
    assert offsets(client, 500) == [(i + 1, i) for i in range(500)]


@pytest.mark.parametrize("piece", [1, 3, 5000])
def test_frames_may_arrive_in_any_pieces(live: LiveBroker, connect: Connect, piece: int) -> None:
    live.add_partition("t")
    client = connect()
    values = [b"a", b"b" * 3000, b"c" * 20_000, b"d"]
    if piece == 1:
        values = [b"a", b"b" * 300]
    frames = b"".join(client.encode(produce(value), 7) for value in values)
    for start in range(0, len(frames), piece):
        client.socket.sendall(frames[start : start + piece])
    assert offsets(client, len(values)) == [(i + 1, i) for i in range(len(values))]


def test_large_frames_between_small_ones(live: LiveBroker, connect: Connect) -> None:
    partition = live.add_partition("t")
    client = connect()
    sizes = [1, 900_000, 10, 70_000, 1_000_000, 1_000_000, 2, 66_000, 300_000] * 2
    values = [bytes([i]) * size for i, size in enumerate(sizes)]
    client.socket.sendall(b"".join(client.encode(produce(value), 7) for value in values))
    assert offsets(client, len(sizes)) == [(i + 1, i) for i in range(len(sizes))]
    assert live.run(lambda: live.server.memory.used_bytes) == 0
    # What was received in place is what is in the log: read it back.
    records = b"".join(
        bytes(connect().call(fetch(i, max_bytes=1), 12).responses[0].partitions[0].records or b"")
        for i in range(len(sizes))
    )
    assert all(value in records for value in values)
    assert partition.log_end_offset == len(sizes)


def test_a_frame_beyond_one_buffer_grows_with_its_bytes(
    make_live: Callable[..., LiveBroker],
) -> None:
    live = make_live()
    with FrameClient(live.port) as client:
        size = 30 << 20
        client.socket.sendall(struct.pack(">i", size))
        client.socket.sendall(bytes(100_000))
        live.eventually(lambda: live.server.memory.used_bytes > 0)
        assert live.run(lambda: live.server.memory.used_bytes) < 4 << 20
        # API key 0, version 0 is what zeros say: refused once the frame is complete.
        rest = bytes(1 << 20)
        for _ in range(size // len(rest)):
            client.socket.sendall(rest)
        assert client.is_closed_by_peer()
    live.eventually(lambda: live.server.memory.used_bytes == 0)


def test_a_parked_request_holds_back_later_replies_of_its_connection_only(
    live: LiveBroker, connect: Connect
) -> None:
    live.add_partition("t")
    waiting, other = connect(), connect()
    waiting.send(fetch(0, max_wait_ms=8000), 12)
    waiting.send(ApiVersionsRequest("a", "1"), 3)
    live.eventually(lambda: len(live.broker.fetch_purgatory) == 1)
    waiting.socket.settimeout(0.1)
    with pytest.raises(TimeoutError):
        waiting.socket.recv(1)
    waiting.socket.settimeout(8)
    other.call(produce(b"now"), 7)
    correlation_id, response = waiting.receive(1, 12)
    assert correlation_id == 1
    assert response.responses[0].partitions[0].records
    assert waiting.receive(18, 3)[0] == 2


def test_parked_requests_beyond_the_limit_wait_unread(live: LiveBroker, connect: Connect) -> None:
    live.add_partition("t")
    client = connect()
    count = REQUESTS_IN_FLIGHT_MAX + 25
    client.socket.sendall(
        b"".join(client.encode(fetch(0, max_wait_ms=60_000), 12) for _ in range(count))
    )
    live.eventually(lambda: len(live.broker.fetch_purgatory) == REQUESTS_IN_FLIGHT_MAX)
    assert live.broker.metrics.requests[1] == REQUESTS_IN_FLIGHT_MAX
    connect().call(produce(b"v"), 7)
    assert [client.receive(1, 12)[0] for _ in range(count)] == list(range(1, count + 1))
    live.eventually(lambda: live.server.memory.used_bytes == 0)


def test_a_closed_connection_leaves_nothing_parked(live: LiveBroker, connect: Connect) -> None:
    live.add_partition("t")
    client = connect()
    for _ in range(5):
        client.send(fetch(0, max_wait_ms=60_000), 12)
    live.eventually(lambda: len(live.broker.fetch_purgatory) == 5)
    client.socket.close()
    live.eventually(lambda: len(live.broker.fetch_purgatory) == 0)
    live.eventually(lambda: not live.server.connections)


def test_a_peer_that_hangs_up_while_it_is_not_read_leaves_nothing_parked(
    live: LiveBroker, connect: Connect
) -> None:
    live.add_partition("t")
    client = connect()
    for _ in range(REQUESTS_IN_FLIGHT_MAX):
        client.send(fetch(0, max_wait_ms=PARKED_WAIT_MAX_MS), 12)
    live.eventually(lambda: len(live.broker.fetch_purgatory) == REQUESTS_IN_FLIGHT_MAX)
    live.pass_seconds(2)
    assert len(live.broker.fetch_purgatory) == REQUESTS_IN_FLIGHT_MAX, "it is there still"
    client.socket.close()
    wait_until(partial(has_no_connection_left, live))
    assert len(live.broker.fetch_purgatory) == 0


@pytest.mark.parametrize("arrives", ["in one piece", "later"])
def test_what_was_sent_before_hanging_up_is_handled(
    live: LiveBroker, connect: Connect, arrives: str
) -> None:
    partition = live.add_partition("t")
    client = connect()
    asked = client.encode(fetch(0, max_wait_ms=PARKED_WAIT_MAX_MS), 12) * REQUESTS_IN_FLIGHT_MAX
    told = client.encode(produce(b"v", acks=0), 7)
    client.socket.sendall(asked + told if arrives == "in one piece" else asked)
    live.eventually(lambda: len(live.broker.fetch_purgatory) == REQUESTS_IN_FLIGHT_MAX)
    if arrives == "later":
        client.socket.sendall(told)
    client.socket.shutdown(socket.SHUT_WR)
    (connection,) = connections(live)
    wait_until(lambda: has_hung_up(connection._fd))
    live.pass_seconds(2)
    assert live.run(lambda: partition.log_end_offset) == 0
    live.run(lambda: live.broker.fetch_purgatory.expire(1 << 62))
    live.eventually(lambda: not live.server.connections)
    assert live.run(lambda: partition.log_end_offset) == 1


def test_acks_0_has_no_reply_and_a_failure_closes(live: LiveBroker, connect: Connect) -> None:
    partition = live.add_partition("t")
    client = connect()
    for _ in range(3):
        client.send(produce(b"v", acks=0), 7)
    assert client.call(produce(b"v"), 7).responses[0].partition_responses[0].base_offset == 3
    assert partition.log_end_offset == 4
    client.send(produce(b"v", acks=0, topic="unknown"), 7)
    assert client.is_closed_by_peer()


def test_replies_before_a_bad_frame_still_leave(live: LiveBroker, connect: Connect) -> None:
    live.add_partition("t")
    client = connect()
    good = client.encode(produce(b"v"), 7)
    client.socket.sendall(good + struct.pack(">i", -1))
    assert offsets(client, 1) == [(1, 0)]
    assert client.is_closed_by_peer()
    assert live.broker.metrics.protocol_errors == 1


def test_a_reader_that_never_drains_is_bounded_then_closed(
    live: LiveBroker, connect: Connect
) -> None:
    live.add_partition("t")
    other = connect()
    for _ in range(12):
        other.call(produce(b"v" * 1_000_000), 7)
    slow = connect(receive_buffer=4096)
    asks = b"".join(slow.encode(fetch(0), 12) for _ in range(200))
    slow.socket.sendall(asks)

    def unsent() -> list[int]:
        return [c.sender.unsent_bytes for c in live.server.connections if c.sender.unsent_bytes]

    live.eventually(lambda: bool(unsent()))
    # What is over the limit is one reply, and its records are in a file, not in memory.
    assert max(live.run(unsent)) < UNSENT_BYTES_MAX + 14_000_000
    assert other.call(produce(b"v"), 7).responses[0].partition_responses[0].error_code == 0
    assert len(live.run(unsent)) == 1, "the others are served while it is waited for"
    live.pass_seconds(WRITE_STALL_S + 2)
    live.eventually(lambda: len(live.server.connections) == 1)


def test_a_dripping_frame_is_cut_off_at_its_deadline(live: LiveBroker, connect: Connect) -> None:
    drip, idle = connect(), connect()

    def carried() -> list[int]:
        """How many bytes of a head wait for the rest of it."""
        return [len(cast("Any", each)._reader._carry) for each in connections(live)]

    for count, byte in enumerate(struct.pack(">i", 100)[:3] + b"x", start=1):
        drip.socket.sendall(bytes([byte]))
        live.eventually(partial(lambda wanted: wanted in carried(), count))
        live.pass_seconds(FRAME_DEADLINE_S // 4 + 1)
    live.pass_seconds(2)
    assert drip.is_closed_by_peer()
    assert idle.call(ApiVersionsRequest("a", "1"), 3).error_code == 0


def test_a_large_frame_that_stops_coming_is_cut_off(live: LiveBroker, connect: Connect) -> None:
    client = connect()
    client.socket.sendall(struct.pack(">i", 1_000_000) + bytes(200_000))
    live.eventually(lambda: live.server.memory.used_bytes > 0)
    live.pass_seconds(FRAME_DEADLINE_S + 3)
    assert client.is_closed_by_peer()
    assert live.run(lambda: live.server.memory.used_bytes) == 0


def test_idle_connections_are_closed_and_waiting_ones_are_not(
    make_live: Callable[..., LiveBroker],
) -> None:
    live = make_live(idle_s=10)
    live.add_partition("t")
    with FrameClient(live.port) as idle, FrameClient(live.port) as waiting:
        assert idle.call(ApiVersionsRequest("a", "1"), 3).error_code == 0
        waiting.send(fetch(0, max_wait_ms=60_000), 12)
        live.eventually(lambda: len(live.broker.fetch_purgatory) == 1)
        live.pass_seconds(12)
        assert idle.is_closed_by_peer()
        assert len(live.server.connections) == 1


def test_who_has_just_been_answered_is_not_idle(make_live: Callable[..., LiveBroker]) -> None:
    """As in Kafka, where what is sent counts, too: a member may wait for its group for minutes."""
    live = make_live(idle_s=10)
    live.add_partition("t")
    with FrameClient(live.port) as waiting:
        waiting.send(fetch(0, max_wait_ms=60_000), 12)
        live.eventually(lambda: len(live.broker.fetch_purgatory) == 1)
        live.pass_seconds(12)
        with FrameClient(live.port) as writer:
            writer.send(produce(b"v"), 7)
            assert offsets(writer, 1)
        _, answered = waiting.receive(1, 12)
        assert answered.responses[0].partitions[0].error_code == 0
        live.pass_seconds(8)
        assert waiting.call(ApiVersionsRequest("a", "1"), 3).error_code == 0
        live.pass_seconds(12)
        assert waiting.is_closed_by_peer()


def test_minus_one_keeps_idle_connections(make_live: Callable[..., LiveBroker]) -> None:
    idle_ms = validate_broker_config("connections.max.idle.ms", "-1")
    assert isinstance(idle_ms, int)
    live = make_live(idle_s=idle_limit_s(idle_ms))
    with FrameClient(live.port) as idle:
        assert idle.call(ApiVersionsRequest("a", "1"), 3).error_code == 0
        live.pass_seconds(IDLE_CONNECTION_S + 2)
        assert idle.call(ApiVersionsRequest("a", "1"), 3).error_code == 0


def test_keepalive_finds_half_open_connections(live: LiveBroker, connect: Connect) -> None:
    connect().call(ApiVersionsRequest("a", "1"), 3)

    def options() -> list[int]:
        (connection,) = live.server.connections
        sock = connection._socket
        return [
            sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
            sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE),
        ]

    assert live.run(options) == [1, 60]
