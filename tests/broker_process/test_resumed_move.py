"""A real broker is killed while a replica moves between its disks, and copies the rest."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource
from replicated_topic import TOPIC, Story

from fairlead_broker.disk import SETTLED_NS
from fairlead_broker.log.moving.copied_segments import decode_copied

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
SLOW = 700_000
MIB = 1 << 20
RECORDS = 10_000


def copied_in(disk: Path) -> tuple[Path, int] | None:
    """The copy that moves to a disk, and how many segments it has whole."""
    for listed in disk.glob("*-future/fairlead-copied-segments"):
        return listed.parent, len(decode_copied(listed.read_bytes()))
    return None


def test_a_killed_broker_goes_on_with_what_is_copied(make_cluster: Callable[..., Any]) -> None:
    cluster = make_cluster(brokers=1)
    disks = [cluster.directory / "disk-a", cluster.directory / "disk-b"]
    settings = {"log.dirs": ",".join(map(str, disks)), RATE: str(SLOW)}
    cluster.brokers.append(cluster.make_broker(1, **settings))
    cluster.brokers[1].start()
    story = Story(cluster)
    configs = {"min.insync.replicas": "1", "segment.bytes": str(MIB)}
    story.create_with(configs, replication_factor=2)
    story.produce(RECORDS, size=1_000)
    story.flush()
    here, there = sorted(disks, key=lambda disk: not (disk / f"{TOPIC}-0").is_dir())
    story.until(lambda: len(list((here / f"{TOPIC}-0").glob("*.log"))) > RECORDS // 1_100)
    newest = max(path.stat().st_ctime_ns for path in (here / f"{TOPIC}-0").glob("*.log"))
    story.until(lambda: time.time_ns() - newest > SETTLED_NS)

    move = ("broker", "disks", "1", "--move", f"{TOPIC}:0", "--to", str(there))
    words = [sys.executable, "-m", "fairlead_cli.main", *move, "--bootstrap", cluster.bootstrap]
    subprocess.run(words, check=True, timeout=60)
    story.until(lambda: (copied_in(there) or ("", 0))[1] >= 3)
    cluster.brokers[1].kill()
    found = copied_in(there)
    assert found is not None
    future, count = found
    times = [path.stat().st_ctime_ns for path in sorted(future.glob("*.log"))[:count]]

    story.produce(100, size=1_000)
    cluster.brokers[1].start()
    story.until(lambda: story.isr() == {0, 1})
    entry = ConfigEntry(RATE, str(1 << 40), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
    (answer,) = story.admin.incremental_alter_configs([resource]).values()
    answer.result(30)
    story.until(lambda: not (here / f"{TOPIC}-0").exists())
    moved = sorted((there / f"{TOPIC}-0").glob("*.log"))
    assert [path.stat().st_ctime_ns for path in moved[:count]] == times, "not written again"
    assert not (there / f"{TOPIC}-0" / "fairlead-copied-segments").exists()
    story.produce(100)
    story.flush()
    cluster.brokers[0].kill()
    story.until(lambda: story.leader() == 1)
    assert story.consume(len(story.sent)) == story.sent
