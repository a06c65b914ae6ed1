"""Where partitions are and where they go, as JSON for the pod's other process. Pure.

`read_assignment` returns a state with as much as plans and their progress need: brokers, and
partitions with replicas, leaders and reassignments. Partition epochs and configs are left out.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from fairlead_controller.decisions.state import (
    BrokerConfirmed,
    ControllerState,
    CountersChanged,
    initial_state,
)
from fairlead_controller.views.status import broker_state
from fairlead_model.broker import BrokerRegistration
from fairlead_model.cluster import (
    BrokerChanged,
    BrokerConfigsChanged,
    Change,
    PartitionChanged,
    TopicChanged,
    TopicHeader,
    TopicImage,
    empty_image,
)
from fairlead_model.configs.config_values import BROKER_DRAIN
from fairlead_model.ids import parse_topic_id, topic_id_text
from fairlead_model.partition import PartitionRegistration


def build_assignment(state: ControllerState, topics: Collection[str] | None) -> dict[str, Any]:
    """Return the brokers, and all topics or the named ones; unknown names are left out."""
    image = state.image
    chosen = image.topics() if topics is None else _named(state, topics)
    return {
        "clusterId": image.cluster_id,
        "brokers": [
            {
                "id": broker_id,
                "hostName": broker.host_name,
                "rack": broker.rack,
                "state": broker_state(broker, is_confirmed=broker_id not in state.unconfirmed),
                "isDrained": broker_id in state.cordoned,
                "isCordoned": broker.is_cordoned,
            }
            for broker_id, broker in sorted(image.brokers.items())
        ],
        "topics": [_build_topic(topic) for topic in chosen],
    }


def _named(state: ControllerState, names: Collection[str]) -> Iterator[TopicImage]:
    for name in sorted(names):
        topic = state.image.topic(name)
        if topic is not None:
            yield topic


def _build_topic(topic: TopicImage) -> dict[str, Any]:
    return {
        "name": topic.name,
        "topicId": topic_id_text(topic.topic_id),
        "partitions": [
            {
                "replicas": list(partition.replicas),
                "isr": list(partition.isr),
                "leader": partition.leader,
                "leaderEpoch": partition.leader_epoch,
                "adding": list(partition.adding_replicas),
                "removing": list(partition.removing_replicas),
                "queued": list(partition.queued_target),
            }
            for partition in topic.partitions
        ],
    }


def read_assignment(answer: Mapping[str, Any]) -> ControllerState:
    """Return the state in an answer; KeyError or ValueError if it is malformed."""
    changes: list[Change] = []
    for broker in answer["brokers"]:
        registration = BrokerRegistration(
            int(broker["id"]),
            1 + int(broker["id"]),
            host_name=str(broker["hostName"]),
            rack=broker["rack"],
            fenced=broker["state"] == "fenced",
            in_controlled_shutdown=broker["state"] == "stopping",
            # An operator of an earlier release does not send this.
            is_cordoned=bool(broker.get("isCordoned", False)),
        )
        changes.append(BrokerChanged(registration))
        if broker["isDrained"]:
            changes.append(BrokerConfigsChanged(str(broker["id"]), {BROKER_DRAIN: "true"}))
    for topic in answer["topics"]:
        changes += _read_topic(topic)
    image = empty_image(str(answer["clusterId"])).apply(changes)
    state = initial_state(image, controller_epoch=0, counters=CountersChanged(0, 0))
    expected = {int(each["id"]) for each in answer["brokers"] if each["state"] == "expected"}
    return state.apply(BrokerConfirmed(each) for each in sorted(image.brokers.keys() - expected))


def _read_topic(topic: Mapping[str, Any]) -> Iterator[Change]:
    topic_id = parse_topic_id(topic["topicId"])
    yield TopicChanged(TopicHeader(topic["name"], topic_id, len(topic["partitions"])))
    for index, partition in enumerate(topic["partitions"]):
        record = PartitionRegistration(
            replicas=tuple(partition["replicas"]),
            isr=tuple(partition["isr"]),
            leader=int(partition["leader"]),
            leader_epoch=int(partition["leaderEpoch"]),
            adding_replicas=tuple(partition["adding"]),
            removing_replicas=tuple(partition["removing"]),
            queued_target=tuple(partition["queued"]),
        )
        yield PartitionChanged(topic_id, index, record)
