"""Load over plain sockets: prepared requests, many in flight; replies are counted and dropped.

A broker answers faster than most clients can ask. This client spends almost nothing on a request,
so it shows the broker's own limit. One epoll loop serves all connections.
"""

import json
import selectors
import socket
import struct
import sys
import time
from typing import Any

from fairlead_bench.loads import wire_bytes
from fairlead_bench.loads.load_process import serve_load
from fairlead_bench.peers.peer import exchange

RECEIVE_SIZE = 1 << 20
COORDINATOR_TIMEOUT_S = 60.0


def connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), 10)
    connection.settimeout(None)  # MSG_WAITALL waits only on a blocking socket
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


class PreparedConnection:
    """Keeps a fixed number of equal requests in flight; all replies have the same size."""

    def __init__(self, port: int, request: bytes, error_position: int) -> None:
        self.socket = connect(port)
        self._request = request
        self._error_position = error_position
        self.socket.sendall(self._request)
        size_bytes = self.socket.recv(4, socket.MSG_WAITALL)
        self._reply_size = 4 + int(struct.unpack(">i", size_bytes)[0])
        rest = self.socket.recv(self._reply_size - 4, socket.MSG_WAITALL)
        self._check(size_bytes + rest)
        self._received_size = 0

    def _check(self, reply: bytes) -> None:
        error = struct.unpack_from(">h", reply, self._error_position)[0]
        if error:
            raise RuntimeError(f"the broker answered a request with error {error}")

    def send(self, count: int) -> None:
        """Send; at most `in_flight * request size` is unanswered, which socket buffers can hold."""
        self.socket.sendall(self._request * count)

    def receive(self) -> int:
        """Return how many replies this read completed; check the first whole one."""
        received = self.socket.recv(RECEIVE_SIZE)
        if not received:
            raise ConnectionError("the broker closed the connection")
        if not self._received_size and len(received) >= self._reply_size:
            self._check(received)
        count, self._received_size = divmod(self._received_size + len(received), self._reply_size)
        return count


def produce(arguments: dict[str, Any]) -> None:
    """Send one-record requests: `in_flight` on each of `connections`."""
    batch = wire_bytes.record_batch([b"x" * arguments["size"]])
    topic, port = arguments["topic"], arguments["port"]
    requests = [
        wire_bytes.produce_request(topic, index % arguments["partitions"], batch)
        for index in range(arguments["connections"])
    ]
    send_prepared(arguments, requests, wire_bytes.produce_error_position(topic), port)


def commit(arguments: dict[str, Any]) -> None:
    """Send commits of one offset, with a group for each connection."""
    topic, port = arguments["topic"], arguments["port"]
    groups = [f"group-{index}" for index in range(arguments["connections"])]
    requests = [
        wire_bytes.offset_commit_request(group, topic, index % arguments["partitions"], 1)
        for index, group in enumerate(groups)
    ]
    error_position = wire_bytes.offset_commit_error_position(topic)
    wait_for_coordinators(port, groups, requests, error_position)
    send_prepared(arguments, requests, error_position, port)


def wait_for_coordinators(
    port: int, groups: list[str], requests: list[bytes], error_position: int
) -> None:
    """Wait until each group can commit: the first request creates the offsets topic."""
    deadline = time.monotonic() + COORDINATOR_TIMEOUT_S
    for group, request in zip(groups, requests, strict=True):
        while True:
            exchange(port, wire_bytes.find_coordinator_request(group))
            reply = exchange(port, request)
            if not struct.unpack_from(">h", reply, error_position - 4)[0]:
                break
            if time.monotonic() > deadline:
                raise RuntimeError(f"no coordinator for {group}")
            time.sleep(0.1)


def send_prepared(
    arguments: dict[str, Any], requests: list[bytes], error_position: int, port: int
) -> None:
    """Repeat each connection's request, with `in_flight` requests before their replies."""
    count, in_flight = arguments["count"], arguments["in_flight"]
    connections = [PreparedConnection(port, request, error_position) for request in requests]
    selector = selectors.DefaultSelector()
    for connection in connections:
        selector.register(connection.socket, selectors.EVENT_READ, connection)

    def work() -> dict[str, Any]:
        unsent_count, unanswered_count = count, count
        for connection in connections:
            connection.send(min(in_flight, unsent_count))
            unsent_count -= min(in_flight, unsent_count)
        while unanswered_count:
            for key, _ in selector.select():
                connection = key.data
                answered_count = connection.receive()
                unanswered_count -= answered_count
                next_count = min(answered_count, unsent_count)
                if next_count:
                    unsent_count -= next_count
                    connection.send(next_count)
        return {"requests": count, "records": count}

    serve_load(work)


class FetchConnection:
    """Fetches a partition from start to end repeatedly, with `in_flight` requests ahead."""

    def __init__(self, port: int, topic: str, partition: int, request_bytes: int) -> None:
        self.socket = connect(port)
        self._topic, self._partition, self._request_bytes = topic, partition, request_bytes
        self._requests = self._learn_requests()
        self._next_index = 0
        self._reply_left = 0
        self._size_bytes = b""
        self._buffer = memoryview(bytearray(RECEIVE_SIZE))

    def _learn_requests(self) -> list[bytes]:
        """Read the partition once, so that later requests can be sent before the replies."""
        offset = 0
        requests: list[bytes] = []
        records_position = wire_bytes.fetch_records_position(self._topic) - 4
        while True:
            request = wire_bytes.fetch_request(
                self._topic, self._partition, offset, max_bytes=self._request_bytes
            )
            self.socket.sendall(request)
            size = struct.unpack(">i", self.socket.recv(4, socket.MSG_WAITALL))[0]
            reply = self.socket.recv(size, socket.MSG_WAITALL)
            next_offset = offset
            position = records_position
            while position + 61 <= len(reply):
                base_offset, length = struct.unpack_from(">qi", reply, position)
                if position + 12 + length > len(reply):
                    break
                next_offset = base_offset + struct.unpack_from(">i", reply, position + 23)[0] + 1
                position += 12 + length
            if next_offset == offset:
                return requests or [request]
            offset = next_offset
            requests.append(request)

    def send_next(self) -> None:
        self.socket.sendall(self._requests[self._next_index % len(self._requests)])
        self._next_index += 1

    def receive(self) -> tuple[int, int]:
        """Return the bytes of this read, and how many replies it completed."""
        if not self._reply_left:
            part = self.socket.recv(4 - len(self._size_bytes))
            if not part:
                raise ConnectionError("the broker closed the connection")
            self._size_bytes += part
            if len(self._size_bytes) == 4:
                self._reply_left = struct.unpack(">i", self._size_bytes)[0]
                self._size_bytes = b""
            return 0, 0
        size = self.socket.recv_into(self._buffer[: min(self._reply_left, RECEIVE_SIZE)])
        if not size:
            raise ConnectionError("the broker closed the connection")
        self._reply_left -= size
        return size, int(self._reply_left == 0)


def fetch(arguments: dict[str, Any]) -> None:
    connections = [
        FetchConnection(arguments["port"], arguments["topic"], index, arguments["request_bytes"])
        for index in range(arguments["partitions"])
    ]
    selector = selectors.DefaultSelector()
    for connection in connections:
        selector.register(connection.socket, selectors.EVENT_READ, connection)

    def work() -> dict[str, Any]:
        bytes_count = requests_count = 0
        for connection in connections:
            for _ in range(arguments["in_flight"]):
                connection.send_next()
        while bytes_count < arguments["bytes"]:
            for key, _ in selector.select():
                size, completed_count = key.data.receive()
                bytes_count += size
                if completed_count:
                    requests_count += completed_count
                    key.data.send_next()
        return {"requests": requests_count, "bytes": bytes_count}

    serve_load(work)


def main() -> None:
    arguments = json.loads(sys.argv[1])
    {"produce": produce, "commit": commit, "fetch": fetch}[arguments["mode"]](arguments)


if __name__ == "__main__":
    main()
