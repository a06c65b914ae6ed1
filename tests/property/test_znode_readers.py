"""Whatever stands in a tree: the readers never fail, and each znode is taken or named."""

import json

from hypothesis import given
from hypothesis import strategies as st
from znode_trees import as_tree

from fairlead_cli.client.places import Place
from fairlead_cli.zookeeper.old_groups import position_path, read_group
from fairlead_cli.zookeeper.old_topics import read_topics
from fairlead_cli.zookeeper.topic_specs import build_topic_specs
from fairlead_model.resources.topic_manifest import build_topic_manifest, parse_topic_manifests
from fairlead_zookeeper.znodes import BROKER_TOPICS

NAMES = st.one_of(
    st.sampled_from(["0", "1", "2", "00", "0-1", "-1", "a", "a.b", "a_b", "Ä", "__x"]),
    st.text(st.characters(exclude_characters="/", exclude_categories=["Cs"]), min_size=1),
)
NUMBERS = st.one_of(st.integers(-2, 3), st.integers(), st.sampled_from(["1", "-1", "01", "x"]))
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=8,
)
REPLICAS = st.one_of(VALUES, st.lists(st.integers(0, 5), min_size=1, max_size=4, unique=True))
PARTITIONS = st.one_of(
    VALUES,
    st.dictionaries(NAMES, REPLICAS, max_size=4),
    st.integers(1, 4).map(lambda count: {str(n): [n % 3, 3] for n in range(count)}),
)
TOPIC_JSON = st.builds(
    lambda fields: json.dumps(fields).encode(),
    st.fixed_dictionaries(
        {"partitions": PARTITIONS},
        optional={
            "version": VALUES,
            "removing_replicas": PARTITIONS,
            "adding_replicas": PARTITIONS,
            "topic_id": VALUES,
            "extra": VALUES,
        },
    ),
)
SETTINGS = st.sampled_from(
    ["retention.ms", "cleanup.policy", "compression.type", "message.format.version", "odd"]
)
CONFIG_JSON = st.builds(
    lambda config: json.dumps({"version": 1, "config": config}).encode(),
    st.one_of(VALUES, st.dictionaries(SETTINGS, VALUES, max_size=4)),
)
BYTES = st.binary(max_size=12)
OFFSETS = st.one_of(BYTES, st.integers().map(lambda number: str(number).encode()))


@given(
    st.dictionaries(NAMES, st.tuples(st.one_of(TOPIC_JSON, BYTES), st.booleans()), max_size=5),
    st.dictionaries(NAMES, st.one_of(CONFIG_JSON, BYTES), max_size=3),
)
def test_each_topic_is_taken_or_named(
    topics: dict[str, tuple[bytes, bool]], configs: dict[str, bytes]
) -> None:
    """A topic may be among those whose deletion has not ended."""
    tree = {f"{BROKER_TOPICS}/{name}": data for name, (data, _) in topics.items()}
    tree |= {f"/config/topics/{name}": data for name, data in configs.items()}
    deleting = {name for name, (_, is_deleting) in topics.items() if is_deleting}
    tree |= {f"/admin/delete_topics/{name}": b"" for name in deleting}
    found = read_topics(as_tree(tree))
    specs, left_out = build_topic_specs(found.topics)
    made = {spec.topic_name for spec in specs}
    named = {each.path for each in (*found.skipped, *left_out)}
    for name in topics:
        paths = {f"{BROKER_TOPICS}/{name}", f"/config/topics/{name}"}
        assert (name in made) or (paths & named), name
    assert not made & deleting
    assert made <= topics.keys()
    # Whatever is printed can be applied.
    assert parse_topic_manifests([build_topic_manifest(spec) for spec in specs]) == specs


@given(
    st.dictionaries(st.tuples(NAMES, NAMES), OFFSETS, max_size=6),
    st.dictionaries(NAMES, st.one_of(CONFIG_JSON, BYTES), max_size=2),
    st.dictionaries(st.tuples(NAMES, NAMES), BYTES, max_size=2),
)
def test_each_position_is_taken_or_named(
    offsets: dict[tuple[str, str], bytes],
    consumers: dict[str, bytes],
    owners: dict[tuple[str, str], bytes],
) -> None:
    tree = {f"/consumers/g/offsets/{t}/{p}": data for (t, p), data in offsets.items()}
    tree |= {f"/consumers/g/ids/{name}": data for name, data in consumers.items()}
    tree |= {f"/consumers/g/owners/{t}/{p}": data for (t, p), data in owners.items()}
    found = read_group(as_tree({"/consumers/g": b""} | tree), "g")
    named = {each.path for each in found.skipped}
    for (topic, partition), data in offsets.items():
        path = f"/consumers/g/offsets/{topic}/{partition}"
        is_named = path in named or f"/consumers/g/offsets/{topic}" in named
        is_taken = (topic, partition) in {(at.topic, str(at.partition)) for at in found.positions}
        assert is_taken != is_named, path
        if is_taken:
            at = Place(topic, int(partition))
            assert position_path("g", at) == path
            assert found.positions[at] == int(data)
    assert {each.consumer_id for each in found.consumers} == consumers.keys()
    assert found.is_running or not consumers
