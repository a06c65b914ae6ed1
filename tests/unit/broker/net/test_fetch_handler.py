"""Fetch: whole batches, long polls, limits, sessions and who may read what."""

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from live_broker import FrameClient, LiveBroker, batch
from resident_pages import evict_file

from fairlead_broker.limits import PARKED_WAIT_MAX_MS
from fairlead_model.partition import PartitionRegistration
from fairlead_wire.compression import Codec
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from fairlead_wire.primitives import NULL_UUID
from fairlead_wire.record_batch import decode_batch_header

Connect = Callable[..., FrameClient]
MAX = 1 << 26


def topic(name: str, *partitions: tuple[int, int], topic_id: bytes = NULL_UUID, **rest: Any) -> Any:
    rest.setdefault("partition_max_bytes", MAX)
    return FetchTopic(
        name,
        topic_id,
        [FetchPartition(index, fetch_offset=offset, **rest) for index, offset in partitions],
    )


def fetch(*topics: FetchTopic, **fields: Any) -> FetchRequest:
    fields.setdefault("min_bytes", 1)
    return FetchRequest(topics=list(topics), **fields)


def told(response: FetchResponse) -> dict[tuple[str, int], PartitionData]:
    return {
        (each.topic, data.partition_index): data
        for each in response.responses
        for data in each.partitions
    }


def base_offsets(data: PartitionData) -> list[int]:
    """Base offsets of the batches in a partition's records."""
    records = memoryview(data.records or b"")  # type: ignore[arg-type]
    position = 0
    found = []
    while position < len(records):
        header = decode_batch_header(records, position)
        found.append(header.base_offset)
        position += header.size
    assert position == len(records), "the last batch is whole"
    return found


def fill(live: LiveBroker, count: int, *, size: int = 100, name: str = "t", index: int = 0) -> None:
    """`count` batches of two records each."""

    def append() -> None:
        partition = live.broker.partitions[name, index]
        for _ in range(count):
            data = memoryview(bytearray(batch(b"v" * size, b"w" * size)))
            partition.append_as_leader(data, required_acks=1, now_ms=live.broker.clock.now_ms())

    live.run(append)


@pytest.mark.parametrize("version", range(4, 18))
def test_every_version_reads_whole_batches(
    live: LiveBroker, connect: Connect, version: int
) -> None:
    topic_id = live.add_partition("t").topic_id if version >= 13 else NULL_UUID
    fill(live, 3)
    response = connect().call(fetch(topic("t", (0, 3), topic_id=topic_id)), version)
    ((_, data),) = told(response).items()
    assert base_offsets(data) == [2, 4], "from the batch that holds the offset"
    assert (data.error_code, data.high_watermark, data.last_stable_offset) == (0, 6, 6)


@pytest.fixture(autouse=True)
def _partition(request: pytest.FixtureRequest, live: LiveBroker) -> None:
    if "version" not in request.fixturenames or request.getfixturevalue("version") < 13:
        live.add_partition("t")


def test_the_first_batch_is_whole_and_limits_hold_from_then_on(
    live: LiveBroker, connect: Connect
) -> None:
    live.add_partition("t", 1)
    fill(live, 5, size=1000)
    fill(live, 5, size=1000, index=1)
    client = connect()
    tiny = told(client.call(fetch(topic("t", (0, 0), (1, 0)), max_bytes=10), 12))
    assert base_offsets(tiny["t", 0]) == [0]
    assert base_offsets(tiny["t", 1]) == []
    limited = told(client.call(fetch(topic("t", (0, 0), (1, 0)), max_bytes=7000), 12))
    assert base_offsets(limited["t", 0]) == [0, 2, 4]
    assert base_offsets(limited["t", 1]) == []
    each = fetch(topic("t", (1, 0), (0, 0), partition_max_bytes=4300))
    response = client.call(each, 12)
    assert list(told(response)) == [("t", 1), ("t", 0)], "request order"
    assert base_offsets(told(response)["t", 1]) == [0, 2]
    assert base_offsets(told(response)["t", 0]) == [0, 2]


def test_a_long_poll_is_answered_by_the_append(live: LiveBroker, connect: Connect) -> None:
    client = connect()
    client.send(fetch(topic("t", (0, 0)), max_wait_ms=20_000), 12)
    live.eventually(lambda: len(live.broker.fetch_purgatory) == 1)
    fill(live, 1)
    assert base_offsets(told(client.receive(1, 12)[1])["t", 0]) == [0]


def test_a_long_poll_waits_for_min_bytes(live: LiveBroker, connect: Connect) -> None:
    client = connect()
    client.send(fetch(topic("t", (0, 0)), max_wait_ms=20_000, min_bytes=1000), 12)
    live.eventually(lambda: len(live.broker.fetch_purgatory) == 1)
    fill(live, 1)
    live.run(live.broker.check_purgatories)
    assert live.run(lambda: len(live.broker.fetch_purgatory)) == 1
    fill(live, 4)
    assert base_offsets(told(client.receive(1, 12)[1])["t", 0]) == [0, 2, 4, 6, 8]


def test_a_long_poll_ends_with_what_there_is(live: LiveBroker, connect: Connect) -> None:
    fill(live, 1)
    started = time.monotonic()
    request = fetch(topic("t", (0, 0)), max_wait_ms=80, min_bytes=10_000)
    response = connect().call(request, 12)
    assert time.monotonic() - started >= 0.078  # Clocks of the kernel and of Python round apart.
    assert base_offsets(told(response)["t", 0]) == [0]


def test_a_partition_that_is_named_often_is_read_once_as_named_last(
    live: LiveBroker, connect: Connect
) -> None:
    """Each append would have a parked fetch read it as often as it is named."""
    live.add_partition("t", 1)
    fill(live, 3)
    fill(live, 3, index=1)
    client = connect()
    asked = fetch(topic("t", (0, 0), (1, 0)), topic("t", (0, 4)))
    (each,) = client.call(asked, 12).responses
    assert [(data.partition_index, base_offsets(data)) for data in each.partitions] == [
        (0, [4]),
        (1, [0, 2, 4]),
    ]
    often = [(0, 6)] * 10_000
    client.send(fetch(topic("t", *often), max_wait_ms=20_000), 12)
    live.eventually(lambda: live.broker.fetch_purgatory.keys_count == 1)
    fill(live, 1)
    (each,) = client.receive(1, 12)[1].responses
    assert [base_offsets(data) for data in each.partitions] == [[6]]


def test_topics_by_id_are_merged_too(live: LiveBroker, connect: Connect) -> None:
    topic_id = live.add_partition("u").topic_id
    unknown = topic("", (0, 0), topic_id=b"?" * 16)
    asked = fetch(topic("", (0, 0), (0, 0), topic_id=topic_id), unknown, unknown)
    response = connect().call(asked, 13)
    assert [(each.topic_id, len(each.partitions)) for each in response.responses] == [
        (topic_id, 1),
        (b"?" * 16, 1),
    ]


def test_no_long_poll_waits_for_days(live: LiveBroker, connect: Connect) -> None:
    client = connect()
    client.send(fetch(topic("t", (0, 0)), max_wait_ms=2**31 - 1), 12)
    purgatory = live.broker.fetch_purgatory
    live.eventually(lambda: len(purgatory) == 1)
    now_ms = live.broker.clock.monotonic_ms()
    deadline_ms = live.run(purgatory.next_deadline_ms)
    assert deadline_ms is not None and deadline_ms - now_ms <= PARKED_WAIT_MAX_MS


def test_an_error_in_any_partition_answers_at_once(live: LiveBroker, connect: Connect) -> None:
    request = fetch(topic("t", (0, 0), (7, 0)), max_wait_ms=60_000)
    data = told(connect().call(request, 12))
    assert data["t", 0].error_code == 0
    assert data["t", 7].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_losing_the_partition_ends_the_wait(live: LiveBroker, connect: Connect) -> None:
    client = connect()
    client.send(fetch(topic("t", (0, 0)), max_wait_ms=60_000), 12)
    live.eventually(lambda: len(live.broker.fetch_purgatory) == 1)
    elsewhere = PartitionRegistration(replicas=(0, 1), isr=(0, 1), leader=1, leader_epoch=4)
    live.run(lambda: live.broker.partitions["t", 0].follow(elsewhere))
    data = told(client.receive(1, 12)[1])["t", 0]
    assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("offset", [-1, 7, 1 << 60])
def test_offsets_outside_the_log_are_out_of_range(
    live: LiveBroker, connect: Connect, offset: int
) -> None:
    fill(live, 3)
    request = fetch(topic("t", (0, offset)), max_wait_ms=60_000)
    data = told(connect().call(request, 12))["t", 0]
    assert data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert base_offsets(data) == []


@pytest.mark.parametrize("may_be_replaced", ["stood still", "hears no controller"])
def test_what_a_leader_that_may_be_replaced_lacks_is_not_out_of_range(
    live: LiveBroker, connect: Connect, may_be_replaced: str
) -> None:
    """Consumers that send no leader epoch would begin elsewhere."""
    fill(live, 3)
    client = connect()

    def code_at(offset: int) -> int:
        request = fetch(topic("t", (0, offset)), max_wait_ms=100)
        return int(told(client.call(request, 12))["t", 0].error_code)

    if may_be_replaced == "stood still":
        live.broker.wake_check.must_hold = lambda: True
    else:
        live.broker.controller.has_session = False
    end = live.broker.partitions["t", 0].log.log_end_offset
    assert code_at(end + 1) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert code_at(end) == ErrorCode.NONE
    assert code_at(-1) == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(2, ErrorCode.FENCED_LEADER_EPOCH), (3, 0), (4, ErrorCode.UNKNOWN_LEADER_EPOCH), (-1, 0)],
)
def test_the_leader_epoch_is_checked(
    live: LiveBroker, connect: Connect, epoch: int, code: int
) -> None:
    request = fetch(topic("t", (0, 0), current_leader_epoch=epoch))
    assert told(connect().call(request, 12))["t", 0].error_code == code


def test_topic_ids_unknown_and_of_an_older_topic(live: LiveBroker, connect: Connect) -> None:
    partition = live.broker.partitions["t", 0]
    client = connect()
    unknown = fetch(topic("", (0, 0), topic_id=b"?" * 16))
    (data,) = client.call(unknown, 13).responses[0].partitions
    assert data.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    known_id = partition.topic_id

    def recreate() -> None:
        partition.topic_id = b"n" * 16

    live.run(recreate)
    (data,) = client.call(fetch(topic("", (0, 0), topic_id=known_id)), 13).responses[0].partitions
    assert data.error_code == ErrorCode.INCONSISTENT_TOPIC_ID


@pytest.mark.parametrize("version", [4, 6, 9, 10])
def test_zstd_is_answered_in_every_version(
    live: LiveBroker, connect: Connect, version: int
) -> None:
    """As by Apache Kafka: clients that stayed at Fetch version 4 may well decompress zstd."""

    def append() -> None:
        data = memoryview(bytearray(batch(b"z" * 100, codec=Codec.ZSTD)))
        live.broker.partitions["t", 0].append_as_leader(
            data, required_acks=1, now_ms=live.broker.clock.now_ms()
        )

    fill(live, 1)
    live.run(append)
    client = connect()
    for offset, expected in (0, [0, 2]), (2, [2]):
        data = told(client.call(fetch(topic("t", (0, offset))), version))["t", 0]
        assert (data.error_code, base_offsets(data)) == (ErrorCode.NONE, expected)


def test_only_brokers_read_beyond_the_high_watermark(live: LiveBroker, connect: Connect) -> None:
    follow = PartitionRegistration(
        replicas=(0, 1), isr=(0, 1), leader=0, leader_epoch=4, partition_epoch=1
    )
    live.run(lambda: live.broker.partitions["t", 0].lead(follow))
    fill(live, 1)
    consumer = told(connect().call(fetch(topic("t", (0, 0))), 12))["t", 0]
    assert (consumer.error_code, base_offsets(consumer)) == (0, [])
    impostor = connect().call(fetch(topic("t", (0, 0)), replica_id=1), 12)
    assert impostor.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert impostor.responses == []
    old_impostor = told(connect().call(fetch(topic("t", (0, 0)), replica_id=1), 5))["t", 0]
    assert old_impostor.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    with FrameClient(live.internal_port) as broker:
        topic_id = live.broker.partitions["t", 0].topic_id
        request = fetch(topic("", (0, 0), topic_id=topic_id), replica_state=ReplicaState(1, 5))
        (data,) = broker.prove().call(request, 17).responses[0].partitions
        assert base_offsets(data) == [0]


def test_version_18_is_not_served(live: LiveBroker, connect: Connect) -> None:
    client = connect()
    client.send(fetch(), 18)
    assert client.is_closed_by_peer()


def test_a_session_tells_only_what_is_new(live: LiveBroker, connect: Connect) -> None:
    for index in range(1, 4):
        live.add_partition("t", index)
    fill(live, 1, index=2)
    client = connect()
    asked = topic("t", (0, 0), (1, 0), (2, 2), (3, 0))
    first = client.call(fetch(asked, session_epoch=0), 12)
    session_id = first.session_id
    assert session_id > 0
    assert len(told(first)) == 4, "the first reply of a session is full"
    quiet = client.call(fetch(session_id=session_id, session_epoch=1), 12)
    assert (quiet.session_id, quiet.responses) == (session_id, [])
    fill(live, 1, index=1)
    news = client.call(fetch(session_id=session_id, session_epoch=2), 12)
    assert list(told(news)) == [("t", 1)]
    moved = fetch(topic("t", (1, 2)), session_id=session_id, session_epoch=3)
    assert client.call(moved, 12).responses == []
    fill(live, 1, index=1)
    forget = fetch(session_id=session_id, session_epoch=4)
    forget.forgotten_topics_data = [ForgottenTopic("t", partitions=[1])]
    assert client.call(forget, 12).responses == []


def test_records_rotate_inside_a_session(live: LiveBroker, connect: Connect) -> None:
    for index in range(1, 3):
        live.add_partition("t", index)
    for index in range(3):
        fill(live, 3, size=1000, index=index)
    client = connect()
    # The first reply of a session moves the partition that got records, too.
    opened = client.call(
        fetch(topic("t", (0, 0), (1, 0), (2, 0)), session_epoch=0, max_bytes=1), 12
    )
    served = [index for (_, index), data in told(opened).items() if data.records]
    for epoch in range(1, 6):
        request = fetch(session_id=opened.session_id, session_epoch=epoch, max_bytes=1)
        response = client.call(request, 12)
        served += [index for (_, index), data in told(response).items() if data.records]
    assert served == [0, 1, 2, 0, 1, 2]


def test_session_errors(live: LiveBroker, connect: Connect) -> None:
    client = connect()
    opened = client.call(fetch(topic("t", (0, 0)), session_epoch=0), 12)
    session_id = opened.session_id

    def code(session: int, epoch: int, version: int = 12) -> int:
        error: int = client.call(fetch(session_id=session, session_epoch=epoch), version).error_code
        return error

    assert code(session_id + 1, 1) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert code(session_id, 5) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert code(session_id, 1, version=13) == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert code(session_id, 1) == 0
    assert code(session_id, -1) == 0, "closes it"
    assert code(session_id, 2) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert live.run(lambda: len(live.broker.fetch_sessions)) == 0


def test_a_fetch_of_nothing_is_answered_at_once(connect: Connect) -> None:
    assert connect().call(fetch(max_wait_ms=60_000), 12).responses == []


def test_a_log_whose_records_the_disk_does_not_read_is_offline(
    live: LiveBroker, connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks for them would lose the connection, for ever; a follower all its partitions."""
    fill(live, 20, size=100_000)
    path = tmp_path / "t-0" / f"{0:020}.log"
    evict_file(path)
    preadv = os.preadv

    def fail(fd: int, buffers: Any, position: int, flags: int = 0) -> int:
        if not flags:
            raise OSError(errno.EIO, "input/output error")
        return preadv(fd, buffers, position, flags)

    monkeypatch.setattr(os, "preadv", fail)
    with pytest.raises(ConnectionError):
        connect().call(fetch(topic("t", (0, 0))), 12)
    assert live.broker.partitions["t", 0].log.is_offline


def test_cold_records_are_read_by_a_thread_first(
    live: LiveBroker, connect: Connect, tmp_path: Path
) -> None:
    fill(live, 20, size=100_000)
    evict_file(tmp_path / "t-0" / f"{0:020}.log")
    response = connect().call(fetch(topic("t", (0, 0))), 12)
    assert base_offsets(told(response)["t", 0]) == list(range(0, 40, 2))
    assert live.run(lambda: live.server.read_ahead.jobs_count) > 0
