"""A load whose broker goes away, or hangs, ends with an error: what it did is no figure."""

from __future__ import annotations

import os
import socket
import struct
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from fairlead_bench.loads import load_process
from fairlead_bench.loads.load_process import LoadFailedError, run_load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
NO_RECORDS = struct.pack(">i", 8) + bytes(8)


def answer_once(answer: bytes) -> Callable[[socket.socket], None]:
    """Answer the first request of a connection, and close it at the second one."""

    def serve(connection: socket.socket) -> None:
        with connection:
            connection.recv(1 << 16)
            connection.sendall(answer)
            connection.recv(1 << 16)

    return serve


def keep_silent(connection: socket.socket) -> None:
    """Read what comes until the peer closes."""
    with connection:
        while connection.recv(1 << 16):
            pass


@contextmanager
def serving(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """The port of a server that does this with each connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def fetch(port: int) -> None:
    arguments = {"mode": "fetch", "port": port, "topic": "t", "partitions": 1, "bytes": 1_000_000}
    more = {"request_bytes": 1000, "in_flight": 1}
    run_load("socket_load", arguments | more, pids=[os.getpid()])


def test_records_by_http_that_were_never_sent_are_not_counted() -> None:
    arguments: dict[str, object] = {"shape": "v3", "path": "/", "batch": 10, "size": 10}
    with (
        serving(answer_once(ANSWER)) as port,
        pytest.raises(LoadFailedError, match=r"rest_load .* ended without a result"),
    ):
        more = {"rest_port": port, "connections": 2, "requests": 5}
        run_load("rest_load", arguments | more, pids=[os.getpid()])


def test_fetches_end_with_their_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_process, "LOAD_TIMEOUT_S", 60)
    with (
        serving(answer_once(NO_RECORDS)) as port,
        pytest.raises(LoadFailedError, match=r"socket_load .* ended without a result"),
    ):
        fetch(port)


def test_a_load_whose_broker_does_not_answer_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_process, "LOAD_TIMEOUT_S", 2)
    with serving(keep_silent) as port, pytest.raises(LoadFailedError, match="did not get ready"):
        fetch(port)
