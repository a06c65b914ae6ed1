"""Topics and positions of a Kafka on ZooKeeper, on a real server and against real brokers."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kafka_trees import (
    CLICKS,
    CONSUMER,
    ORDERS,
    ORDERS_CONFIG,
    POSITIONS,
    RELEASES,
    TREE_0_7,
    build_tree,
)
from kazoo.client import KazooClient
from kazoo.security import make_acl
from local_cluster import Cli, Outcome, take_cluster_ports
from remote_cluster import Remote, running_remote
from running_command import RunningCommand
from znode_trees import put_tree, read_whole
from zookeeper_ensemble import ZooKeeperEnsemble

from fairlead_model.resources.topic_manifest import parse_topic_manifests

RECORDS = 10


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote]:
    with running_remote(tmp_path_factory.mktemp("imports") / "data") as remote:
        # Ten records in each partition of what the trees tell of.
        remote.ok("topic", "create", "orders", "--partitions", "3", "--replication-factor", "1")
        for partition in range(3):
            lines = "".join(f"{number}\n" for number in range(RECORDS))
            remote.ok("produce", "orders", "--partition", str(partition), stdin=lines)
        yield remote


@pytest.fixture
def kazoo(zookeeper: ZooKeeperEnsemble, zookeeper_chroot: str) -> Iterator[KazooClient]:
    with zookeeper.client(zookeeper_chroot) as client:
        yield client


@pytest.fixture
def address(zookeeper: ZooKeeperEnsemble, zookeeper_chroot: str) -> str:
    return zookeeper.connect_string(zookeeper_chroot)


@pytest.fixture
def group() -> str:
    return f"g-{time.monotonic_ns()}"


def put_positions(kazoo: KazooClient, group: str, positions: dict[tuple[str, Any], Any]) -> None:
    put_tree(kazoo, {"/brokers/topics/orders": build_tree("0.9.0")["/brokers/topics/orders"]})
    put_tree(
        kazoo,
        {
            f"/consumers/{group}/offsets/{t}/{p}": str(at).encode()
            for (t, p), at in positions.items()
        },
    )


def committed(remote: Remote, group: str) -> dict[tuple[str, int], int]:
    (found,) = remote.ok("group", "describe", group, "-o", "json").json
    return {(each["topic"], each["partition"]): each["committed"] for each in found["offsets"]}


def exists(remote: Remote, group: str) -> bool:
    return group in [each["group"] for each in remote.ok("group", "list", "-o", "json").json]


def topic_import(address: str, *arguments: str) -> Outcome:
    """Run the verb, which needs no cluster of ours."""
    command = [sys.executable, "-m", "fairlead_cli.main", "topic", "import", "--zookeeper", address]
    result = subprocess.run(
        [*command, *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    return Outcome(result.returncode, result.stdout, result.stderr)


@pytest.mark.parametrize("release", RELEASES)
def test_a_tree_of_each_release_is_imported_record_for_record(
    release: str, kazoo: KazooClient, address: str, remote: Remote, group: str
) -> None:
    tree = {
        path.replace("/consumers/billing", f"/consumers/{group}"): data
        for path, data in build_tree(release).items()
    }
    put_tree(kazoo, tree)
    before = read_whole(kazoo)
    seen = topic_import(address, "-o", "json")
    assert seen.code == 0, seen
    assert {
        (each["name"], each["partitions"], each["replicationFactor"])
        for each in seen.json["topics"]
    } == {ORDERS, CLICKS}
    config = {} if release == "0.8.0" else ORDERS_CONFIG
    assert {each["name"]: each["config"] for each in seen.json["topics"]}["orders"] == config
    moved = remote.ok("group", "import", group, "--zookeeper", address, "-o", "json").json
    assert [each["executed"] for each in moved["groups"]] == [True]
    assert committed(remote, group) == POSITIONS
    assert read_whole(kazoo) == before


def test_manifests_are_taken_by_up(kazoo: KazooClient, address: str, tmp_path: Path) -> None:
    put_tree(kazoo, build_tree("2.8"))
    printed = topic_import(address, "-o", "manifests")
    assert printed.code == 0, printed
    assert "skipped /brokers/topics/__consumer_offsets" in printed.err
    parse_topic_manifests(list(yaml.safe_load_all(printed.out)))
    manifests = tmp_path / "topics.yaml"
    manifests.write_text(printed.out)
    cluster = Cli(tmp_path / "data", *take_cluster_ports())
    try:
        started = cluster.up("--brokers", "2", "-f", str(manifests))
        assert started.code == 0, started
        topics = {each["name"]: each for each in cluster.status()["topics"]}
        for name, partitions, replicas in (ORDERS, CLICKS):
            assert topics[name]["partitions"] == partitions
            assert topics[name]["replicationFactor"] == replicas
        shown = cluster.ok("topic", "describe", "orders", "-o", "json").out
        assert '"86400000"' in shown
    finally:
        cluster.close()


def test_a_table_names_what_was_left_out(kazoo: KazooClient, address: str) -> None:
    put_tree(
        kazoo,
        build_tree("1.1")
        | {
            "/brokers/topics/half": b'{"partitions":{"0":[1]}}',
            "/admin/delete_topics/half": b"",
            "/config/topics/orders": b'{"config":{"retention.ms":"5","odd":"1"}}',
        },
    )
    shown = topic_import(address)
    assert shown.code == 1
    assert "skipped /config/topics/orders: odd=1" in shown.err
    assert "skipped /brokers/topics/half: half deleted" in shown.err
    rows = {line.split()[0]: line.split()[1:] for line in shown.out.splitlines() if line.strip()}
    assert rows["orders"] == ["3", "2", "retention.ms=5"]
    kazoo.set("/brokers/topics/orders", b"{")
    damaged = topic_import(address, "-o", "json")
    assert damaged.code == 1
    assert [each["name"] for each in damaged.json["topics"]] == ["clicks_EU.raw"]
    assert {each["path"]: each["expected"] for each in damaged.json["skipped"]} == {
        "/brokers/topics/orders": False,
        "/brokers/topics/half": True,
        "/brokers/topics/__consumer_offsets": True,
    }


def test_the_wrong_place_is_said(
    kazoo: KazooClient, address: str, zookeeper: ZooKeeperEnsemble
) -> None:
    put_tree(kazoo, {"/other/thing": b""})
    empty = topic_import(address)
    assert (empty.code, "there is no /brokers/topics" in empty.err) == (1, True)
    assert "There is: other" in empty.err
    no_chroot = topic_import(f"{address}/nowhere")
    assert (no_chroot.code, "there is no znode" in no_chroot.err) == (1, True)
    kazoo.delete("/other", recursive=True)
    put_tree(kazoo, TREE_0_7)
    old = topic_import(address)
    assert (old.code, "Kafka 0.7" in old.err, old.out) == (1, True, "")


def test_what_an_acl_hides_is_named_and_the_rest_is_read(kazoo: KazooClient, address: str) -> None:
    put_tree(kazoo, build_tree("2.3"))
    nobody = [make_acl("digest", "somebody:else", read=True)]
    kazoo.set_acls("/brokers/topics/orders", nobody)
    shown = topic_import(address, "-o", "json")
    assert shown.code == 1
    assert [each["name"] for each in shown.json["topics"]] == ["clicks_EU.raw"]
    assert "/brokers/topics/orders: its ACL" in shown.err


def test_a_dry_run_shows_the_log_and_changes_nothing(
    kazoo: KazooClient, address: str, remote: Remote, group: str
) -> None:
    put_positions(
        kazoo,
        group,
        {
            ("orders", 0): 4,
            ("orders", 1): 11,
            ("orders", 9): 1,
            ("gone", 0): 1,
            ("orders", "0-1"): 1,
        },
    )
    planned = remote("group", "import", group, "--zookeeper", address, "--dry-run")
    assert planned.code == 1
    rows = [line.split() for line in planned.out.splitlines() if line.split()[:1] == [group]]
    beyond = ("11", "is", "beyond", "the", "log", "end")
    assert rows == [
        [group, "orders", "0", "4", "-", "4", "0", "10", "6"],
        [group, "orders", "1", "11", "-", "-", "0", "10", "-", *beyond],
    ]
    root = f"skipped /consumers/{group}/offsets"
    assert f"{root}/orders/9: topic orders has 3 partitions here" in planned.err
    assert f"{root}/gone/0: topic gone is neither there nor here" in planned.err
    assert f"{root}/orders/0-1: Kafka 0.7" in planned.err
    assert f"Group {group} would be refused: 1 of 2 positions" in planned.err
    assert not exists(remote, group)
    refused = remote("group", "import", group, "--zookeeper", address, "-o", "json")
    assert (refused.code, refused.json["groups"][0]["executed"]) == (1, False)
    assert not exists(remote, group)
    clamp = ("--zookeeper", address, "--out-of-range", "clamp")
    remote("group", "import", group, *clamp)
    assert committed(remote, group) == {("orders", 0): 4, ("orders", 1): 10}


def test_a_larger_offset_here_is_kept(
    kazoo: KazooClient, address: str, remote: Remote, group: str
) -> None:
    put_positions(kazoo, group, {("orders", 0): 4, ("orders", 1): 5})
    reset = ("group", "reset", group, "--topic", "orders:0,1", "--execute")
    remote.ok(*reset, "--to-offset", "4")
    remote.ok(*reset[:4], "orders:0", "--execute", "--to-offset", "8")
    remote.ok("group", "import", group, "--zookeeper", address)
    assert committed(remote, group) == {("orders", 0): 8, ("orders", 1): 5}
    again = remote.ok("group", "import", group, "--zookeeper", address)
    assert "Moved 0 positions of 0 groups." in again.err


def test_a_group_that_runs_in_zookeeper_is_refused_unless_told(
    kazoo: KazooClient, address: str, remote: Remote, group: str
) -> None:
    put_positions(kazoo, group, {("orders", 0): 4})
    kazoo.create(f"/consumers/{group}/ids/{CONSUMER}", b"{}", makepath=True, ephemeral=True)
    refused = remote("group", "import", group, "--zookeeper", address)
    assert (refused.code, CONSUMER in refused.err) == (1, True)
    assert not exists(remote, group)
    remote.ok("group", "import", group, "--zookeeper", address, "--allow-running")
    assert committed(remote, group) == {("orders", 0): 4}
    kazoo.delete(f"/consumers/{group}/ids/{CONSUMER}")
    remote.ok("group", "import", group, "--zookeeper", address)


def test_a_group_that_runs_here_is_refused(
    kazoo: KazooClient, address: str, remote: Remote, group: str
) -> None:
    put_positions(kazoo, group, {("orders", 0): 4})
    member = RunningCommand(remote.spawn("consume", "orders", "-g", group, "--commit", "never"))
    try:
        member.wait_for("assigned orders-0")
        refused = remote("group", "import", group, "--zookeeper", address)
        assert (refused.code, "it runs here: Stable, 1 member" in refused.err) == (1, True)
        told = remote("group", "import", group, "--zookeeper", address, "--allow-running")
        assert (told.code, "cannot be while it runs" in told.err) == (1, True)
    finally:
        member.process.kill()
        member.end()
        remote.spawned.clear()


def test_a_name_that_is_not_there_hides_no_other(
    kazoo: KazooClient, address: str, remote: Remote, group: str
) -> None:
    put_positions(kazoo, group, {("orders", 0): 4})
    some = remote("group", "import", f"{group}x", group, "--zookeeper", address)
    assert (some.code, f"Did you mean '{group}'?" in some.err) == (1, True)
    assert committed(remote, group) == {("orders", 0): 4}


def test_positions_go_back_to_where_old_consumers_look(
    kazoo: KazooClient, address: str, remote: Remote, group: str
) -> None:
    put_positions(kazoo, "other", {("orders", 0): 4})
    remote.ok("group", "reset", group, "--topic", "orders", "--to-offset", "7", "--execute")
    export = ("group", "export", group, "--zookeeper", address)
    before = read_whole(kazoo)
    planned = remote.ok(*export, "--dry-run", "-o", "json").json
    assert read_whole(kazoo) == before
    assert [
        (each["partition"], each["committed"], each["zookeeper"], each["new"])
        for each in planned["groups"][0]["partitions"]
    ] == [(0, 7, None, 7), (1, 7, None, 7), (2, 7, None, 7)]
    remote.ok(*export)
    root = f"/consumers/{group}/offsets/orders"
    assert {n: kazoo.get(f"{root}/{n}")[0] for n in "012"} == dict.fromkeys("012", b"7")
    # What the old consumers wrote since is larger, and stays.
    kazoo.set(f"{root}/0", b"9")
    remote.ok("group", "reset", group, "--topic", "orders", "--to-offset", "8", "--execute")
    remote.ok(*export)
    assert [kazoo.get(f"{root}/{n}")[0] for n in "012"] == [b"9", b"8", b"8"]
    # And back here.
    remote.ok("group", "import", group, "--zookeeper", address)
    assert committed(remote, group) == {("orders", 0): 9, ("orders", 1): 8, ("orders", 2): 8}


def test_export_leaves_what_it_cannot_judge(
    kazoo: KazooClient, address: str, remote: Remote, group: str
) -> None:
    put_positions(kazoo, group, {("orders", 0): "?"})
    put_tree(kazoo, build_tree("0.8.2") | {"/brokers/topics/orders": b'{"partitions":{"0":[1]}}'})
    remote.ok("group", "reset", group, "--topic", "orders:0,1", "--to-offset", "7", "--execute")
    some = remote("group", "export", group, "--zookeeper", address)
    assert some.code == 1
    assert f"skipped /consumers/{group}/offsets/orders/0: '?' is not" in some.err
    assert "offsets/orders/1: the old cluster has no partition orders-1" in some.err
    assert kazoo.get(f"/consumers/{group}/offsets/orders/0")[0] == b"?"


def test_nobody_answers(remote: Remote) -> None:
    refused = remote("group", "import", "--zookeeper", "127.0.0.1:1", "--dry-run")
    assert refused.code == 1
    assert "no ZooKeeper answers at 127.0.0.1:1 within" in refused.err
