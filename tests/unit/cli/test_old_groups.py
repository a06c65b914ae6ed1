"""Groups of old consumers, read from the bytes of their znodes."""

import pytest
from kafka_trees import CONSUMER, POSITIONS, RELEASES, TREE_0_7, build_ephemerals, build_tree
from znode_trees import as_tree

from fairlead_cli.client.places import Place
from fairlead_cli.zookeeper.old_groups import OldGroup, read_group
from fairlead_cli.zookeeper.tree import Znode


def read(data: dict[str, bytes]) -> OldGroup:
    return read_group(as_tree(data), "billing")


@pytest.mark.parametrize("release", RELEASES)
def test_positions_are_read_to_the_record(release: str) -> None:
    found = read(build_tree(release))
    assert found.positions == POSITIONS
    assert (found.consumers, found.owners, found.skipped) == ((), {}, ())
    assert not found.is_running


def test_who_runs_is_seen_with_host_and_topics() -> None:
    found = read(build_tree("2.3") | build_ephemerals("2.3"))
    assert found.is_running
    (consumer,) = found.consumers
    assert consumer.consumer_id == CONSUMER
    assert str(consumer) == f"consumer {CONSUMER} on host-7.example, reads orders"
    assert found.owners == {
        Place("orders", 0): f"{CONSUMER}-0",
        Place("orders", 1): f"{CONSUMER}-0",
        Place("orders", 2): f"{CONSUMER}-1",
    }


@pytest.mark.parametrize(
    ("name", "host"),
    [
        ("billing_host-1500000000000-0a1b2c3d", "host"),
        ("billing_a-b_c-1500000000000-0a1b2c3d", "a-b_c"),
        ("billing_my-own-id", None),
    ],
)
def test_a_host_is_parsed_from_the_right(name: str, host: str | None) -> None:
    found = read({f"/consumers/billing/ids/{name}": b'{"subscription":{".*":1}}'})
    assert [(each.host, each.topics) for each in found.consumers] == [(host, (".*",))]


def test_a_damaged_consumer_still_counts_as_running() -> None:
    found = read({"/consumers/billing/ids/x": b"?", "/consumers/billing/offsets/a/0": b"1"})
    assert found.is_running
    assert [each.path for each in found.skipped] == ["/consumers/billing/ids/x"]
    owned = read({"/consumers/billing/owners/a/0": b"\xff", "/consumers/billing/offsets/a/0": b"1"})
    assert owned.is_running
    assert [each.path for each in owned.skipped] == ["/consumers/billing/owners/a/0"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "it is empty"),
        (b"-1", "'-1' is not a whole number"),
        (b"1.5", "'1.5' is not a whole number"),
        (b"12 4", "is not a whole number"),
        ("٣".encode(), "is not a whole number"),
        (str(2**63).encode(), "is not a whole number"),
        (b"\xff\xfe", "not UTF-8"),
    ],
)
def test_a_damaged_position_is_named_and_the_others_are_read(data: bytes, said: str) -> None:
    root = "/consumers/billing/offsets/orders"
    found = read({f"{root}/0": data, f"{root}/1": b"9223372036854775807\n"})
    assert found.positions == {Place("orders", 1): 2**63 - 1}
    assert [each.path for each in found.skipped] == [f"{root}/0"]
    assert said in found.skipped[0].reason
    assert not found.skipped[0].is_expected


def test_names_that_are_no_partitions_are_named() -> None:
    found = read(TREE_0_7)
    assert found.positions == {}
    assert [str(each) for each in found.skipped] == [
        "/consumers/billing/offsets/orders/0-3: Kafka 0.7's <broker>-<partition>"
    ]
    odd = read({"/consumers/billing/offsets/a b/0": b"1", "/consumers/billing/offsets/a/01": b"1"})
    assert {each.path for each in odd.skipped} == {
        "/consumers/billing/offsets/a b",
        "/consumers/billing/offsets/a/01",
    }


def test_a_group_that_never_committed_is_no_fault() -> None:
    found = read({"/consumers/billing": b""})
    assert [(each.path, each.is_expected) for each in found.skipped] == [
        ("/consumers/billing", True)
    ]


def test_what_the_acl_hides_is_named() -> None:
    tree = as_tree({"/consumers/billing/offsets/orders/0": b"1"})
    tree["/consumers/billing/offsets/orders/0"] = Znode(unreadable="its ACL")
    assert [each.path for each in read_group(tree, "billing").skipped] == [
        "/consumers/billing/offsets/orders/0"
    ]
