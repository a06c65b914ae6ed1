"""The embedded metadata store of a local cluster: one journal file in one folder.

All work with files happens in a thread of the store, in order; the event loop never waits for a
disk. A failed write or sync is never tried again, because the content of the file is then unknown.
The store refuses all later requests, and the controller ends and starts again from what can be
read; each start writes that to a new file. Only a rewrite of the journal may fail for lack of
space: its file is not the journal yet.

Methods that begin with an underscore run in the store's thread.
"""

import asyncio
import fcntl
import json
import logging
import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

from fairlead_controller.decisions.tables.stored_table import (
    StoreCorruptError,
    StoredTable,
    StoreError,
)
from fairlead_controller.stores.journal import (
    Tables,
    apply_write,
    decode_journal,
    encode_snapshot,
    encode_writes,
)
from fairlead_controller.stores.metadata_store import (
    MetadataStore,
    StoreHeldError,
    TableWrite,
    WriteOutcome,
    WriteResult,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")

ROTATION_BYTES_MIN: Final = 1 << 20
"""The journal is rewritten only once the writes after its snapshot have this size …"""
ROTATION_FACTOR: Final = 4
"""… and so many times the size of its snapshot."""

READ_ATTEMPTS: Final = 10

_JOURNAL_NAME: Final = re.compile(r"metadata-(\d{10})\.journal")


class FileStore(MetadataStore):
    """The store of one folder; it holds the folder's lock. `open_file_store` makes it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="metadata-store")
        self._tables: Tables = {}
        self._failure: StoreError | None = None
        self._lock_file = -1
        self._journal = -1
        self._generation = 0
        self._snapshot_size = 0
        self._journal_size = 0
        self._rotation_put_off_to = 0

    async def load(self) -> dict[str, StoredTable]:
        """Return all tables."""
        return await self._run(lambda: dict(self._tables))

    async def read(self, table: str) -> StoredTable | None:
        """Return one table."""
        return await self._run(lambda: self._tables.get(table))

    async def write(self, writes: Sequence[TableWrite]) -> list[WriteResult]:
        """Write tables with one append and one sync."""
        return await self._run(lambda: self._write(writes))

    async def close(self) -> None:
        """Close the files and release the lock."""
        await asyncio.get_running_loop().run_in_executor(self._executor, self._close_files)
        self._executor.shutdown(wait=False)

    async def _run(self, work: Callable[[], T]) -> T:
        def guarded() -> T:
            if self._failure is not None:
                raise self._failure
            return work()

        return await asyncio.get_running_loop().run_in_executor(self._executor, guarded)

    def _write(self, writes: Sequence[TableWrite]) -> list[WriteResult]:
        results: list[WriteResult] = []
        accepted: list[tuple[TableWrite, str]] = []
        for write in writes:
            table = self._tables.get(write.table)
            present = None if table is None else table.version
            is_older = table is not None and write.controller_epoch < table.controller_epoch
            if present != write.version or is_older:
                results.append(WriteResult(WriteOutcome.CONFLICT))
                continue
            version = str(int(present or "0") + 1)
            accepted.append((write, version))
            results.append(WriteResult(WriteOutcome.WRITTEN, version))
        if accepted:
            self._append(encode_writes(accepted))
            for write, version in accepted:
                known = self._tables.get(write.table)
                self._tables[write.table] = apply_write(known, write, version)
            self._maybe_rotate()
        return results

    def _append(self, data: bytes) -> None:
        try:
            _write_all(self._journal, data)
            os.fsync(self._journal)
        except OSError as error:
            self._failure = StoreError(f"writing metadata to {self._directory} failed: {error}")
            raise self._failure from error
        self._journal_size += len(data)

    def _maybe_rotate(self) -> None:
        increments = self._journal_size - self._snapshot_size
        due = max(ROTATION_BYTES_MIN, ROTATION_FACTOR * self._snapshot_size)
        if increments >= due and self._journal_size >= self._rotation_put_off_to:
            self._rewrite()

    def _rewrite(self) -> None:
        """Begin the next generation if the disk has room for it."""
        generation = self._generation + 1
        try:
            written = self._write_snapshot(generation)
        except OSError as error:
            # The disk may be full. The journal in use is still whole, and continues to grow.
            self._rotation_put_off_to = self._journal_size + ROTATION_BYTES_MIN
            logger.warning("metadata in %s is not rewritten yet: %s", self._directory, error)
            return
        try:
            self._move_on(generation, written)
        except OSError as error:
            self._failure = StoreError(f"rewriting metadata in {self._directory} failed: {error}")
            raise self._failure from error

    def _write_snapshot(self, generation: int) -> tuple[int, int]:
        """Write all tables to a file beside the journal.

        Return its descriptor and its size. OSError if it cannot be written.
        """
        temporary = self._temporary(generation)
        content = encode_snapshot(self._tables, generation)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            _write_all(descriptor, content)
            os.fsync(descriptor)
        except OSError:
            os.close(descriptor)
            with suppress(OSError):
                temporary.unlink()
            raise
        return descriptor, len(content)

    def _move_on(self, generation: int, written: tuple[int, int]) -> None:
        """Make the new file the journal."""
        descriptor, size = written
        self._temporary(generation).rename(self._path(generation))
        _sync_directory(self._directory)
        if self._journal >= 0:
            os.close(self._journal)
        for older in self._directory.iterdir():
            match = _JOURNAL_NAME.fullmatch(older.name)
            if match is not None and int(match[1]) < generation:
                older.unlink()
        self._journal = descriptor
        self._generation = generation
        self._snapshot_size = self._journal_size = size

    def _temporary(self, generation: int) -> Path:
        return self._path(generation).with_suffix(".tmp")

    def _path(self, generation: int) -> Path:
        return self._directory / f"metadata-{generation:010d}.journal"

    def _open_files(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        self._lock()
        try:
            self._load_newest()
        except BaseException:
            self._close_files()
            raise

    def _lock(self) -> None:
        path = self._directory / "lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(os.pread(descriptor, 200, 0))
            os.close(descriptor)
            raise StoreHeldError(
                f"the metadata in {self._directory} is in use by {holder}"
            ) from None
        except OSError:
            os.close(descriptor)
            raise
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps({"pid": os.getpid()}).encode(), 0)
        self._lock_file = descriptor

    def _load_newest(self) -> None:
        generations = []
        for path in self._directory.iterdir():
            match = _JOURNAL_NAME.fullmatch(path.name)
            if match is not None:
                generations.append(int(match[1]))
            elif path.suffix == ".tmp":
                path.unlink()
        if not generations:
            self._move_on(1, self._write_snapshot(1))
            return
        self._generation = max(generations)
        path = self._path(self._generation)
        content = path.read_bytes()
        self._tables, size = decode_journal(content, path.name)
        if not content:
            raise StoreCorruptError(f"{path} is empty")
        self._journal = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        if size < len(content):
            os.ftruncate(self._journal, size)
            os.fsync(self._journal)
        self._journal_size = size
        self._snapshot_size = len(encode_snapshot(self._tables, self._generation))
        # If a sync failed in the process before this one, what was just read may be only in the
        # page cache, and is never written to the disk again. A new file gets all of it.
        self._rewrite()

    def _close_files(self) -> None:
        for descriptor in (self._journal, self._lock_file):
            if descriptor >= 0:
                os.close(descriptor)
        self._journal = self._lock_file = -1
        self._failure = self._failure or StoreError("the metadata store is closed")


async def open_file_store(directory: Path) -> FileStore:
    """Open the store in a folder, and create it if necessary.

    StoreHeldError if another process has it open, StoreCorruptError if it is damaged, StoreError if
    the disk fails.
    """
    store = FileStore(directory)
    try:
        await asyncio.get_running_loop().run_in_executor(store._executor, store._open_files)
    except OSError as error:
        store._executor.shutdown(wait=False)
        raise StoreError(f"the metadata in {directory} cannot be opened: {error}") from error
    except BaseException:
        store._executor.shutdown(wait=False)
        raise
    return store


def read_file_store(directory: Path) -> dict[str, StoredTable]:
    """Read the tables in a folder as they are now, without the lock; StoreError if impossible.

    A controller may be writing meanwhile: its last record is then read whole or not at all.
    """
    for _ in range(READ_ATTEMPTS):
        try:
            journals = sorted(
                path for path in directory.iterdir() if _JOURNAL_NAME.fullmatch(path.name)
            )
            if not journals:
                return {}
            tables, _ = decode_journal(journals[-1].read_bytes(), journals[-1].name)
        except FileNotFoundError:
            continue  # A new generation has just replaced this one.
        except OSError as error:
            raise StoreError(f"reading metadata in {directory} failed: {error}") from error
        return tables
    raise StoreError(f"there is no metadata in {directory}")


def _holder(content: bytes) -> str:
    with suppress(ValueError, KeyError, TypeError):
        return f"process {json.loads(content)['pid']}"
    return "another process"


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
