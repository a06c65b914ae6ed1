"""Changes → tables → a crash anywhere → the state again."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import count
from typing import Any

import pytest
from decision_world import World, there

from fairlead_controller.decisions.events import (
    AlterConfigs,
    ConfirmDeletions,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    ElectLeaders,
    Event,
    RegisterBroker,
)
from fairlead_controller.decisions.tables import table_plan
from fairlead_controller.decisions.tables.loading import Loaded, load_state
from fairlead_controller.decisions.tables.stored_table import (
    StoreCorruptError,
    StoredTable,
    StoreRolledBackError,
)
from fairlead_controller.decisions.tables.table_plan import (
    CLUSTER_TABLE,
    TableLayout,
    WritePlan,
    first_lines,
)
from fairlead_controller.stores.committer import Committer
from fairlead_controller.stores.journal import apply_write
from fairlead_controller.stores.metadata_store import (
    MetadataStore,
    SealedError,
    TableTouchedError,
    TableWrite,
    WriteOutcome,
    WriteResult,
)
from fairlead_model.session.calls import CreatableTopic, CreatePartitionsCall


class MemoryStore(MetadataStore):
    """A store without a disk, with faults by order: each write takes the next of `faults`."""

    def __init__(self) -> None:
        self.tables: dict[str, StoredTable] = {}
        self.faults: list[str] = []
        self.stuck: list[TableWrite] = []
        self._versions = count(1)

    async def load(self) -> dict[str, StoredTable]:
        return dict(self.tables)

    async def read(self, table: str) -> StoredTable | None:
        if self.stuck and "land late" in self.faults:
            self.faults.remove("land late")
            self.put(self.stuck.pop())
        return self.tables.get(table)

    async def write(self, writes: list[TableWrite]) -> list[WriteResult]:  # type: ignore[override]
        return [self._write(write) for write in writes]

    async def close(self) -> None:
        pass

    def _write(self, write: TableWrite) -> WriteResult:
        fault = self.faults.pop(0) if self.faults else ""
        if fault == "lost":
            return WriteResult(WriteOutcome.UNKNOWN)
        if fault == "landed":
            self.put(write)
            return WriteResult(WriteOutcome.UNKNOWN)
        if fault == "stuck":
            self.stuck.append(write)
            return WriteResult(WriteOutcome.UNKNOWN)
        return self.put(write)

    def put(self, write: TableWrite) -> WriteResult:
        """Compare and swap."""
        table = self.tables.get(write.table)
        if (None if table is None else table.version) != write.version:
            return WriteResult(WriteOutcome.CONFLICT)
        version = str(next(self._versions))
        self.tables[write.table] = apply_write(table, write, version)
        return WriteResult(WriteOutcome.WRITTEN, version)

    def put_back(self, table: str, copy: StoredTable) -> None:
        """Somebody who is no controller puts an object back as it was, or labels it."""
        self.tables[table] = replace(copy, version=str(next(self._versions)))


class Cluster:
    """A world whose changes are planned and written, stage by stage."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.store = MemoryStore()
        lines = dict(first_lines("this-cluster", world.state.counters))
        self.store.put(TableWrite(CLUSTER_TABLE, None, 1, lines))
        self.layout = TableLayout()
        self.commit(world.state.image.changes_from_nothing())

    def stages(self, changes: Iterable[Any]) -> list[dict[str, dict[str, str | None]]]:
        plan = WritePlan(self.layout)
        plan.add(changes)
        return plan.stages()

    def write_stage(self, stage: dict[str, Any]) -> None:
        for name, lines in stage.items():
            table = self.store.tables.get(name)
            version = None if table is None else table.version
            assert self.store.put(TableWrite(name, version, 1, lines)).version

    def commit(self, changes: Iterable[Any]) -> None:
        for stage in self.stages(changes):
            self.write_stage(stage)

    def do(self, event: Event) -> None:
        """Decide, apply, write."""
        decision = self.world.decide(event)
        self.world.state = self.world.state.apply(decision.changes)
        self.commit(decision.changes)

    def loaded(self) -> Loaded:
        return load_state(dict(self.store.tables), controller_epoch=2)


@pytest.fixture
def cluster(world: World, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setattr(table_plan, "PARTITIONS_PER_TABLE", 4)
    return Cluster(world)


def same(loaded: Any, world: Any) -> bool:
    image = loaded.state.image
    return list(image.changes_since(world.state.image)) == [] and loaded.repairs == {}


def test_what_is_written_is_what_is_loaded(
    cluster: Cluster,
    make_create: Callable[..., CreateTopics],
    make_topic: Callable[..., CreatableTopic],
) -> None:
    cluster.do(make_create(make_topic("a", partitions=3), make_topic("b", partitions=9)))
    cluster.do(make_create(make_topic("c", configs={"retention.ms": "5"})))
    loaded = cluster.loaded()
    assert same(loaded, cluster.world)
    assert loaded.state.loads == cluster.world.state.loads
    assert loaded.layout.tables == cluster.layout.tables
    assert loaded.layout.fill == cluster.layout.fill
    assert max(loaded.layout.fill.values()) <= 4


def test_a_topic_in_several_tables_is_live_only_when_it_is_whole(
    cluster: Cluster,
    make_create: Callable[..., CreateTopics],
    make_topic: Callable[..., CreatableTopic],
) -> None:
    decision = cluster.world.decide(make_create(make_topic("wide", partitions=10)))
    stages = cluster.stages(decision.changes)
    assert [sorted(stage) for stage in stages] == [
        ["cluster"],
        ["partitions-00000", "partitions-00001", "partitions-00002"],
        ["partitions-00000"],
        ["cluster"],
    ]
    for written, stage in enumerate(stages):
        # A crash before this stage: nobody was told, so nothing has to be there.
        assert (cluster.loaded().state.image.topic("wide") is not None) == (written == 3)
        cluster.write_stage(stage)
    assert len(there(cluster.loaded().state.image.topic("wide")).partitions) == 10


def test_half_written_tables_of_one_stage_are_harmless(
    cluster: Cluster,
    make_create: Callable[..., CreateTopics],
    make_topic: Callable[..., CreatableTopic],
) -> None:
    decision = cluster.world.decide(make_create(make_topic("wide", partitions=10)))
    first, second, *_ = cluster.stages(decision.changes)
    cluster.write_stage(first)
    for name in sorted(second, reverse=True)[:2]:
        cluster.write_stage({name: second[name]})
        loaded = cluster.loaded()
        assert loaded.state.image.topic("wide") is None
        assert loaded.repairs
    assert "partitions-00000" in loaded.missing_tables
    cluster.write_stage(loaded.repairs)
    assert not cluster.loaded().repairs


def test_growth_across_tables_shows_only_when_complete(
    cluster: Cluster,
    make_create: Callable[..., CreateTopics],
    make_topic: Callable[..., CreatableTopic],
) -> None:
    cluster.do(make_create(make_topic("t", partitions=3)))
    call: CreatePartitionsCall = {
        "topics": [{"name": "t", "count": 9, "assignments": None}],
        "validate_only": False,
    }
    stages = cluster.stages(cluster.world.decide(CreatePartitions(call)).changes)
    for stage in stages[:2]:
        cluster.write_stage(stage)
        assert len(there(cluster.loaded().state.image.topic("t")).partitions) == 3
    for stage in stages[2:]:
        cluster.write_stage(stage)
        assert len(there(cluster.loaded().state.image.topic("t")).partitions) == 9


def test_a_deletion_is_remembered_until_its_last_line_is_gone(
    cluster: Cluster,
    make_create: Callable[..., CreateTopics],
    make_topic: Callable[..., CreatableTopic],
) -> None:
    cluster.do(make_create(make_topic("wide", partitions=10)))
    topic_id = cluster.world.topic("wide").topic_id
    cluster.do(DeleteTopics({"topics": [{"name": "wide", "topic_id": bytes(16)}]}))
    assert same(cluster.loaded(), cluster.world)
    for broker_id in range(2):
        cluster.do(ConfirmDeletions(broker_id, [topic_id]))
    decision = cluster.world.decide(ConfirmDeletions(2, [topic_id]))
    stages = cluster.stages(decision.changes)
    tables = [(name, lines) for stage in stages for name, lines in sorted(stage.items())]
    for name, lines in tables[:-1]:
        cluster.write_stage({name: lines})
        assert topic_id in cluster.loaded().state.image.deleting
    cluster.write_stage(dict(tables[-1:]))
    loaded = cluster.loaded()
    assert loaded.state.image.deleting == {}
    assert set(loaded.layout.fill.values()) == {0}


def test_a_name_passes_on_only_when_its_old_topic_is_marked(
    cluster: Cluster,
    make_create: Callable[..., CreateTopics],
    make_topic: Callable[..., CreatableTopic],
) -> None:
    cluster.do(make_create(make_topic("full", partitions=3), make_topic("name", partitions=1)))
    old_id = cluster.world.topic("name").topic_id
    changes: list[Any] = []
    for event in (
        DeleteTopics({"topics": [{"name": "name", "topic_id": bytes(16)}]}),
        make_create(make_topic("name", partitions=1)),
    ):
        decision = cluster.world.decide(event)
        cluster.world.state = cluster.world.state.apply(decision.changes)
        changes += decision.changes
    stages = cluster.stages(changes)
    # A crash between two tables, whichever comes first: the name still means the old topic.
    for stage in stages[:2]:
        for name in sorted(stage, reverse=True):
            image = cluster.loaded().state.image
            assert there(image.topic("name")).topic_id == old_id
            assert len(image.topics_by_id) == 2
            cluster.write_stage({name: stage[name]})
    for stage in stages[2:]:
        cluster.write_stage(stage)
    assert same(cluster.loaded(), cluster.world)


def test_freed_room_is_used_again(
    cluster: Cluster,
    make_create: Callable[..., CreateTopics],
    make_topic: Callable[..., CreatableTopic],
) -> None:
    for number in range(3):
        cluster.do(make_create(make_topic(f"t{number}", partitions=4)))
    topic_id = cluster.world.topic("t0").topic_id
    cluster.do(DeleteTopics({"topics": [{"name": "t0", "topic_id": bytes(16)}]}))
    for broker_id in range(3):
        cluster.do(ConfirmDeletions(broker_id, [topic_id]))
    cluster.do(make_create(make_topic("new", partitions=4)))
    assert set(cluster.layout.fill) == {0, 1, 2}
    assert same(cluster.loaded(), cluster.world)


def test_a_registration_reaches_the_cluster_table_last(
    cluster: Cluster,
    make_create: Callable[..., CreateTopics],
    make_topic: Callable[..., CreatableTopic],
) -> None:
    cluster.do(make_create(make_topic("t", partitions=3)))
    asking = replace(cluster.world.state.image.brokers[1], start_id="again")
    stages = cluster.stages(cluster.world.decide(RegisterBroker(asking, "")).changes)
    assert [sorted(stage) for stage in stages] == [["partitions-00000"], ["cluster"]]
    cluster.write_stage(stages[0])
    half = cluster.loaded().state
    assert half.image.brokers[1].start_id == "start-1"
    assert 1 not in [partition.leader for partition in there(half.image.topic("t")).partitions]


def test_a_missing_table_that_was_made_stops_the_start(
    cluster: Cluster,
    make_create: Callable[..., CreateTopics],
    make_topic: Callable[..., CreatableTopic],
) -> None:
    cluster.do(make_create(make_topic("t")))
    del cluster.store.tables["partitions-00000"]
    with pytest.raises(StoreCorruptError, match="topics would be lost"):
        cluster.loaded()


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("partition/x/0", "{}"),
        ("topic/AAAAAAAAAAAAAAAAAAAAAA", "{}"),
        ("topic/AAAAAAAAAAAAAAAAAAAAAA", "nonsense"),
    ],
)
def test_unreadable_lines_are_named(
    cluster: Cluster,
    make_create: Callable[..., CreateTopics],
    make_topic: Callable[..., CreatableTopic],
    key: str,
    line: str,
) -> None:
    cluster.do(make_create(make_topic("t")))
    cluster.write_stage({"partitions-00000": {key: line}})
    with pytest.raises(StoreCorruptError, match=key.split("/", maxsplit=1)[0]):
        cluster.loaded()


def test_elections_after_loading_mend_a_torn_unfencing(
    cluster: Cluster,
    make_create: Callable[..., CreateTopics],
    make_topic: Callable[..., CreatableTopic],
) -> None:
    cluster.do(make_create(make_topic("t", partitions=3)))
    loaded = cluster.loaded()
    cluster.world.state = loaded.state
    assert cluster.world.decide(ElectLeaders()).changes == ()


def test_a_torn_change_of_the_minimum_is_made_whole_after_loading(
    cluster: Cluster,
    make_create: Callable[..., CreateTopics],
    make_topic: Callable[..., CreatableTopic],
) -> None:
    # Lowered to 1 on the way to disk: some tables have it, the config that asks for it is lost.
    cluster.do(make_create(make_topic("t", partitions=9, configs={"min.insync.replicas": "2"})))
    alteration = {"name": "min.insync.replicas", "operation": 0, "value": "1"}
    resource = {"resource_type": 2, "name": "t", "alterations": [alteration]}
    call: Any = {"resources": [resource], "validate_only": False, "incremental": True}
    changes = cluster.world.decide(AlterConfigs(call)).changes
    (stage,) = cluster.stages(changes)
    last = sorted(stage)[-1]
    assert len(stage) == 3
    cluster.write_stage({last: stage[last]})
    cluster.world.state = cluster.loaded().state
    minima = [each.min_insync_replicas for each in cluster.world.partitions("t")]
    assert sorted(set(minima)) == [1, 2]
    cluster.do(ElectLeaders())
    assert {each.min_insync_replicas for each in cluster.world.partitions("t")} == {2}
    assert same(cluster.loaded(), cluster.world)


@pytest.mark.parametrize(
    "faults",
    [["lost"], ["landed"], ["lost", "lost", "landed"], ["stuck", "land late"], ["stuck"]],
    ids=" then ".join,
)
def test_an_unknown_outcome_is_settled(faults: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlead_controller.stores.committer.SETTLE_DELAY_S", 0)
    store = MemoryStore()
    store.put(TableWrite("t", None, 1, {"a": "1"}))
    committer = Committer(store, dict(store.tables), 1)

    async def story() -> None:
        store.faults = list(faults)
        await committer.commit([{"t": {"a": "2"}}])
        assert store.tables["t"].lines == {"a": "2"}
        for write in store.stuck:
            assert store.put(write).outcome is WriteOutcome.CONFLICT, "it can no longer land"
        await committer.commit([{"t": {"a": "3"}}, {"u": {"b": "4"}}])
        assert store.tables["t"].lines == {"a": "3"}

    asyncio.run(story())


@pytest.mark.parametrize("table", [{"a": "1"}, {"a": "mine"}, None], ids=["label", "edit", "gone"])
def test_a_write_in_doubt_is_not_taken_for_what_somebody_else_did(
    table: dict[str, str] | None,
) -> None:
    """A label, an edit by hand, a deletion: they move the version, too."""
    store = MemoryStore()
    store.put(TableWrite("t", None, 1, {"a": "1"}))
    committer = Committer(store, dict(store.tables), 1)

    async def story() -> None:
        store.faults = ["lost"]
        if table is None:
            del store.tables["t"]
        else:
            store.put(TableWrite("t", store.tables["t"].version, 1, table))
        async with asyncio.timeout(30):
            with pytest.raises(TableTouchedError):
                await committer.commit([{"t": {"a": "2"}}])

    asyncio.run(story())


@pytest.mark.parametrize("fault", ["", "lost", "landed"])
def test_a_table_that_went_back_in_time_is_told_from_one_that_was_touched(fault: str) -> None:
    store = MemoryStore()
    store.put(TableWrite("t", None, 1, {"a": "1"}))
    committer = Committer(store, dict(store.tables), 1)

    async def story() -> None:
        await committer.commit([{"t": {"a": "2"}}])
        copy = store.tables["t"]
        await committer.commit([{"t": {"a": "3"}}])
        if fault:
            store.faults = [fault]
        store.put_back("t", copy)
        async with asyncio.timeout(30):
            with pytest.raises(StoreRolledBackError, match=r"write 2 .* after write 3"):
                await committer.commit([{"t": {"b": "4"}}, {"t": {"b": "5"}}])

    asyncio.run(story())


def test_a_table_of_an_older_reign_is_told_too() -> None:
    store = MemoryStore()
    store.put(TableWrite("t", None, 1, {"a": "1"}))
    copy = store.tables["t"]

    async def story() -> None:
        sealed = await store.seal(2)
        committer = Committer(store, sealed, 2)
        store.put_back("t", copy)
        with pytest.raises(StoreRolledBackError, match=r"controller epoch 1, .* of epoch 2"):
            await committer.commit([{"t": {"a": "2"}}])
        assert store.tables["t"].lines == {"a": "1"}

    asyncio.run(story())


def test_a_label_is_no_rollback() -> None:
    """Also after a doubt that was settled by reading, the writes are counted as they were."""
    store = MemoryStore()
    store.put(TableWrite("t", None, 1, {"a": "1"}))
    committer = Committer(store, dict(store.tables), 1)

    async def story() -> None:
        store.faults = ["landed"]
        await committer.commit([{"t": {"a": "2"}}])
        store.faults = ["lost"]
        await committer.commit([{"t": {"a": "3"}}])
        store.put_back("t", store.tables["t"])
        with pytest.raises(TableTouchedError, match="changed by somebody else"):
            await committer.commit([{"t": {"a": "4"}}])

    asyncio.run(story())


def test_a_deposed_controller_stops_at_its_next_write() -> None:
    store = MemoryStore()
    store.put(TableWrite("t", None, 1, {"a": "1"}))
    committer = Committer(store, dict(store.tables), 1)

    async def story() -> None:
        await store.seal(2)
        with pytest.raises(SealedError):
            await committer.commit([{"t": {"a": "2"}}])
        store.faults = ["lost"]
        with pytest.raises(SealedError, match="epoch 2"):
            await committer.commit([{"t": {"a": "2"}}])
        assert store.tables["t"].lines == {"a": "1"}

    asyncio.run(story())
