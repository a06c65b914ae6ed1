"""The whole metadata of a cluster as one document, and back into a store that has lost it. Pure.

The document holds plain values (for YAML or JSON): brokers, dynamic configs, topics with the
record of every partition, counters. It says what was true when it was made; since then brokers may
have seen higher epochs, ids may have been given out, and replicas may have fallen behind. So what
comes back from it is made safe:

* controller, broker, leader and partition epochs and producer ids jump past any that somebody can
  have seen since;
* no replica counts as in sync: each may hold acknowledged records that the others lack. A
  partition gets its leader when all its replicas are back, the one whose log goes furthest.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from fairlead_controller import lines
from fairlead_controller.loading import load_state
from fairlead_controller.state import CountersChanged
from fairlead_controller.stores.metadata_store import StoredTable
from fairlead_model.cluster import (
    BrokerChanged,
    BrokerConfigsChanged,
    Change,
    ClusterImage,
    PartitionChanged,
    TopicChanged,
    TopicImage,
    TopicState,
    empty_image,
)
from fairlead_model.ids import NO_LEADER, ControllerEpoch, parse_topic_id, topic_id_text
from fairlead_model.partition import PartitionRegistration

T = TypeVar("T")

FORMAT: Final = "fairlead-metadata-export"
FORMAT_VERSION: Final = 1

EPOCH_JUMP: Final = 1 << 20
"""Far more reigns, starts and elections than happen between an export and its restore."""
PRODUCER_ID_JUMP: Final = 1 << 40
LEADER_EPOCH_MAX: Final = (1 << 31) - 1
"""The protocol carries leader epochs in four bytes."""


class DocumentError(ValueError):
    """A document cannot be restored; the text says which part of it."""


@dataclass(frozen=True, slots=True)
class RestoredMetadata:
    """What a document stands for, made safe."""

    cluster_id: str
    controller_epoch: ControllerEpoch
    counters: CountersChanged
    changes: tuple[Change, ...]
    """What builds the image from nothing."""


def build_document(tables: Mapping[str, StoredTable]) -> dict[str, Any]:
    """Give the document of a store's tables; StoreCorruptError if they contradict each other."""
    epoch = max(table.controller_epoch for table in tables.values())
    state = load_state(tables, controller_epoch=epoch).state
    image = state.image
    return {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "clusterId": image.cluster_id,
        "controllerEpoch": epoch,
        "counters": lines.read_line(lines.counters_line(state.counters)),
        "brokers": [
            lines.read_line(lines.broker_line(image.brokers[broker_id]))
            for broker_id in sorted(image.brokers)
        ],
        "brokerConfigs": {
            broker: dict(configs) for broker, configs in sorted(image.broker_configs.items())
        },
        "topics": [
            _topic_document(topic)
            for topic in sorted(image.topics_by_id.values(), key=lambda topic: topic.topic_id)
        ],
    }


def _topic_document(topic: TopicImage) -> dict[str, Any]:
    return {
        "topicId": topic_id_text(topic.topic_id),
        "header": lines.read_line(lines.header_line(topic.header)),
        "partitions": [
            lines.read_line(lines.partition_line(partition)) for partition in topic.partitions
        ],
    }


def read_document(document: object) -> RestoredMetadata:
    """Read a document; DocumentError if it is none or any part of it is wrong."""
    root = _part("document", document, dict)
    if root.get("format") != FORMAT or root.get("version") != FORMAT_VERSION:
        raise DocumentError(
            f"not an export of metadata: format {root.get('format')!r} version "
            f"{root.get('version')!r}, this release reads {FORMAT!r} version {FORMAT_VERSION}"
        )
    counters = _built("counters", root.get("counters"), lines.build_counters)
    changes = tuple(_changes(root))
    cluster_id = str(_part("clusterId", root.get("clusterId"), str))
    try:
        image = empty_image(cluster_id).apply(changes)
    except ValueError as error:
        raise DocumentError(f"the parts contradict each other: {error}") from error
    _check(image)
    epoch = _part("controllerEpoch", root.get("controllerEpoch"), int)
    return RestoredMetadata(
        cluster_id=cluster_id,
        controller_epoch=int(epoch) + EPOCH_JUMP,
        counters=CountersChanged(
            counters.next_broker_epoch + EPOCH_JUMP,
            counters.next_producer_id + PRODUCER_ID_JUMP,
        ),
        changes=changes,
    )


def _changes(root: Mapping[str, Any]) -> Iterator[Change]:
    for number, record in enumerate(_part("brokers", root.get("brokers"), list)):
        broker = _built(f"brokers[{number}]", record, lines.build_broker)
        # No start id: the next registration of a broker is one of a new start.
        yield BrokerChanged(replace(broker, fenced=True, start_id="", is_clean=False))
    configs = _part("brokerConfigs", root.get("brokerConfigs"), dict)
    for broker_name, values in configs.items():
        checked = _part(f"brokerConfigs.{broker_name}", values, dict)
        yield BrokerConfigsChanged(
            str(broker_name), {str(name): str(value) for name, value in checked.items()}
        )
    topics = _part("topics", root.get("topics"), list)
    # Deleted topics first: they have given up their names.
    numbered = [(f"topics[{number}]", topic) for number, topic in enumerate(topics)]
    named = [topic.get("topicId") for topic in topics if isinstance(topic, dict)]
    if len(set(map(str, named))) != len(named):
        raise DocumentError("topics: a topicId stands twice")
    for place, topic in sorted(numbered, key=_deleting_first):
        yield from _topic_changes(place, _part(place, topic, dict))


def _deleting_first(item: tuple[str, Any]) -> bool:
    header = item[1].get("header") if isinstance(item[1], dict) else None
    return not (isinstance(header, dict) and header.get("state") == TopicState.DELETING)


def _topic_changes(place: str, topic: Mapping[str, Any]) -> Iterator[Change]:
    try:
        topic_id = parse_topic_id(str(topic.get("topicId")))
    except ValueError as error:
        raise DocumentError(f"{place}.topicId: {error}") from error
    header = _built(f"{place}.header", topic.get("header"), lines.header_builder(topic_id))
    yield TopicChanged(header)
    records = _part(f"{place}.partitions", topic.get("partitions"), list)
    for index, record in enumerate(records):
        where = f"{place}.partitions[{index}]"
        yield PartitionChanged(
            topic_id, index, restored_partition(where, _built(where, record, lines.build_partition))
        )


def restored_partition(place: str, partition: PartitionRegistration) -> PartitionRegistration:
    """Give the record that a partition starts anew with."""
    leader_epoch = partition.leader_epoch + EPOCH_JUMP
    if leader_epoch > LEADER_EPOCH_MAX:
        raise DocumentError(f"{place}.leader_epoch: {partition.leader_epoch} leaves no room")
    return replace(
        partition,
        leader=NO_LEADER,
        leader_epoch=leader_epoch,
        partition_epoch=partition.partition_epoch + EPOCH_JUMP,
        isr=(),
        elr=(),
        last_known_elr=partition.replicas,
    )


def _check(image: ClusterImage) -> None:
    for topic in image.topics_by_id.values():
        is_live = topic.header.state is TopicState.LIVE
        if is_live and len(topic.partitions) != topic.header.partition_count:
            raise DocumentError(
                f"topic {topic.name}: {len(topic.partitions)} of "
                f"{topic.header.partition_count} partitions"
            )


def _part(place: str, value: object, kind: type[T]) -> T:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise DocumentError(f"{place}: a {kind.__name__} is needed, not {str(value)[:40]!r}")
    return value


def _built(place: str, value: object, build: Callable[[dict[str, Any]], T]) -> T:
    record = _part(place, value, dict)
    try:
        return build(record)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DocumentError(f"{place}: {error!r}") from error
