"""What this broker does to its logs when the image changes."""

import asyncio
import errno
import os
from pathlib import Path
from typing import Any

import pytest
from waiting import until

from fairlead_broker import local_replicas
from fairlead_broker.log import full_disk
from fairlead_broker.log.log import Log
from fairlead_broker.replication.partition import Partition
from fairlead_broker.session.deletion_confirmer import CONFIRMATIONS_PER_CALL_MAX
from fairlead_broker.tasks import room_watch
from fairlead_broker.tasks.room_watch import RoomWatch
from fairlead_model.cluster import PartitionChanged, TopicRemoved, empty_image
from fairlead_model.ids import TopicId
from fairlead_model.invariants import InvariantViolation
from fairlead_wire.errors import ErrorCode, KafkaError


def directories(stage: Any) -> list[str]:
    return sorted(entry.name for entry in os.scandir(stage.directory) if entry.is_dir())


def test_a_replica_assigned_here_gets_a_log_and_leads(stage: Any) -> None:
    stage.topic("t", partitions=2)
    assert directories(stage) == ["t-0", "t-1"]
    assert all(stage.partition("t", index).is_leader for index in (0, 1))


def test_a_topic_of_another_broker_leaves_no_trace(stage: Any) -> None:
    stage.neighbour(2)
    stage.topic("t", replicas=(2,), leader=2)
    assert directories(stage) == []
    assert stage.broker.partition_error("t", 0) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_hearing_the_same_again_changes_nothing(stage: Any) -> None:
    stage.topic("t")
    stage.append("t", b"a")
    log, leader = stage.partition("t").log, stage.partition("t").leader
    stage.topic("t")
    assert stage.partition("t").log is log
    assert stage.partition("t").leader is leader


def test_changed_configs_reach_the_log(stage: Any) -> None:
    stage.topic("t")
    stage.topic("t", configs={"segment.bytes": "4096"})
    assert stage.partition("t").log.config.segment_bytes == 4096


def test_a_config_of_a_newer_release_takes_no_partition_out_of_service(
    stage: Any, caplog: pytest.LogCaptureFixture
) -> None:
    unreadable = {
        "compression.type": "brotli",
        "retention.ms": "P7D",
        "cleanup.policy": "delete,archive",
        "segment.bytes": "4096",
    }
    stage.topic("t", configs=unreadable)
    assert stage.append("t", b"a") == 0
    config = stage.partition("t").log.config
    assert (config.compression_type, config.segment_bytes) == ("producer", 4096)
    assert config.retention_ms == -1, "what is deleted is lost"
    assert not config.deletes_by_retention
    assert not config.is_compacted
    assert "this release cannot read" in caplog.text
    noted = stage.broker.replicas.unreadable_configs
    assert sorted(noted["t"]) == [
        "cleanup.policy=delete,archive",
        "compression.type=brotli",
        "retention.ms=P7D",
    ]
    stage.topic("t", configs={"segment.bytes": "4096"})
    assert stage.partition("t").log.config.deletes_by_retention
    assert not noted
    stage.topic("u", configs=unreadable)
    stage.change("u", replicas=(2,), isr=(2,), leader=2)
    assert not noted


def test_more_partitions_than_fit_into_a_turn(stage: Any) -> None:
    stage.topic("t", partitions=300)
    assert len(stage.broker.partitions) == 300
    assert all(partition.is_leader for partition in stage.broker.partitions.values())


def test_a_full_disk_that_does_not_tell_its_room_keeps_no_other_replica(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the image says next would else be acted on no more, until the next start."""
    directory, create_log = stage.log_directory, stage.log_directory.create_log

    def fail(_: str) -> int:
        raise OSError(errno.EIO, "input/output error")

    def create(topic: str, *arguments: Any, **named: Any) -> Any:
        if topic == "large":
            raise OSError(errno.ENOSPC, "no space left on device")
        return create_log(topic, *arguments, **named)

    monkeypatch.setattr(directory, "create_log", create)
    monkeypatch.setattr(directory.disk, "bytes_free", fail)
    stage.controller.script["report_offline"] = lambda _: {}

    async def watch() -> RoomWatch:
        return RoomWatch(stage.broker, on_resumed=lambda: None)

    watching = stage.run(watch())
    stage.broker.on_lack_of_room = watching.note
    stage.topic("large")
    stage.topic("t")
    assert stage.partition("t").is_leader
    assert ("large", 0) in stage.broker.replicas.failed
    monkeypatch.undo()

    async def look() -> bool:
        return bool(watching._look())

    assert stage.run(look())
    assert stage.partition("large").is_leader
    stage.run(watching.stop())


def test_an_error_of_one_replica_keeps_no_other_one(
    stage: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("nobody thought of that")

    with monkeypatch.context() as patch:
        patch.setattr(stage.broker, "on_partition_role", fail)
        patch.setattr(stage.broker, "on_replica_unusable", fail)
        stage.topic("t")
    stage.topic("u")
    assert stage.partition("u").is_leader
    assert "nobody thought of that" in caplog.text


def test_room_is_waited_for_whatever_goes_wrong_on_the_way(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.topic("t")
    log = stage.partition("t").log
    monkeypatch.setattr(room_watch, "LOOK_S", 0.01)
    stage.controller.script["report_offline"] = lambda _: {}

    async def story() -> None:
        resumed: list[bool] = []

        def resume() -> None:
            resumed.append(log.lacks_room)
            if len(resumed) == 1:
                raise RuntimeError("nobody thought of that")

        watch = RoomWatch(stage.broker, on_resumed=resume)
        full_disk.run_out(log, OSError(errno.ENOSPC, "no space left on device"))
        monkeypatch.setattr(stage.log_directory.disk, "bytes_free", lambda _: 0)
        watch.note(stage.partition("t"))
        monkeypatch.setattr(stage.log_directory.disk, "bytes_free", lambda _: 1 << 40)
        await until(lambda: len(resumed) == 2, deadline_s=10)
        await watch.stop()

    stage.run(story())
    assert stage.broker.metrics.task_failures == 1


def test_a_broker_that_stops_makes_no_more_replicas(stage: Any) -> None:
    """A thread walks the logs to close them: none may be added under its hands."""
    stage.topic("t")
    stage.broker.replicas.stop()
    stage.topic("late", partitions=300)
    assert directories(stage) == ["t-0"]
    assert list(stage.broker.partitions) == [("t", 0)]


def test_a_deleted_topic_is_out_of_service_at_once_and_confirmed(stage: Any) -> None:
    confirmed: list[bytes] = []

    def confirm(body: dict[str, Any]) -> dict[str, Any]:
        confirmed.extend(body["topic_ids"])
        return {}

    stage.controller.script["confirm_deletions"] = confirm
    topic_id = stage.topic("t", partitions=2)
    stage.delete("t")
    stage.publish()
    assert stage.broker.partitions == {}
    assert all(name.endswith("-delete") for name in directories(stage))
    assert stage.broker.partition_error("t", 0) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert set(confirmed) == {topic_id}


def test_topics_that_go_together_leave_the_broker_time_for_others(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_replicas, "PARTITION_CHANGES_PER_TURN_MS", 0)
    names = [f"t{number}" for number in range(20)]
    for name in names:
        stage.topic(name)
    left_at_turns: list[int] = []

    async def look_at_turns() -> None:
        while stage.broker.partitions:
            left_at_turns.append(len(stage.broker.partitions))
            await asyncio.sleep(0)

    looking = stage.runner.get_loop().create_task(look_at_turns())
    stage.delete(*names)
    assert looking.done()
    assert left_at_turns == list(range(20, 0, -1))
    assert all(name.endswith("-delete") for name in directories(stage))


def test_a_topic_that_cannot_be_deleted_here_is_not_confirmed_and_holds_up_no_other(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    confirmed: list[bytes] = []

    def confirm(body: dict[str, Any]) -> dict[str, Any]:
        confirmed.extend(body["topic_ids"])
        return {}

    delete_log = stage.log_directory.delete_log

    def fail_once(log: Any, now_ms: int) -> str:
        if log.topic == "a":
            raise InvariantViolation("a defect")
        return str(delete_log(log, now_ms))

    stage.controller.script["confirm_deletions"] = confirm
    stage.topic("a")
    other_id = stage.topic("b")
    monkeypatch.setattr(stage.log_directory, "delete_log", fail_once)
    stage.delete("a", "b")
    stage.publish()
    assert confirmed == [other_id]
    assert stage.broker.partitions == {}


def test_deletions_are_confirmed_in_parts(stage: Any) -> None:
    """The controller decides on one call at a time, and takes none that is too long."""
    parts: list[list[bytes]] = []

    def confirm(body: dict[str, Any]) -> dict[str, Any]:
        parts.append(body["topic_ids"])
        return {}

    stage.controller.script["confirm_deletions"] = confirm
    topic_ids = [number.to_bytes(16, "big") for number in range(CONFIRMATIONS_PER_CALL_MAX + 1)]

    async def act() -> None:
        for topic_id in topic_ids:
            stage.broker.deletion_confirmer.confirm(topic_id)
        await until(lambda: sum(map(len, parts)) >= len(topic_ids))

    stage.run(act())
    assert [len(part) for part in parts] == [CONFIRMATIONS_PER_CALL_MAX, 1]
    assert sorted(topic_id for part in parts for topic_id in part) == topic_ids


def test_a_deleted_topics_files_go_after_their_grace(stage: Any) -> None:
    stage.topic("t", configs={"file.delete.delay.ms": "1000"})
    stage.delete("t")
    directory = stage.log_directory
    assert directory.begin_removals(stage.clock.now_ms() + 999) is None
    job = directory.begin_removals(stage.clock.now_ms() + 1000)
    job.run()
    assert directories(stage) == []


def test_a_name_with_a_new_id_begins_empty(stage: Any) -> None:
    stage.topic("t")
    stage.append("t", b"old")
    stage.delete("t")
    stage.topic("t", topic_id=b"another-topic-id")
    assert stage.partition("t").log_end_offset == 0
    assert stage.partition("t").topic_id == b"another-topic-id"


def test_a_new_id_is_noticed_though_nobody_told_of_the_deletion(stage: Any) -> None:
    """R19."""
    stage.topic("t")
    stage.append("t", b"old")
    stage.image = empty_image("test-cluster")
    stage.topic("t", topic_id=b"another-topic-id")
    assert stage.partition("t").topic_id == b"another-topic-id"
    assert stage.partition("t").log_end_offset == 0
    assert any(name.endswith("-stray") for name in directories(stage))


def test_what_nobody_asks_for_any_more_is_set_aside_not_deleted(stage: Any) -> None:
    topic_id = stage.topic("t")
    stage.append("t", b"kept")
    stage.publish(TopicRemoved(TopicId(topic_id)))
    (name,) = directories(stage)
    assert name.endswith("-stray")
    assert any(Path(stage.directory, name).glob("*.log"))


def test_a_topic_that_cannot_be_set_aside_holds_up_no_other(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Any) -> str:
        raise InvariantViolation("a defect")

    topic_id = stage.topic("a")
    monkeypatch.setattr(stage.log_directory, "set_aside", fail)
    stage.publish(TopicRemoved(TopicId(topic_id)))
    stage.topic("b")
    assert set(stage.broker.partitions) == {("b", 0)}


def test_a_log_that_was_made_and_not_named_is_taken_up(stage: Any) -> None:
    """Its process was killed in between (found by `make reshape`, seed 117)."""
    topic_id = stage.topic("t")
    stage.restart(meanwhile=Path(stage.directory, "t-0", "partition.metadata").unlink)
    assert directories(stage) == ["t-0"]
    assert stage.partition("t").log.topic_id == topic_id


def test_records_of_an_unnamed_log_are_set_aside(stage: Any) -> None:
    stage.topic("t")
    stage.append("t", b"kept")
    stage.restart(meanwhile=Path(stage.directory, "t-0", "partition.metadata").unlink)
    assert any(name.endswith("-stray") for name in directories(stage))
    assert stage.partition("t").log_end_offset == 0


REMOVED = {"replicas": (2,), "isr": (2,), "leader": 2, "unconfirmed_removals": (1,)}


def removals_told(stage: Any) -> list[tuple[int, int]]:
    """Partition and leader epoch of the removals that the controller has been told of."""
    return [
        (item["index"], item["leader_epoch"])
        for method, body in stage.controller.calls
        if method == "confirm_deletions"
        for item in body["removals"]
    ]


def test_a_replica_that_was_moved_away_is_deleted_and_confirmed(stage: Any) -> None:
    stage.controller.script["confirm_deletions"] = lambda body: {}
    stage.neighbour(2)
    stage.topic("t")
    stage.append("t", b"moved")
    stage.change("t", **REMOVED)
    stage.publish()
    (name,) = directories(stage)
    assert name.endswith("-delete")
    assert stage.broker.partition_error("t", 0) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert removals_told(stage) == [(0, 1)]


def test_a_replica_that_no_record_names_as_removed_is_not_deleted(stage: Any) -> None:
    """I16: tables that went back in time would not have it either."""
    stage.controller.script["confirm_deletions"] = lambda body: {}
    stage.neighbour(2)
    stage.topic("t")
    stage.append("t", b"kept")
    stage.change("t", **(REMOVED | {"unconfirmed_removals": ()}))
    (name,) = directories(stage)
    assert name.endswith("-stray")
    assert removals_told(stage) == []


def test_who_was_down_meanwhile_deletes_at_its_start(stage: Any) -> None:
    stage.controller.script["confirm_deletions"] = lambda body: {}
    stage.neighbour(2)
    stage.topic("t")
    stage.append("t", b"moved")
    topic = stage.image.topic("t")
    moved = PartitionChanged(topic.topic_id, 0, topic.partitions[0].changed(**REMOVED))
    stage.image = stage.image.apply((moved,))
    stage.topic("forgotten")
    stage.restart(without="forgotten")
    stage.publish()
    (name,) = [name for name in directories(stage) if name.startswith("t-0")]
    assert name.endswith("-delete")
    assert removals_told(stage)[-1] == (0, 1)


def told_offline(stage: Any) -> list[tuple[bytes, int]]:
    """What the controller has been told to be out of use."""
    return [
        (item["topic_id"], item["index"])
        for method, body in stage.controller.calls
        if method == "report_offline"
        for item in body["partitions"]
    ]


def test_a_failing_disk_fails_only_its_replica_and_the_controller_hears_of_it(stage: Any) -> None:
    stage.controller.script["report_offline"] = lambda _: {}
    (stage.directory / "bad-0").write_text("in the way")
    topic_id = stage.topic("bad")
    stage.topic("good")
    assert stage.partition("good").is_leader
    assert stage.broker.partition_error("bad", 0) is ErrorCode.KAFKA_STORAGE_ERROR
    assert told_offline(stage) == [(topic_id, 0)]


def test_a_replica_whose_disk_failed_is_forgotten_with_its_topic(stage: Any) -> None:
    stage.controller.script["report_offline"] = lambda _: {}
    stage.topic("t")
    partition = stage.partition("t")

    async def report() -> None:
        stage.broker.on_partition_offline(partition)

    partition.log.go_offline(OSError(errno.EIO, "the disk failed"))
    stage.run(report())
    assert stage.broker.partition_error("t", 0) is ErrorCode.KAFKA_STORAGE_ERROR
    stage.delete("t")
    assert stage.broker.partition_error("t", 0) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert stage.broker.replicas.failed == {}

    # Whoever was at work on it finds out only now.
    stage.run(report())
    assert stage.broker.replicas.failed == {}


def test_a_replica_that_could_not_be_made_is_not_tried_before_the_next_start(stage: Any) -> None:
    # The controller does not let it join before that either.
    stage.controller.script["report_offline"] = lambda _: {}
    obstacle = stage.directory / "bad-0"
    obstacle.write_text("in the way")
    stage.topic("bad")
    obstacle.unlink()
    stage.change("bad", leader=-1)
    assert stage.broker.partition_error("bad", 0) is ErrorCode.KAFKA_STORAGE_ERROR
    stage.delete("bad")
    assert stage.broker.partition_error("bad", 0) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    stage.topic("bad", topic_id=b"another-topic-id")
    assert stage.partition("bad").is_leader


def test_a_defect_in_one_partition_stops_no_other(
    stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.controller.script["report_offline"] = lambda _: {}
    topic_id = stage.topic("bad")
    lead = Partition.lead

    def lead_some(partition: Partition, registration: Any, *, now_ms: int) -> bool:
        if partition.topic == "bad":
            raise InvariantViolation("what the design rules out")
        return lead(partition, registration, now_ms=now_ms)

    monkeypatch.setattr(Partition, "lead", lead_some)
    stage.change("bad", min_insync_replicas=2)
    assert stage.broker.partition_error("bad", 0) is ErrorCode.KAFKA_STORAGE_ERROR
    assert told_offline(stage) == [(topic_id, 0)]
    stage.topic("good", partitions=2)
    assert stage.partition("good", 1).is_leader


def test_after_a_restart_logs_are_claimed_and_the_unknown_ones_set_aside(stage: Any) -> None:
    stage.topic("known")
    stage.append("known", b"a")
    stage.topic("forgotten")
    stage.restart(without="forgotten")
    assert stage.partition("known").log_end_offset == 1
    assert stage.partition("known").is_leader
    stray, known = directories(stage)
    assert known == "known-0"
    assert stray.startswith("forgotten-0.")
    assert stray.endswith("-stray")


@pytest.mark.parametrize("is_deleted", [True, False])
def test_a_topic_may_be_made_again_whose_log_a_partition_could_not_take_up(
    stage: Any, monkeypatch: pytest.MonkeyPatch, is_deleted: bool
) -> None:
    """Where a damaged batch lies above the high watermark: to make it again is what docs say."""

    def refuse(log: Log, high_watermark: int) -> None:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{log.path}: a damaged batch")

    topic_id = stage.topic("t")
    stage.append("t", b"a")
    with monkeypatch.context() as patch:
        patch.setattr(Log, "recall_unreplicated", refuse)
        stage.restart()
    assert ("t", 0) in stage.broker.replicas.failed
    assert stage.broker.partitions == {}
    if is_deleted:
        stage.delete("t")
    else:
        stage.publish(TopicRemoved(TopicId(topic_id)))
    assert [name.rpartition("-")[2] for name in directories(stage)] == [
        "delete" if is_deleted else "stray"
    ]
    stage.topic("t", topic_id=b"another topic's.")
    assert stage.append("t", b"b") == 0
    assert ("t", 0) not in stage.broker.replicas.failed
