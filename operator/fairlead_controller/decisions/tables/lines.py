"""Records of the controller as lines of a table: readable JSON objects under readable keys. Pure.

| key | line |
|---|---|
| cluster | {"cluster_id"} |
| counters | {"next_broker_epoch", "next_producer_id"} |
| broker/ID | a registration |
| configs/ID, configs/ | dynamic configs of one broker, of all |
| group-configs/GROUP | configs of a group, whose id is percent-encoded |
| intent/ID | {"action", "target", "at_ms"}: what is about to be done (`intents`) |
| table/NAME | {"state": "making" or "made"} |
| features | {"epoch", "levels", "release"}: feature levels in force, and which release set them |
| sealed | {"epoch"}: every table had this controller epoch, at least |
| unfinished/TOPIC-ID | {}: a topic is made or grown in several tables; a crash may leave a part |
| history | {"epoch", "since", "ends"}: how many writes the tables had had when reigns ended |
| rolled-back | {"reason", "seen"}: tables are older than what was seen of them; nobody may reign |
| topic/TOPIC-ID | a topic's header; in the table of its first partition |
| partition/TOPIC-ID/INDEX | a partition's record |

All but the last two kinds live in the table `cluster`, the others in the numbered tables.

Releases follow one another on the same tables, forwards and backwards, so lines grow by rules:

* A new field stands at the top level of its line. A release that does not know it keeps it when it
  rewrites the line (`surplus`). What a broker says of itself in one names its broker epoch, because
  the field outlives that broker's next registration (`_broker_features`, `_broker_directories`,
  `cordoned`).
* A field that is missing has a default: mostly that of the model's dataclass, which is not clean,
  fenced, an empty list. Only what a record means nothing without has to be there.
* What an older release must not lose, ignore or misread waits for a feature level
  (`fairlead_model.features`): once it is raised, a controller that does not support it refuses the
  tables before it has changed anything.
* A line of an unknown kind stays where it is. Nobody deletes it as a leftover.
* A state or an origin that is unknown is refused: nobody can tell what may be done to such a topic.
  A release writes a new one only once all controllers of the cluster know it.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, fields
from typing import Any, Final, TypeVar
from urllib.parse import quote, unquote

from fairlead_controller.decisions.state import CountersChanged, Intent
from fairlead_controller.decisions.tables.stored_table import HighestSeen, StoreCorruptError
from fairlead_model.broker import BrokerRegistration, Endpoint
from fairlead_model.features import UNSAID_FEATURES, FeatureRange, FinalizedFeatures
from fairlead_model.host_address import PORT_MAX
from fairlead_model.ids import NO_BROKER_EPOCH, TopicId, parse_topic_id, topic_id_text
from fairlead_model.partition import LeaderRecoveryState, PartitionRegistration
from fairlead_model.topic import TopicHeader, TopicOrigin, TopicState

T = TypeVar("T")

CLUSTER_KEY = "cluster"
COUNTERS_KEY = "counters"
FEATURES_KEY = "features"
BROKER_PREFIX = "broker/"
CONFIGS_PREFIX = "configs/"
GROUP_CONFIGS_PREFIX = "group-configs/"
INTENT_PREFIX = "intent/"
TABLE_PREFIX = "table/"
SEALED_KEY = "sealed"
UNFINISHED_PREFIX = "unfinished/"
HISTORY_KEY = "history"
ROLLED_BACK_KEY = "rolled-back"
TOPIC_PREFIX = "topic/"
PARTITION_PREFIX = "partition/"


def dump_line(record: object) -> str:
    """Return the text of a line."""
    return json.dumps(record, separators=(",", ":"))


def read_line(line: str) -> dict[str, Any]:
    """Return the record of a line that `dump_line` has made."""
    record: dict[str, Any] = json.loads(line)
    return record


def topic_key(topic_id: bytes) -> str:
    """Return the key of a topic's header."""
    return f"{TOPIC_PREFIX}{topic_id_text(topic_id)}"


def partition_key(topic_id: bytes, index: int) -> str:
    """Return the key of a partition's record."""
    return f"{PARTITION_PREFIX}{topic_id_text(topic_id)}/{index}"


def broker_key(broker_id: int) -> str:
    """Return the key of a registration."""
    return f"{BROKER_PREFIX}{broker_id}"


def group_configs_key(group_id: str) -> str:
    """Return the key of a group's configs: no blank or line break stands in a key."""
    return f"{GROUP_CONFIGS_PREFIX}{quote(group_id, safe='')}"


def parse_group_configs_key(key: str) -> str:
    """Return the id of the group whose configs have this key."""
    return unquote(key.removeprefix(GROUP_CONFIGS_PREFIX))


def unfinished_key(topic_id: bytes) -> str:
    """Return the key of the line that says that a topic may be written in part."""
    return f"{UNFINISHED_PREFIX}{topic_id_text(topic_id)}"


def parse_partition_key(key: str) -> tuple[TopicId, int]:
    """Read the key of a partition's record."""
    _, topic_id, index = key.split("/")
    return parse_topic_id(topic_id), int(index)


def counters_line(counters: CountersChanged) -> str:
    """Return the line of the counters."""
    return dump_line(
        {
            "next_broker_epoch": counters.next_broker_epoch,
            "next_producer_id": counters.next_producer_id,
        }
    )


def rolled_back_line(reason: str, seen: HighestSeen) -> str:
    """Return the line that stops all controllers from reigning."""
    return dump_line({"reason": reason, "seen": asdict(seen)})


def build_seen(record: dict[str, Any]) -> HighestSeen:
    """Return the numbers that the note of a rollback has; older notes have none."""
    seen = record.get("seen", {})
    return HighestSeen(*(int(seen.get(field.name, -1)) for field in fields(HighestSeen)))


def features_line(features: FinalizedFeatures) -> str:
    """Return the line of the feature levels in force."""
    return dump_line(
        {
            "epoch": features.epoch,
            "levels": dict(sorted(features.levels.items())),
            "release": features.release,
        }
    )


def intent_line(intent: Intent) -> str:
    """Return the line of an intent."""
    return dump_line({"action": intent.action, "target": intent.target, "at_ms": intent.at_ms})


def broker_line(registration: BrokerRegistration) -> str:
    """Return the line of a registration."""
    directories = {
        "directories": {
            "broker_epoch": registration.broker_epoch,
            "ids": list(registration.directory_ids),
        }
    }
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
            "features": {
                "broker_epoch": registration.broker_epoch,
                "ranges": [list(each) for each in registration.features],
            },
            **(directories if registration.directory_ids else {}),
            **({"cordoned": registration.broker_epoch} if registration.is_cordoned else {}),
            **(
                {"unclean_election": registration.broker_epoch}
                if registration.allows_unclean_election
                else {}
            ),
        }
    )


def header_line(header: TopicHeader) -> str:
    """Return the line of a topic's header."""
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
    """Return the line of a partition's record; what only a reassignment needs is left out else."""
    passing = {
        "unconfirmed_removals": partition.unconfirmed_removals,
        "queued_target": partition.queued_target,
    }
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
        | {name: value for name, value in passing.items() if value}
    )


def parse_line(key: str, line: str, build: Callable[[dict[str, Any]], T]) -> T:
    """Read a line; raise StoreCorruptError, which names the key, if it is malformed."""
    try:
        record = json.loads(line)
        if not isinstance(record, dict):
            raise TypeError("not an object")
        return build(record)
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise StoreCorruptError(f"the record {key!r} cannot be read: {error!r}") from error


def build_counters(record: dict[str, Any]) -> CountersChanged:
    """Read the counters."""
    return CountersChanged(int(record["next_broker_epoch"]), int(record["next_producer_id"]))


def build_features(record: dict[str, Any]) -> FinalizedFeatures:
    """Read the feature levels in force."""
    return FinalizedFeatures(
        epoch=int(record["epoch"]),
        levels={str(name): int(level) for name, level in record["levels"].items()},
        release=str(record.get("release", "")),
    )


def build_intent(record: dict[str, Any]) -> Intent:
    """Read an intent."""
    return Intent(str(record["action"]), str(record["target"]), int(record["at_ms"]))


def build_broker(record: dict[str, Any]) -> BrokerRegistration:
    """Read a registration."""
    return BrokerRegistration(
        broker_id=int(record["id"]),
        broker_epoch=int(record["epoch"]),
        endpoints=tuple(
            Endpoint(
                _text(end["name"]),
                _text(end["host"]),
                _port(end["port"]),
                bool(end.get("internal", False)),
            )
            for end in record.get("endpoints", ())
        ),
        host_name=_text(record.get("host_name", "")),
        rack=None if record.get("rack") is None else _text(record["rack"]),
        fenced=bool(record.get("fenced", True)),
        in_controlled_shutdown=bool(record.get("stopping", False)),
        directory_id=_text(record.get("directory_id", "")),
        start_id=_text(record.get("start_id", "")),
        boot_id=_text(record.get("boot_id", "")),
        pod_uid=_text(record.get("pod_uid", "")),
        is_clean=bool(record.get("clean", False)),
        previous_broker_epoch=int(record.get("previous_epoch", NO_BROKER_EPOCH)),
        is_recovered_whole=bool(record.get("recovered_whole", False)),
        min_insync_replicas=int(record.get("min_insync_replicas", 1)),
        features=_broker_features(record),
        directory_ids=_broker_directories(record),
        is_cordoned=record.get("cordoned") == record["epoch"],
        allows_unclean_election=record.get("unclean_election") == record["epoch"],
    )


def _broker_directories(record: dict[str, Any]) -> tuple[str, ...]:
    """Read the incarnations of several log directories, if this registration has named them."""
    said = record.get("directories")
    if said is None or said["broker_epoch"] != record["epoch"]:
        return ()
    return tuple(str(each) for each in said["ids"])


def _broker_features(record: dict[str, Any]) -> tuple[FeatureRange, ...]:
    """Read which levels a broker supports.

    A controller that knows no features keeps the field when the broker registers anew with another
    release. So what it says counts for the broker epoch that it names.
    """
    said = record.get("features")
    if said is None or said["broker_epoch"] != record["epoch"]:
        return UNSAID_FEATURES
    return tuple(
        FeatureRange(str(name), int(lowest), int(highest))
        for name, lowest, highest, *_ in said["ranges"]
    )


def header_builder(topic_id: TopicId) -> Callable[[dict[str, Any]], TopicHeader]:
    """Return the function that reads the header of the topic with this id."""

    def build(record: dict[str, Any]) -> TopicHeader:
        return TopicHeader(
            name=_text(record["name"]),
            topic_id=topic_id,
            partition_count=int(record["partitions"]),
            state=TopicState(record["state"]),
            configs=build_configs(record.get("configs", {})),
            origin=TopicOrigin(record.get("origin", TopicOrigin.KAFKA)),
            resource=_text(record.get("resource", "")),
            reclaim_policy=_text(record.get("reclaim_policy", "Retain")),
            deletion_protection=bool(record.get("deletion_protection", False)),
            unconfirmed_deletions=frozenset(_ids(record.get("unconfirmed_deletions", ()))),
        )

    return build


def build_partition(record: dict[str, Any]) -> PartitionRegistration:
    """Read a partition's record; raise ValueError if it breaks its own rules."""
    partition = PartitionRegistration(
        # What else names brokers of the partition names some of these, or breaks its rules.
        replicas=_ids(record["replicas"]),
        isr=tuple(record["isr"]),
        leader=int(record["leader"]),
        leader_epoch=int(record["leader_epoch"]),
        partition_epoch=int(record["partition_epoch"]),
        elr=tuple(record.get("elr", ())),
        last_known_elr=tuple(record.get("last_known_elr", ())),
        leader_recovery_state=LeaderRecoveryState(record.get("recovery_state", 0)),
        adding_replicas=tuple(record.get("adding", ())),
        removing_replicas=tuple(record.get("removing", ())),
        directories=tuple(record.get("directories", ())),
        min_insync_replicas=int(record.get("min_insync_replicas", 1)),
        unconfirmed_removals=_ids(record.get("unconfirmed_removals", ())),
        queued_target=_ids(record.get("queued_target", ())),
    )
    problems = partition.problems()
    if problems:
        raise ValueError("; ".join(problems))
    return partition


def build_configs(record: dict[str, Any]) -> dict[str, str]:
    """Read configs by name; numbers and booleans without quotes are taken as texts."""
    return {_text(name): _config_text(value) for name, value in record.items()}


def _config_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else _text(value)


def _text(value: object) -> str:
    """Check what brokers accept only as text; otherwise they would refuse every image."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _ids(values: Iterable[object]) -> tuple[int, ...]:
    ids = []
    for each in values:
        if type(each) is not int or each < 0:
            raise TypeError(f"{each!r} is no id of a broker")
        ids.append(each)
    return tuple(ids)


def _port(value: Any) -> int:
    port = int(value)
    if not 0 <= port <= PORT_MAX:
        raise ValueError(f"{port} is no port")
    return port


_FIELDS: Final = {
    COUNTERS_KEY: frozenset(read_line(counters_line(CountersChanged(0, 0)))),
    FEATURES_KEY: frozenset(read_line(features_line(FinalizedFeatures()))),
    SEALED_KEY: frozenset({"epoch"}),
    BROKER_PREFIX: frozenset(
        read_line(
            broker_line(
                BrokerRegistration(
                    0, directory_ids=("",), is_cordoned=True, allows_unclean_election=True
                )
            )
        )
    ),
    INTENT_PREFIX: frozenset(read_line(intent_line(Intent("", "", 0)))),
    TOPIC_PREFIX: frozenset(read_line(header_line(TopicHeader("", TopicId(bytes(16)), 0)))),
    PARTITION_PREFIX: frozenset(
        read_line(
            partition_line(
                PartitionRegistration((0,), (0,), unconfirmed_removals=(1,), queued_target=(1,))
            )
        )
    ),
}
"""What this release writes into lines that it may rewrite, by key or by the prefix of keys."""


def parse_line_of_any_release(
    key: str, line: str, build: Callable[[dict[str, Any]], T]
) -> tuple[T, dict[str, Any]]:
    """Read a line as `parse_line` does; give also the fields that this release does not know."""
    fields = _FIELDS[key[: key.find("/") + 1] or key]

    def build_and_compare(record: dict[str, Any]) -> tuple[T, dict[str, Any]]:
        if record.keys() <= fields:
            return build(record), {}
        unknown = {name: value for name, value in record.items() if name not in fields}
        return build(record), unknown

    return parse_line(key, line, build_and_compare)
