"""Export and restore: what comes back is the same cluster, past everything anybody has seen."""

import asyncio
import json
import random
from dataclasses import replace

import pytest

from fairlead_controller.controller import open_controller
from fairlead_controller.events import DeleteTopics, ElectLeaders
from fairlead_controller.metadata_document import (
    EPOCH_JUMP,
    PRODUCER_ID_JUMP,
    DocumentError,
    read_document,
)
from fairlead_controller.metadata_transfer import export_metadata, restore_metadata
from fairlead_controller.stores.file import open_file_store
from fairlead_controller.stores.metadata_store import StoreError


async def reign(directory, *events):
    """Run a controller over some events; its last committed state."""
    store = await open_file_store(directory)
    controller = await open_controller(store, now_ms=lambda: 1, random_source=random.Random(1))
    task = asyncio.create_task(controller.run())
    try:
        for event in events:
            await controller.submit(event)
        return controller.committed
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await store.close()


@pytest.fixture
def cluster(tmp_path, make_registration, make_create, make_topic):
    """Metadata of three brokers with a topic of two partitions, and one being deleted."""
    from fairlead_controller.events import RegisterBroker, UnfenceBroker

    events = []
    for broker_id in range(3):
        events.append(RegisterBroker(make_registration(broker_id), ""))
        events.append(UnfenceBroker(broker_id, broker_id + 1))
    configs = {"min.insync.replicas": "2"}
    events.append(
        make_create(
            make_topic("t", partitions=2, replication_factor=3, configs=configs),
            make_topic("gone"),
        )
    )
    events.append(DeleteTopics({"topics": [{"name": "gone", "topic_id": bytes(16)}]}))
    state = asyncio.run(reign(tmp_path / "old", *events))
    return tmp_path, state


def test_what_comes_back_is_the_same_cluster_with_higher_numbers(cluster) -> None:
    path, state = cluster
    document = json.loads(json.dumps(export_metadata(path / "old")))
    asyncio.run(restore_metadata(path / "new", document))
    after = asyncio.run(reign(path / "new", ElectLeaders()))
    assert after.image.cluster_id == state.image.cluster_id
    assert after.controller_epoch > state.controller_epoch + EPOCH_JUMP
    assert after.counters.next_broker_epoch == state.counters.next_broker_epoch + EPOCH_JUMP
    assert after.counters.next_producer_id == state.counters.next_producer_id + PRODUCER_ID_JUMP
    assert after.image.deleting == state.image.deleting
    before_topic, topic = state.image.topic("t"), after.image.topic("t")
    assert topic.header == before_topic.header
    for before, partition in zip(before_topic.partitions, topic.partitions, strict=True):
        assert partition == replace(
            before,
            leader=-1,
            isr=(),
            last_known_elr=before.replicas,
            leader_epoch=before.leader_epoch + EPOCH_JUMP,
            partition_epoch=before.partition_epoch + EPOCH_JUMP,
        )
        assert partition.awaits_recovery
    assert all(broker.fenced and not broker.start_id for broker in after.image.brokers.values())


def test_a_running_controller_does_not_stop_an_export(cluster) -> None:
    path, _ = cluster

    async def act():
        store = await open_file_store(path / "old")
        try:
            return export_metadata(path / "old")
        finally:
            await store.close()

    assert asyncio.run(act())["clusterId"]


def test_nothing_is_restored_over_metadata(cluster) -> None:
    path, _ = cluster
    document = export_metadata(path / "old")
    with pytest.raises(StoreError, match="already"):
        asyncio.run(restore_metadata(path / "old", document))


def test_an_empty_folder_has_nothing_to_export(tmp_path) -> None:
    for directory in (tmp_path, tmp_path / "missing"):
        with pytest.raises(StoreError, match="no metadata"):
            export_metadata(directory)


WRONG = [
    (lambda root: [], "document"),
    (lambda root: root | {"version": 2}, "version 2"),
    (lambda root: root | {"clusterId": 1}, "clusterId"),
    (lambda root: root | {"controllerEpoch": True}, "controllerEpoch"),
    (lambda root: root | {"counters": {}}, "counters"),
    (lambda root: root | {"brokers": [{}]}, r"brokers\[0\]"),
    (lambda root: root | {"brokerConfigs": {"": 1}}, r"brokerConfigs\."),
    (lambda root: root | {"topics": [{"topicId": "x"}]}, r"topics\[0\]\.topicId"),
    (lambda root: root | {"topics": root["topics"] * 2}, "stands twice"),
    (lambda root: root | {"topics": [changed(root, partitions=[])]}, "0 of 2 partitions"),
    (lambda root: root | {"topics": [changed(root, header={})]}, r"topics\[0\]\.header"),
    (lambda root: root | {"topics": [changed(root, leader_epoch=2**31 - 5)]}, "leader_epoch"),
    (lambda root: root | {"topics": [changed(root, isr=[9])]}, r"partitions\[0\]"),
]


def changed(root, *, partitions=None, header=None, **fields):
    (topic,) = (each for each in root["topics"] if each["header"]["name"] == "t")
    topic = json.loads(json.dumps(topic))
    if partitions is not None:
        topic["partitions"] = partitions
    if header is not None:
        topic["header"] = header
    for name, value in fields.items():
        topic["partitions"][0][name] = value
    return topic


@pytest.mark.parametrize(("change", "message"), WRONG)
def test_a_wrong_document_is_refused_before_anything_is_written(cluster, change, message) -> None:
    path, _ = cluster
    document = change(export_metadata(path / "old"))
    with pytest.raises(DocumentError, match=message):
        read_document(document)
    with pytest.raises(DocumentError):
        asyncio.run(restore_metadata(path / "new", document))
    assert not (path / "new").exists()
