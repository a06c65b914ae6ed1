"""A measured broker, as the scenarios use it, and the probe for its readiness."""

import socket
import struct
import time
from pathlib import Path
from typing import Protocol

from fairlead_bench.loads import wire_bytes

START_TIMEOUT_S = 90.0


class Peer(Protocol):
    """One single-node cluster. `start` and `stop` keep its data; the run removes the folders."""

    name: str
    data: Path

    @property
    def port(self) -> int: ...
    @property
    def bootstrap(self) -> str: ...
    @property
    def broker_pid(self) -> int: ...
    @property
    def log_directory(self) -> Path: ...
    def add_tls_listener(self, port: int, keystore: Path) -> None:
        """Let it listen with TLS at one more port; before the first start. `keystore` is PEM."""

    def prepare(self) -> None:
        """Write settings and identity, once; otherwise `start` does it."""

    def start(self) -> None:
        """Start the processes and return at once."""

    def stop(self) -> None:
        """Stop them cleanly and wait."""

    def failure(self) -> str | None:
        """Why it is not running any more; None if it runs."""

    def thread_reads(self) -> float | None:
        """Return how often records were not in the page cache so far. None if it is not counted."""


def exchange(port: int, request: bytes, timeout_s: float = 10.0) -> bytes:
    """Send one frame on a new connection; return the reply without its length."""
    with socket.create_connection(("127.0.0.1", port), timeout_s) as connection:
        connection.sendall(request)
        size = struct.unpack(">i", receive_exactly(connection, 4))[0]
        return receive_exactly(connection, size)


def receive_exactly(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        part = connection.recv(size - len(received))
        if not part:
            raise ConnectionError("the broker closed the connection")
        received += part
    return bytes(received)


def wait_until_ready(
    peer: Peer, *, partitions: int = 0, probe_topic: str | None = None, probe_partitions: int = 1
) -> None:
    """Return once Metadata has a broker and so many led partitions, and a produce succeeds."""
    deadline = time.monotonic() + START_TIMEOUT_S
    state = "no answer"
    while time.monotonic() < deadline:
        reason = peer.failure()
        if reason is not None:
            raise RuntimeError(f"{peer.name} ended while starting: {reason}")
        try:
            reply = wire_bytes.MetadataReply(exchange(peer.port, wire_bytes.metadata_request(None)))
            state = f"{reply.brokers_count} brokers, {reply.leaders_count} leaders"
            is_led = reply.brokers_count > 0 and reply.leaders_count >= partitions
            if is_led and (
                probe_topic is None
                or all(can_produce(peer.port, probe_topic, i) for i in range(probe_partitions))
            ):
                return
        except (OSError, struct.error) as error:
            state = str(error)
        time.sleep(0.005)
    raise TimeoutError(f"{peer.name} was not ready within {START_TIMEOUT_S} s: {state}")


def can_produce(port: int, topic: str, partition: int) -> bool:
    request = wire_bytes.produce_request(topic, partition, wire_bytes.record_batch([b"ready?"]))
    reply = exchange(port, request)
    position = wire_bytes.produce_error_position(topic) - 4
    return bool(struct.unpack_from(">h", reply, position)[0] == 0)
