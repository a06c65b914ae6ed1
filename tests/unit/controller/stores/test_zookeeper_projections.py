"""Kafka's znodes as they follow from the lines of tables, and the multis that write them."""

import json
from collections.abc import Iterable
from typing import Any

import pytest

from fairlead_controller.decisions.tables import lines
from fairlead_controller.stores import zookeeper_multis
from fairlead_controller.stores.metadata_store import TableWrite
from fairlead_controller.stores.zookeeper_multis import (
    MULTI_BYTES_MAX,
    MULTI_OPERATIONS_MAX,
    Fence,
    Refused,
    plan_write,
)
from fairlead_controller.stores.zookeeper_projections import (
    CONTAINERS,
    VALUE_BYTES_MAX,
    Projections,
    ZnodeChange,
    is_same_value,
)
from fairlead_controller.stores.zookeeper_tables import KnownTable, next_table
from fairlead_model.ids import TopicId, topic_id_text
from fairlead_model.partition import PartitionRegistration
from fairlead_model.release import RELEASE
from fairlead_model.topic import TopicHeader, TopicState
from fairlead_zookeeper.operations import Check, Create, Delete, SetData

ID, OTHER_ID = TopicId(bytes(15) + b"\x01"), TopicId(bytes(15) + b"\x02")
HEADER = lines.topic_key(ID)
FENCE = Fence(7, 3)


def header(
    count: int, state: TopicState = TopicState.LIVE, topic_id: TopicId = ID, **configs: Any
) -> dict[str, str]:
    made = TopicHeader("t", topic_id, count, state=state, configs=configs)
    return {lines.topic_key(topic_id): lines.header_line(made)}


def partition(
    index: int, leader: int = 1, epoch: int = 0, topic_id: TopicId = ID
) -> dict[str, str]:
    record = PartitionRegistration((1, 2), (1, 2), leader=leader, leader_epoch=epoch)
    return {lines.partition_key(topic_id, index): lines.partition_line(record)}


class Tree:
    """Znodes as operations make them; an operation that a server would refuse fails."""

    def __init__(self) -> None:
        self.znodes: dict[str, bytes] = dict.fromkeys(CONTAINERS, b"")
        self.view = Projections()

    def write(
        self, changed: dict[str, Any], epoch: int = 7, unsettled: Iterable[ZnodeChange] = ()
    ) -> list[ZnodeChange]:
        changes = self.view.plan(changed, epoch, unsettled)
        for operations in self.view.operations(changes):
            for each in operations:
                self.carry_out(each)
        self.view.note_written(changes)
        return changes

    def carry_out(self, operation: object) -> None:
        match operation:
            case Create(path=path, value=value):
                assert path not in self.znodes
                assert path.rpartition("/")[0] in {*self.znodes, ""}
                self.znodes[path] = value
            case SetData(path=path, value=value):
                assert path in self.znodes
                self.znodes[path] = value
            case Delete(path=path):
                assert not any(each.startswith(f"{path}/") for each in self.znodes)
                del self.znodes[path]

    def shown(self) -> dict[str, Any]:
        """All but the containers."""
        return {
            path: json.loads(value) if value else None
            for path, value in self.znodes.items()
            if path not in CONTAINERS or value
        }


def test_a_topic_looks_as_kafka_writes_it() -> None:
    tree = Tree()
    configs: dict[str, Any] = {"retention.ms": "5"}
    tree.write(header(2, **configs) | partition(0) | partition(1, leader=-1))
    top = "/brokers/topics/t"
    assert tree.shown() == {
        top: {
            "version": 3,
            "topic_id": topic_id_text(ID),
            "partitions": {"0": [1, 2], "1": [1, 2]},
            "adding_replicas": {},
            "removing_replicas": {},
        },
        f"{top}/partitions": None,
        f"{top}/partitions/0": None,
        f"{top}/partitions/1": None,
        f"{top}/partitions/0/state": {
            "controller_epoch": 7,
            "leader": 1,
            "version": 1,
            "leader_epoch": 0,
            "isr": [1, 2],
        },
        f"{top}/partitions/1/state": {
            "controller_epoch": 7,
            "leader": -1,
            "version": 1,
            "leader_epoch": 0,
            "isr": [1, 2],
        },
        "/config/topics/t": {"version": 1, "config": {"retention.ms": "5"}},
    }


def test_only_what_changes_is_written() -> None:
    tree = Tree()
    tree.write(header(2) | partition(0) | partition(1))
    assert [each.path for each in tree.write(partition(0, leader=2, epoch=1), 8)] == [
        "/brokers/topics/t/partitions/0/state"
    ]
    assert tree.write(partition(1), 7) == []


def test_a_topic_that_is_being_made_is_not_shown_before_it_lives() -> None:
    tree = Tree()
    tree.write(header(2, TopicState.MAKING) | partition(0))
    tree.write(partition(1))
    assert tree.shown() == {}
    tree.write(header(2))
    assert "/brokers/topics/t/partitions/1/state" in tree.shown()


def test_partitions_beyond_the_count_wait_for_the_header() -> None:
    tree = Tree()
    tree.write(header(1) | partition(0))
    tree.write(partition(1))
    assert "/brokers/topics/t/partitions/1" not in tree.shown()
    tree.write(header(2))
    assert tree.shown()["/brokers/topics/t"]["partitions"] == {"0": [1, 2], "1": [1, 2]}
    assert "/brokers/topics/t/partitions/1/state" in tree.shown()


def test_a_deleted_topic_goes_with_its_last_line_and_its_request_with_the_first() -> None:
    tree = Tree()
    tree.write(header(1) | partition(0))
    tree.znodes["/admin/delete_topics/t"] = b""
    tree.view.expect("/admin/delete_topics/t")
    tree.write(header(1, TopicState.DELETING))
    assert "/admin/delete_topics/t" not in tree.shown()
    assert "/brokers/topics/t" in tree.shown()
    tree.write({HEADER: None} | dict.fromkeys(partition(0)))
    assert tree.shown() == {}


def test_a_request_goes_in_the_multi_that_writes_the_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In a later one it could outlive its topic, and delete the next one of that name."""
    monkeypatch.setattr(zookeeper_multis, "MULTI_OPERATIONS_MAX", 3)
    content = header(2) | partition(0) | partition(1)
    view = Projections()
    view.assume([(7, content)])
    view.expect("/admin/delete_topics/t")
    changes = view.plan(header(2, TopicState.DELETING), 7)
    table = KnownTable("partitions-00000", 4, 9, 7, 1, 0, {})
    first, *others = plan_write(table, table, changes, view, FENCE).multis
    assert first.operations[2:] == [Delete("/admin/delete_topics/t")]
    assert others


def test_a_deletion_that_did_not_land_is_planned_again_with_all_its_znodes() -> None:
    tree = Tree()
    tree.write(header(2) | partition(0) | partition(1))
    tree.write(header(2, TopicState.DELETING))
    last_lines = {HEADER: None} | dict.fromkeys([*partition(0), *partition(1)])
    lost = tree.view.plan(last_lines, 7)
    assert tree.view.plan(last_lines, 7) == [], "the lines alone do not tell it again"
    tree.write(last_lines, unsettled=lost)
    assert tree.shown() == {}


def test_what_did_not_land_is_planned_again_as_the_lines_are_by_then() -> None:
    tree = Tree()
    tree.write(header(1) | partition(0))
    lost = tree.view.plan(partition(0, leader=2, epoch=1), 7)
    tree.write(partition(0, leader=1, epoch=2), unsettled=lost)
    assert tree.shown()["/brokers/topics/t/partitions/0/state"]["leader_epoch"] == 2


def test_a_new_topic_takes_the_znodes_of_one_that_goes() -> None:
    tree = Tree()
    tree.write(header(3) | partition(0) | partition(1) | partition(2))
    tree.write(header(3, TopicState.DELETING))
    tree.write(header(1, topic_id=OTHER_ID) | partition(0, leader=2, topic_id=OTHER_ID))
    assert tree.shown()["/brokers/topics/t"]["topic_id"] == topic_id_text(OTHER_ID)
    assert "/brokers/topics/t/partitions/1" not in tree.shown()
    tree.write({HEADER: None} | dict.fromkeys([*partition(0), *partition(1), *partition(2)]))
    assert tree.shown()["/brokers/topics/t/partitions/0/state"]["leader"] == 2


def test_what_a_new_controller_loads_is_taken_to_be_there() -> None:
    tree = Tree()
    content = header(1) | partition(0)
    tree.write(content)
    tree.view = Projections()
    tree.view.assume([(7, content)])
    tree.write(partition(0, leader=2), 8)
    assert tree.shown()["/brokers/topics/t/partitions/0/state"]["leader"] == 2
    tree.write({HEADER: None} | dict.fromkeys(partition(0)))
    assert tree.shown() == {}


def test_a_znode_that_is_gone_is_made_again_with_its_parents() -> None:
    tree = Tree()
    tree.write(header(1) | partition(0))
    gone = [path for path in tree.znodes if path.startswith("/brokers")]
    for path in gone:
        del tree.znodes[path]
    changes = tree.view.plan(partition(0, leader=2), 8)
    paths = tree.view.involved(changes)
    tree.view.note_found({path: path in tree.znodes for path in paths})
    for operations in tree.view.operations(changes):
        for each in operations:
            tree.carry_out(each)
    assert tree.shown()["/brokers/topics/t/partitions/0/state"]["leader"] == 2


def test_the_cluster_has_its_znodes() -> None:
    tree = Tree()
    tree.write(
        {
            "cluster": '{"cluster_id":"A"}',
            "counters": '{"next_broker_epoch":4,"next_producer_id":2000}',
            "configs/3": '{"log.retention.ms":"1"}',
            "configs/": '{"log.retention.ms":"2"}',
        }
    )
    shown = tree.shown()
    assert shown["/cluster/id"] == {"version": "1", "id": "A"}
    assert shown["/fairlead"] == {"format": 1, "cluster_id": "A", "release": RELEASE}
    block = shown["/latest_producer_id_block"]
    assert (block["block_start"], block["block_end"]) == ("1000", "1999")
    assert shown["/config/brokers/3"]["config"] == {"log.retention.ms": "1"}
    assert shown["/config/brokers/<default>"]["config"] == {"log.retention.ms": "2"}
    tree.write({"configs/3": None})
    assert "/config/brokers/3" not in tree.shown()


def test_lines_that_cannot_be_read_show_nothing() -> None:
    tree = Tree()
    tree.write({"partition/x/y": "1", "topic/z": "[]", "configs/1": "nonsense", "a": "1"})
    assert tree.shown() == {}


def test_an_assignment_too_large_for_a_request_is_left_out() -> None:
    view = Projections()
    count = VALUE_BYTES_MAX // 10
    changed = header(count) | {
        key: line for index in range(count) for key, line in partition(index).items()
    }
    values = {change.path: change.value for change in view.plan(changed, 7)}
    shown = json.loads(values["/brokers/topics/t"] or b"")
    assert shown["partitions"] == {}
    assert shown["topic_id"], "it says whose znode it is"
    assert max(len(value or b"") for value in values.values()) < VALUE_BYTES_MAX


def test_who_wrote_a_state_last_is_no_difference() -> None:
    assert is_same_value(b'{"controller_epoch":1,"leader":2}', b'{"leader":2,"controller_epoch":9}')
    assert not is_same_value(b'{"leader":2}', b'{"leader":1}')
    assert not is_same_value(b'{"leader":2}', b"nonsense")
    assert not is_same_value(b"", b"{}")


def planned(changed: dict[str, str], known: KnownTable | None = None) -> Any:
    view = Projections()
    write = TableWrite("partitions-00000", None, 7, changed)
    return plan_write(next_table(write, known), known, view.plan(changed, 7), view, FENCE)


def test_every_multi_begins_with_the_fence() -> None:
    plan = planned(header(1) | partition(0))
    (multi,) = plan.multis
    assert multi.operations[0] == Check("/controller_epoch", 3)
    assert [multi.part_of(index) for index in (0, 1, 2, 3)] == [
        Refused.FENCE,
        Refused.TABLE,
        Refused.TABLE,
        Refused.PROJECTION,
    ]


def test_what_does_not_fit_follows_under_fence_and_version_of_the_table() -> None:
    changed = header(1500) | {
        key: line for index in range(1500) for key, line in partition(index).items()
    }
    plan = planned(changed)
    assert len(plan.multis) > 1
    for multi in plan.multis:
        assert len(multi.operations) <= MULTI_OPERATIONS_MAX
        size = sum(len(getattr(each, "value", b"")) + len(each.path) for each in multi.operations)
        assert size <= MULTI_BYTES_MAX
    for multi in plan.multis[1:]:
        assert multi.operations[:2] == [
            Check("/controller_epoch", 3),
            Check("/fairlead/tables/partitions-00000", 1),
        ]
    paths = [each.path for multi in plan.multis for each in multi.changes]
    assert len(paths) == len(set(paths)) == 2 * 1500 + 3


def test_five_hundred_leaders_of_a_full_table_are_one_multi() -> None:
    content = header(500) | {
        key: line for index in range(500) for key, line in partition(index).items()
    }
    view = Projections()
    view.assume([(6, content)])
    known = next_table(TableWrite("partitions-00000", None, 6, content), None)
    changed = {key: line for index in range(500) for key, line in partition(index, 2, 1).items()}
    write = TableWrite("partitions-00000", known.version, 7, changed)
    plan = plan_write(next_table(write, known), known, view.plan(changed, 7), view, FENCE)
    (multi,) = plan.multis
    assert len(multi.operations) == 502
