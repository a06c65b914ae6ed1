"""A person confirms metadata that went back in time, or puts an export in its place."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from decision_world import there
from short_reign import reign

from fairlead_controller.decisions.events import (
    AlterCredentials,
    ApplyUserResources,
    CreateAcls,
    ElectLeaders,
)
from fairlead_controller.decisions.tables.history import first_history
from fairlead_controller.decisions.tables.lines import HISTORY_KEY, ROLLED_BACK_KEY
from fairlead_controller.decisions.tables.new_beginning import EPOCH_JUMP, LEADER_EPOCH_MAX
from fairlead_controller.decisions.tables.regressions import rolled_back_tables
from fairlead_controller.decisions.tables.stored_table import (
    HighestSeen,
    StoreCorruptError,
    StoreError,
    StoreRolledBackError,
)
from fairlead_controller.decisions.tables.table_plan import CLUSTER_TABLE
from fairlead_controller.stores.committer import Committer
from fairlead_controller.stores.file import open_file_store, read_file_store
from fairlead_controller.stores.metadata_document import DocumentError
from fairlead_controller.stores.metadata_rewrite import (
    NothingFoundError,
    choose_confirmed_epoch,
    confirm_metadata,
    read_replacement,
    replace_metadata,
)
from fairlead_controller.stores.metadata_store import SealedError, TableWrite
from fairlead_controller.stores.metadata_transfer import confirm_in, export_metadata
from fairlead_model.resources.user_declaration import UserDeclaration
from fairlead_model.security.acl import AclBinding, Operation, PatternType, Permission, ResourceType
from fairlead_model.security.scram import ScramCredential, ScramMechanism

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence
    from pathlib import Path

    from fairlead_controller.stores.metadata_store import MetadataStore, WriteResult

SEEN = HighestSeen(controller_epoch=900, broker_epoch=70, leader_epoch=50, partition_epoch=60)
TABLE = "partitions-00000"


def on_store(directory: Path, story: Callable[[MetadataStore], Awaitable[Any]]) -> Any:
    async def play() -> Any:
        store = await open_file_store(directory)
        try:
            return await story(store)
        finally:
            await store.close()

    return asyncio.run(play())


def note(directory: Path, seen: HighestSeen = SEEN) -> None:
    """As a controller notes what a broker has told it."""

    async def story(store: MetadataStore) -> None:
        tables = await store.load()
        committer = Committer(store, tables, tables[CLUSTER_TABLE].controller_epoch)
        await committer.note_rollback(StoreRolledBackError("broker 1 knows better", seen))

    on_store(directory, story)


async def replaced(store: MetadataStore, document: object) -> None:
    tables = await store.load()
    await replace_metadata(store, tables, read_replacement(tables, document))


async def confirmed(store: MetadataStore) -> Any:
    tables = await store.load()
    return await confirm_metadata(store, tables, choose_confirmed_epoch(tables))


def test_what_is_confirmed_is_reigned_on_with_numbers_above_all_that_was_seen(
    cluster: Any,
) -> None:
    path, before = cluster
    note(path / "old")
    with pytest.raises(StoreRolledBackError, match="broker 1 knows better"):
        asyncio.run(reign(path / "old"))
    done = asyncio.run(confirm_in(path / "old"))
    assert (done.cluster_id, done.finding) == (before.image.cluster_id, "broker 1 knows better")
    after = asyncio.run(reign(path / "old", ElectLeaders()))
    assert after.controller_epoch == 900 + EPOCH_JUMP + 1 == done.controller_epoch + 1
    assert after.counters.next_broker_epoch == 71 + EPOCH_JUMP
    assert after.counters.next_producer_id > before.counters.next_producer_id
    topic = there(after.image.topic("t"))
    assert topic.header == there(before.image.topic("t")).header
    for old, partition in zip(
        there(before.image.topic("t")).partitions, topic.partitions, strict=True
    ):
        assert partition == replace(
            old,
            leader=-1,
            isr=(),
            last_known_elr=old.replicas,
            leader_epoch=50 + EPOCH_JUMP,
            partition_epoch=60 + EPOCH_JUMP,
        )
    assert all(broker.fenced and not broker.start_id for broker in after.image.brokers.values())
    assert after.image.group_configs == before.image.group_configs


def test_what_nobody_contradicts_may_be_confirmed_too(cluster: Any) -> None:
    """A person knows that it is an old copy, and no broker is there that could say so."""
    path, before = cluster
    with pytest.raises(NothingFoundError):
        asyncio.run(confirm_in(path / "old"))
    assert asyncio.run(confirm_in(path / "old", force=True)).finding == ""
    after = asyncio.run(reign(path / "old"))
    assert after.controller_epoch == before.controller_epoch + EPOCH_JUMP + 1


def test_writes_count_anew_from_a_confirmation_on(cluster: Any) -> None:
    path, _ = cluster
    done = asyncio.run(confirm_in(path / "old", force=True))
    line = read_file_store(path / "old")[CLUSTER_TABLE].lines[HISTORY_KEY]
    assert line == first_history(done.controller_epoch).line()


def interrupt(store: MetadataStore, left: int) -> None:
    """Let a store write so many tables, and then be killed."""
    write = store.write

    async def write_some(writes: Sequence[TableWrite]) -> list[WriteResult]:
        nonlocal left
        results = []
        for each in writes:
            if not left:
                raise StoreError("killed")
            left -= 1
            results += await write([each])
        return results

    store.write = write_some  # type: ignore[method-assign]


@pytest.mark.parametrize("verb", ["confirm", "import"])
def test_after_a_kill_at_any_write_nobody_reigns_until_it_is_done_again(
    cluster: Any, verb: str
) -> None:
    path, before = cluster
    note(path / "old")
    document = export_metadata(path / "old")

    def act(store: MetadataStore, left: int = 100) -> Awaitable[Any]:
        interrupt(store, left)
        return confirmed(store) if verb == "confirm" else replaced(store, document)

    for writes in range(20):
        place = path / f"killed-{writes}"
        shutil.copytree(path / "old", place)
        try:
            on_store(place, partial(act, left=writes))
        except StoreError:
            assert rolled_back_tables(read_file_store(place)) != ""
            on_store(place, act)
        else:
            assert writes >= 5, "each table is sealed and written, and the note written twice"
            break
        after = asyncio.run(reign(place))
        assert there(after.image.topic("t")).header == there(before.image.topic("t")).header
        assert after.controller_epoch > 900 + EPOCH_JUMP
        assert all(
            partition.leader_epoch >= 50 + EPOCH_JUMP
            for partition in there(after.image.topic("t")).partitions
        )
    else:
        pytest.fail("it never ends")


@pytest.mark.parametrize("verb", ["confirm", "import"])
def test_of_two_at_once_one_wins(cluster: Any, verb: str) -> None:
    path, _ = cluster
    note(path / "old")
    document = export_metadata(path / "old")

    async def both(store: MetadataStore) -> None:
        tables = await store.load()
        acts: list[Coroutine[Any, Any, Any]]
        if verb == "confirm":
            epoch = choose_confirmed_epoch(tables)
            acts = [confirm_metadata(store, tables, epoch) for _ in range(2)]
        else:
            restored = read_replacement(tables, document)
            acts = [replace_metadata(store, tables, restored) for _ in range(2)]
        ends = await asyncio.gather(*acts, return_exceptions=True)
        assert sum(isinstance(end, SealedError) for end in ends) == 1, ends

    on_store(path / "old", both)
    assert asyncio.run(reign(path / "old")).image.topic("t") is not None


def drop_line(prefix: str) -> Callable[[MetadataStore], Awaitable[Any]]:
    """Somebody edits the table of the partitions: the first line of a kind is gone."""

    async def story(store: MetadataStore) -> None:
        table = (await store.load())[TABLE]
        key = next(key for key in table.lines if key.startswith(prefix))
        await store.write([TableWrite(TABLE, table.version, table.controller_epoch, {key: None})])

    return story


@pytest.mark.parametrize("prefix", ["topic/", "partition/"])
def test_an_edited_table_that_contradicts_itself_cannot_be_confirmed_but_replaced(
    cluster: Any, prefix: str
) -> None:
    path, before = cluster
    document = export_metadata(path / "old")
    on_store(path / "old", drop_line(prefix))
    with pytest.raises(StoreRolledBackError):
        asyncio.run(reign(path / "old"))
    held = read_file_store(path / "old")[TABLE].lines
    with pytest.raises(StoreCorruptError):
        asyncio.run(confirm_in(path / "old"))
    assert read_file_store(path / "old")[TABLE].lines == held, "nothing is deleted"
    on_store(path / "old", lambda store: replaced(store, document))
    after = asyncio.run(reign(path / "old"))
    assert there(after.image.topic("t")).header == there(before.image.topic("t")).header


def test_a_deleted_table_can_only_be_replaced(cluster: Any) -> None:
    path, before = cluster
    document = export_metadata(path / "old")

    async def without_table(store: Any) -> None:
        """As an object is deleted; the file store has no such operation."""
        cluster_table = (await store.load())[CLUSTER_TABLE]
        bare = await open_file_store(path / "bare")
        lines = cluster_table.lines
        await bare.write([TableWrite(CLUSTER_TABLE, None, cluster_table.controller_epoch, lines)])
        await bare.close()

    on_store(path / "old", without_table)
    for attempt in (lambda: reign(path / "bare"), lambda: confirm_in(path / "bare")):
        with pytest.raises(StoreCorruptError, match="partitions-00000 is missing"):
            asyncio.run(attempt())
    on_store(path / "bare", lambda store: replaced(store, document))
    after = asyncio.run(reign(path / "bare"))
    assert after.image.cluster_id == before.image.cluster_id
    assert there(after.image.topic("t")).header == there(before.image.topic("t")).header


def test_an_export_takes_the_place_of_an_older_state(cluster: Any) -> None:
    """Topics that the export does not know are gone, settings are its own, and nothing is left."""
    path, before = cluster
    document = export_metadata(path / "old")
    shutil.copytree(path / "old", path / "other")
    document["topics"] = [topic for topic in document["topics"] if topic["header"]["name"] != "t"]
    document["groupConfigs"] = {}
    note(path / "other")
    on_store(path / "other", lambda store: replaced(store, document))
    tables = read_file_store(path / "other")
    assert ROLLED_BACK_KEY not in tables[CLUSTER_TABLE].lines
    after = asyncio.run(reign(path / "other"))
    assert after.image.topic("t") is None
    assert after.image.group_configs == {}
    assert after.image.deleting == before.image.deleting
    assert after.controller_epoch == 900 + EPOCH_JUMP + 1


def test_a_new_cluster_gives_way_to_an_export_one_with_brokers_does_not(
    cluster: Any, make_registration: Any
) -> None:
    """Where all objects are deleted, a controller founds a cluster, which no broker joins."""
    from fairlead_controller.decisions.events import RegisterBroker

    path, before = cluster
    document = export_metadata(path / "old")
    founded = asyncio.run(reign(path / "new"))
    assert founded.image.cluster_id != before.image.cluster_id
    on_store(path / "new", lambda store: replaced(store, document))
    assert asyncio.run(reign(path / "new")).image.cluster_id == before.image.cluster_id
    asyncio.run(reign(path / "used", RegisterBroker(make_registration(7), "")))
    with pytest.raises(StoreError, match=f"the export is of cluster {before.image.cluster_id}"):
        on_store(path / "used", lambda store: replaced(store, document))


def test_there_has_to_be_something_to_confirm(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "missing"):
        with pytest.raises(StoreError, match="no metadata"):
            asyncio.run(confirm_in(place))
    assert not (tmp_path / "missing").exists()


def test_epochs_without_room_are_refused_before_anything_is_written(cluster: Any) -> None:
    path, _ = cluster
    note(path / "old", replace(SEEN, leader_epoch=LEADER_EPOCH_MAX - EPOCH_JUMP + 1))
    document = export_metadata(path / "old")
    before = read_file_store(path / "old")
    with pytest.raises(StoreError, match="leaves no room"):
        asyncio.run(confirm_in(path / "old"))
    with pytest.raises(DocumentError, match=r"topics\[\d\]\.partitions\[0\]\.leader_epoch"):
        on_store(path / "old", lambda store: replaced(store, document))
    assert read_file_store(path / "old") == before


def test_an_import_keeps_the_credentials_that_no_export_holds(cluster: Any) -> None:
    path, _ = cluster
    mechanism = ScramMechanism.SCRAM_SHA_256
    credential = ScramCredential(mechanism, 4096, b"s" * 16, b"k" * 32, b"v" * 32)
    rule = AclBinding(
        ResourceType.TOPIC, PatternType.LITERAL, "t", "User:a", "*", Operation.READ, Permission.DENY
    )
    document = export_metadata(path / "old")
    event = AlterCredentials((), (("alice", credential),), "User:admin")
    asyncio.run(reign(path / "old", event, CreateAcls((rule,), "User:admin")))
    note(path / "old")
    on_store(path / "old", lambda store: replaced(store, document))
    after = asyncio.run(reign(path / "old"))
    assert dict(after.image.credentials) == {(mechanism, "alice"): credential}
    assert not after.image.acls


def test_an_import_knows_what_user_resources_declared(cluster: Any) -> None:
    path, _ = cluster
    rule = AclBinding(
        ResourceType.TOPIC,
        PatternType.LITERAL,
        "t",
        "User:a",
        "*",
        Operation.READ,
        Permission.ALLOW,
    )
    quotas = {"producer_byte_rate": 5.0}
    declared = UserDeclaration("a-of-shop", "User:a", frozenset({rule}), quotas=quotas)
    asyncio.run(reign(path / "old", ApplyUserResources((declared,))))
    document = export_metadata(path / "old")
    asyncio.run(reign(path / "old", ApplyUserResources(forget=("a-of-shop",))))
    note(path / "old")
    on_store(path / "old", lambda store: replaced(store, document))
    after = asyncio.run(reign(path / "old"))
    assert set(after.image.acls) == {rule}
    # So the operator, whose resource is gone, can have it revoked.
    assert dict(after.principals) == {"User:a": "a-of-shop"}
    assert after.users["a-of-shop"].quotas == quotas
    assert dict(after.image.client_quotas) == {(("user", "a"),): quotas}
