"""Records written by each client, with every codec, are read alike by every other."""

import socket
import struct
from collections.abc import Callable

import pytest
from client_adapters import CODECS, Client, Rec, TooLargeRefusedError, without_time

from fairlead_bench.loads import wire_bytes
from fairlead_bench.peers.peer import exchange

NAMES = ("confluent-kafka", "kafka-python", "aiokafka", "kcat", "Java console")
MESSAGE_BYTES_MAX = 1_048_588  # the default of max.message.bytes


def stored_batches(bootstrap: str, topic: str) -> list[tuple[int, int, int]]:
    """(codec, producer id, records) of each batch of partition 0, read from its header."""
    port, offset, found = int(bootstrap.rpartition(":")[2]), 0, []
    position = wire_bytes.fetch_records_position(topic) - 4
    while True:
        request = wire_bytes.fetch_request(topic, 0, offset, max_bytes=1 << 20)
        reply = exchange(port, request)[position:]
        start = 0
        while start + 61 <= len(reply):
            base_offset, length = struct.unpack_from(">qi", reply, start)
            attributes, last_delta = struct.unpack_from(">hi", reply, start + 21)
            producer_id = struct.unpack_from(">q", reply, start + 43)[0]
            found.append((attributes & 7, producer_id, last_delta + 1))
            offset = base_offset + last_delta + 1
            start += 12 + length
        if start == 0:
            return found


@pytest.fixture(scope="session")
def written(
    get_client: Callable[[str], Client],
    make_topic: Callable[..., str],
    records: tuple[Rec, ...],
    binary_records: tuple[Rec, ...],
) -> Callable[[str], tuple[str, list[Rec]]]:
    """A topic that holds each codec's records in turn, written once a client."""
    topics: dict[str, tuple[str, list[Rec]]] = {}

    def write(name: str) -> tuple[str, list[Rec]]:
        if name not in topics:
            client = get_client(name)
            topic = make_topic(f"matrix-{name}")
            expected: list[Rec] = []
            for codec in CODECS:
                client.produce(topic, records, codec=codec)
                expected += records
            if client.is_binary:
                sayable = [
                    record
                    for record in binary_records
                    if client.writes_null_headers or None not in dict(record.headers).values()
                ]
                client.produce(topic, sayable, codec="zstd")
                expected += sayable
            topics[name] = topic, expected
        return topics[name]

    return write


@pytest.mark.parametrize("reader", NAMES)
@pytest.mark.parametrize("writer", NAMES)
def test_every_client_reads_what_every_other_wrote(
    writer: str,
    reader: str,
    get_client: Callable[[str], Client],
    written: Callable[[str], tuple[str, list[Rec]]],
) -> None:
    topic, expected = written(writer)
    client = get_client(reader)
    if not client.is_binary:
        expected = [record for record in expected if is_text(record)]
    assert without_time(client.consume(topic, len(expected))) == expected


def is_text(record: Rec) -> bool:
    """The binary records stand at the end of a topic: a text client stops before them."""
    parts = (record.key or b"", record.value or b"")
    return not any(b"\xff" in part for part in parts) and "none" not in dict(record.headers)


@pytest.mark.parametrize("writer", NAMES)
def test_batches_are_stored_with_the_codec_that_the_client_chose(
    writer: str, bootstrap: str, written: Callable[[str], tuple[str, list[Rec]]]
) -> None:
    topic, expected = written(writer)
    batches = stored_batches(bootstrap, topic)
    assert sum(count for _, _, count in batches) == len(expected)
    # A client leaves a batch uncompressed when compressing does not make it smaller.
    assert {codec for codec, _, _ in batches} == set(range(len(CODECS)))


def test_a_record_of_a_megabyte_is_stored_and_read(
    client: Client, make_topic: Callable[..., str]
) -> None:
    topic = make_topic("megabyte")
    record = Rec(b"m" * 1_000_000, b"key")
    client.produce(topic, [record], request_size_max=1_040_000)
    assert without_time(client.consume(topic, 1)) == [record]


def test_a_record_above_max_message_bytes_is_refused_as_too_large(
    client: Client, make_topic: Callable[..., str]
) -> None:
    topic = make_topic("too-large")
    with pytest.raises(TooLargeRefusedError):
        client.produce(topic, [Rec(b"m" * (MESSAGE_BYTES_MAX + 1))], request_size_max=3_000_000)
    client.produce(topic, [Rec(b"small")])
    assert without_time(client.consume(topic, 1)) == [Rec(b"small")]


def test_a_record_above_the_default_is_taken_where_the_topic_allows_it(
    client: Client, make_topic: Callable[..., str]
) -> None:
    topic = make_topic("large-allowed", max_message_bytes="3000000")
    record = Rec(b"m" * 2_000_000, b"key")
    client.produce(topic, [record], request_size_max=2_500_000)
    assert without_time(client.consume(topic, 1)) == [record]


def test_idempotent_producers_get_an_id_and_write_each_record_once(
    client: Client, bootstrap: str, make_topic: Callable[..., str]
) -> None:
    topic = make_topic("idempotent")
    expected = [Rec(b"%d" % index, b"key") for index in range(100)]
    client.produce(topic, expected, is_idempotent=True)
    assert without_time(client.consume(topic, 100)) == expected
    assert all(producer_id >= 0 for _, producer_id, _ in stored_batches(bootstrap, topic))


def test_a_produce_with_a_wrong_checksum_is_refused_and_others_are_unaffected(
    client: Client, bootstrap: str, make_topic: Callable[..., str]
) -> None:
    topic = make_topic("checksum")
    batch = bytearray(wire_bytes.record_batch([b"value"]))
    batch[-1] ^= 1
    with socket.create_connection(("127.0.0.1", int(bootstrap.rpartition(":")[2])), 60) as raw:
        raw.sendall(wire_bytes.produce_request(topic, 0, bytes(batch)))
        reply = raw.recv(4096)
    assert struct.unpack_from(">h", reply, wire_bytes.produce_error_position(topic)) == (2,)
    client.produce(topic, [Rec(b"good")])
    assert without_time(client.consume(topic, 1)) == [Rec(b"good")]
