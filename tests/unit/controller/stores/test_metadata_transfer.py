"""Export and restore: what comes back is the same cluster, past everything anybody has seen."""

import asyncio
import base64
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from decision_world import there
from short_reign import reign

from fairlead_controller.decisions.events import (
    AlterClientQuotas,
    AlterCredentials,
    CreateAcls,
    ElectLeaders,
    QuotaChanges,
)
from fairlead_controller.decisions.state import ControllerState
from fairlead_controller.decisions.tables.new_beginning import EPOCH_JUMP, PRODUCER_ID_JUMP
from fairlead_controller.decisions.tables.stored_table import StoreError
from fairlead_controller.stores.file import open_file_store
from fairlead_controller.stores.metadata_document import DocumentError, read_document
from fairlead_controller.stores.metadata_transfer import export_metadata, restore_metadata
from fairlead_model.cluster import TopicChanged
from fairlead_model.features import NO_FEATURES_SET
from fairlead_model.security.acl import AclBinding, Operation, PatternType, Permission, ResourceType
from fairlead_model.security.scram import ScramMechanism, derive


def test_what_comes_back_is_the_same_cluster_with_higher_numbers(
    cluster: tuple[Path, ControllerState],
) -> None:
    path, state = cluster
    document = json.loads(json.dumps(export_metadata(path / "old")))
    asyncio.run(restore_metadata(path / "new", document))
    after = asyncio.run(reign(path / "new", ElectLeaders()))
    assert after.image.cluster_id == state.image.cluster_id
    assert after.controller_epoch > state.controller_epoch + EPOCH_JUMP
    assert after.counters.next_broker_epoch == state.counters.next_broker_epoch + EPOCH_JUMP
    assert after.counters.next_producer_id == state.counters.next_producer_id + PRODUCER_ID_JUMP
    assert after.image.deleting == state.image.deleting
    levels = state.image.features
    assert after.image.features == replace(levels, epoch=levels.epoch + EPOCH_JUMP)
    configs = {"a group\n%": {"consumer.session.timeout.ms": "50000"}}
    assert after.image.group_configs == state.image.group_configs == configs
    before_topic, topic = there(state.image.topic("t")), there(after.image.topic("t"))
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


def test_an_export_of_an_older_release_is_restored(cluster: tuple[Path, ControllerState]) -> None:
    """One that knew neither configs of groups nor feature levels."""
    path, _ = cluster
    document = export_metadata(path / "old")
    del document["groupConfigs"], document["features"]
    asyncio.run(restore_metadata(path / "new", document))
    after = asyncio.run(reign(path / "new", ElectLeaders())).image
    assert after.group_configs == {}
    assert after.features == NO_FEATURES_SET


def test_a_running_controller_does_not_stop_an_export(
    cluster: tuple[Path, ControllerState],
) -> None:
    path, _ = cluster

    async def act() -> dict[str, Any]:
        store = await open_file_store(path / "old")
        try:
            return export_metadata(path / "old")
        finally:
            await store.close()

    assert asyncio.run(act())["clusterId"]


def test_nothing_is_restored_over_metadata(cluster: tuple[Path, ControllerState]) -> None:
    path, _ = cluster
    document = export_metadata(path / "old")
    with pytest.raises(StoreError, match="already"):
        asyncio.run(restore_metadata(path / "old", document))


def test_an_empty_folder_has_nothing_to_export(tmp_path: Path) -> None:
    for directory in (tmp_path, tmp_path / "missing"):
        with pytest.raises(StoreError, match="no metadata"):
            export_metadata(directory)


HELD_BY_NOBODY: dict[str, Any] = {"isr": [], "elr": [], "leader": -1, "directories": []}
WRONG = [
    (lambda root: [], "document"),
    (lambda root: root | {"version": 2}, "version 2"),
    (lambda root: root | {"clusterId": 1}, "clusterId"),
    (lambda root: root | {"controllerEpoch": True}, "controllerEpoch"),
    (lambda root: root | {"controllerEpoch": 2**31 - 5}, "controller epoch of 2147483643 leaves"),
    (lambda root: root | {"counters": {}}, "counters"),
    (lambda root: root | {"counters": counted(broker=2**63 - 5)}, "broker epoch of .* leaves"),
    (lambda root: root | {"counters": counted(producer=2**63 - 5)}, "producer id of .* leaves"),
    (lambda root: root | {"brokers": [{}]}, r"brokers\[0\]"),
    (lambda root: root | {"brokerConfigs": {"": 1}}, r"brokerConfigs\."),
    (lambda root: root | {"brokerConfigs": {"b1": {}}}, "brokerConfigs.b1: 'b1' is no id"),
    (
        lambda root: root | {"brokerConfigs": {"": {"min.insync.replicas": "x"}}},
        r"brokerConfigs\.: min\.insync\.replicas: 'x' is not a whole number",
    ),
    (
        lambda root: root | {"topics": [configured(root, {"min.insync.replicas": 0})]},
        r"topics\[0\]\.header\.configs: min\.insync\.replicas: 0 is below",
    ),
    (lambda root: root | {"topics": [configured(root, {}, name="a b")]}, "may only hold"),
    (lambda root: root | {"groupConfigs": {"g": 1}}, r"groupConfigs\.g"),
    (
        lambda root: root | {"groupConfigs": {"g": {"consumer.session.timeout.ms": "soon"}}},
        r"groupConfigs\.g: .*consumer\.session\.timeout\.ms",
    ),
    (lambda root: root | {"version": 2, "release": "9.1"}, r"run release 9\.1, or a later one"),
    (
        lambda root: (
            root | {"features": {"epoch": 1, "levels": {"fairlead.version": 99}, "release": "7.7"}}
        ),
        r"levels: fairlead\.version is at level 99.*with release 7\.7, or a later one",
    ),
    (lambda root: root | {"topics": [{"topicId": "x"}]}, r"topics\[0\]\.topicId"),
    (lambda root: root | {"topics": root["topics"] * 2}, "stands twice"),
    (lambda root: root | {"topics": [changed(root, partitions=[])]}, "0 of 2 partitions"),
    (lambda root: root | {"topics": [changed(root, header={})]}, r"topics\[0\]\.header"),
    (lambda root: root | {"topics": [changed(root, leader_epoch=2**31 - 5)]}, "leader_epoch"),
    (lambda root: root | {"topics": [changed(root, isr=[9])]}, r"partitions\[0\]"),
    (
        lambda root: root | {"topics": [changed(root, replicas=["1"], **HELD_BY_NOBODY)]},
        r"partitions\[0\]: .*'1' is no id of a broker",
    ),
    (lambda root: root | {"topics": [configured(root, {}, resource=5)]}, "5 is no text"),
    (lambda root: root | {"brokers": [reached(host=None)]}, r"brokers\[0\]: .*None is no text"),
    (lambda root: root | {"brokers": [reached(port=70_000)]}, r"brokers\[0\]: .*70000 is no port"),
    (lambda root: root | {"counters": counted(broker=math.inf)}, "counters: OverflowError"),
    (
        lambda root: root | {"clientQuotas": {"user/a": {"producer_byte_rate": 10**400}}},
        r"clientQuotas\.user/a: .* is not a number above 0",
    ),
]


def reached(*, host: str | None = "h", port: int = 9092) -> dict[Any, Any]:
    return {"id": 1, "epoch": 1, "endpoints": [{"name": "CLIENT", "host": host, "port": port}]}


def counted(*, broker: int | float = 1, producer: int = 0) -> dict[Any, Any]:
    return {"next_broker_epoch": broker, "next_producer_id": producer}


def changed(
    root: dict[str, Any],
    *,
    partitions: list[Any] | None = None,
    header: dict[str, Any] | None = None,
    **fields: Any,
) -> Any:
    (topic,) = (each for each in root["topics"] if each["header"]["name"] == "t")
    topic = json.loads(json.dumps(topic))
    if partitions is not None:
        topic["partitions"] = partitions
    if header is not None:
        topic["header"] = header
    for name, value in fields.items():
        topic["partitions"][0][name] = value
    return topic


def configured(root: dict[str, Any], configs: dict[str, Any], **fields: str | int) -> Any:
    (topic,) = (each for each in root["topics"] if each["header"]["name"] == "t")
    return topic | {"header": topic["header"] | {"configs": configs} | fields}


def test_configs_that_lost_their_quotes_are_read_as_meant(
    cluster: tuple[Path, ControllerState],
) -> None:
    path, _ = cluster
    document = export_metadata(path / "old")
    wanted = {"retention.ms": 5, "preallocate": True, "of.another.release": "x"}
    document["topics"] = [configured(document, wanted)]
    headers = [
        each.header for each in read_document(document).changes if isinstance(each, TopicChanged)
    ]
    assert [each.configs for each in headers] == [
        {"retention.ms": "5", "preallocate": "true", "of.another.release": "x"}
    ]


@pytest.mark.parametrize(("change", "message"), WRONG)
def test_a_wrong_document_is_refused_before_anything_is_written(
    cluster: tuple[Path, ControllerState], change: Callable[[dict[str, Any]], Any], message: str
) -> None:
    path, _ = cluster
    document = change(export_metadata(path / "old"))
    with pytest.raises(DocumentError, match=message):
        read_document(document)
    with pytest.raises(DocumentError):
        asyncio.run(restore_metadata(path / "new", document))
    assert not (path / "new").exists()


def test_rules_and_quotas_come_back_and_nothing_of_a_verifier_is_exported(tmp_path: Path) -> None:
    rule = AclBinding(
        ResourceType.GROUP,
        PatternType.PREFIXED,
        "a/b %",
        "User:alice",
        "*",
        Operation.READ,
        Permission.ALLOW,
    )
    entity = (("user", "a/*"), ("client-id", None))
    quotas = (QuotaChanges(entity, (("producer_byte_rate", 1e6),)),)
    credential = derive(ScramMechanism.SCRAM_SHA_256, "secret", 4096, b"salt" * 4)
    old, new = tmp_path / "old", tmp_path / "new"
    state = asyncio.run(
        reign(
            old,
            CreateAcls((rule,), "User:admin"),
            AlterClientQuotas(quotas, False, "User:admin"),
            AlterCredentials((), (("alice", credential),), "User:admin"),
        )
    )
    assert dict(state.image.credentials) == {(ScramMechanism.SCRAM_SHA_256, "alice"): credential}
    document = export_metadata(old)
    text = json.dumps(document)
    for part in (credential.salt, credential.stored_key, credential.server_key):
        assert base64.b64encode(part).decode() not in text
    assert document["usersWithoutCredentials"] == ["alice"]
    asyncio.run(restore_metadata(new, json.loads(text)))
    restored = asyncio.run(reign(new))
    assert set(restored.image.acls) == {rule}
    assert dict(restored.image.client_quotas) == {entity: {"producer_byte_rate": 1e6}}
    for wrong in ({"user": {"request_percentage": 1}}, {"user/a": {"request_percentage": -1}}):
        with pytest.raises(DocumentError, match="clientQuotas"):
            read_document(document | {"clientQuotas": wrong})
    assert not restored.image.credentials
    with pytest.raises(DocumentError, match="acls"):
        read_document(document | {"acls": ["TOPIC/LITERAL/t"]})


def test_who_reads_the_folder_of_the_metadata_reads_no_verifier(tmp_path: Path) -> None:
    credential = derive(ScramMechanism.SCRAM_SHA_256, "secret", 4096, b"salt" * 4)
    event = AlterCredentials((), (("alice", credential),), "User:admin")
    asyncio.run(reign(tmp_path, event))
    modes = {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {0o600}
