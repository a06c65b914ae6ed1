"""What a controller would know of a cluster, as far as any broker tells it over the Kafka API.

The controller's own code for decisions takes this state, so a forecast or a plan of the command
uses that code and has no rules of its own. The Kafka API does not have what only the controller
knows: partition epochs (leader epochs are there), replicas that brokers report as failed, and
brokers that are about to stop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fairlead_cli.client.answering import Address
from fairlead_cli.client.broker_configs import read_orders_of
from fairlead_cli.client.connection import build_admin, describe_cluster
from fairlead_cli.client.reassignment import list_all_reassignments
from fairlead_cli.client.survey import newest_version
from fairlead_cli.client.wire_call import ask_any, call_broker
from fairlead_cli.errors import CliError
from fairlead_cli.wire_exchange import explain_error, name_error
from fairlead_controller.decisions.state import (
    UNCLEAN_ELECTION,
    BrokerConfirmed,
    ControllerState,
    CountersChanged,
    initial_state,
)
from fairlead_model.broker import BrokerRegistration
from fairlead_model.cluster import (
    BrokerChanged,
    BrokerConfigsChanged,
    Change,
    PartitionChanged,
    TopicChanged,
    TopicHeader,
    empty_image,
)
from fairlead_model.configs.config_values import BROKER_DRAIN
from fairlead_model.ids import TopicId
from fairlead_model.partition import PartitionRegistration
from fairlead_model.session.calls import ResourceType
from fairlead_wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from fairlead_wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    RequestCursor,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from confluent_kafka.admin import AdminClient

    from fairlead_cli.client.reassignment import Ongoing

DESCRIBE_CONFIGS_VERSION = 4
PARTITIONS_A_PAGE = 2000
TOPICS_AT_ONCE = 500
MIN_INSYNC = "min.insync.replicas"


class ClusterReading(NamedTuple):
    """A cluster at about one moment: it may have changed between two requests."""

    cluster_id: str
    state: ControllerState
    waiting: frozenset[tuple[str, int]]
    """Partitions that are being reassigned, or wait for it."""
    is_fairlead: bool
    """False if no broker knows a Fairlead setting: it is another Kafka, or no broker answers."""
    admin: AdminClient


def read_cluster(addresses: str) -> ClusterReading:
    """Ask the first broker that answers. CliError if it is too old, or refuses."""
    return ask_any(addresses, lambda at: _read_cluster(addresses, at))


def _read_cluster(addresses: str, at: Address) -> ClusterReading:
    admin = build_admin(addresses)
    if newest_version(at, DescribeTopicPartitionsRequest.API_KEY, 0) is None:
        raise CliError(
            f"the broker at {at} cannot tell of eligible leaders (DescribeTopicPartitions)",
            hint="It is older than Apache Kafka 3.8.",
        )
    cluster = describe_cluster(admin)
    ongoing = list_all_reassignments(addresses)
    topics = list(read_topics(at))
    topic_configs = read_topic_configs(at, [topic.name or "" for topic in topics])
    orders = read_orders_of({Address(each.host, each.port): int(each.id) for each in cluster.nodes})
    changes: list[Change] = [
        BrokerChanged(
            BrokerRegistration(
                int(node.id),
                1 + int(node.id),
                host_name=node.host,
                rack=node.rack,
                fenced=False,
                is_cordoned=orders[int(node.id)].is_cordoned,
            )
        )
        for node in cluster.nodes
    ]
    drained = {broker_id: order.drained for broker_id, order in orders.items()}
    changes += [
        BrokerConfigsChanged(str(broker_id), {BROKER_DRAIN: "true"})
        for broker_id, is_drained in drained.items()
        if is_drained
    ]
    for topic in topics:
        changes += build_topic(topic, topic_configs.get(topic.name or "", {}), ongoing)
    cluster_id = str(cluster.cluster_id or "")
    loaded = initial_state(
        empty_image(cluster_id).apply(changes),
        controller_epoch=0,
        counters=CountersChanged(0, 0),
    )
    state = loaded.apply(BrokerConfirmed(each) for each in loaded.image.brokers)
    is_fairlead = any(each is not None for each in drained.values())
    return ClusterReading(cluster_id, state, frozenset(ongoing), is_fairlead, admin)


def build_topic(
    topic: DescribeTopicPartitionsResponseTopic,
    configs: Mapping[str, str],
    ongoing: Mapping[tuple[str, int], Ongoing],
) -> Iterator[Change]:
    """Return the changes that build a topic in the controller's state."""
    name = topic.name or ""
    topic_id = TopicId(topic.topic_id)
    minimum = int(configs.get(MIN_INSYNC, "1"))
    unclean = {key: value for key, value in configs.items() if key == UNCLEAN_ELECTION}
    yield TopicChanged(TopicHeader(name, topic_id, len(topic.partitions), configs=unclean))
    for each in sorted(topic.partitions, key=lambda partition: partition.partition_index):
        moving = ongoing.get((name, each.partition_index))
        record = build_partition(each, minimum, moving)
        yield PartitionChanged(topic_id, each.partition_index, record)


def build_partition(
    told: DescribeTopicPartitionsResponsePartition, minimum: int, moving: Ongoing | None
) -> PartitionRegistration:
    """Return a partition's registration; a reassignment that waits is not in it."""
    replicas = tuple(told.replica_nodes)
    is_moving = moving is not None and set(moving.replicas) == set(replicas)
    return PartitionRegistration(
        replicas=replicas,
        isr=tuple(told.isr_nodes),
        leader=told.leader_id,
        leader_epoch=told.leader_epoch,
        elr=tuple(told.eligible_leader_replicas or ()),
        last_known_elr=tuple(told.last_known_elr or ()),
        adding_replicas=tuple(moving.adding) if moving and is_moving else (),
        removing_replicas=tuple(moving.removing) if moving and is_moving else (),
        min_insync_replicas=minimum,
    )


def read_topics(at: Address) -> Iterator[DescribeTopicPartitionsResponseTopic]:
    """Read all topics, each completely, page by page."""
    cursor: RequestCursor | None = None
    unfinished: DescribeTopicPartitionsResponseTopic | None = None
    while True:
        request = DescribeTopicPartitionsRequest(
            response_partition_limit=PARTITIONS_A_PAGE, cursor=cursor
        )
        reply = call_broker(at.host, at.port, request, 0)
        for topic in reply.topics:
            if topic.error_code:
                raise CliError(
                    f"cannot look at topic '{topic.name}': {explain_error(topic.error_code)}"
                )
            if unfinished is not None and unfinished.name == topic.name:
                unfinished.partitions += topic.partitions
                continue
            if unfinished is not None:
                yield unfinished
            unfinished = topic
        if reply.next_cursor is None:
            break
        following = reply.next_cursor
        cursor = RequestCursor(following.topic_name, following.partition_index)
    if unfinished is not None:
        yield unfinished


def read_topic_configs(at: Address, names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the configs of each topic that elections use, including defaults."""
    found: dict[str, dict[str, str]] = {}
    for begin in range(0, len(names), TOPICS_AT_ONCE):
        resources = [
            DescribeConfigsResource(ResourceType.TOPIC, name, [MIN_INSYNC, UNCLEAN_ELECTION])
            for name in names[begin : begin + TOPICS_AT_ONCE]
        ]
        request = DescribeConfigsRequest(resources=resources)
        reply = call_broker(at.host, at.port, request, DESCRIBE_CONFIGS_VERSION)
        for result in reply.results:
            if result.error_code:
                raise CliError(
                    f"cannot read the configs of topic '{result.resource_name}': "
                    f"{result.error_message or name_error(result.error_code)}"
                )
            values = {each.name: each.value for each in result.configs}
            found[result.resource_name] = {
                name: value for name, value in values.items() if value is not None
            }
    return found
