"""What every metadata store promises, as tests: a store's test module subclasses the contract."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from fairlead_controller.decisions.tables.stored_table import (
    TABLE_BYTES_MAX,
    StoredTable,
    line_bytes,
)
from fairlead_controller.stores.metadata_store import (
    MetadataStore,
    SealedError,
    TableWrite,
    WriteOutcome,
)


class StoreContract(ABC):
    """Tests of the interface; `open` returns the store of a folder, again after `close`."""

    @abstractmethod
    async def open(self, directory: Path) -> MetadataStore:
        """Open the store."""

    def run(self, directory: Path, story: Callable[[MetadataStore], Awaitable[None]]) -> None:
        """Run a story on an open store."""

        async def play() -> None:
            store = await self.open(directory)
            try:
                await story(store)
            finally:
                await store.close()

        asyncio.run(play())

    async def put(
        self, store: MetadataStore, table: str, epoch: int = 1, **lines: str | None
    ) -> WriteOutcome:
        """Write lines to a table whatever its version."""
        present = await store.read(table)
        version = None if present is None else present.version
        (result,) = await store.write([TableWrite(table, version, epoch, lines)])
        return result.outcome

    def contents(self, directory: Path) -> dict[str, StoredTable]:
        """Return what a newly opened store has."""
        loaded: dict[str, StoredTable] = {}

        async def story(store: MetadataStore) -> None:
            loaded.update(await store.load())

        self.run(directory, story)
        return loaded

    def test_a_new_store_is_empty(self, tmp_path: Path) -> None:
        async def story(store: MetadataStore) -> None:
            assert await store.load() == {}
            assert await store.read("t") is None

        self.run(tmp_path, story)

    def test_lines_are_set_changed_and_removed(self, tmp_path: Path) -> None:
        async def story(store: MetadataStore) -> None:
            await self.put(store, "t", a="1", b="2")
            await self.put(store, "t", b=None, c='{"x":"ü\\n"}', d=None)
            table = await store.read("t")
            assert table is not None
            assert table.lines == {"a": "1", "c": '{"x":"ü\\n"}'}
            assert table.controller_epoch == 1

        self.run(tmp_path, story)
        assert self.contents(tmp_path)["t"].lines == {"a": "1", "c": '{"x":"ü\\n"}'}

    @pytest.mark.parametrize("character", ["x", '"', "<", "\x7f", "ü", "🗲"])
    def test_every_store_takes_a_table_of_the_stated_size(
        self, tmp_path: Path, character: str
    ) -> None:
        each = line_bytes("k", character) - line_bytes("k", "")
        line = character * ((TABLE_BYTES_MAX - line_bytes("k", "")) // each)

        async def story(store: MetadataStore) -> None:
            assert await self.put(store, "t", k=line) is WriteOutcome.WRITTEN

        self.run(tmp_path, story)
        assert self.contents(tmp_path)["t"].lines == {"k": line}

    def test_a_write_on_another_version_changes_nothing(self, tmp_path: Path) -> None:
        async def story(store: MetadataStore) -> None:
            await self.put(store, "t", a="1")
            first = await store.read("t")
            assert first is not None
            await self.put(store, "t", a="2")
            for version in (first.version, None, "another"):
                (result,) = await store.write([TableWrite("t", version, 1, {"a": "3"})])
                assert result.outcome is WriteOutcome.CONFLICT
            (result,) = await store.write([TableWrite("u", "1", 1, {"a": "3"})])
            assert result.outcome is WriteOutcome.CONFLICT
            now = await store.read("t")
            assert now is not None
            assert now.lines == {"a": "2"}
            assert await store.read("u") is None

        self.run(tmp_path, story)

    def test_every_write_moves_the_version_even_without_a_difference(self, tmp_path: Path) -> None:
        async def story(store: MetadataStore) -> None:
            await self.put(store, "t", a="1")
            versions = set()
            for number in range(3):
                present = await store.read("t")
                assert present is not None
                versions.add(present.version)
                write = TableWrite("t", present.version, 1, {"a": "1"}, write_number=number)
                (result,) = await store.write([write])
                assert result.outcome is WriteOutcome.WRITTEN
                again = await store.read("t")
                assert again is not None
                assert (again.version, again.write_number) == (result.version, number)
            assert len(versions) == 3

        self.run(tmp_path, story)

    def test_writes_are_counted(self, tmp_path: Path) -> None:
        async def story(store: MetadataStore) -> None:
            for number in range(1, 4):
                await self.put(store, "t", a=str(number))
                table = await store.read("t")
                assert table is not None
                assert table.write_count == number
            assert await self.put(store, "t", epoch=0, a="4") is WriteOutcome.CONFLICT

        self.run(tmp_path, story)
        assert self.contents(tmp_path)["t"].write_count == 3

    def test_tables_of_one_call_are_written_independently(self, tmp_path: Path) -> None:
        async def story(store: MetadataStore) -> None:
            await self.put(store, "t", a="1")
            results = await store.write(
                [
                    TableWrite("t", "another", 1, {"a": "2"}),
                    TableWrite("u", None, 1, {"a": "3"}),
                ]
            )
            outcomes = [result.outcome for result in results]
            assert outcomes == [WriteOutcome.CONFLICT, WriteOutcome.WRITTEN]

        self.run(tmp_path, story)
        assert {name: dict(table.lines) for name, table in self.contents(tmp_path).items()} == {
            "t": {"a": "1"},
            "u": {"a": "3"},
        }

    def test_sealing_writes_the_epoch_into_every_table(self, tmp_path: Path) -> None:
        async def story(store: MetadataStore) -> None:
            await self.put(store, "t", a="1")
            await self.put(store, "u", b="2")
            sealed = await store.seal(2)
            assert {table.controller_epoch for table in sealed.values()} == {2}
            assert sealed["t"].lines == {"a": "1"}

        self.run(tmp_path, story)

    def test_one_table_is_sealed_before_the_others(self, tmp_path: Path) -> None:
        async def story(store: MetadataStore) -> None:
            for name in "tuv":
                await self.put(store, name, a="1")
            known = await store.load()
            await self.put(store, "u", a="2")
            with pytest.raises(SealedError):
                # Of what was loaded, "u" has moved meanwhile: nothing is sealed but it comes first.
                await store.seal(2, known, first="u")
            epochs = {name: table.controller_epoch for name, table in (await store.load()).items()}
            assert epochs == {"t": 1, "u": 1, "v": 1}
            sealed = await store.seal(2, first="u")
            assert {table.controller_epoch for table in sealed.values()} == {2}

        self.run(tmp_path, story)

    def test_after_sealing_no_write_of_an_older_controller_succeeds(self, tmp_path: Path) -> None:
        """I11."""

        async def story(store: MetadataStore) -> None:
            await self.put(store, "t", a="1")
            known = await store.load()
            await store.seal(2)
            (result,) = await store.write([TableWrite("t", known["t"].version, 1, {"a": "2"})])
            assert result.outcome is WriteOutcome.CONFLICT
            # Not even if the old controller has read the new version.
            assert await self.put(store, "t", epoch=1, a="2") is WriteOutcome.CONFLICT
            now = await store.read("t")
            assert now is not None
            assert now.lines == {"a": "1"}

        self.run(tmp_path, story)

    @pytest.mark.parametrize("epoch", [1, 2])
    def test_nobody_seals_with_an_epoch_that_was_used(self, tmp_path: Path, epoch: int) -> None:
        async def story(store: MetadataStore) -> None:
            await self.put(store, "t", epoch=2, a="1")
            with pytest.raises(SealedError):
                await store.seal(epoch)

        self.run(tmp_path, story)

    def test_writes_of_several_callers_are_all_kept(self, tmp_path: Path) -> None:
        async def story(store: MetadataStore) -> None:
            await asyncio.gather(
                *(self.put(store, f"t{number}", a=str(number)) for number in range(20))
            )

        self.run(tmp_path, story)
        assert len(self.contents(tmp_path)) == 20
