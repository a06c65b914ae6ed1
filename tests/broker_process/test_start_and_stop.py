"""A whole broker: how it starts, what it says, how it stops, and what it finds again."""

import json
import signal
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from ignored_interrupts import ignored_interrupts, ignores
from waiting import wait_until

DEADLINE_S = 60.0


def create_topic(cluster: Any, name: str, partitions: int = 1, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(DEADLINE_S)


def produce(cluster: Any, topic: str, values: list[bytes]) -> None:
    failures: list[Any] = []

    def keep(error: object, _: object) -> None:
        if error:
            failures.append(error)

    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=keep)
    assert producer.flush(DEADLINE_S) == 0
    assert failures == []


def consume(cluster: Any, topic: str, count: int) -> list[bytes]:
    # No commits: without them the consumer needs no group coordinator.
    settings = {"group.id": "none", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, **settings})
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    deadline = time.monotonic() + DEADLINE_S
    while len(values) < count and time.monotonic() < deadline:
        for message in consumer.consume(count, timeout=0.5):
            assert message.error() is None
            values.append(message.value())
    consumer.close()
    return values


def test_a_broker_that_is_ready_says_so(live_cluster: Any) -> None:
    broker = live_cluster.brokers[0]
    assert broker.get("/readyz") == (200, '{"state": "serving"}')
    assert broker.get("/healthz")[0] == 200
    assert broker.get("/nowhere")[0] == 404


def test_metrics_are_prometheus_text(live_cluster: Any) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    create_topic(live_cluster, "measured")
    produce(live_cluster, "measured", [b"x" * 1000])
    status, text = live_cluster.brokers[0].get("/metrics")
    assert status == 200
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert samples[("fairlead_ready",)] == 1
    assert samples[("fairlead_topic_log_bytes", "measured")] > 1000
    assert samples[("fairlead_requests_total", "produce")] >= 1
    assert samples[("process_resident_memory_bytes",)] < 150e6


def test_a_stop_is_clean_and_everything_is_there_again(
    make_cluster: Callable[..., Any],
) -> None:
    cluster = make_cluster()
    broker = cluster.brokers[0]
    create_topic(cluster, "kept", partitions=3)
    values = [b"%d" % number for number in range(1000)]
    produce(cluster, "kept", values)
    assert broker.stop() == 0
    marker = json.loads((broker.data / ".kafka_cleanshutdown").read_text())
    assert marker == {"version": 0, "brokerEpoch": 1}
    broker.start()
    assert broker.ready["partitions"] == "3"
    assert consume(cluster, "kept", 1000) == values


def test_one_that_was_started_to_ignore_interrupts_goes_on_ignoring_them(
    make_cluster: Callable[..., Any],
) -> None:
    with ignored_interrupts():
        cluster = make_cluster()
    broker = cluster.brokers[0]
    assert ignores(broker.process.pid, signal.SIGINT)
    assert broker.stop() == 0


def test_a_killed_broker_recovers_what_it_acknowledged(make_cluster: Callable[..., Any]) -> None:
    cluster = make_cluster()
    broker = cluster.brokers[0]
    create_topic(cluster, "kept")
    values = [b"%d" % number for number in range(1000)]
    produce(cluster, "kept", values)
    broker.kill()
    assert not (broker.data / ".kafka_cleanshutdown").exists()
    broker.start()
    assert consume(cluster, "kept", 1000) == values


def test_a_broker_serves_on_while_its_controller_is_away(make_cluster: Callable[..., Any]) -> None:
    cluster = make_cluster()
    create_topic(cluster, "t")
    cluster.controller.kill()
    produce(cluster, "t", [b"a", b"b"])
    assert consume(cluster, "t", 2) == [b"a", b"b"]
    assert cluster.brokers[0].stop() == 0


def test_a_second_broker_on_the_same_data_is_told_who_holds_it(live_cluster: Any) -> None:
    broker = live_cluster.brokers[0]
    second = live_cluster.make_broker(0)
    done = run(second)
    assert done.returncode == 1
    assert f"pid={broker.pid}" in done.stderr


def test_a_port_that_is_taken_is_named(live_cluster: Any) -> None:
    address = live_cluster.brokers[0].address
    settings = {"listeners": f"CLIENT://{address},INTERNAL://127.0.0.1:0"}
    done = run(live_cluster.make_broker(5, **settings))
    assert done.returncode == 1
    assert address in done.stderr
    assert "in use" in done.stderr


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("--set=num.partition=3", "did you mean num.partitions?"),
        ("--set=num.partitions=none", "not a whole number"),
        ("--set=log.dirs=", "log.dirs"),
        ("--config=/nowhere/at/all", "No such file"),
    ],
)
def test_wrong_settings_are_explained(live_cluster: Any, argument: str, words: str) -> None:
    done = run(live_cluster.make_broker(6, argument))
    assert done.returncode == 2
    assert words in done.stderr


def test_a_secret_that_everybody_may_read_is_refused(live_cluster: Any, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("a secret of tests only")
    secret.chmod(0o644)
    done = run(live_cluster.make_broker(7, **{"fairlead.cluster.secret.file": str(secret)}))
    assert done.returncode == 1
    assert f"fairlead.cluster.secret.file={secret}: its mode is 0644" in done.stderr


def run(broker: Any) -> subprocess.CompletedProcess[str]:
    """Start a broker that will not live, and hear what it says."""
    broker.begin()
    process = broker.process
    broker.process = None
    process.stdout.close()
    code = process.wait(DEADLINE_S)
    return subprocess.CompletedProcess([], code, "", broker.last_words())


def test_topics_are_created_on_demand_where_that_is_allowed(
    make_cluster: Callable[..., Any],
) -> None:
    cluster = make_cluster(settings={"auto.create.topics.enable": "true", "num.partitions": "2"})
    produce(cluster, "wanted", [b"a"])
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    assert len(admin.list_topics("wanted", timeout=DEADLINE_S).topics["wanted"].partitions) == 2
    assert consume(cluster, "wanted", 1) == [b"a"]


def test_three_brokers_share_the_partitions_and_know_each_other(
    make_cluster: Callable[..., Any],
) -> None:
    cluster = make_cluster(brokers=3)

    def is_spread(admin: AdminClient) -> bool:
        metadata = admin.list_topics("spread", timeout=DEADLINE_S)
        leaders = [each.leader for each in metadata.topics["spread"].partitions.values()]
        return sorted(metadata.brokers) == [0, 1, 2] and sorted(leaders) == [0, 0, 1, 1, 2, 2]

    create_topic(cluster, "spread", partitions=6)
    for broker in cluster.brokers:
        admin = AdminClient({"bootstrap.servers": broker.address})

        # Whoever was not asked to create the topic hears of it by and by.
        wait_until(partial(is_spread, admin))


def test_a_broker_that_is_gone_leaves_its_partitions_without_a_leader_until_it_is_back(
    make_cluster: Callable[..., Any],
) -> None:
    cluster = make_cluster(brokers=2)
    create_topic(cluster, "spread", partitions=2)
    admin = AdminClient({"bootstrap.servers": cluster.brokers[0].address})

    def leaders() -> list[int]:
        topic = admin.list_topics("spread", timeout=DEADLINE_S).topics["spread"]
        return sorted(each.leader for each in topic.partitions.values())

    wait_until(lambda: leaders() == [0, 1])
    cluster.brokers[1].kill()
    wait_until(lambda: leaders() == [-1, 0])
    cluster.brokers[1].start()
    wait_until(lambda: leaders() == [0, 1])


def test_a_stop_signal_ends_a_broker_that_waits_for_its_controller(
    make_cluster: Callable[..., Any],
) -> None:
    cluster = make_cluster()
    broker = cluster.brokers[0]
    broker.stop()
    cluster.controller.kill()
    broker.begin()
    wait_until(lambda: "registering" in ask_quietly(broker))
    assert broker.stop() == 0


def ask_quietly(broker: Any) -> str:
    try:
        return str(broker.get("/readyz")[1])
    except OSError:
        return ""


def test_a_topic_deleted_while_a_broker_was_away_is_gone_there_too(
    make_cluster: Callable[..., Any],
) -> None:
    cluster = make_cluster(brokers=2, settings={"log.segment.delete.delay.ms": "0"})
    create_topic(cluster, "doomed", partitions=2)
    absent = cluster.brokers[1]
    wait_until(lambda: len(list(absent.data.glob("doomed-*"))) == 1)
    absent.kill()
    admin = AdminClient({"bootstrap.servers": cluster.brokers[0].address})
    admin.delete_topics(["doomed"])["doomed"].result(DEADLINE_S)
    create_topic(cluster, "other")
    absent.start()
    wait_until(lambda: not list(absent.data.glob("doomed-*")))
    wait_until(lambda: "doomed" not in admin.list_topics(timeout=DEADLINE_S).topics)
