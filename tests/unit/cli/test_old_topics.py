"""Topics of a Kafka on ZooKeeper, read from the bytes of its znodes."""

import json

import pytest
import yaml
from click.testing import CliRunner
from kafka_trees import CLICKS, ORDERS, ORDERS_CONFIG, RELEASES, TOPIC_ID, TREE_0_7, build_tree
from znode_trees import as_tree

from fairlead_cli.main import fairlead
from fairlead_cli.zookeeper.old_topics import OldTopics, read_topics
from fairlead_cli.zookeeper.topic_specs import build_topic_specs
from fairlead_cli.zookeeper.tree import Znode
from fairlead_model.resources.topic_manifest import build_topic_manifest, parse_topic_manifests


def read(data: dict[str, bytes]) -> OldTopics:
    return read_topics(as_tree(data))


def read_one(assignment: object, more: dict[str, bytes] | None = None) -> OldTopics:
    """One topic `orders` with this assignment, and more znodes."""
    return read({"/brokers/topics/orders": json.dumps(assignment).encode()} | (more or {}))


@pytest.mark.parametrize("release", RELEASES)
def test_each_release_gives_the_same_topics(release: str) -> None:
    found = read(build_tree(release))
    seen = {
        (topic.name, len(topic.replicas), topic.replication_factor): topic for topic in found.topics
    }
    assert set(seen) == {ORDERS, CLICKS}
    orders = seen[ORDERS]
    assert orders.replicas == ((1, 2), (2, 1), (1, 2))
    assert orders.configs == ({} if release == "0.8.0" else ORDERS_CONFIG)
    assert orders.topic_id == (TOPIC_ID if release in {"2.8", "3.9"} else None)
    assert all(each.is_expected for each in found.skipped)
    # The brokers' own topic came with 0.8.2.
    internal = "/brokers/topics/__consumer_offsets"
    has_internal = release != "0.8.0"
    assert [each.path for each in found.skipped] == ([internal] if has_internal else [])


def test_manifests_mean_the_topics_that_were_read() -> None:
    specs, skipped = build_topic_specs(read(build_tree("3.9")).topics)
    text = yaml.safe_dump_all([build_topic_manifest(spec) for spec in specs])
    assert parse_topic_manifests(list(yaml.safe_load_all(text))) == specs
    assert {spec.topic_name: spec.resource for spec in specs} == {
        "orders": "orders",
        "clicks_EU.raw": "clicks-eu-raw-f33547a3c6",
    }
    assert skipped == []


def test_the_tree_of_0_7_is_told_by_its_name() -> None:
    found = read(TREE_0_7)
    assert (found.topics, found.is_version_0_7) == ((), True)
    assert "Kafka 0.7" in found.skipped[0].reason
    mixed = read(TREE_0_7 | {"/brokers/topics/new": b'{"partitions":{"0":[1]}}'})
    assert [topic.name for topic in mixed.topics] == ["new"]
    assert not mixed.is_version_0_7
    assert [each.path for each in mixed.skipped] == ["/brokers/topics/orders"]


def test_numbers_may_stand_in_quotes_and_keys_may_be_missing_or_unknown() -> None:
    found = read_one({"partitions": {"1": ["3"], "0": [2]}, "other": {}})
    assert found.topics[0].replicas == ((2,), (3,))


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        (7, "expected a JSON object"),
        ({"version": 1}, "expected a JSON object"),
        ({"partitions": {}}, "no partitions"),
        ({"partitions": {"0": [1], "2": [1]}}, "partition 1 is missing"),
        ({"partitions": {"0": [1], "00": [1]}}, "'00' is not the number of a partition"),
        ({"partitions": {"x": [1]}}, "'x' is not the number of a partition"),
        ({"partitions": {"0": 1}}, "expected a list of brokers"),
        ({"partitions": {"0": []}}, "partition 0 has no replicas"),
        ({"partitions": {"0": [1, 1]}}, "names a broker twice"),
        ({"partitions": {"0": [-1]}}, "-1 is not a whole number"),
        ({"partitions": {"0": [True]}}, "True is not a whole number"),
        ({"partitions": {"0": [1.0]}}, "1.0 is not a whole number"),
        ({"partitions": {"0": [2**31]}}, "is not a whole number"),
        ({"partitions": {"0": [1]}, "removing_replicas": {"0": [1]}}, "no replicas"),
        ({"partitions": {"0": [1]}, "topic_id": 5}, "topic_id is 5"),
    ],
)
def test_a_damaged_assignment_is_named_by_its_path(assignment: object, said: str) -> None:
    found = read_one(assignment)
    assert found.topics == ()
    (skipped,) = found.skipped
    assert (skipped.path, skipped.is_expected) == ("/brokers/topics/orders", False)
    assert said in skipped.reason


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "it is empty"),
        (b"\xff", "not UTF-8"),
        (b'{"partitions":', "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"partitions":{"0":[' + b"9" * 5_000 + b"]}}", "not JSON"),
    ],
)
def test_bytes_that_are_no_json_are_named(data: bytes, said: str) -> None:
    found = read({"/brokers/topics/orders": data})
    assert found.topics == ()
    assert said in found.skipped[0].reason


def test_a_move_of_replicas_counts_as_ended() -> None:
    found = read_one(
        {
            "version": 2,
            "partitions": {"0": [1, 2, 3, 4], "1": [1, 2]},
            "adding_replicas": {"0": [3, 4]},
            "removing_replicas": {"0": [1, 2]},
        }
    )
    assert found.topics[0].replicas == ((3, 4), (1, 2))


def test_different_numbers_of_replicas_become_the_largest_and_are_said() -> None:
    specs, skipped = build_topic_specs(read_one({"partitions": {"0": [1], "1": [1, 2]}}).topics)
    assert specs[0].replication_factor == 2
    assert "2 is taken for all" in skipped[0].reason


def test_half_deleted_topics_are_left_out_and_no_fault() -> None:
    found = read_one({"partitions": {"0": [1]}}, {"/admin/delete_topics/orders": b""})
    assert found.topics == ()
    assert [(each.path, each.is_expected) for each in found.skipped] == [
        ("/brokers/topics/orders", True)
    ]
    leftover = read({"/brokers/topics": b"", "/config/topics/gone": b'{"config":{}}'})
    assert [(each.path, each.is_expected) for each in leftover.skipped] == [
        ("/config/topics/gone", True)
    ]


def test_a_topic_whose_settings_are_damaged_is_left_out() -> None:
    """With the defaults it might lose records that its own retention keeps."""
    for text in (b"{", b'{"config":[]}', b'{"config":{"retention.ms":null}}'):
        found = read_one({"partitions": {"0": [1]}}, {"/config/topics/orders": text})
        assert found.topics == ()
        assert found.skipped[0].path == "/config/topics/orders"
        assert not found.skipped[0].is_expected


def test_what_the_acl_hides_is_named() -> None:
    tree = as_tree({"/brokers/topics/orders": b""})
    tree["/brokers/topics/orders"] = Znode(unreadable="its ACL does not let us read it")
    assert [str(each) for each in read_topics(tree).skipped] == [
        "/brokers/topics/orders: its ACL does not let us read it"
    ]


def test_settings_are_kept_translated_or_named() -> None:
    config = {
        "retention.ms": 1000,
        "cleanup.policy": "compact,delete",
        "message.timestamp.difference.max.ms": "60000",
        "message.timestamp.after.max.ms": "5000",
        "message.format.version": "0.10.2-IV0",
        "follower.replication.throttled.replicas": "0:1",
        "compression.type": "gzip",
        "remote.storage.enable": "true",
        "retenton.bytes": "5",
    }
    text = json.dumps({"version": 1, "config": config}).encode()
    found = read_one({"partitions": {"0": [1]}}, {"/config/topics/orders": text})
    specs, skipped = build_topic_specs(found.topics)
    assert specs[0].configs == {
        "cleanup.policy": "compact,delete",
        "compression.type": "gzip",
        "message.timestamp.after.max.ms": "5000",
        "message.timestamp.before.max.ms": "60000",
        "retention.ms": "1000",
    }
    assert {each.reason.partition("=")[0]: each.is_expected for each in skipped} == {
        "remote.storage.enable": False,
        "follower.replication.throttled.replicas": True,
        "message.format.version": True,
        "retenton.bytes": False,
    }
    assert {each.path for each in skipped} == {"/config/topics/orders"}


def test_names_that_cannot_stand_beside_each_other_are_named() -> None:
    one = b'{"partitions":{"0":[1]}}'
    found = read({"/brokers/topics/a.b": one, "/brokers/topics/a_b": one, "/brokers/topics/ä": one})
    specs, skipped = build_topic_specs(found.topics)
    assert [spec.topic_name for spec in specs] == ["a.b"]
    assert [each.path for each in (*found.skipped, *skipped)] == [
        "/brokers/topics/ä",
        "/brokers/topics/a_b",
    ]


@pytest.mark.parametrize("text", ["", "/kafka", "zk1:x", "zk1:0", "zk1/a//b", "zk1/../b"])
def test_what_is_no_address_is_a_usage_error(text: str) -> None:
    refused = CliRunner().invoke(fairlead, ["topic", "import", "--zookeeper", text])
    assert refused.exit_code == 2
    assert "--zookeeper" in refused.output
