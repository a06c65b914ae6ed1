"""Candidates as processes: who is the controller, and what ends it."""

from __future__ import annotations

import json
import re
import signal
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from processor_wait import Stopwatch
from proofs import OUTAGE_S
from waiting import wait_until
from zookeeper_cluster import TOPIC, Candidate, Reader, ZooKeeperCluster, produce, read_json
from zookeeper_proxy import ZooKeeperProxy

from fairlead_zookeeper import znodes

if TYPE_CHECKING:
    from pathlib import Path

    from confluent_kafka import Producer
    from zookeeper_ensemble import ZooKeeperEnsemble

TAKEOVER_S = 2.0
GAP_S = 2.0
DEADLINE_S = 60.0
MANY = 1_000
TRANSACTIONS_MAX = 20
LASTING = {"session_timeout_ms": 10_000}
"""Where no session is to end, though all servers start anew on a busy machine."""


def test_a_killed_controller_is_replaced_at_once(
    tmp_path: Path, zookeeper: ZooKeeperEnsemble, zookeeper_chroot: str
) -> None:
    with ZooKeeperCluster(tmp_path, zookeeper, zookeeper_chroot, candidates=3) as cluster:
        first = cluster.active()
        cluster.wait_heard(first)
        epoch = first.epoch
        stopwatch = Stopwatch(beside=cluster.candidate_pids)
        first.kill()
        second = cluster.active(other_than=first)
        assert stopwatch.elapsed_s() < TAKEOVER_S, cluster.last_words()
        assert second.epoch == epoch + 1
        with zookeeper.client(zookeeper_chroot) as client:
            assert read_json(client, "/controller")["fairlead"] == {"identity": second.identity}
            assert client.get("/controller_epoch")[0] == str(epoch + 1).encode()


def test_a_paused_controller_is_deposed_and_ends_when_it_wakes(
    tmp_path: Path, zookeeper: ZooKeeperEnsemble, zookeeper_chroot: str
) -> None:
    with ZooKeeperCluster(tmp_path, zookeeper, zookeeper_chroot) as cluster:
        first = cluster.active()
        cluster.wait_heard(first)
        stopwatch = Stopwatch(beside=cluster.candidate_pids)
        first.send(signal.SIGSTOP)
        second = cluster.active(other_than=first)
        assert stopwatch.elapsed_s() < TAKEOVER_S, cluster.last_words()
        first.send(signal.SIGCONT)
        assert wait_until(lambda: first.exit_code is not None)
        assert first.exit_code == 3
        assert second.is_active


def test_a_controller_that_stops_gives_the_epoch_back(
    tmp_path: Path, zookeeper: ZooKeeperEnsemble, zookeeper_chroot: str
) -> None:
    with ZooKeeperCluster(tmp_path, zookeeper, zookeeper_chroot) as cluster:
        first = cluster.active()
        stopwatch = Stopwatch(beside=cluster.candidate_pids)
        assert first.stop() == 0, first.said()
        cluster.active(other_than=first)
        assert stopwatch.elapsed_s() < TAKEOVER_S, cluster.last_words()


@pytest.mark.proof
def test_records_are_written_and_read_while_zookeeper_is_away_and_nothing_moves(
    tmp_path: Path, zookeeper: ZooKeeperEnsemble, zookeeper_chroot: str
) -> None:
    with ZooKeeperCluster(
        tmp_path, zookeeper, zookeeper_chroot, brokers=3, settings=LASTING
    ) as cluster:
        cluster.create_topic()
        producer, reader = cluster.producer(), Reader(cluster)
        assert produce(producer, "before")
        active = cluster.active()
        epoch = active.epoch
        before = active.page("/status/topics/t")["partitionList"]
        zookeeper.stop()
        wait_until(lambda: active.metric("fairlead_store_available") == 0)
        until = time.monotonic() + OUTAGE_S.chosen()
        count = 0
        while time.monotonic() < until:
            assert produce(producer, f"during {count}")
            count += 1
            reader.read_until(f"during {count - 1}")
        assert active.page("/status/topics/t")["partitionList"] == before
        assert active.epoch == epoch
        zookeeper.start()
        wait_until(lambda: active.metric("fairlead_store_available") == 1, cluster.last_words)
        assert (active.epoch, active.exit_code) == (epoch, None)
        assert active.page("/status/topics/t")["partitionList"] == before
        assert produce(producer, "after")
        reader.read_until("after")
        wanted = ["before", *(f"during {number}" for number in range(count)), "after"]
        assert Counter(reader.found) == Counter(wanted)
        reader.close()


@pytest.mark.proof
def test_who_dies_while_zookeeper_is_away_is_replaced_when_it_is_back(
    tmp_path: Path, zookeeper: ZooKeeperEnsemble, zookeeper_chroot: str
) -> None:
    """Its partitions wait, and so does acks=all where it is in sync; the others go on."""
    with ZooKeeperCluster(
        tmp_path, zookeeper, zookeeper_chroot, brokers=3, settings=LASTING
    ) as cluster:
        cluster.create_topic(partitions=6)
        producer, reader = cluster.producer(), Reader(cluster)
        active = cluster.active()
        before = active.page("/status/topics/t")["partitionList"]
        victim = before[0]["leader"]
        led = [each["partition"] for each in before if each["leader"] == victim]
        free = [each["partition"] for each in before if victim not in each["isr"]]
        assert led
        assert free
        zookeeper.stop()
        wait_until(lambda: active.metric("fairlead_store_available") == 0)
        cluster.brokers[victim].end()
        waiting: list[bool] = []
        for partition in led:
            producer.produce(
                TOPIC,
                f"waits {partition}",
                partition=partition,
                on_delivery=lambda error, _: waiting.append(error is None),
            )
        until = time.monotonic() + OUTAGE_S.chosen() / 2
        count = 0
        while time.monotonic() < until:
            for partition in free:
                assert produce(producer, f"during {count}", partition=partition)
                reader.read_until(f"during {count}")
                count += 1
        assert waiting == [], "a partition without a leader acknowledges nothing"
        assert active.page("/status/topics/t")["partitionList"] == before
        zookeeper.start()
        wait_until(lambda: active.metric("fairlead_store_available") == 1, cluster.last_words)
        stopwatch = Stopwatch(beside=cluster.candidate_pids)
        wait_until(lambda: _leads_nothing(active, victim), cluster.last_words)
        assert stopwatch.elapsed_s() < TAKEOVER_S, cluster.last_words()
        assert producer.flush(DEADLINE_S) == 0
        assert waiting == [True] * len(led)
        for partition in led:
            reader.read_until(f"waits {partition}")
        wanted = [f"during {number}" for number in range(count)]
        assert Counter(reader.found) == Counter([*wanted, *(f"waits {each}" for each in led)])
        reader.close()


def test_a_controller_that_loses_its_session_ends_and_another_takes_over(
    tmp_path: Path, zookeeper: ZooKeeperEnsemble, zookeeper_chroot: str
) -> None:
    proxy = ZooKeeperProxy(zookeeper.followers[0].client_port)
    try:
        with (
            ZooKeeperCluster(tmp_path, zookeeper, zookeeper_chroot, candidates=1) as cluster,
            zookeeper.client(zookeeper_chroot) as client,
        ):
            first = cluster.candidates[0]
            first.kill()
            cluster.connect = f"{proxy.address}{zookeeper_chroot}"
            first.start()
            wait_until(lambda: first.is_active, first.said)
            cluster.connect = zookeeper.connect_string(zookeeper_chroot)
            second = Candidate(cluster, 1)
            cluster.candidates.append(second)
            second.start()
            cluster.wait_heard(first)
            proxy.refuse()
            # It is heard, so the other leaves it to ZooKeeper: the session has to run out.
            wait_until(lambda: second.is_active, cluster.last_words)
            assert first.exit_code is None
            proxy.accept()
            assert wait_until(lambda: first.exit_code) == 3
            assert read_json(client, "/controller")["fairlead"]["identity"] == second.identity
    finally:
        proxy.stop()


def test_controller_deleted_by_hand_is_made_again_by_its_holder(
    tmp_path: Path, zookeeper: ZooKeeperEnsemble, zookeeper_chroot: str
) -> None:
    with (
        ZooKeeperCluster(tmp_path, zookeeper, zookeeper_chroot, candidates=1) as cluster,
        zookeeper.client(zookeeper_chroot) as client,
    ):
        first = cluster.active()
        epoch = first.epoch
        client.delete("/controller")
        wait_until(lambda: client.exists("/controller") is not None)
        assert (first.is_active, first.epoch) == (True, epoch)


def test_zookeepers_leader_dies_under_load_and_no_record_is_refused(
    tmp_path: Path, zookeeper: ZooKeeperEnsemble, zookeeper_chroot: str
) -> None:
    with ZooKeeperCluster(
        tmp_path, zookeeper, zookeeper_chroot, brokers=3, settings=LASTING
    ) as cluster:
        cluster.create_topic()
        producer = cluster.producer()
        first = cluster.active()
        assert produce(producer, "before")
        zookeeper.leader.kill()
        until = time.monotonic() + 3
        while time.monotonic() < until:
            assert produce(producer, "during")
        cluster.brokers[0].end()
        assert produce(producer, "after a broker's death")
        wait_until(lambda: zookeeper.leader is not None)
        wait_until(lambda: _leads_nothing(first, 0), cluster.last_words)
        assert (first.exit_code, first.is_active) == (None, True)


def _leads_nothing(candidate: Candidate, broker: int) -> bool:
    shown = candidate.page("/status/topics/t").get("partitionList") or []
    return bool(shown) and all(each["leader"] not in (broker, -1) for each in shown)


def test_who_is_killed_and_back_while_zookeeper_is_away_goes_on_where_it_stood(
    tmp_path: Path, zookeeper: ZooKeeperEnsemble, zookeeper_chroot: str
) -> None:
    """All partitions with acks=all go on within two seconds, and no epoch is given.

    Once more without any controller.
    """
    with ZooKeeperCluster(
        tmp_path, zookeeper, zookeeper_chroot, brokers=3, settings=LASTING
    ) as cluster:
        cluster.create_topic(partitions=6, replication_factor=3)
        producer, reader = cluster.producer(), Reader(cluster)
        active = cluster.active()
        _produce_to_each(producer, "before")
        cluster.wait_until_all_logs_are_open()
        before = active.page("/status/topics/t")["partitionList"]
        victim = before[0]["leader"]
        zookeeper.stop()
        wait_until(lambda: active.metric("fairlead_store_available") == 0)
        for death in ("first", "second"):
            _kill_and_produce(cluster, producer, victim, death)
        assert active.page("/status/topics/t")["partitionList"] == before
        zookeeper.start()
        wait_until(lambda: active.metric("fairlead_store_available") == 1, cluster.last_words)
        wait_until(lambda: _is_registered_anew(active, victim), cluster.last_words)
        _produce_to_each(producer, "after")
        for candidate in cluster.candidates:
            candidate.kill()
        _kill_and_produce(cluster, producer, victim, "no controller")
        for each in range(6):
            reader.read_until(f"no controller {each}")
        times = ("before", "first", "second", "after", "no controller")
        assert Counter(reader.found) == Counter(
            f"{when} {each}" for when in times for each in range(6)
        )
        reader.close()


def _kill_and_produce(
    cluster: ZooKeeperCluster, producer: Producer, victim: int, text: str
) -> None:
    """Kill a broker that comes back; acks=all goes on with it, soon and everywhere."""
    survivors = [each.process.pid for at, each in enumerate(cluster.brokers) if at != victim]
    stopwatch = Stopwatch(*survivors)
    cluster.restart_broker(victim)
    stopwatch.count(cluster.brokers[victim].process.pid)
    _produce_to_each(producer, text)
    gap_s, waited_s = stopwatch.elapsed_s(), stopwatch.left_out_s()
    print(f"\n{text}: all went on {gap_s:.2f} s after a death, and {waited_s:.2f} s")
    print("in which processes waited for a processor")
    assert "going on as broker epoch" in cluster.brokers[victim].last_words()
    assert gap_s < GAP_S, cluster.brokers[victim].last_words()


def _produce_to_each(producer: Producer, text: str) -> None:
    """Have a record acknowledged on each of six partitions, sent at once."""
    acknowledged: list[bool] = []
    for partition in range(6):
        producer.produce(
            TOPIC,
            f"{text} {partition}",
            partition=partition,
            on_delivery=lambda error, _: acknowledged.append(error is None),
        )
    assert producer.flush(30) == 0
    assert acknowledged == [True] * 6


def _is_registered_anew(active: Candidate, broker: int) -> bool:
    """Whether what a broker led got another leader epoch, and the broker is in sync with all."""
    found = active.page("/status/topics/t").get("partitionList") or []
    has_new_epoch = any(each["leaderEpoch"] > 0 for each in found)
    return has_new_epoch and all(broker in each["isr"] for each in found)


def test_a_thousand_leaders_move_in_few_transactions(
    tmp_path: Path, zookeeper: ZooKeeperEnsemble, zookeeper_chroot: str
) -> None:
    with ZooKeeperCluster(tmp_path, zookeeper, zookeeper_chroot, brokers=3) as cluster:
        assignment = [[0, 1 + index % 2] for index in range(MANY)]
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 2})
        topic = NewTopic(TOPIC, len(assignment), replica_assignment=assignment)
        admin.create_topics([topic])[TOPIC].result(60)
        active = cluster.active()
        paths = [f"{znodes.partition_path(TOPIC, index)}/state" for index in range(MANY)]

        def leaders() -> list[int]:
            parts = active.page(f"/status/topics/{TOPIC}")["partitionList"]
            return [each["leader"] for each in parts]

        with zookeeper.client(zookeeper_chroot) as client:

            def told() -> Counter[int]:
                found = [client.get_async(path) for path in paths]
                return Counter(json.loads(each.get(60)[0])["leader"] for each in found)

            wait_until(lambda: told() == {0: MANY}, cluster.last_words)
            before = transactions(zookeeper)
            cluster.brokers[0].end()
            wait_until(lambda: leaders() == [1, 2] * (MANY // 2), cluster.last_words)
            wait_until(lambda: told() == {1: MANY // 2, 2: MANY // 2}, cluster.last_words)
            assert 0 < transactions(zookeeper) - before <= TRANSACTIONS_MAX


def transactions(zookeeper: ZooKeeperEnsemble) -> int:
    """How many the ensemble has committed under its leader of now."""
    zxid = re.search(r"^Zxid: 0x([0-9a-f]+)$", zookeeper.leader.ask("srvr"), re.MULTILINE)
    assert zxid is not None
    return int(zxid[1], 16) & 0xFFFFFFFF
