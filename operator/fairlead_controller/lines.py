"""Records of the controller as lines of a table: readable JSON objects under readable keys. Pure.

| key | line |
|---|---|
| cluster | {"cluster_id"} |
| counters | {"next_broker_epoch", "next_producer_id"} |
| broker/ID | a registration |
| configs/ID, configs/ | dynamic configs of one broker, of all |
| intent/ID | {"action", "target", "at_ms"}: what is about to be done (`intents`) |
| table/NAME | {"state": "making" or "made"} |
| topic/TOPIC-ID | a topic's header; in the table of its first partition |
| partition/TOPIC-ID/INDEX | a partition's record |

The first six kinds live in the table `cluster`, the others in the numbered tables.
"""

import json
from collections.abc import Callable
from typing import Any, TypeVar

from fairlead_controller.state import CountersChanged, Intent
from fairlead_controller.stores.metadata_store import StoreCorruptError
from fairlead_model.broker import BrokerRegistration, Endpoint
from fairlead_model.ids import NO_BROKER_EPOCH, TopicId, parse_topic_id, topic_id_text
from fairlead_model.partition import LeaderRecoveryState, PartitionRegistration
from fairlead_model.topic import TopicHeader, TopicOrigin, TopicState

T = TypeVar("T")

CLUSTER_KEY = "cluster"
COUNTERS_KEY = "counters"
BROKER_PREFIX = "broker/"
CONFIGS_PREFIX = "configs/"
INTENT_PREFIX = "intent/"
TABLE_PREFIX = "table/"
TOPIC_PREFIX = "topic/"
PARTITION_PREFIX = "partition/"


def dump_line(record: object) -> str:
    """Give the text of a line."""
    return json.dumps(record, separators=(",", ":"))


def read_line(line: str) -> dict[str, Any]:
    """Give the record of a line that `dump_line` has made."""
    record: dict[str, Any] = json.loads(line)
    return record


def topic_key(topic_id: bytes) -> str:
    """Give the key of a topic's header."""
    return f"{TOPIC_PREFIX}{topic_id_text(topic_id)}"


def partition_key(topic_id: bytes, index: int) -> str:
    """Give the key of a partition's record."""
    return f"{PARTITION_PREFIX}{topic_id_text(topic_id)}/{index}"


def parse_partition_key(key: str) -> tuple[TopicId, int]:
    """Read the key of a partition's record."""
    _, topic_id, index = key.split("/")
    return parse_topic_id(topic_id), int(index)


def counters_line(counters: CountersChanged) -> str:
    """Give the line of the counters."""
    return dump_line(
        {
            "next_broker_epoch": counters.next_broker_epoch,
            "next_producer_id": counters.next_producer_id,
        }
    )


def intent_line(intent: Intent) -> str:
    """Give the line of an intent."""
    return dump_line({"action": intent.action, "target": intent.target, "at_ms": intent.at_ms})


def broker_line(registration: BrokerRegistration) -> str:
    """Give the line of a registration."""
    return dump_line(
        {
            "id": registration.broker_id,
            "epoch": registration.broker_epoch,
            "endpoints": [
                {
                    "name": endpoint.name,
                    "host": endpoint.host,
                    "port": endpoint.port,
                    "internal": endpoint.is_internal,
                }
                for endpoint in registration.endpoints
            ],
            "host_name": registration.host_name,
            "rack": registration.rack,
            "fenced": registration.fenced,
            "stopping": registration.in_controlled_shutdown,
            "directory_id": registration.directory_id,
            "start_id": registration.start_id,
            "boot_id": registration.boot_id,
            "pod_uid": registration.pod_uid,
            "clean": registration.is_clean,
            "previous_epoch": registration.previous_broker_epoch,
            "recovered_whole": registration.is_recovered_whole,
            "min_insync_replicas": registration.min_insync_replicas,
        }
    )


def header_line(header: TopicHeader) -> str:
    """Give the line of a topic's header."""
    return dump_line(
        {
            "name": header.name,
            "partitions": header.partition_count,
            "state": header.state,
            "configs": dict(header.configs),
            "origin": header.origin,
            "resource": header.resource,
            "reclaim_policy": header.reclaim_policy,
            "deletion_protection": header.deletion_protection,
            "unconfirmed_deletions": sorted(header.unconfirmed_deletions),
        }
    )


def partition_line(partition: PartitionRegistration) -> str:
    """Give the line of a partition's record."""
    return dump_line(
        {
            "replicas": partition.replicas,
            "isr": partition.isr,
            "leader": partition.leader,
            "leader_epoch": partition.leader_epoch,
            "partition_epoch": partition.partition_epoch,
            "elr": partition.elr,
            "last_known_elr": partition.last_known_elr,
            "recovery_state": int(partition.leader_recovery_state),
            "adding": partition.adding_replicas,
            "removing": partition.removing_replicas,
            "directories": partition.directories,
            "min_insync_replicas": partition.min_insync_replicas,
        }
    )


def parse_line(key: str, line: str, build: Callable[[dict[str, Any]], T]) -> T:
    """Read a line; StoreCorruptError that names its key if it is not what it should be."""
    try:
        record = json.loads(line)
        if not isinstance(record, dict):
            raise TypeError("not an object")
        return build(record)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreCorruptError(f"the record {key!r} cannot be read: {error!r}") from error


def build_counters(record: dict[str, Any]) -> CountersChanged:
    """Read the counters."""
    return CountersChanged(int(record["next_broker_epoch"]), int(record["next_producer_id"]))


def build_intent(record: dict[str, Any]) -> Intent:
    """Read an intent."""
    return Intent(str(record["action"]), str(record["target"]), int(record["at_ms"]))


def build_broker(record: dict[str, Any]) -> BrokerRegistration:
    """Read a registration."""
    return BrokerRegistration(
        broker_id=int(record["id"]),
        broker_epoch=int(record["epoch"]),
        endpoints=tuple(
            Endpoint(end["name"], end["host"], int(end["port"]), bool(end["internal"]))
            for end in record["endpoints"]
        ),
        host_name=record["host_name"],
        rack=record["rack"],
        fenced=bool(record["fenced"]),
        in_controlled_shutdown=bool(record["stopping"]),
        directory_id=record["directory_id"],
        start_id=record["start_id"],
        boot_id=record["boot_id"],
        pod_uid=record["pod_uid"],
        is_clean=bool(record["clean"]),
        previous_broker_epoch=int(record.get("previous_epoch", NO_BROKER_EPOCH)),
        is_recovered_whole=bool(record.get("recovered_whole", False)),
        min_insync_replicas=int(record.get("min_insync_replicas", 1)),
    )


def header_builder(topic_id: TopicId) -> Callable[[dict[str, Any]], TopicHeader]:
    """Give what reads the header of the topic with this id."""

    def build(record: dict[str, Any]) -> TopicHeader:
        return TopicHeader(
            name=record["name"],
            topic_id=topic_id,
            partition_count=int(record["partitions"]),
            state=TopicState(record["state"]),
            configs=dict(record["configs"]),
            origin=TopicOrigin(record["origin"]),
            resource=record["resource"],
            reclaim_policy=record["reclaim_policy"],
            deletion_protection=bool(record["deletion_protection"]),
            unconfirmed_deletions=frozenset(record["unconfirmed_deletions"]),
        )

    return build


def build_partition(record: dict[str, Any]) -> PartitionRegistration:
    """Read a partition's record; ValueError if it breaks its own rules."""
    partition = PartitionRegistration(
        replicas=tuple(record["replicas"]),
        isr=tuple(record["isr"]),
        leader=int(record["leader"]),
        leader_epoch=int(record["leader_epoch"]),
        partition_epoch=int(record["partition_epoch"]),
        elr=tuple(record["elr"]),
        last_known_elr=tuple(record["last_known_elr"]),
        leader_recovery_state=LeaderRecoveryState(record["recovery_state"]),
        adding_replicas=tuple(record["adding"]),
        removing_replicas=tuple(record["removing"]),
        directories=tuple(record["directories"]),
        min_insync_replicas=int(record["min_insync_replicas"]),
    )
    problems = partition.problems()
    if problems:
        raise ValueError("; ".join(problems))
    return partition
