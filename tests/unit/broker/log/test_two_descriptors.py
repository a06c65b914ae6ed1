"""The two-descriptor rule: whatever is done with a slice's descriptor, appends are unharmed.

`os.sendfile` without an offset and asyncio's `loop.sendfile` move the position of the descriptor
they are given. If a segment ever wrote at "the current position" of a descriptor that readers
share, these tests would find the log overwritten.
"""

import asyncio
import os
import socket
from pathlib import Path

import pytest
from log_batches import LogBench, all_headers, append, batch

from fairlead_broker.log.files.file_slice import FileSlice
from fairlead_broker.log.log import Log


@pytest.fixture
def log(tmp_path: Path) -> Log:
    log = LogBench(f"{tmp_path}/t-0").create()
    append(log, *(batch(size=300) for _ in range(10)))
    return log


def slice_of(log: Log) -> FileSlice:
    found = log.read(0, 1 << 20, end_offset=log.log_end_offset, minimum_one_batch=True)
    assert found.records is not None
    return found.records


def check(log: Log, count: int) -> None:
    assert [header.base_offset for header in all_headers(log)] == list(range(count))
    assert log.disk.size(log.active.file.read_fd) == log.size == 300 * count


def test_readers_and_the_writer_have_different_descriptions(log: Log) -> None:
    read_fd = slice_of(log).file.read_fd
    (writer, *_) = log.active.writers()
    assert read_fd != writer.fd
    os.lseek(read_fd, 17, os.SEEK_SET)
    assert os.lseek(writer.fd, 0, os.SEEK_CUR) == 0, "a dup would share the position"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.write(read_fd, b"x")


def test_moving_the_readers_position_does_not_move_appends(log: Log) -> None:
    read_fd = slice_of(log).file.read_fd
    receiving, sending = socket.socketpair()
    with receiving, sending:
        for count in range(11, 30):
            os.lseek(read_fd, 40 * count, os.SEEK_SET)
            os.sendfile(sending.fileno(), read_fd, None, 100)
            receiving.recv(4096)
            append(log, batch(size=300))
            check(log, count)


def test_the_writers_own_position_does_not_matter_either(log: Log) -> None:
    os.lseek(log.active.writers()[0].fd, 5, os.SEEK_SET)
    append(log, batch(size=300))
    check(log, 11)


def test_appends_go_on_during_asyncio_sendfile(log: Log) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        received = bytearray()
        at_end = asyncio.Event()

        async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while data := await reader.read(65_536):
                received.extend(data)
            writer.close()
            at_end.set()

        server = await asyncio.start_server(take, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        _, writer = await asyncio.open_connection(host, port)
        piece = slice_of(log)
        expected = os.pread(piece.file.read_fd, piece.length, piece.position)
        with os.fdopen(piece.file.read_fd, "rb", closefd=False) as file:
            for _ in range(20):
                sending = asyncio.ensure_future(
                    loop.sendfile(
                        writer.transport, file, piece.position, piece.length, fallback=False
                    )
                )
                while not sending.done():
                    append(log, batch(size=300))
                    await asyncio.sleep(0)
                await sending
        writer.close()
        await writer.wait_closed()
        await at_end.wait()
        server.close()
        await server.wait_closed()
        assert bytes(received) == expected * 20

    asyncio.run(asyncio.wait_for(scenario(), 20))
    check(log, log.log_end_offset)


def test_a_slice_outlives_its_segment(log: Log, tmp_path: Path) -> None:
    log.roll(0)
    append(log, batch(size=300))
    piece = slice_of(log)
    before = os.pread(piece.file.read_fd, piece.length, piece.position)
    log.advance_log_start_offset(10)
    assert log.delete_expired_segments(0, 11) == 1
    job = log.begin_deletions(10**15)
    assert job is not None
    job.run()
    assert not list(tmp_path.glob("t-0/*.deleted"))
    log.close()
    # New files must not get the descriptor that the slice still uses.
    others = [os.open(tmp_path, os.O_RDONLY) for _ in range(5)]
    assert os.pread(piece.file.read_fd, piece.length, piece.position) == before
    descriptor = piece.file.read_fd
    del piece
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    for other in others:
        os.close(other)
