"""Kafka's znodes and Fairlead's: their paths, and the JSON in them. Pure.

Kafka's formats are those of ZkData.scala (3.x) and ZkUtils.scala (0.8): readers ignore unknown
keys, and the order of keys is not fixed. What has no place in Kafka's znodes is below `/fairlead`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from fairlead_model.broker import BrokerRegistration, Endpoint
from fairlead_model.host_address import join_address
from fairlead_model.release import RELEASE

CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
BROKERS: Final = "/brokers"
BROKER_IDS: Final = "/brokers/ids"
BROKER_TOPICS: Final = "/brokers/topics"
BROKER_SEQID: Final = "/brokers/seqid"
CLUSTER_ID: Final = "/cluster/id"
CONFIG_TOPICS: Final = "/config/topics"
CONFIG_BROKERS: Final = "/config/brokers"
ADMIN: Final = "/admin"
DELETE_TOPICS: Final = "/admin/delete_topics"
REASSIGN_PARTITIONS: Final = "/admin/reassign_partitions"
PREFERRED_ELECTION: Final = "/admin/preferred_replica_election"
PRODUCER_ID_BLOCK: Final = "/latest_producer_id_block"

FAIRLEAD: Final = "/fairlead"
TABLES: Final = "/fairlead/tables"
CANDIDATES: Final = "/fairlead/candidates"

OUR_KEY: Final = "fairlead"
"""Key of Fairlead's additions to Kafka's JSON: Fairlead wrote every znode that has it."""
ENTITY_DEFAULT: Final = "<default>"
"""The znode with the configs of all brokers."""
FORMAT: Final = 1
CONTROLLER_ID_MIN: Final = 10_000
"""Lowest id of a controller in `/controller`: controllers are not brokers of the cluster."""


@dataclass(frozen=True, slots=True)
class CandidateRecord:
    """A candidate's record of itself under `/fairlead/candidates`."""

    identity: str
    node_id: int
    host: str
    session_port: int
    http_port: int

    @property
    def session_url(self) -> str:
        """Address to which brokers connect."""
        return f"ws://{join_address(self.host, self.session_port)}"


def topic_path(topic: str) -> str:
    """Return the znode of a topic's assignment."""
    return f"{BROKER_TOPICS}/{topic}"


def partition_path(topic: str, index: int) -> str:
    """Return the parent znode of a partition's state."""
    return f"{BROKER_TOPICS}/{topic}/partitions/{index}"


def broker_path(broker_id: int) -> str:
    """Return the znode of a running broker."""
    return f"{BROKER_IDS}/{broker_id}"


def table_path(table: str) -> str:
    """Return the znode of a table."""
    return f"{TABLES}/{table}"


def candidate_path(identity: str) -> str:
    """Return the znode of a candidate."""
    return f"{CANDIDATES}/{quote(identity, safe='')}"


def encode(record: Mapping[str, Any]) -> bytes:
    """Return JSON in Kafka's form: without blanks."""
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode()


def decode(data: bytes) -> dict[str, Any] | None:
    """Return the JSON object in a znode; None if it has none."""
    try:
        record = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def candidate_value(candidate: CandidateRecord) -> bytes:
    """Return the content of a candidate's znode."""
    return encode(
        {
            "version": 1,
            "identity": candidate.identity,
            "node_id": candidate.node_id,
            "host": candidate.host,
            "session_port": candidate.session_port,
            "http_port": candidate.http_port,
        }
    )


def read_candidate(data: bytes) -> CandidateRecord | None:
    """Read the content of a candidate's znode; None if it is invalid."""
    record = decode(data) or {}
    try:
        return CandidateRecord(
            str(record["identity"]),
            int(record["node_id"]),
            str(record["host"]),
            int(record["session_port"]),
            int(record["http_port"]),
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        return None


def controller_value(candidate: CandidateRecord, timestamp_ms: int) -> bytes:
    """Return `/controller`: version 1 of Kafka's format, with the candidate's identity."""
    return encode(
        {
            "version": 1,
            "brokerid": candidate.node_id,
            "timestamp": str(timestamp_ms),
            OUR_KEY: {"identity": candidate.identity},
        }
    )


def controller_identity(data: bytes) -> str | None:
    """Return the identity of a Fairlead controller; None if another program wrote `/controller`."""
    ours = (decode(data) or {}).get(OUR_KEY)
    identity = ours.get("identity") if isinstance(ours, dict) else None
    return identity if isinstance(identity, str) else None


def broker_value(broker: BrokerRegistration, timestamp_ms: int) -> bytes:
    """Return a broker's znode: version 5 of Kafka's format, with ids of its start and its disk.

    As in Kafka, `host` and `port` are those of the first plain listener, null and -1 without one.
    The protocols of listeners are not known here; clients learn them from the broker.
    """
    clients = [endpoint for endpoint in broker.endpoints if not endpoint.is_internal]
    first = clients[0] if clients else Endpoint("", "", -1)
    record: dict[str, Any] = {
        "version": 5,
        "host": first.host or None,
        "port": first.port,
        "jmx_port": -1,
        "timestamp": str(timestamp_ms),
        "endpoints": [
            f"{each.name}://{join_address(each.host, each.port)}" for each in broker.endpoints
        ],
        "listener_security_protocol_map": {each.name: "PLAINTEXT" for each in broker.endpoints},
        "features": {},
        OUR_KEY: {"start_id": broker.start_id, "directory_id": broker.directory_id},
    }
    if broker.rack is not None:
        record["rack"] = broker.rack
    return encode(record)


def broker_directory(data: bytes) -> str | None:
    """Return the directory id in a broker's znode; None if no Fairlead broker wrote it."""
    ours = (decode(data) or {}).get(OUR_KEY)
    directory = ours.get("directory_id") if isinstance(ours, dict) else None
    return directory if isinstance(directory, str) else None


def cluster_value(cluster_id: str) -> bytes:
    """Return `/cluster/id`, whose version is a text."""
    return encode({"version": "1", "id": cluster_id})


def read_cluster_id(data: bytes) -> str | None:
    """Return the id in `/cluster/id`; None if it cannot be read."""
    found = (decode(data) or {}).get("id")
    return found if isinstance(found, str) and found else None


def root_value(cluster_id: str) -> bytes:
    """Return `/fairlead`: the format of everything below it, and its cluster."""
    return encode({"format": FORMAT, "cluster_id": cluster_id, "release": RELEASE})


def topic_value(
    replicas: Sequence[Sequence[int]],
    *,
    topic_id: str,
    adding: Mapping[int, Sequence[int]],
    removing: Mapping[int, Sequence[int]],
) -> bytes:
    """Return a topic's assignment: version 3 of Kafka's format. The first replica is preferred."""
    return encode(
        {
            "version": 3,
            "topic_id": topic_id,
            "partitions": {str(index): list(each) for index, each in enumerate(replicas)},
            "adding_replicas": {str(index): list(each) for index, each in adding.items()},
            "removing_replicas": {str(index): list(each) for index, each in removing.items()},
        }
    )


def state_value(
    *, controller_epoch: int, leader: int, leader_epoch: int, isr: Sequence[int], recovery: int
) -> bytes:
    """Return a partition's state; `leader_recovery_state` only during recovery (Kafka 3.2)."""
    record = {
        "controller_epoch": controller_epoch,
        "leader": leader,
        "version": 1,
        "leader_epoch": leader_epoch,
        "isr": list(isr),
    }
    if recovery:
        record["leader_recovery_state"] = recovery
    return encode(record)


def config_value(configs: Mapping[str, str]) -> bytes:
    """Return the dynamic configs of an entity."""
    return encode({"version": 1, "config": dict(configs)})


def producer_ids_value(next_producer_id: int, block: int) -> bytes:
    """Return the last block of producer ids that was assigned."""
    return encode(
        {
            "version": 1,
            "broker": -1,
            "block_start": str(next_producer_id - block),
            "block_end": str(next_producer_id - 1),
        }
    )
