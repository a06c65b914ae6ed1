"""Tables that a newer release has written, or an older one: nothing of either is lost."""

import json
import math
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from decision_world import World, there

from fairlead_controller.decisions.events import (
    AlterConfigs,
    CreateTopics,
    DeleteTopics,
    Event,
    FenceBroker,
    FenceReason,
    RegisterBroker,
)
from fairlead_controller.decisions.state import ControllerChange, CountersChanged
from fairlead_controller.decisions.tables import lines
from fairlead_controller.decisions.tables.loading import Loaded, load_state
from fairlead_controller.decisions.tables.stored_table import (
    StoreCorruptError,
    StoredTable,
    line_bytes,
)
from fairlead_controller.decisions.tables.table_plan import (
    CLUSTER_TABLE,
    TableLayout,
    WritePlan,
    first_lines,
)
from fairlead_controller.stores.journal import apply_write
from fairlead_controller.stores.metadata_store import TableWrite
from fairlead_model.broker import BrokerRegistration, Endpoint
from fairlead_model.features import UNSAID_FEATURES, FeatureRange
from fairlead_model.ids import TopicId
from fairlead_model.partition import PartitionRegistration
from fairlead_model.session.calls import CreatableTopic
from fairlead_model.topic import TopicHeader, TopicState

NEXT = {"next_release": {"level": 7}}
UNKNOWN_LINE = '{"anything":[1,2]}'


class Tables:
    """Tables that a controller's plans are written to."""

    def __init__(self) -> None:
        self.tables: dict[str, StoredTable] = {}
        self.write(CLUSTER_TABLE, dict(first_lines("c", CountersChanged(1, 0))))

    def write(self, name: str, changed: dict[str, str | None]) -> None:
        write = TableWrite(name, None, 1, changed)
        self.tables[name] = apply_write(self.tables.get(name), write, "1")

    def commit(self, layout: TableLayout, changes: Iterable[ControllerChange]) -> None:
        plan = WritePlan(layout)
        plan.add(changes)
        for stage in plan.stages():
            for name, changed in stage.items():
                self.write(name, changed)

    def load(self) -> Loaded:
        return load_state(self.tables, controller_epoch=2)

    def record(self, key: str) -> dict[str, Any]:
        found = [table.lines[key] for table in self.tables.values() if key in table.lines]
        assert len(found) == 1, key
        record: dict[str, Any] = json.loads(found[0])
        return record

    def keys(self) -> list[str]:
        return [key for table in self.tables.values() for key in table.lines]


@pytest.fixture
def upgraded(
    world: World,
    make_create: Callable[..., CreateTopics],
    make_topic: Callable[..., CreatableTopic],
) -> Tables:
    """Tables of a cluster that a newer release has written anew, with more in each line."""
    tables = Tables()
    world.do(make_create(make_topic("t", partitions=2, replication_factor=3)))
    tables.commit(TableLayout(), [*world.state.image.changes_from_nothing(), world.state.counters])
    for name, table in tables.tables.items():
        newer: dict[str, str | None] = {"next/1": UNKNOWN_LINE}
        for key, line in table.lines.items():
            newer[key] = json.dumps(json.loads(line) | NEXT)
        tables.write(name, newer)
    return tables


def test_what_a_newer_release_has_written_outlives_this_one(
    upgraded: Tables, world: World, make_registration: Callable[..., BrokerRegistration]
) -> None:
    topic_id = world.state.image.names["t"]
    loaded = upgraded.load()
    world.state = loaded.state
    replicas = world.partition().replicas
    assert loaded.unknown_lines == 1
    assert loaded.repairs == {}
    alteration = {"name": "retention.ms", "operation": 0, "value": "5"}
    resource: Any = {"resource_type": 2, "name": "t", "alterations": [alteration]}
    events: list[Event] = [
        FenceBroker(0, world.epoch(0), FenceReason.SESSION_EXPIRED),
        RegisterBroker(make_registration(0, start_id="again"), ""),
        AlterConfigs({"resources": [resource], "validate_only": False, "incremental": True}),
    ]
    for event in events:
        decision = world.decide(event)
        world.state = world.state.apply(decision.changes)
        upgraded.commit(loaded.layout, decision.changes)
    rewritten = {
        lines.broker_key(0): ("start_id", "again"),
        lines.COUNTERS_KEY: ("next_broker_epoch", 5),
        lines.topic_key(topic_id): ("configs", {"retention.ms": "5"}),
        lines.partition_key(topic_id, 0): ("isr", [replica for replica in replicas if replica]),
    }
    for key, (field, value) in rewritten.items():
        assert upgraded.record(key) == upgraded.record(key) | NEXT | {field: value}, key
    assert upgraded.keys().count("next/1") == 2
    assert list(upgraded.load().state.image.changes_since(world.state.image)) == []


def test_what_is_kept_is_counted_and_goes_with_its_line(upgraded: Tables, world: World) -> None:
    loaded = upgraded.load()
    world.state = loaded.state
    layout = loaded.layout
    plain = TableLayout()
    Tables().commit(plain, world.state.image.changes_from_nothing())
    assert layout.sizes[0] >= plain.sizes[0] + 3 * len(json.dumps(NEXT)) + len(UNKNOWN_LINE)
    assert layout.cluster_size > plain.cluster_size
    topics: Any = [{"name": "t", "topic_id": bytes(16)}]
    deletion = world.decide(DeleteTopics({"topics": topics}))
    world.state = world.state.apply(deletion.changes)
    upgraded.commit(layout, deletion.changes)
    (topic_id,) = world.state.image.deleting
    assert upgraded.record(lines.topic_key(topic_id))["state"] == "deleting"
    before = len(layout.surplus)
    layout.remove_topic(topic_id)
    assert before - len(layout.surplus) == 3
    assert layout.sizes == {0: line_bytes("next/1", UNKNOWN_LINE)}


def test_a_line_of_an_unknown_kind_is_no_orphan(upgraded: Tables) -> None:
    stray = lines.partition_key(b"y" * 16, 0)
    assert upgraded.load().repairs == {}
    key = f"next/{stray}"
    upgraded.write("partitions-00000", {key: UNKNOWN_LINE})
    loaded = upgraded.load()
    assert loaded.repairs == {}
    assert loaded.unknown_lines == 2


def test_fields_that_a_line_lacks_have_the_defaults_of_the_model() -> None:
    partition = {"replicas": [1, 2], "isr": [1], "leader": 1, "leader_epoch": 3}
    line = json.dumps(partition | {"partition_epoch": 4})
    assert lines.parse_line("partition/x/0", line, lines.build_partition) == PartitionRegistration(
        (1, 2), (1,), 1, 3, 4
    )
    topic_id = TopicId(bytes(16))
    header = json.dumps({"name": "t", "partitions": 2, "state": "live"})
    assert lines.parse_line("topic/x", header, lines.header_builder(topic_id)) == TopicHeader(
        "t", topic_id, 2, TopicState.LIVE
    )
    endpoint = {"name": "CLIENT", "host": "h", "port": 1}
    broker = json.dumps({"id": 3, "epoch": 4, "endpoints": [endpoint]})
    read = lines.parse_line("broker/3", broker, lines.build_broker)
    assert read == BrokerRegistration(3, 4, (Endpoint("CLIENT", "h", 1),), features=UNSAID_FEATURES)
    # What is not said is taken for the worst: nothing is elected on it, nothing counts as kept.
    assert (read.fenced, read.is_clean, read.is_recovered_whole) == (True, False, False)


def test_what_a_broker_supports_is_not_believed_of_its_next_start() -> None:
    """A controller that knows no features keeps the field when it writes the registration anew."""
    newer = BrokerRegistration(3, 4, features=(FeatureRange("fairlead.version", 1, 9),))
    record = lines.read_line(lines.broker_line(newer))
    assert lines.build_broker(record) == newer
    assert lines.build_broker(record | {"epoch": 5}).features == UNSAID_FEATURES


def test_a_state_that_is_unknown_is_refused(upgraded: Tables, world: World) -> None:
    key = lines.topic_key(world.state.image.names["t"])
    upgraded.write("partitions-00000", {key: json.dumps(upgraded.record(key) | {"state": "new"})})
    with pytest.raises(StoreCorruptError, match="new"):
        upgraded.load()


@pytest.mark.parametrize(
    ("kind", "fields", "why"),
    [
        ("topic/", {"resource": None}, "None is no text"),
        ("topic/", {"configs": {"retention.ms": [1]}}, r"\[1\] is no text"),
        ("topic/", {"partitions": math.inf}, "infinity"),
        ("topic/", {"unconfirmed_deletions": ["1"]}, "'1' is no id of a broker"),
        ("partition/", {"unconfirmed_removals": [True]}, "True is no id of a broker"),
        ("broker/", {"endpoints": [{"name": "A", "host": 1, "port": 1}]}, "1 is no text"),
        ("broker/", {"rack": 5}, "5 is no text"),
    ],
)
def test_what_brokers_would_not_take_is_damaged(
    upgraded: Tables,
    kind: str,
    fields: dict[str, Any],
    why: str,
) -> None:
    """They would refuse all that a controller tells them, and none of them would serve."""
    keys = upgraded.keys()
    key = next(key for key in keys if key.startswith(kind))
    table = CLUSTER_TABLE if kind == "broker/" else "partitions-00000"
    upgraded.write(table, {key: json.dumps(upgraded.record(key) | fields)})
    with pytest.raises(StoreCorruptError, match=f"{key}.*{why}"):
        upgraded.load()


def test_configs_that_lost_their_quotes_are_texts(upgraded: Tables, world: World) -> None:
    key = lines.topic_key(world.state.image.names["t"])
    configs = {"retention.ms": 5, "preallocate": True}
    upgraded.write(
        "partitions-00000", {key: json.dumps(upgraded.record(key) | {"configs": configs})}
    )
    upgraded.write(CLUSTER_TABLE, {"configs/": json.dumps({"log.retention.ms": 7})})
    image = upgraded.load().state.image
    assert there(image.topic("t")).configs == {"retention.ms": "5", "preallocate": "true"}
    assert image.broker_configs[""] == {"log.retention.ms": "7"}
