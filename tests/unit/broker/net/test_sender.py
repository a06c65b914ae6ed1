"""Segments to a socket: every mix of bytes and slices arrives whole and in order."""

import asyncio
import errno
import os
import random
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import pytest
from resident_pages import evict

from fairlead_broker.limits import BYTES_SENT_PER_TURN, COPIED_SLICE_BYTES
from fairlead_broker.net.read_ahead import ReadAhead, SliceLostError
from fairlead_broker.net.sender import Sender, SendState

if TYPE_CHECKING:
    from fairlead_broker.net import read_ahead as read_ahead_module

CONTENT = random.Random(7).randbytes(3_000_000)


class OpenSegment(NamedTuple):
    read_fd: int


class Slice(NamedTuple):
    file: OpenSegment
    position: int
    length: int

    def __len__(self) -> int:
        return self.length


class ColdUntilRead(ReadAhead):
    """Calls everything cold that no thread has read yet."""

    __slots__ = ("asked", "read")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.asked = 0

    def is_cached(self, fd: int, position: int, length: int) -> bool:
        self.asked += 1
        return False

    def read_if_cached(self, file_slice: Any, buffer: memoryview) -> bool:
        self.asked += 1
        return False


@pytest.fixture
def segment(tmp_path: Path) -> Iterator[OpenSegment]:
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(CONTENT)
    fd = os.open(path, os.O_RDONLY)
    yield OpenSegment(fd)
    os.close(fd)


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    listening = socket.create_server(("127.0.0.1", 0))
    left = socket.create_connection(listening.getsockname())
    right, _ = listening.accept()
    listening.close()
    left.setblocking(False)
    right.setblocking(False)
    yield left, right
    left.close()
    right.close()


async def drain(
    sender: Sender, warm: asyncio.Event, right: socket.socket, size: int
) -> tuple[bytes, set[SendState]]:
    """Flush as a connection would, reading on the other side, until all has arrived."""
    received = bytearray()
    states: set[SendState] = set()
    async with asyncio.timeout(20):
        while len(received) < size:
            state = sender.flush()
            states.add(state)
            if state is SendState.COLD:
                await warm.wait()
                warm.clear()
            try:
                while len(received) < size:
                    received += right.recv(1 << 16)
            except BlockingIOError:
                await asyncio.sleep(0)
    return bytes(received), states


def random_segments(chance: random.Random, segment: OpenSegment) -> list[Any]:
    segments: list[Any] = []
    for _ in range(chance.randrange(1, 40)):
        size = chance.choice((1, 60, 4000, COPIED_SLICE_BYTES - 1, COPIED_SLICE_BYTES, 500_000))
        position = chance.randrange(len(CONTENT) - size)
        kind = chance.randrange(4)
        if kind == 0:
            segments.append(CONTENT[position : position + size])
        elif kind == 1:
            segments.append(memoryview(CONTENT)[position : position + size])
        else:
            segments.append(Slice(segment, position, size))
    return segments


def expected(segments: list[Any]) -> bytes:
    return b"".join(
        CONTENT[each.position : each.position + each.length]
        if isinstance(each, Slice)
        else bytes(each)
        for each in segments
    )


@pytest.mark.parametrize("read_ahead_type", [ReadAhead, ColdUntilRead])
@pytest.mark.parametrize("seed", range(6))
def test_any_mix_arrives_whole_and_in_order(
    segment: OpenSegment,
    pair: tuple[socket.socket, socket.socket],
    seed: int,
    read_ahead_type: type[ReadAhead],
) -> None:
    async def scenario() -> None:
        left, right = pair
        warm = asyncio.Event()
        read_ahead = read_ahead_type(asyncio.get_running_loop())
        sender = Sender(left, read_ahead, lambda error: warm.set())
        chance = random.Random(seed)
        segments = random_segments(chance, segment) + random_segments(chance, segment)
        half = len(segments) // 2
        sender.push(segments[:half])
        sender.flush()
        sender.push(segments[half:])
        whole = expected(segments)
        received, states = await drain(sender, warm, right, len(whole))
        assert received == whole
        assert sender.unsent_bytes == 0
        assert (SendState.COLD in states) == (
            read_ahead_type is ColdUntilRead and any(isinstance(each, Slice) for each in segments)
        )
        read_ahead.close()

    asyncio.run(scenario())


def test_one_turn_sends_no_more_than_its_share(
    segment: OpenSegment, pair: tuple[socket.socket, socket.socket]
) -> None:
    async def scenario() -> None:
        left, _ = pair
        left.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * BYTES_SENT_PER_TURN)
        sender = Sender(left, ReadAhead(asyncio.get_running_loop()), lambda error: None)
        sender.push([Slice(segment, 0, 2_900_000)])
        sender.flush()
        assert 2_900_000 - sender.unsent_bytes <= BYTES_SENT_PER_TURN

    asyncio.run(scenario())


@pytest.mark.parametrize("size", [5_000, 20_000])
def test_a_file_shorter_than_promised_ends_the_connection(
    segment: OpenSegment, pair: tuple[socket.socket, socket.socket], size: int
) -> None:
    async def scenario() -> None:
        left, _ = pair
        warm = asyncio.Event()
        read_ahead = ReadAhead(asyncio.get_running_loop())
        sender = Sender(left, read_ahead, lambda error: warm.set())
        sender.push([Slice(segment, len(CONTENT) - size // 2, size)])
        with pytest.raises(SliceLostError):
            while True:
                if sender.flush() is SendState.COLD:
                    await warm.wait()
        read_ahead.close()

    asyncio.run(scenario())


def test_sending_does_not_move_the_position_of_the_descriptor(
    segment: OpenSegment, pair: tuple[socket.socket, socket.socket]
) -> None:
    async def scenario() -> None:
        left, right = pair
        sender = Sender(left, ReadAhead(asyncio.get_running_loop()), lambda error: None)
        sender.push([b"head", Slice(segment, 100, 50), Slice(segment, 1000, 100_000)])
        await drain(sender, asyncio.Event(), right, 100_054)
        assert os.lseek(segment.read_fd, 0, os.SEEK_CUR) == 0

    asyncio.run(scenario())


def test_a_device_that_refuses_the_probe_is_asked_once(
    segment: OpenSegment, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = 0
    preadv = os.preadv

    def refuse(fd: int, buffers: Any, position: int, flags: int = 0) -> int:
        nonlocal refusals
        if flags:
            refusals += 1
            raise OSError(errno.EOPNOTSUPP, "not supported")
        return preadv(fd, buffers, position)

    monkeypatch.setattr(os, "preadv", refuse)

    async def scenario() -> None:
        read_ahead = ReadAhead(asyncio.get_running_loop())
        tail = len(CONTENT) - 100_000
        assert read_ahead.is_cached(segment.read_fd, tail, 100_000)
        buffer = bytearray(5000)
        wanted = cast("read_ahead_module.Slice", Slice(segment, tail, 5000))
        assert read_ahead.read_if_cached(wanted, memoryview(buffer))
        assert bytes(buffer) == CONTENT[tail : tail + 5000]
        assert refusals == 1

    asyncio.run(scenario())


def test_no_thread_reads_what_is_in_memory_whatever_a_read_at_once_says(
    segment: OpenSegment,
    pair: tuple[socket.socket, socket.socket],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """EAGAIN is no proof that a page is missing, only that this read was not done at once."""
    preadv = os.preadv

    def hesitate(fd: int, buffers: Any, position: int, flags: int = 0) -> int:
        if flags:
            raise BlockingIOError(errno.EAGAIN, "not now")
        return preadv(fd, buffers, position)

    monkeypatch.setattr(os, "preadv", hesitate)

    async def scenario() -> None:
        read_ahead = ReadAhead(asyncio.get_running_loop())
        sender = Sender(pair[0], read_ahead, lambda error: None)
        for _ in range(3):
            for size in (COPIED_SLICE_BYTES - 1, 1_000_000):
                sender.push([Slice(segment, at, size) for at in range(0, 2_000_000, size)])
            received, states = await drain(sender, asyncio.Event(), pair[1], sender.unsent_bytes)
            assert SendState.COLD not in states
            assert len(received) > 4_000_000
        assert read_ahead.jobs_count == 0

    asyncio.run(scenario())


def test_a_hole_inside_a_slice_is_read_by_a_thread(
    tmp_path: Path, pair: tuple[socket.socket, socket.socket]
) -> None:
    """A hole of 64 KiB that lies between pages which are there."""
    piece = 64 * 1024
    fd = os.open(tmp_path / "00000000000000000000.log", os.O_RDWR | os.O_CREAT)
    for at in range(0, 16 * piece, piece):
        os.write(fd, CONTENT[at : at + piece])

    async def scenario() -> None:
        warm = asyncio.Event()
        read_ahead = ReadAhead(asyncio.get_running_loop())
        evict(fd, 3 * piece, piece)
        sender = Sender(pair[0], read_ahead, lambda error: warm.set())
        sender.push([Slice(OpenSegment(fd), 0, 16 * piece)])
        received, states = await drain(sender, warm, pair[1], 16 * piece)
        assert received == CONTENT[: 16 * piece]
        assert SendState.COLD in states
        assert read_ahead.jobs_count > 0
        read_ahead.close()

    asyncio.run(scenario())
    os.close(fd)


class CountingSocket(socket.socket):
    sends_count = 0

    def send(self, data: Any, flags: int = 0, /) -> int:
        self.sends_count += 1
        return super().send(data, flags)


def test_an_empty_end_of_a_reply_costs_no_system_call(
    pair: tuple[socket.socket, socket.socket], segment: OpenSegment
) -> None:
    async def send() -> None:
        with CountingSocket(fileno=pair[0].detach()) as left:
            left.setblocking(False)
            sender = Sender(left, ReadAhead(asyncio.get_running_loop()), lambda error: None)
            sender.push([b"head", Slice(segment, 0, COPIED_SLICE_BYTES), b""])
            assert sender.flush() is SendState.DONE
            assert (sender.unsent_bytes, left.sends_count) == (0, 1)

    asyncio.run(send())
