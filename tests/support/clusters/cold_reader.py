"""A client, in a separate process, that reads records that are no longer in memory.

In the measuring process, client and measurement would wait for the same interpreter lock.
"""

import multiprocessing
import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from typing import Final

from live_broker import FrameClient

from fairlead_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

MIB: Final = 1 << 20
FETCH_VERSION: Final = 11
STEP: Final = 3
"""The reader goes backwards, in larger steps than the kernel's read-ahead."""
READ_EVERY_S: Final = 0.015
END_S: Final = 30.0


class ColdReader:
    """Reads partition 0 of a topic, whose batches have a MiB each, one at a time."""

    def __init__(self, port: int, topic: str, batches: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._reading, self._ended = context.Event(), context.Event()
        arguments = (port, topic, batches, self._reading, self._ended)
        self._process = context.Process(target=read_backwards, args=arguments, daemon=True)
        self._process.start()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Let it read during the block."""
        self._reading.set()
        try:
            yield
        finally:
            self._reading.clear()

    def end(self) -> int | None:
        """End it; return its exit code."""
        self._ended.set()
        self._reading.set()
        self._process.join(END_S)
        return self._process.exitcode


def read_backwards(port: int, topic: str, batches: int, reading: Event, ended: Event) -> None:
    """Read between `reading` and `ended`."""
    # As if on another machine: the broker and the measured client have priority.
    os.nice(10)
    scratch = memoryview(bytearray(MIB))
    offset = batches - 1
    with FrameClient(port) as client:
        while reading.wait() and not ended.is_set():
            client.send(fetch(topic, offset), FETCH_VERSION)
            (left,) = struct.unpack(">i", client.receive_exactly(4))
            assert left > MIB // 2
            while left:
                left -= client.socket.recv_into(scratch, min(left, MIB))
            offset = (offset - STEP) % batches
            time.sleep(READ_EVERY_S)


def fetch(topic: str, offset: int) -> FetchRequest:
    """Ask for a MiB of partition 0."""
    partition = FetchPartition(0, fetch_offset=offset, partition_max_bytes=MIB)
    topics = [FetchTopic(topic, partitions=[partition])]
    return FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=MIB, topics=topics)
