"""Kafka's znodes beside the tables: what hands and tools do to them, and what becomes of it."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kazoo.exceptions import NoAuthError
from waiting import wait_until
from zookeeper_cluster import (
    TOPIC,
    Candidate,
    ZooKeeperCluster,
    eventually,
    is_there,
    produce,
    read_json,
)
from zookeeper_proxy import ZooKeeperProxy
from zookeeper_store import connected

from fairlead_controller.decisions.tables.stored_table import StoreError
from fairlead_controller.stores.zookeeper import load_tables
from fairlead_controller.stores.zookeeper_transfer import (
    confirm_in_zookeeper,
    export_from_zookeeper,
    restore_into_zookeeper,
)
from fairlead_zookeeper.address import ZooKeeperAccess, parse_connect_string
from fairlead_zookeeper.znodes import TABLES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from kazoo.client import KazooClient
    from zookeeper_ensemble import ZooKeeperEnsemble

TOP = f"/brokers/topics/{TOPIC}"
DAMAGED = "/fairlead/tables/partitions-00000"


@pytest.fixture
def cluster(
    tmp_path: Path, zookeeper: ZooKeeperEnsemble, zookeeper_chroot: str
) -> Iterator[ZooKeeperCluster]:
    """Two candidates, three brokers, one topic."""
    with ZooKeeperCluster(tmp_path, zookeeper, zookeeper_chroot, brokers=3) as made:
        made.create_topic()
        yield made


@pytest.fixture
def znodes(cluster: ZooKeeperCluster, zookeeper: ZooKeeperEnsemble) -> Iterator[KazooClient]:
    """A tool's client under the cluster's chroot."""
    with zookeeper.client(cluster.chroot) as client:
        yield client


def leaders(client: KazooClient) -> list[int]:
    return [read_json(client, f"{TOP}/partitions/{index}/state")["leader"] for index in range(3)]


def decided(candidate: Candidate) -> list[int]:
    """The leaders as the controller has them."""
    # A page that did not come, as from a busy machine, shows nothing.
    found = candidate.page(f"/status/topics/{TOPIC}").get("partitionList") or []
    return [each["leader"] for each in found]


def test_a_tool_reads_what_kafka_would_have_written(
    cluster: ZooKeeperCluster, znodes: KazooClient
) -> None:
    assert leaders(znodes) == decided(cluster.active())
    topic = read_json(znodes, TOP)
    assert topic["version"] == 3
    assert sorted(topic["partitions"]) == ["0", "1", "2"]
    state = read_json(znodes, f"{TOP}/partitions/0/state")
    assert state["controller_epoch"] == cluster.active().epoch
    assert sorted(state["isr"]) == sorted(topic["partitions"]["0"])
    assert read_json(znodes, f"/config/topics/{TOPIC}")["version"] == 1
    assert read_json(znodes, "/cluster/id") == {
        "version": "1",
        "id": read_json(znodes, "/fairlead")["cluster_id"],
    }
    assert is_there(znodes, "/brokers/seqid")
    cluster.brokers[0].end()
    wait_until(lambda: 0 not in leaders(znodes))


def test_what_hands_change_is_put_back_and_never_holds_up_a_failover(
    cluster: ZooKeeperCluster, znodes: KazooClient
) -> None:
    znodes.set(f"{TOP}/partitions/0/state", b"nonsense")
    znodes.delete(f"{TOP}/partitions/1", recursive=True)
    znodes.create(f"{TOP}/partitions/2/state/below", b"")
    znodes.set(TOP, b"{}")
    first = cluster.active()
    cluster.brokers[0].end()
    wait_until(lambda: 0 not in decided(first))
    assert produce(cluster.producer(), "after")
    first.kill()
    second = cluster.active(other_than=first)
    # What the failover did not write, because broker 0 did not lead it, the sweep at the take-over
    # puts back.
    eventually(lambda: sorted(read_json(znodes, TOP)["partitions"]) == ["0", "1", "2"])
    eventually(lambda: leaders(znodes) == decided(second))
    wait_until(lambda: second.metric("fairlead_zookeeper_mended_znodes_total") > 0)
    assert TOP in second.said()


def test_znodes_of_topics_that_are_gone_are_removed_and_others_are_left(
    cluster: ZooKeeperCluster, znodes: KazooClient
) -> None:
    left = json.loads(znodes.get(TOP)[0]) | {"topic_id": "AAAAAAAAAAAAAAAAAAAAAQ"}
    znodes.create("/brokers/topics/gone/partitions/0/state", b"{}", makepath=True)
    znodes.set("/brokers/topics/gone", json.dumps(left).encode())
    znodes.create("/brokers/topics/tool", b'{"version":1,"partitions":{"0":[1]}}')
    for name in ("gone", "half-gone", "tool"):
        znodes.create(f"/config/topics/{name}", b'{"version":1,"config":{}}')
    first = cluster.active()
    first.kill()
    second = cluster.active(other_than=first)
    wait_until(lambda: not is_there(znodes, "/brokers/topics/gone"))
    wait_until(lambda: "/brokers/topics/tool was made by a tool" in second.said())
    assert is_there(znodes, "/brokers/topics/tool")
    wait_until(lambda: sorted(znodes.get_children("/config/topics")) == sorted([TOPIC, "tool"]))


def test_metadata_is_exported_and_restored_where_it_was_lost(
    cluster: ZooKeeperCluster, znodes: KazooClient
) -> None:
    access = parse_connect_string(cluster.connect)
    document = asyncio.run(export_from_zookeeper(access))
    with pytest.raises(StoreError, match="a controller runs"):
        asyncio.run(restore_into_zookeeper(access, document))
    for candidate in cluster.candidates:
        candidate.kill()
    wait_until(lambda: not is_there(znodes, "/controller"))
    with pytest.raises(StoreError, match="holds metadata already"):
        asyncio.run(restore_into_zookeeper(access, document))
    for name in znodes.get_children("/"):
        znodes.delete(f"/{name}", recursive=True)
    restored = asyncio.run(restore_into_zookeeper(access, document))
    first = cluster.candidates[0]
    first.start()
    eventually(lambda: first.is_active)
    assert first.epoch > restored.controller_epoch
    assert read_json(znodes, "/fairlead")["cluster_id"] == restored.cluster_id
    wait_until(lambda: produce(cluster.producer(), "after"))


def test_tables_that_went_back_are_confirmed(
    cluster: ZooKeeperCluster, znodes: KazooClient
) -> None:
    """While brokers serve on, and know what happened since the copy was made."""
    access = parse_connect_string(cluster.connect)
    assert produce(cluster.producer(), "before")
    copy = {name: znodes.get(f"{TABLES}/{name}")[0] for name in znodes.get_children(TABLES)}
    active = cluster.active()
    cluster.brokers[0].end()
    wait_until(lambda: 0 not in decided(active))
    assert produce(cluster.producer(), "after")
    with pytest.raises(StoreError, match="a controller runs"):
        asyncio.run(confirm_in_zookeeper(access))
    for candidate in cluster.candidates:
        candidate.kill()
    wait_until(lambda: not is_there(znodes, "/controller"))
    for name, content in copy.items():
        znodes.set(f"{TABLES}/{name}", content)

    first = cluster.candidates[0]
    first.start()
    wait_until(lambda: first.exit_code is not None, first.said)
    assert "went back in time" in first.said()
    first.kill()  # It has ended by itself; what is left of it goes.
    first.start()
    eventually(lambda: "went back in time" in first.page("/healthz").get("problem", ""))
    assert not first.is_active
    first.kill()
    wait_until(lambda: not is_there(znodes, "/controller"))
    confirmed = asyncio.run(confirm_in_zookeeper(access))
    assert confirmed.finding
    first.start()
    eventually(lambda: first.is_active)
    assert first.epoch > confirmed.controller_epoch
    cluster.brokers[0] = cluster._begin_broker(0)
    cluster.brokers[0].wait_ready()
    wait_until(lambda: -1 not in decided(first))
    assert produce(cluster.producer(), "again")


def test_requests_under_admin_are_carried_out_or_refused_once(
    cluster: ZooKeeperCluster, znodes: KazooClient
) -> None:
    active = cluster.active()
    znodes.create("/admin/reassign_partitions", reassignment([0], [77]))
    election = {"version": 1, "partitions": [{"topic": TOPIC, "partition": 0}]}
    znodes.create("/admin/preferred_replica_election", json.dumps(election).encode())
    wait_until(lambda: not is_there(znodes, "/admin/preferred_replica_election"))
    znodes.create("/admin/preferred_replica_election", b"nonsense")
    znodes.create("/admin/delete_topics/nowhere")
    znodes.create(f"/admin/delete_topics/{TOPIC}")
    wait_until(lambda: not znodes.get_children("/admin/delete_topics"))
    eventually(lambda: not is_there(znodes, TOP))
    # The ensemble has it before the controller hears that.
    wait_until(lambda: active.page(f"/status/topics/{TOPIC}") == {"status": 404})
    refused = "fairlead_zookeeper_refused_requests_total"
    wait_until(lambda: active.metric(refused) == 2)
    assert active.said().count("/admin/reassign_partitions is not carried out") == 1
    assert is_there(znodes, "/admin/reassign_partitions")


def reassignment(*targets: list[int]) -> bytes:
    """Return what tools write: replicas of the topic's partitions, from the first one on."""
    partitions = [
        {"topic": TOPIC, "partition": index, "replicas": replicas}
        for index, replicas in enumerate(targets)
    ]
    return json.dumps({"version": 1, "partitions": partitions}).encode()


def test_partitions_move_as_a_znode_asks_and_the_next_controller_goes_on(
    cluster: ZooKeeperCluster, znodes: KazooClient
) -> None:
    def replicas() -> list[list[int]]:
        kept = read_json(znodes, TOP)["partitions"]
        return [kept[index] for index in sorted(kept, key=int)]

    before = replicas()
    turned = [each[1:] + each[:1] for each in before]
    path = "/admin/reassign_partitions"
    first = cluster.active()
    znodes.create(path, reassignment(*turned))
    first.kill()  # Before it has begun, or with some of it done.
    cluster.active(other_than=first)
    wait_until(lambda: not is_there(znodes, path))
    eventually(lambda: replicas() == turned)
    znodes.create(path, reassignment(before[0][:1], [77]))
    eventually(lambda: replicas()[0] == before[0][:1])
    assert is_there(znodes, path), "one of its partitions was refused"
    znodes.set(path, reassignment(before[0]))
    wait_until(lambda: not is_there(znodes, path))
    eventually(lambda: replicas()[0] == before[0])


def test_a_topic_made_again_is_not_deleted_by_the_old_request(
    cluster: ZooKeeperCluster, znodes: KazooClient
) -> None:
    """The request goes in the multi that makes the deletion durable, not some time after it."""
    znodes.create(f"/admin/delete_topics/{TOPIC}")
    wait_until(lambda: not is_there(znodes, f"/admin/delete_topics/{TOPIC}"))
    cluster.create_topic(partitions=1)
    first = cluster.active()
    first.kill()
    second = cluster.active(other_than=first)
    assert second.page(f"/status/topics/{TOPIC}")["partitions"] == 1
    eventually(lambda: list(read_json(znodes, TOP)["partitions"]) == ["0"])


def refused(cluster: ZooKeeperCluster, number: int, says: str) -> None:
    """A candidate says why it may not take over, and does not reign."""
    candidate = cluster.candidates[number]
    wait_until(lambda: says in str(candidate.page("/healthz").get("problem")), candidate.said)
    assert not candidate.is_active


def test_an_epoch_below_one_that_was_seen_is_refused_and_nothing_is_written(
    cluster: ZooKeeperCluster, znodes: KazooClient
) -> None:
    first, second = cluster.candidates
    wait_until(lambda: not second.is_active or not first.is_active)
    for candidate in cluster.candidates:
        candidate.kill()
    tables = {name: znodes.get(f"/fairlead/tables/{name}") for name in ("cluster",)}
    znodes.set("/controller_epoch", b"0")
    first.start()
    refused(cluster, 0, "/controller_epoch is 0, this controller has seen 1")
    assert {name: znodes.get(f"/fairlead/tables/{name}") for name in tables} == tables
    assert znodes.get("/controller_epoch")[0] == b"0"
    znodes.set("/controller_epoch", b"1")
    eventually(lambda: first.is_active)
    assert first.page("/healthz")["problem"] is None


def test_a_tree_that_is_gone_is_not_founded_again(
    cluster: ZooKeeperCluster, znodes: KazooClient
) -> None:
    first, _ = cluster.candidates
    for candidate in cluster.candidates:
        candidate.kill()
    for name in znodes.get_children("/"):
        znodes.delete(f"/{name}", recursive=True)
    first.start()
    refused(cluster, 0, "ZooKeeper knows nothing of the cluster")
    assert not is_there(znodes, "/fairlead")


def stop_and_damage(cluster: ZooKeeperCluster, znodes: KazooClient) -> bytes:
    """Kill all candidates and damage a table; what it was."""
    for candidate in cluster.candidates:
        candidate.kill()
    whole, _ = znodes.get(DAMAGED)
    znodes.set(DAMAGED, whole + b"nonsense\n")
    return bytes(whole)


def test_damaged_tables_are_named_and_nothing_is_overwritten(
    cluster: ZooKeeperCluster, znodes: KazooClient
) -> None:
    whole = stop_and_damage(cluster, znodes)
    damaged = znodes.get(DAMAGED)
    first = cluster.candidates[0]
    first.start()
    refused(cluster, 0, f"{DAMAGED} is damaged in line")
    assert znodes.get(DAMAGED)[0] == damaged[0]
    znodes.set(DAMAGED, whole)
    eventually(lambda: first.is_active)


def test_who_stands_by_after_tables_were_mended_has_no_problem_any_more(
    cluster: ZooKeeperCluster, znodes: KazooClient
) -> None:
    whole = stop_and_damage(cluster, znodes)
    for number, candidate in enumerate(cluster.candidates):
        candidate.start()
        refused(cluster, number, f"{DAMAGED} is damaged in line")
    znodes.set(DAMAGED, whole)
    cluster.active()
    for candidate in cluster.candidates:
        eventually(lambda each=candidate: each.page("/healthz")["problem"] is None)  # type: ignore[misc]


def test_a_session_that_ends_while_tables_are_damaged_ends_the_process(
    tmp_path: Path, zookeeper: ZooKeeperEnsemble, zookeeper_chroot: str
) -> None:
    """Its supervisor starts another one, which takes over once the tables are mended."""
    proxy = ZooKeeperProxy(zookeeper.followers[0].client_port)
    cluster = ZooKeeperCluster(tmp_path, zookeeper, zookeeper_chroot, candidates=1)
    path = "/fairlead/tables/cluster"
    try:
        with cluster, zookeeper.client(zookeeper_chroot) as client:
            candidate = cluster.active()
            candidate.kill()
            client.set(path, b"nonsense\n")
            cluster.connect = f"{proxy.address}{zookeeper_chroot}"
            candidate.start()
            refused(cluster, 0, f"{path} is damaged in line")
            proxy.refuse()
            wait_until(lambda: not client.get_children("/fairlead/candidates"))
            proxy.accept()
            assert wait_until(lambda: candidate.exit_code, candidate.said) == 3
    finally:
        proxy.stop()


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("/controller", b'{"version":1,"brokerid":1,"timestamp":"1"}', "is of a Kafka controller"),
        ("/brokers/ids/5", b'{"version":4,"host":"h","port":1}', "/brokers/ids/5 is of a Kafka"),
        ("/brokers/topics/k", b'{"version":1,"partitions":{"0":[1]}}', "metadata of a Kafka"),
    ],
)
def test_a_chroot_of_a_kafka_is_left_alone(
    tmp_path: Path,
    zookeeper: ZooKeeperEnsemble,
    zookeeper_chroot: str,
    path: str,
    value: bytes,
    says: str,
) -> None:
    with zookeeper.client(zookeeper_chroot) as client:
        client.create(path, value, makepath=True)
        cluster = ZooKeeperCluster(tmp_path, zookeeper, zookeeper_chroot, candidates=1)
        try:
            cluster.candidates[0].start()
            refused(cluster, 0, says)
            assert not is_there(client, "/fairlead")
            client.delete(path)
            eventually(lambda: cluster.candidates[0].is_active)
        finally:
            cluster.__exit__()


def test_with_a_digest_only_its_user_writes_and_reads_tables(
    tmp_path: Path, zookeeper: ZooKeeperEnsemble, zookeeper_chroot: str
) -> None:
    digest = "fairlead:secret"
    chroot = f"{zookeeper_chroot}/made/by/us"
    with (
        ZooKeeperCluster(tmp_path, zookeeper, chroot, candidates=1, settings={"digest": digest}),
        zookeeper.client(chroot) as anyone,
    ):
        calls: tuple[Callable[[], object], ...] = (
            lambda: anyone.get_children("/fairlead/tables"),
            lambda: anyone.get("/fairlead/tables/cluster"),
            lambda: anyone.get("/fairlead"),
            lambda: anyone.get("/fairlead/candidates/controller-10000"),
            lambda: anyone.set("/controller_epoch", b"9"),
            lambda: anyone.create("/brokers/ids/7", b""),
        )
        for call in calls:
            with pytest.raises(NoAuthError):
                call()
        assert anyone.get("/controller_epoch")[0] == b"1"

        async def load(access: ZooKeeperAccess) -> Any:
            async with connected(access) as client:
                return await load_tables(client)

        ours = parse_connect_string(zookeeper.connect_string(chroot), digest=digest)
        assert "cluster" in asyncio.run(load(ours))
        theirs = parse_connect_string(zookeeper.connect_string(chroot), digest="fairlead:wrong")
        with pytest.raises(StoreError, match="/fairlead/tables: NoAuthError"):
            asyncio.run(load(theirs))


@pytest.mark.parametrize("digest", ["", "fairlead:secret"])
def test_users_are_made_only_where_not_everybody_may_read_what_verifies_them(
    digest: str, tmp_path: Path, zookeeper: ZooKeeperEnsemble, zookeeper_chroot: str
) -> None:
    settings = {"digest": digest} if digest else {}
    with ZooKeeperCluster(
        tmp_path, zookeeper, zookeeper_chroot, candidates=1, brokers=1, settings=settings
    ) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        kind = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        wish = UserScramCredentialUpsertion("alice", kind, b"a password")
        (made,) = admin.alter_user_scram_credentials([wish], request_timeout=20).values()
        if digest:
            made.result()
        else:
            with pytest.raises(KafkaException) as caught:
                made.result()
            assert caught.value.args[0].name() == "POLICY_VIOLATION"
            assert "set zookeeper.set.acl=true" in caught.value.args[0].str()
