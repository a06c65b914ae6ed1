"""A broker that does nothing: the limit of any broker in Python on this machine.

It reads produce requests into one buffer and acknowledges them unseen; it answers fetches with
`sendfile` from one file of prepared batches. No log, no checks, metadata of one topic only. What a
real broker costs above this is its own work. Versions: Produce 7 and 9, Fetch 10, Metadata 4.
"""

import json
import os
import selectors
import socket
import struct
import sys
import tempfile
import time
from pathlib import Path

from fairlead_bench.loads import wire_bytes

TOPIC = "null"
PARTITIONS = 6
BATCH_RECORDS = 16
BATCHES_IN_FILE = 4096
EMPTY_REPLY_DELAY_S = 0.005  # a consumer at the end would ask again and again
RECEIVE_SIZE = 4 << 20
# (key, lowest, highest): what librdkafka needs for batches of format v2.
VERSIONS = ((0, 3, 7), (1, 10, 10), (2, 1, 1), (3, 1, 4), (18, 0, 0))


class Batches:
    """A file of equal batches with contiguous offsets: a division finds an offset."""

    def __init__(self, folder: Path, record_size: int, batches: int) -> None:
        self._batches = batches
        batch = wire_bytes.record_batch([b"x" * record_size] * BATCH_RECORDS)
        self.batch_size = len(batch)
        self.end_offset = BATCH_RECORDS * batches
        path = folder / "batches"
        with path.open("wb") as file:
            for index in range(batches):
                file.write(struct.pack(">q", index * BATCH_RECORDS) + batch[8:])
        self.descriptor = os.open(path, os.O_RDONLY)

    def locate(self, offset: int, max_bytes: int) -> tuple[int, int]:
        """Return position and size of the whole batches from `offset` that fit."""
        first = offset // BATCH_RECORDS
        count = min(max(max_bytes // self.batch_size, 1), self._batches - first)
        return first * self.batch_size, max(count, 0) * self.batch_size


class Connection:
    """One client: whole frames are answered in order; produce requests are not stored."""

    def __init__(self, accepted: socket.socket, port: int, batches: Batches) -> None:
        self.socket = accepted
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._port, self._batches = port, batches
        self._buffer = bytearray(RECEIVE_SIZE)
        self._filled_size = 0

    def serve(self) -> bool:
        """Read once and answer complete requests; return False if the client is gone."""
        view = memoryview(self._buffer)
        size = self.socket.recv_into(view[self._filled_size :])
        if not size:
            return False
        self._filled_size += size
        position = 0
        replies: list[bytes] = []
        while self._filled_size - position >= 4:
            frame_size = 4 + int(struct.unpack_from(">i", self._buffer, position)[0])
            if self._filled_size - position < frame_size:
                break
            replies.append(self._answer(view[position + 4 : position + frame_size], replies))
            position += frame_size
        if replies:
            self.socket.sendall(b"".join(replies))
        if position:
            left_size = self._filled_size - position
            view[:left_size] = view[position : self._filled_size]
            self._filled_size = left_size
        return True

    def _answer(self, request: memoryview, before: list[bytes]) -> bytes:
        api_key, version = struct.unpack_from(">hh", request)
        correlation_id = bytes(request[4:8])
        body = 10 + max(struct.unpack_from(">h", request, 8)[0], 0)
        if api_key == wire_bytes.PRODUCE:
            answer = produce_v9_reply if version == 9 else produce_v7_reply
            return wire_bytes.frame(correlation_id + answer(request, body))
        if api_key == wire_bytes.FETCH:
            self._send_fetch_reply(correlation_id, request, body, before)
            return b""
        if api_key == wire_bytes.METADATA:
            return wire_bytes.frame(correlation_id + metadata_reply(self._port))
        if api_key == 2:
            return wire_bytes.frame(correlation_id + list_offsets_reply(self._batches.end_offset))
        entries = b"".join(struct.pack(">hhh", *entry) for entry in VERSIONS)
        # The list has version 0 for every request: error 35 says so, as in Kafka.
        error = 0 if version == 0 else 35
        return wire_bytes.frame(correlation_id + struct.pack(">hi", error, len(VERSIONS)) + entries)

    def _send_fetch_reply(
        self, correlation_id: bytes, request: memoryview, body: int, before: list[bytes]
    ) -> None:
        topic_count = struct.unpack_from(">i", request, body + 25)[0]
        if topic_count == 0:
            before.append(wire_bytes.frame(correlation_id + bytes(14)))
            return
        name_size = struct.unpack_from(">h", request, body + 29)[0]
        position = body + 31 + name_size
        partition_count = struct.unpack_from(">i", request, position)[0]
        asked = [
            struct.unpack_from(">i4xq8xi", request, position + 4 + 28 * index)
            for index in range(partition_count)
        ]
        found = [(index, *self._batches.locate(offset, limit)) for index, offset, limit in asked]
        if not any(length for _, _, length in found):
            time.sleep(EMPTY_REPLY_DELAY_S)
        name = struct.pack(">h", len(TOPIC)) + TOPIC.encode()
        size = 4 + 4 + 6 + 4 + len(name) + 4 + sum(38 + length for _, _, length in found)
        head = struct.pack(">i", size) + correlation_id + struct.pack(">ihii", 0, 0, 0, 1) + name
        pending = b"".join(before) + head + struct.pack(">i", partition_count)
        before.clear()
        end_offset = self._batches.end_offset
        for index, file_position, length in found:
            pending += struct.pack(">ihqqqii", index, 0, end_offset, end_offset, 0, -1, length)
            self.socket.sendall(pending, socket.MSG_MORE if length else 0)
            pending = b""
            self._send_slice(file_position, length)

    def _send_slice(self, position: int, size: int) -> None:
        end = position + size
        while position < end:
            position += os.sendfile(
                self.socket.fileno(), self._batches.descriptor, position, end - position
            )


def is_served(connection: Connection) -> bool:
    """Return False if the client has closed the connection, cleanly or not."""
    try:
        return connection.serve()
    except ConnectionError:
        return False


def produce_v9_reply(request: memoryview, body: int) -> bytes:
    name_size = request[body + 9] - 1
    name = bytes(request[body + 10 : body + 10 + name_size])
    partition = bytes(request[body + 11 + name_size : body + 15 + name_size])
    return (
        b"\x00\x02"
        + bytes([name_size + 1])
        + name
        + b"\x02"
        + partition
        + struct.pack(">hqqq", 0, 0, -1, 0)
        + b"\x01\x00\x00\x00\x00\x00\x00\x00\x00"
    )


def produce_v7_reply(request: memoryview, body: int) -> bytes:
    name_size = struct.unpack_from(">h", request, body + 12)[0]
    name = bytes(request[body + 12 : body + 14 + name_size])
    partition = bytes(request[body + 18 + name_size : body + 22 + name_size])
    slot = partition + struct.pack(">hqqq", 0, 0, -1, 0)
    return struct.pack(">i", 1) + name + struct.pack(">i", 1) + slot + bytes(4)


def list_offsets_reply(end_offset: int) -> bytes:
    name = struct.pack(">h", len(TOPIC)) + TOPIC.encode()
    slots = b"".join(struct.pack(">ihqq", index, 0, -1, end_offset) for index in range(PARTITIONS))
    return struct.pack(">i", 1) + name + struct.pack(">i", PARTITIONS) + slots


def metadata_reply(port: int) -> bytes:
    host = b"127.0.0.1"
    broker = struct.pack(">ih", 0, len(host)) + host + struct.pack(">ih", port, -1)
    name = struct.pack(">h", len(TOPIC)) + TOPIC.encode()
    partitions = b"".join(
        struct.pack(">hiiiiii", 0, index, 0, 1, 0, 1, 0) for index in range(PARTITIONS)
    )
    return (
        struct.pack(">ii", 0, 1)
        + broker
        + struct.pack(">hii", -1, 0, 1)
        + struct.pack(">h", 0)
        + name
        + b"\x00"
        + struct.pack(">i", PARTITIONS)
        + partitions
    )


def main() -> None:
    """Print the port, then serve until standard input is closed."""
    arguments = json.loads(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as server:
        batches = Batches(Path(folder), arguments["record_size"], arguments["batches"])
        port = server.getsockname()[1]
        selector = selectors.DefaultSelector()
        selector.register(server, selectors.EVENT_READ, None)
        selector.register(sys.stdin, selectors.EVENT_READ, None)
        print(port, flush=True)
        while True:
            for key, _ in selector.select():
                if key.fileobj is sys.stdin:
                    return
                if key.fileobj is server:
                    connection = Connection(server.accept()[0], port, batches)
                    selector.register(connection.socket, selectors.EVENT_READ, connection)
                elif not is_served(key.data):
                    selector.unregister(key.fileobj)
                    key.data.socket.close()


if __name__ == "__main__":
    main()
