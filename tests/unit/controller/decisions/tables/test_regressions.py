"""What shows that tables went back in time, and what does not."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from fairlead_controller.controller import open_controller
from fairlead_controller.decisions.tables import table_plan
from fairlead_controller.decisions.tables.history import MetadataHistory, ReignEnd
from fairlead_controller.decisions.tables.regressions import (
    BrokerTestimony,
    ReplicaTestimony,
    contradiction,
    read_testimony,
    rolled_back_tables,
)
from fairlead_controller.decisions.tables.stored_table import (
    HighestSeen,
    StoredTable,
    StoreRolledBackError,
)
from fairlead_controller.decisions.tables.table_plan import CLUSTER_TABLE
from fairlead_controller.stores.file import open_file_store
from fairlead_controller.stores.metadata_store import TableWrite
from fairlead_model.codec import CodecError
from fairlead_model.metadata_seen import MetadataSeen

if TYPE_CHECKING:
    from pathlib import Path

TABLE = "partitions-00000"
HISTORY = MetadataHistory(4, 2, (ReignEnd(2, 100), ReignEnd(3, 140)), 6)


def tables(cluster: int, numbered: int, **cluster_lines: str) -> dict[str, StoredTable]:
    return {
        CLUSTER_TABLE: StoredTable("1", cluster, 0, cluster_lines),
        TABLE: StoredTable("1", numbered, 0, {}),
    }


@pytest.mark.parametrize(
    ("cluster", "numbered", "sealed", "words"),
    [
        (3, 3, 3, ""),
        (4, 3, 3, ""),  # A takeover was interrupted after the table of the cluster.
        (5, 4, 3, ""),  # Twice.
        (3, 4, 3, "table cluster went back in time"),
        (3, 2, 3, f"table {TABLE} went back in time"),
    ],
)
def test_epochs_of_tables_tell_which_one_is_older(
    cluster: int, numbered: int, sealed: int, words: str
) -> None:
    found = rolled_back_tables(tables(cluster, numbered, sealed=f'{{"epoch":{sealed}}}'))
    assert (found == "") == (words == "")
    assert words in found


def test_a_note_of_a_rollback_keeps_all_from_reigning() -> None:
    assert rolled_back_tables(tables(3, 3, **{"rolled-back": '{"reason":"why"}'})) == "why"


@pytest.fixture
def old(make_world: Any, make_create: Any, make_topic: Any) -> Any:
    """A world with a topic of three replicas, whose brokers have registered once."""
    world = make_world(3)
    world.do(make_create(make_topic("t", replication_factor=3)))
    return world


def asked(world: Any, make_registration: Any, testimony: BrokerTestimony, **fields: Any) -> str:
    asking = make_registration(0, **fields)
    return contradiction(world.state, asking, testimony, history=HISTORY, has_heard=False)


def seen(world: Any, **fields: int) -> BrokerTestimony:
    topic = world.topic("t")
    record = topic.partitions[0]
    epochs = {"leader_epoch": record.leader_epoch, "partition_epoch": record.partition_epoch}
    replica = ReplicaTestimony(topic.topic_id, "t", 0, **(epochs | fields))
    return BrokerTestimony(0, world.epoch(0), (replica,))


def test_who_has_seen_no_more_than_the_tables_know_is_let_in(
    old: Any, make_registration: Any
) -> None:
    assert asked(old, make_registration, BrokerTestimony()) == ""
    assert asked(old, make_registration, seen(old)) == ""
    assert (
        asked(old, make_registration, BrokerTestimony(), previous_broker_epoch=old.epoch(0)) == ""
    )
    assert asked(old, make_registration, seen(old, leader_epoch=-1, partition_epoch=-1)) == ""


def test_higher_epochs_than_those_of_the_tables_are_told(old: Any, make_registration: Any) -> None:
    found = asked(old, make_registration, seen(old, leader_epoch=7))
    assert found.startswith("t-0 (replica of broker 0) has leader epoch 7")
    assert "partition epoch 9" in asked(old, make_registration, seen(old, partition_epoch=9))
    assert "broker epoch 2" in asked(
        old, make_registration, BrokerTestimony(), previous_broker_epoch=2
    )
    assert "broker epoch 3" in asked(old, make_registration, BrokerTestimony(broker_epoch=3))
    found = asked(old, make_registration, BrokerTestimony(controller_epoch=1))
    assert found.startswith("broker 0 has followed controller epoch 1")


def test_a_broker_that_was_heard_has_followed_this_reign(old: Any, make_registration: Any) -> None:
    asking, testimony = make_registration(0), BrokerTestimony(1, old.epoch(0))
    assert contradiction(old.state, asking, testimony, history=HISTORY, has_heard=True) == ""


def test_a_served_topic_that_no_table_knows_is_told_a_forgotten_folder_is_not(
    old: Any, make_registration: Any
) -> None:
    unknown = ReplicaTestimony(b"x" * 16, "gone", 2, 0, 0)
    running = BrokerTestimony(0, old.epoch(0), (unknown,))
    assert "gone-2" in asked(old, make_registration, running)
    assert asked(old, make_registration, replace(running, broker_epoch=-1)) == ""
    # A process that another start of its broker has followed may not have heard of a deletion.
    old.restart(0, "another")
    assert asked(old, make_registration, running) == ""


def test_after_a_restore_that_was_made_safe_brokers_may_have_higher_epochs(
    old: Any, make_registration: Any
) -> None:
    from fairlead_model.cluster import BrokerChanged

    broker = replace(old.state.image.brokers[0], start_id="")
    counters = replace(old.state.counters, next_broker_epoch=1 << 20)
    old.state = old.state.apply([BrokerChanged(broker), counters])
    assert asked(old, make_registration, BrokerTestimony(), previous_broker_epoch=50) == ""
    assert asked(old, make_registration, BrokerTestimony(0, 50)) == ""


def test_a_disk_that_has_seen_more_writes_than_the_tables_had_is_told(
    old: Any, make_registration: Any
) -> None:
    old.state = replace(old.state, controller_epoch=4)

    def found(epoch: int, writes: int) -> str:
        return asked(old, make_registration, BrokerTestimony(metadata=MetadataSeen(epoch, writes)))

    assert found(3, 140) == ""
    assert found(3, 141) == (
        "broker 0 has seen 141 writes of the tables under controller epoch 3, "
        "the tables know of 140"
    )
    assert "followed controller epoch 4" in found(4, 90)


def test_what_a_new_beginning_has_to_be_above_comes_with_the_finding(
    make_registration: Any,
) -> None:
    replicas = (
        ReplicaTestimony(b"t" * 16, "t", 0, 7, 3),
        ReplicaTestimony(b"u" * 16, "u", 0, 5, 9),
    )
    testimony = BrokerTestimony(3, 11, replicas, MetadataSeen(4, 90))
    asking = make_registration(0, previous_broker_epoch=12)
    assert testimony.highest_seen(asking) == HighestSeen(4, 12, 7, 9)
    assert BrokerTestimony().highest_seen(make_registration(0)) == HighestSeen()


def test_a_testimony_comes_as_lists() -> None:
    topic_id = b"t" * 16
    read = read_testimony([4, 7, [[topic_id, "t", [0, 5, 9, 3, 2, -1]]]])
    replicas = (
        ReplicaTestimony(topic_id, "t", 0, 5, 9),
        ReplicaTestimony(topic_id, "t", 3, 2, -1),
    )
    assert read == BrokerTestimony(4, 7, replicas)
    assert read_testimony(None) == BrokerTestimony()
    seen = read_testimony([4, 7, [], [5, 90]]).metadata
    assert (seen, BrokerTestimony(4, 7).metadata) == (MetadataSeen(5, 90), MetadataSeen())


@pytest.mark.parametrize(
    "value",
    [
        7,
        [1, 2],
        [1, "2", []],
        [1, 2, {}],
        [1, 2, [[b"i", "t"]]],
        [1, 2, [["i", "t", []]]],
        [1, 2, [[b"i", "t", [0, 1]]]],
        [1, 2, [[b"i", "t", [0, 1, "2"]]]],
        [1, 2, [], 7],
        [1, 2, [], [3]],
        [1, 2, [], [3, "4"]],
    ],
)
def test_nonsense_is_no_testimony(value: object) -> None:
    with pytest.raises(CodecError):
        read_testimony(value)


def test_a_rolled_back_file_is_not_reigned_on_and_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines of a topic without a header, and nothing that a crash would have left of it."""
    monkeypatch.setattr(table_plan, "PARTITIONS_PER_TABLE", 4)
    line = (
        '{"replicas":[0],"isr":[0],"leader":0,"leader_epoch":3,"partition_epoch":5,"elr":[],'
        '"last_known_elr":[],"recovery_state":0,"adding":[],"removing":[],"directories":[],'
        '"min_insync_replicas":1}'
    )
    key = "partition/dG9waWMtaWQtb2YtMTYtYg/0"

    async def story() -> None:
        store = await open_file_store(tmp_path)
        await open_controller(store, now_ms=lambda: 0)
        write = TableWrite(TABLE, None, 1, {key: line})
        await store.write([write])
        for words in ("has no topic", "has no topic"):
            with pytest.raises(StoreRolledBackError, match=words):
                await open_controller(store, now_ms=lambda: 0)
        held = await store.load()
        assert held[TABLE].lines == {key: line}
        assert "rolled-back" in held[CLUSTER_TABLE].lines
        assert held[CLUSTER_TABLE].controller_epoch == 2, "only the first try has raised it"
        await store.close()

    asyncio.run(story())
