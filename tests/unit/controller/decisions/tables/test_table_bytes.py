"""What is counted of tables is what they hold, at its largest."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from fairlead_controller.decisions.decide import decide
from fairlead_controller.decisions.events import (
    AlterConfigs,
    ConfirmDeletions,
    CreatePartitions,
    DeleteTopics,
    FenceBroker,
    FenceReason,
    RecordIntent,
    RegisterBroker,
    UnfenceBroker,
)
from fairlead_controller.decisions.tables import lines, loading, table_plan
from fairlead_controller.decisions.tables.loading import load_state
from fairlead_controller.decisions.tables.stored_table import StoredTable, line_bytes
from fairlead_controller.decisions.tables.table_bytes import header_bytes, partition_bytes
from fairlead_controller.decisions.tables.table_plan import (
    CLUSTER_TABLE,
    TableLayout,
    WritePlan,
    first_lines,
    table_name,
)
from fairlead_controller.decisions.tables.table_room import PASSING_BYTES, TableRoom
from fairlead_controller.stores.journal import apply_write
from fairlead_controller.stores.metadata_store import TableWrite
from fairlead_model.ids import TopicId
from fairlead_model.partition import LeaderRecoveryState, PartitionRegistration
from fairlead_model.topic import TopicHeader, TopicState

EVENTS = 150
BYTES_MAX = 120_000
THROTTLED = "leader.replication.throttled.replicas"


class Books:
    """A world, the tables that it is written to, and what is counted of them."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.tables: dict[str, StoredTable] = {}
        self.write({CLUSTER_TABLE: dict(first_lines("this-cluster", world.state.counters))})
        self.layout = load_state(self.tables, controller_epoch=1).layout
        self.layout.bytes_max = BYTES_MAX
        self.plan(tuple(world.state.image.changes_from_nothing()))

    def write(self, stage: Any) -> None:
        for name, table in stage.items():
            known = self.tables.get(name)
            write = TableWrite(name, None if known is None else known.version, 1, table)
            self.tables[name] = apply_write(known, write, "v")
            held = sum(line_bytes(*line) for line in self.tables[name].lines.items())
            assert held <= BYTES_MAX

    def plan(self, changes: Any) -> None:
        plan = WritePlan(self.layout)
        plan.add(changes)
        for stage in plan.stages():
            self.write(stage)

    def do(self, event: Any) -> Any:
        decision = decide(
            self.world.state,
            event,
            now_ms=0,
            random=self.world.random,
            room=TableRoom(self.layout),
        )
        self.world.state = self.world.state.apply(decision.changes)
        self.plan(decision.changes)
        return decision.reply

    def check(self) -> None:
        """Count all lines anew."""
        anew = load_state(self.tables, controller_epoch=1).layout
        for name in (
            "tables",
            "header_tables",
            "fill",
            "partition_sizes",
            "header_sizes",
            "replicas",
            "cluster_sizes",
            "cluster_size",
        ):
            assert getattr(self.layout, name) == getattr(anew, name), name
        assert {n: size for n, size in self.layout.sizes.items() if size} == {
            n: size for n, size in anew.sizes.items() if size
        }
        for number, size in self.layout.sizes.items():
            held = self.tables[table_name(number)].lines
            assert sum(line_bytes(*line) for line in held.items()) <= size <= BYTES_MAX
        held = self.tables[CLUSTER_TABLE].lines
        most = self.layout.cluster_size + PASSING_BYTES
        assert sum(line_bytes(*line) for line in held.items()) <= most


def random_event(rng: random.Random, world: Any, make: Any, topic: Any, registration: Any) -> Any:
    names = sorted(each.name for each in world.state.image.topics())
    name = rng.choice(names or ["none"])
    long = ",".join(["0:1"] * rng.randrange(8000))
    broker_id = rng.randrange(3)
    broker = world.state.image.brokers[broker_id]
    match rng.randrange(9):
        case 0 | 1:
            configs = {THROTTLED: long} if rng.random() < 0.5 else {}
            made = topic(
                f"t{rng.randrange(1000)}",
                partitions=rng.randrange(1, 12),
                replication_factor=rng.randrange(1, 4),
                configs=configs,
            )
            return make(made)
        case 2:
            alteration = {"name": THROTTLED, "operation": 0, "value": long}
            return AlterConfigs(call_of(2, name, alteration))
        case 3:
            value = str(rng.randrange(1, 10**9))
            alteration = {"name": "log.retention.bytes", "operation": 0, "value": value}
            return AlterConfigs(call_of(4, rng.choice(["", str(broker_id)]), alteration))
        case 4:
            return DeleteTopics({"topics": [{"name": name, "topic_id": bytes(16)}]})
        case 5:
            return ConfirmDeletions(broker_id, list(world.state.image.deleting))
        case 6:
            grown: Any = {"name": name, "count": rng.randrange(5, 30), "assignments": None}
            return CreatePartitions({"topics": [grown], "validate_only": False})
        case 7:
            if broker.fenced:
                return UnfenceBroker(broker_id, broker.broker_epoch)
            return FenceBroker(broker_id, broker.broker_epoch, FenceReason.SESSION_EXPIRED)
    if rng.random() < 0.3:
        return RecordIntent(f"i{rng.randrange(100)}", "delete-pod", f"p{rng.randrange(100)}", 5)
    host = "h" * rng.randrange(40)
    start = f"s{rng.randrange(10**6)}"
    return RegisterBroker(registration(broker_id, start_id=start, host_name=host), "")


def call_of(resource_type: int, name: str, alteration: dict[str, Any]) -> Any:
    resource: Any = {"resource_type": resource_type, "name": name, "alterations": [alteration]}
    return {"resources": [resource], "validate_only": False, "incremental": True}


@pytest.mark.parametrize("seed", range(8))
def test_the_count_is_that_of_the_lines_after_any_changes(
    world: Any,
    make_create: Any,
    make_topic: Any,
    make_registration: Any,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
) -> None:
    monkeypatch.setattr(table_plan, "PARTITIONS_PER_TABLE", 20)
    monkeypatch.setattr(loading, "PARTITIONS_PER_TABLE", 20)
    rng = random.Random(seed)
    books = Books(world)
    for _ in range(EVENTS):
        books.do(random_event(rng, world, make_create, make_topic, make_registration))
        books.check()
    assert len(books.layout.fill) > 3


@pytest.mark.parametrize("replicas", [(1,), (1, 20, 300), tuple(range(10_000, 10_040))])
def test_no_election_makes_a_line_larger_than_was_counted(replicas: tuple[int, ...]) -> None:
    topic_id, index = b"i" * 16, 123
    most = partition_bytes(topic_id, index, PartitionRegistration(replicas, replicas))
    third = len(replicas) // 3
    largest = PartitionRegistration(
        replicas=replicas,
        isr=replicas[: third or 1],
        leader=replicas[0],
        leader_epoch=(1 << 31) - 1,
        partition_epoch=(1 << 31) - 1,
        elr=replicas[third or 1 : 2 * third],
        last_known_elr=replicas[2 * third :],
        leader_recovery_state=LeaderRecoveryState.RECOVERING,
        directories=("d" * 22,) * len(replicas),
        min_insync_replicas=10,
    )
    nobody = replace(largest, leader=-1, isr=(), elr=(), last_known_elr=replicas)
    for record in (largest, nobody):
        key = lines.partition_key(topic_id, index)
        assert line_bytes(key, lines.partition_line(record)) <= most


def test_no_deletion_makes_a_header_larger_than_was_counted() -> None:
    header = TopicHeader("t" * 249, b"i" * 16, 40, configs={"retention.ms": "5"})  # type: ignore[arg-type]
    holders = frozenset(range(1000, 1120))
    deleting = replace(header, state=TopicState.DELETING, unconfirmed_deletions=holders)
    line = line_bytes(lines.topic_key(header.topic_id), lines.header_line(deleting))
    assert line <= header_bytes(header, 3)


def test_tables_of_short_lines_are_as_full_as_before(world: Any, make_create: Any) -> None:
    """Bytes decide only where lines are long."""
    layout = TableLayout()
    header = TopicHeader("t" * 100, b"i" * 16, 1)  # type: ignore[arg-type]
    for number in range(500):
        topic_id = number.to_bytes(16, "big")
        layout.place_partition(
            replace(header, topic_id=TopicId(topic_id)),
            PartitionRegistration((1001, 1002, 1003), (1001,)),
        )
    assert layout.fill == {0: 500}
