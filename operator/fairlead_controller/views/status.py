"""The controller's view of the cluster as JSON, for `fairlead status` and for people. Pure."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from fairlead_controller.decisions.cluster_wide_configs import read_declared
from fairlead_controller.decisions.reassignment.scale_down import find_leaving
from fairlead_controller.decisions.state import ControllerState
from fairlead_model.broker import BrokerRegistration
from fairlead_model.cluster import ClusterImage, TopicImage
from fairlead_model.configs.config_values import BROKER_FENCE
from fairlead_model.ids import BrokerId, topic_id_text
from fairlead_model.partition import LeaderRecoveryState


def build_status(
    state: ControllerState, *, pid: int, declarations: Mapping[str, Any]
) -> dict[str, Any]:
    """Return brokers, topics and the controller itself; costs O(partitions)."""
    image = state.image
    topics = [build_topic_status(topic) for topic in image.topics()]
    leaders = Counter(
        partition.leader for topic in image.topics() for partition in topic.partitions
    )
    removals = _count_removals(image)
    return {
        "clusterId": image.cluster_id,
        "controller": {"pid": pid, "epoch": state.controller_epoch},
        "partitions": {
            name: sum(int(topic[name]) for topic in topics)
            for name in ("partitions", "underReplicated", "underMinIsr", "offline", "lossPossible")
        }
        | {"misplacedLeaders": len(state.observations.misplaced)},
        "brokers": [
            build_broker_status(
                image.brokers[broker_id], state, leaders[broker_id], removals[broker_id]
            )
            for broker_id in sorted(image.brokers)
        ],
        "topics": sorted(topics, key=lambda topic: str(topic["name"])),
        "deletingTopics": sorted(header.name for header in image.deleting.values()),
        "declaredTopics": dict(declarations),
        "declaredConfigs": read_declared(state),
    }


def _count_removals(image: ClusterImage) -> Counter[BrokerId]:
    """Count the replicas and topics of which each broker may still have the data."""
    removals = Counter(
        broker_id
        for topic in image.topics()
        for partition in topic.partitions
        for broker_id in partition.unconfirmed_removals
    )
    for header in image.deleting.values():
        removals.update(header.unconfirmed_deletions)
    return removals


def build_broker_status(
    broker: BrokerRegistration, state: ControllerState, leaders: int = 0, removals: int = 0
) -> dict[str, Any]:
    """Return one broker; host and port are those advertised to clients.

    `removals` counts replicas and topics whose deletion the broker has not reported yet.
    """
    clients = broker.client_endpoints
    load = state.loads.get(broker.broker_id)
    return {
        "id": broker.broker_id,
        "epoch": broker.broker_epoch,
        "host": clients[0].host if clients else None,
        "port": clients[0].port if clients else None,
        "rest": broker.rest_url,
        "hostName": broker.host_name,
        "rack": broker.rack,
        "state": broker_state(broker, is_confirmed=broker.broker_id not in state.unconfirmed),
        "replicas": load.replicas if load else 0,
        "leaders": leaders,
        "preferredLeaders": load.preferred_leaders if load else 0,
        "unconfirmedRemovals": removals,
        "isDrained": broker.broker_id in state.cordoned,
        "isCordoned": broker.is_cordoned,
        "fencedBy": state.image.configs_of_broker(broker.broker_id).get(BROKER_FENCE, "") or None,
        "leavesPool": find_leaving(state).get(broker.broker_id),
        "returnedClean": broker.is_clean,
    }


def broker_state(broker: BrokerRegistration, *, is_confirmed: bool) -> str:
    """Return a broker's state in one word."""
    if broker.fenced:
        return "fenced"
    if broker.in_controlled_shutdown:
        return "stopping"
    return "live" if is_confirmed else "expected"


def build_topic_status(topic: TopicImage) -> dict[str, Any]:
    """Return one topic; a partition without leader is offline and under-replicated.

    `lossPossible` counts partitions whose leader may lack acknowledged records, because its
    election could not ensure that.
    """
    return {
        "name": topic.name,
        "topicId": topic_id_text(topic.topic_id),
        "partitions": len(topic.partitions),
        "replicationFactor": topic.replication_factor,
        "underReplicated": sum(part.is_under_replicated for part in topic.partitions),
        "underMinIsr": sum(
            len(part.isr) < part.effective_min_isr or not part.has_leader
            for part in topic.partitions
        ),
        "offline": sum(not part.has_leader for part in topic.partitions),
        "reassigning": sum(
            part.is_being_reassigned or bool(part.queued_target) for part in topic.partitions
        ),
        "lossPossible": sum(
            part.leader_recovery_state is LeaderRecoveryState.RECOVERING
            for part in topic.partitions
        ),
        "isInternal": topic.is_internal,
        "resource": topic.header.resource or None,
    }


def build_partitions_status(topic: TopicImage) -> list[dict[str, Any]]:
    """Return each partition of a topic with its leader and members."""
    return [
        {
            "partition": index,
            "leader": partition.leader,
            "leaderEpoch": partition.leader_epoch,
            "partitionEpoch": partition.partition_epoch,
            "replicas": list(partition.replicas),
            "isr": list(partition.isr),
            "elr": list(partition.elr),
            "lastKnownElr": list(partition.last_known_elr),
            "minInsyncReplicas": partition.min_insync_replicas,
            "isUnderReplicated": partition.is_under_replicated,
            "lossPossible": partition.leader_recovery_state is LeaderRecoveryState.RECOVERING,
        }
        for index, partition in enumerate(topic.partitions)
    ]
