import asyncio
import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest
from metadata_store_contract import StoreContract

from fairlead_controller.decisions.tables.stored_table import (
    StoreCorruptError,
    StoredTable,
    StoreError,
    StoreTooNewError,
)
from fairlead_controller.stores import file as file_module
from fairlead_controller.stores.file import FileStore, open_file_store
from fairlead_controller.stores.journal import decode_journal
from fairlead_controller.stores.metadata_store import (
    MetadataStore,
    StoreHeldError,
    TableWrite,
    WriteOutcome,
)


class TestFileStore(StoreContract):
    async def open(self, directory: Path) -> MetadataStore:
        return await open_file_store(directory)


def write_three(directory: Path) -> list[dict[str, dict[str, str]]]:
    """Three group commits; the contents before the first and after each."""
    states: list[dict[str, dict[str, str]]] = [{}]

    async def story() -> None:
        store = await open_file_store(directory)
        for number in range(3):
            tables = await store.load()
            writes = [
                TableWrite(
                    name,
                    tables[name].version if name in tables else None,
                    1,
                    {f"key{number}": f"value {number}"},
                )
                for name in ("t", "u")
            ]
            await store.write(writes)
            states.append(contents_of(await store.load()))
        await store.close()

    asyncio.run(story())
    return states


async def write(directory: Path, table: str) -> None:
    """What a process does that writes one table and ends."""
    store = await open_file_store(directory)
    await store.write([TableWrite(table, None, 1, {"a": "b"})])
    await store.close()


def contents_of(tables: dict[str, StoredTable]) -> dict[str, dict[str, str]]:
    return {name: dict(table.lines) for name, table in tables.items()}


def journal_in(directory: Path) -> Path:
    (path,) = directory.glob("metadata-*.journal")
    return path


def read_anew(directory: Path) -> dict[str, dict[str, str]]:
    async def story() -> dict[str, dict[str, str]]:
        store = await open_file_store(directory)
        try:
            return contents_of(await store.load())
        finally:
            await store.close()

    return asyncio.run(story())


def test_a_journal_torn_at_any_byte_holds_a_prefix_of_the_commits(tmp_path: Path) -> None:
    states = write_three(tmp_path / "whole")
    content = journal_in(tmp_path / "whole").read_bytes()
    header_size = content.index(b"\n") + 1
    torn = tmp_path / "torn"
    torn.mkdir()
    seen = []
    for size in range(header_size, len(content) + 1):
        for path in torn.iterdir():
            path.unlink()
        (torn / "metadata-0000000001.journal").write_bytes(content[:size])
        found = read_anew(torn)
        seen.append(states.index(found))
        # What was torn is gone for good.
        left = journal_in(torn).read_bytes()
        tables, whole = decode_journal(left, "left")
        assert (contents_of(tables), whole) == (found, len(left))
    assert seen == sorted(seen)
    assert set(seen) == {0, 1, 2, 3}


def test_garbage_behind_the_last_commit_is_cut_off_before_the_next(tmp_path: Path) -> None:
    states = write_three(tmp_path)
    with journal_in(tmp_path).open("ab") as journal:
        journal.write(b"\x00" * 4096)
    assert read_anew(tmp_path) == states[3]

    asyncio.run(write(tmp_path, "v"))
    assert read_anew(tmp_path) == {**states[3], "v": {"a": "b"}}


def test_damage_in_the_middle_is_reported_not_repaired(tmp_path: Path) -> None:
    write_three(tmp_path)
    path = journal_in(tmp_path)
    lines = path.read_bytes().split(b"\n")
    lines[2] = lines[2].replace(b"value 1", b"value 7")
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(StoreCorruptError, match="damaged in line 3"):
        read_anew(tmp_path)
    assert path.read_bytes() == b"\n".join(lines)


@pytest.mark.parametrize("content", [b"", b"hello\n", b"\x00" * 100])
def test_an_unreadable_journal_is_reported(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "metadata-0000000001.journal").write_bytes(content)
    with pytest.raises(StoreCorruptError):
        read_anew(tmp_path)


def test_a_journal_of_a_later_format_is_refused(tmp_path: Path) -> None:
    from fairlead_controller.stores.journal import encode_record

    header = {"format": "fairlead-metadata", "version": 2, "generation": 1, "tables": 0}
    written = encode_record(header | {"release": "9.1"})
    (tmp_path / "metadata-0000000001.journal").write_bytes(written)
    with pytest.raises(StoreTooNewError, match=r"version 2, .* run release 9\.1, or a later one"):
        read_anew(tmp_path)
    assert journal_in(tmp_path).read_bytes() == written


def test_a_long_journal_is_rewritten_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_module, "ROTATION_BYTES_MIN", 2000)

    async def story() -> None:
        store = await open_file_store(tmp_path)
        version = None
        for number in range(100):
            lines = {f"key{number % 3}": f"value {number}"}
            (result,) = await store.write([TableWrite("t", version, 1, lines)])
            version = result.version
        await store.close()

    asyncio.run(story())
    path = journal_in(tmp_path)
    assert int(path.stem.removeprefix("metadata-")) > 1
    assert path.stat().st_size < 8000
    assert read_anew(tmp_path) == {
        "t": {"key0": "value 99", "key1": "value 97", "key2": "value 98"}
    }


def test_what_a_crash_left_of_a_rewrite_is_ignored(tmp_path: Path) -> None:
    states = write_three(tmp_path)
    (tmp_path / "metadata-0000000002.tmp").write_bytes(b"half")
    assert read_anew(tmp_path) == states[3]
    assert not (tmp_path / "metadata-0000000002.tmp").exists()


def left_behind(directory: Path) -> list[str]:
    return [path.name for path in directory.glob("*.tmp")]


def test_without_room_for_a_rewrite_the_journal_grows_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_module, "ROTATION_BYTES_MIN", 1000)
    write_all = file_module._write_all
    attempts: list[int] = []

    async def story() -> None:
        store = await open_file_store(tmp_path)

        def write_only_the_journal(descriptor: int, data: bytes) -> None:
            if descriptor != store._journal:
                attempts.append(descriptor)
                raise OSError(errno.ENOSPC, "No space left on device")
            write_all(descriptor, data)

        version = None

        async def write(count: int) -> None:
            nonlocal version
            for number in range(count):
                lines = {"key": f"value {number}"}
                (result,) = await store.write([TableWrite("t", version, 1, lines)])
                assert result.outcome is WriteOutcome.WRITTEN
                version = result.version

        with monkeypatch.context() as patch:
            patch.setattr(file_module, "_write_all", write_only_the_journal)
            await write(60)
            assert 1 < len(attempts) < 10
            assert left_behind(tmp_path) == []
        assert journal_in(tmp_path).name == "metadata-0000000001.journal"
        await write(20)
        assert journal_in(tmp_path).name == "metadata-0000000002.journal"
        await store.close()

    asyncio.run(story())
    assert read_anew(tmp_path) == {"t": {"key": "value 19"}}


def test_a_failed_sync_is_final(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    async def story() -> None:
        store = await open_file_store(tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fail)
            with pytest.raises(StoreError, match="Input/output error"):
                await store.write([TableWrite("t", None, 1, {"a": "b"})])
        with pytest.raises(StoreError, match="Input/output error"):
            await store.write([TableWrite("t", None, 1, {"a": "b"})])
        with pytest.raises(StoreError):
            await store.load()
        await store.close()

    asyncio.run(story())


def test_what_a_failed_sync_left_in_the_page_cache_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel counts those pages as written, and never writes them: a power cut shows it."""
    path = tmp_path / "metadata-0000000001.journal"

    def fail_for_the_journal(descriptor: int) -> None:
        if os.fstat(descriptor).st_ino == path.stat().st_ino:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        sync(descriptor)

    async def fail_to_write() -> None:
        store = await open_file_store(tmp_path)
        nonlocal path
        path = journal_in(tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fail_for_the_journal)
            with pytest.raises(StoreError, match="Input/output error"):
                await store.write([TableWrite("doubtful", None, 1, {"a": "b"})])
        await store.close()

    sync = os.fsync
    asyncio.run(write(tmp_path, "before"))
    asyncio.run(fail_to_write())
    begin = path.read_bytes().index(b'{"writes"') - len("12345678 ")
    size = path.stat().st_size
    inode = path.stat().st_ino
    with path.open("rb+") as pages:
        asyncio.run(write(tmp_path, "after"))
        # The power cut: the disk never had what lies between, of that file.
        if journal_in(tmp_path).stat().st_ino == inode:
            pages.seek(begin)
            pages.write(bytes(size - begin))
            pages.flush()
    assert {"before", "after"} <= set(read_anew(tmp_path))


def test_a_start_without_room_goes_on_with_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = write_three(tmp_path)
    before = journal_in(tmp_path)
    with before.open("ab") as journal:
        journal.write(b"torn")

    def refuse(self: FileStore, generation: int) -> tuple[int, int]:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(FileStore, "_write_snapshot", refuse)
    assert read_anew(tmp_path) == states[3]
    assert journal_in(tmp_path) == before

    asyncio.run(write(tmp_path, "v"))
    assert read_anew(tmp_path) == {**states[3], "v": {"a": "b"}}


def test_a_store_that_is_open_says_who_has_it(tmp_path: Path) -> None:
    async def story() -> None:
        store = await open_file_store(tmp_path)
        with pytest.raises(StoreHeldError, match=f"in use by process {os.getpid()}"):
            await open_file_store(tmp_path)
        await store.close()
        again = await open_file_store(tmp_path)
        await again.close()

    asyncio.run(story())


def test_a_folder_that_cannot_be_locked_is_not_said_to_be_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a network file system without locks."""

    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(StoreError, match=r"cannot be opened: .*No locks available") as said:
        asyncio.run(open_file_store(tmp_path))
    assert not isinstance(said.value, StoreHeldError)


def test_a_killed_process_loses_nothing_that_it_was_told_is_written(tmp_path: Path) -> None:
    script = f"""
import asyncio, os
from pathlib import Path
from fairlead_controller.stores.file import open_file_store
from fairlead_controller.stores.metadata_store import (TableWrite)
async def story():
    store = await open_file_store(Path({str(tmp_path)!r}))
    version = None
    while True:
        lines = {{"n": str(int(version or 0) + 1)}}
        (result,) = await store.write([TableWrite("t", version, 1, lines)])
        version = result.version
        os.write(1, (version + "\\n").encode())
asyncio.run(story())
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        told = [process.stdout.readline() for _ in range(50)]
        process.kill()
        told += process.stdout.readlines()
    last = max(int(line) for line in told if line.endswith(b"\n"))
    assert int(read_anew(tmp_path)["t"]["n"]) >= last


def test_the_loop_is_never_blocked_by_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    released = threading.Event()

    async def story() -> None:
        store: FileStore = await open_file_store(tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", lambda descriptor: released.wait(10))
            writing = asyncio.create_task(store.write([TableWrite("t", None, 1, {"a": "b"})]))
            for _ in range(100):
                await asyncio.sleep(0)
            assert not writing.done()
            released.set()
            (result,) = await writing
        assert result.outcome is WriteOutcome.WRITTEN
        await store.close()

    asyncio.run(story())
