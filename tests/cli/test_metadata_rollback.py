"""The controller's folder is put back from an old copy under load: nothing acknowledged is lost."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from local_cluster import Cli

PARTITIONS = 3


class Load:
    """An application that produces without a pause, and knows what was acknowledged."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.acknowledged: set[bytes] = set()
        self._topic = topic
        settings = {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": 2,
            "message.timeout.ms": 300_000,
            "log_level": 2,
        }
        self._producer = Producer(settings)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._is_over.wait(0.005):
            value = b"%d" % number
            number += 1
            self._producer.produce(self._topic, value, on_delivery=self._note)
            self._producer.poll(0)

    def _note(self, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged.add(message.value())

    def wait_for_more(self, count: int = 50) -> None:
        enough = len(self.acknowledged) + count
        wait_until(lambda: len(self.acknowledged) >= enough, deadline_s=60)

    def end(self) -> set[bytes]:
        self._is_over.set()
        self._thread.join()
        assert self._producer.flush(120) == 0
        return self.acknowledged


def read_all(bootstrap: str, topic: str) -> set[bytes]:
    """Read every record that is committed."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "log_level": 2})
    try:
        places = [TopicPartition(topic, index, 0) for index in range(PARTITIONS)]
        ends = {each.partition: consumer.get_watermark_offsets(each)[1] for each in places}
        consumer.assign(places)
        values: set[bytes] = set()
        while any(ends.values()):
            message = consumer.poll(30)
            assert message is not None, ends
            assert message.error() is None
            values.add(message.value())
            if message.offset() + 1 >= ends[message.partition()]:
                ends[message.partition()] = 0
        return values
    finally:
        consumer.close()


def folders(cli: Cli, topic: str) -> list[str]:
    return sorted(
        path.name
        for path in cli.data.glob(f"broker-*/{topic}[-.]*")
        if not path.name.endswith("-delete")
    )


def kill_controller_and_supervisor(cli: Cli) -> None:
    status = cli.status()
    os.kill(status["supervisor"]["pid"], signal.SIGKILL)
    os.kill(status["controller"]["pid"], signal.SIGKILL)


@pytest.mark.parametrize(
    ("moves_leaders", "finding"),
    [(True, "It had been found that broker"), (False, "writes of the tables under controller")],
    ids=["leaders moved", "only disks remember"],
)
def test_an_old_copy_of_the_metadata_is_refused_and_confirmed(
    cli: Cli, tmp_path: Path, *, moves_leaders: bool, finding: str
) -> None:
    assert cli.up().code == 0
    bootstrap = f"127.0.0.1:{cli.port}"
    cli.ok("topic", "create", "kept", "--partitions", str(PARTITIONS))
    cli.ok("topic", "create", "grown", "--partitions", "1")
    load = Load(bootstrap, "kept")
    try:
        load.wait_for_more()
        healthy = cli("metadata", "confirm")
        assert (healthy.code, "is held by pid" in healthy.err) == (1, True), healthy
        shutil.copytree(cli.data / "controller", tmp_path / "copy")

        # Leaders move, and brokers come to hold what the copy does not know.
        if moves_leaders:
            cli.ok("broker", "restart", "1")
        cli.ok("topic", "create", "later", "--partitions", "1")
        cli.ok("produce", "later", stdin="a record of the time after\n")
        cli.ok("topic", "alter", "grown", "--partitions", "2")
        cli.ok("produce", "grown", "--partition", "1", stdin="another one\n")
        load.wait_for_more()

        # Somebody puts the copy back while brokers serve on.
        kill_controller_and_supervisor(cli)
        shutil.rmtree(cli.data / "controller")
        shutil.copytree(tmp_path / "copy", cli.data / "controller")
        load.wait_for_more()
        cli.ok("down")
        before = [folders(cli, topic) for topic in ("kept", "later", "grown")]
        assert all(before)

        refused = cli.up()
        assert refused.code != 0
        assert "the metadata went back in time" in refused.err, refused
        cli("down")
        after = [folders(cli, topic) for topic in ("kept", "later", "grown")]
        assert after == before, "nothing is deleted"

        confirmed = cli.ok("metadata", "confirm")
        assert finding in confirmed.out
        assert cli.up().code == 0
        wait_until(
            lambda: all(topic["offline"] == 0 for topic in cli.status()["topics"]), deadline_s=60
        )
        load.wait_for_more()
    finally:
        acknowledged = load.end()
    lost = acknowledged - read_all(bootstrap, "kept")
    assert not lost, f"{len(lost)} of {len(acknowledged)} acknowledged records are lost"
    for topic in ("later", "grown-1"):
        names = folders(cli, topic)
        assert names
        assert all(name.endswith("-stray") for name in names), names
    # Well again: there is nothing to confirm.
    cli.ok("down")
    again = cli("metadata", "confirm")
    assert (again.code, "nothing to confirm" in again.err) == (1, True), again


def test_a_copy_from_before_a_move_is_confirmed_and_the_new_holders_lead(
    cli: Cli, tmp_path: Path
) -> None:
    """Broker 1 has deleted what the copy says that it alone holds."""
    assert cli.up().code == 0
    bootstrap = f"127.0.0.1:{cli.port}"
    cli.ok("topic", "create", "moved", "--partitions", "3", "--replication-factor", "1")
    load = Load(bootstrap, "moved")
    try:
        load.wait_for_more()
        shutil.copytree(cli.data / "controller", tmp_path / "copy")
        cli.ok("broker", "drain", "1", "--wait")
        load.wait_for_more()
    finally:
        acknowledged = load.end()
    (before,) = (each for each in cli.status()["brokers"] if each["id"] == 1)
    assert before["replicas"] == 0, before
    cli.ok("down")
    shutil.rmtree(cli.data / "controller")
    shutil.copytree(tmp_path / "copy", cli.data / "controller")
    cli.ok("metadata", "confirm", "--force")
    assert cli.up().code == 0
    wait_until(
        lambda: all(topic["offline"] == 0 for topic in cli.status()["topics"]), deadline_s=60
    )
    lost = acknowledged - read_all(bootstrap, "moved")
    assert not lost, f"{len(lost)} of {len(acknowledged)} acknowledged records are lost"
    assert not [name for name in folders(cli, "moved") if name.endswith("-stray")]


def test_there_has_to_be_a_cluster_to_confirm(cli: Cli) -> None:
    missing = cli("metadata", "confirm")
    assert (missing.code, "Traceback" in missing.err) == (1, False), missing
    assert "cannot confirm the metadata" in missing.err
