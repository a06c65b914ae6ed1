"""What of a file the kernel holds in memory: right to the page, and asked without reading."""

import ctypes
import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from resident_pages import evict

from fairlead_broker.net.page_cache import PageCache

MIB = 1 << 20
SIZE = 4 * MIB
PIECE = 16 * 4096


class OpenFile:
    """A file of 4 MiB on the disk, written in pieces: the kernel lets go of what was one piece."""

    def __init__(self, path: Path) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT)
        for _ in range(SIZE // PIECE):
            os.write(self.fd, os.urandom(PIECE))
        os.fsync(self.fd)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[OpenFile]:
    file = OpenFile(tmp_path / "00000000000000000000.log")
    yield file
    os.close(file.fd)


@pytest.fixture(params=["cachestat", "mincore"])
def page_cache(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> PageCache:
    """Both ways to ask: of this kernel, and of one that has no cachestat or forbids it."""
    page_cache = PageCache()
    if request.param == "mincore":
        monkeypatch.setattr(page_cache, "_counts", None)
    return page_cache


def test_what_was_written_is_there(file: OpenFile, page_cache: PageCache) -> None:
    assert page_cache.holds(file.fd, 0, SIZE)
    for position, length in ((0, 1), (4095, 2), (SIZE - 1, 1), (123_457, 1_000_001)):
        assert page_cache.holds(file.fd, position, length), (position, length)


@pytest.mark.parametrize("hole", [0, 10 * PIECE, SIZE - PIECE])
def test_a_hole_is_found_wherever_it_is(file: OpenFile, page_cache: PageCache, hole: int) -> None:
    evict(file.fd, hole, PIECE)
    assert not page_cache.holds(file.fd, 0, SIZE)
    assert not page_cache.holds(file.fd, hole + 8 * 4096, 1)
    if hole:
        assert page_cache.holds(file.fd, 0, hole)
    else:
        assert page_cache.holds(file.fd, PIECE, SIZE - PIECE)


def test_asking_reads_nothing(file: OpenFile, page_cache: PageCache) -> None:
    evict(file.fd)
    for _ in range(100):
        for position in range(0, SIZE, 4096):
            assert not page_cache.holds(file.fd, position, 4096)


def test_bytes_behind_the_end_are_not_there(file: OpenFile, page_cache: PageCache) -> None:
    assert not page_cache.holds(file.fd, SIZE - 4096, 2 * 4096)


def test_a_file_in_memory_is_known_though_its_system_refuses_to_read_at_once(
    page_cache: PageCache,
) -> None:
    size = 100_000
    descriptor = os.memfd_create("log")
    try:
        os.write(descriptor, bytes(size))
        assert page_cache.holds(descriptor, 0, size)
        assert not page_cache.read(descriptor, [bytearray(1)], 1, 0)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("refusal", [errno.ENOSYS, errno.EPERM])
def test_a_kernel_that_refuses_to_count_is_asked_once(
    file: OpenFile, monkeypatch: pytest.MonkeyPatch, refusal: int
) -> None:
    page_cache = PageCache()
    calls = 0

    def refuse(*arguments: Any) -> int:
        nonlocal calls
        calls += 1
        ctypes.set_errno(refusal)
        return -1

    monkeypatch.setattr(page_cache, "_counts", refuse)
    for _ in range(3):
        assert page_cache.holds(file.fd, 0, SIZE)
    assert calls == 1
