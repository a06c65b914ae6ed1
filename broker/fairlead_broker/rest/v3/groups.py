"""`…/consumer-groups`: their consumers, the partitions of each, and how far they lag."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fairlead_broker.coordinator.coordinator_partition import coordinator_partition
from fairlead_broker.rest.documents.schemas import FLAG, ID, OFFSET, TEXT, TEXT_OR_NULL
from fairlead_broker.rest.group_reading import (
    Group,
    GroupMember,
    TopicPartition,
    committed_offsets,
    describe_group,
    in_turns,
    list_groups,
)
from fairlead_broker.rest.offset_lookup import LATEST
from fairlead_broker.rest.operations import Answer, Operation
from fairlead_broker.rest.problems import ProblemError
from fairlead_broker.rest.topic_reading import find_offset
from fairlead_broker.rest.v3.resources import LINK, LINK_OR_NULL, Place, list_of, resource
from fairlead_model.ids import CONSUMER_OFFSETS

if TYPE_CHECKING:
    from aiohttp import web

    from fairlead_broker.rest.request import RestRequest

_GROUPS: Final = "/v3/clusters/{cluster_id}/consumer-groups"
_GROUP: Final = f"{_GROUPS}/{{consumer_group_id}}"
_CONSUMERS: Final = f"{_GROUP}/consumers"
_CONSUMER: Final = f"{_CONSUMERS}/{{consumer_id}}"
_OFFSETS_AT_ONCE: Final = 50
_STATES: Final = {
    "PreparingRebalance": "PREPARING_REBALANCE",
    "CompletingRebalance": "COMPLETING_REBALANCE",
    "Assigning": "ASSIGNING",
    "Reconciling": "RECONCILING",
    "Stable": "STABLE",
    "Dead": "DEAD",
    "Empty": "EMPTY",
}

GROUP = resource(
    "KafkaConsumerGroup",
    {
        "consumer_group_id": TEXT,
        "is_simple": FLAG,
        "partition_assignor": TEXT,
        "state": TEXT,
        "type": TEXT,
        "is_mixed_consumer_group": FLAG,
        "coordinator": LINK_OR_NULL,
        "consumers": LINK,
        "lag_summary": LINK,
    },
)
CONSUMER = resource(
    "KafkaConsumer",
    {
        "consumer_group_id": TEXT,
        "consumer_id": TEXT,
        "instance_id": TEXT_OR_NULL,
        "client_id": TEXT,
        "assignments": LINK,
    },
)
ASSIGNMENT = resource(
    "KafkaConsumerAssignment",
    {
        "consumer_group_id": TEXT,
        "consumer_id": TEXT,
        "topic_name": TEXT,
        "partition_id": ID,
        "partition": LINK,
        "lag": LINK,
    },
)
LAG = resource(
    "KafkaConsumerLag",
    {
        "consumer_group_id": TEXT,
        "topic_name": TEXT,
        "partition_id": ID,
        "current_offset": OFFSET,
        "log_end_offset": OFFSET,
        "lag": OFFSET,
        "consumer_id": TEXT,
        "instance_id": TEXT_OR_NULL,
        "client_id": TEXT,
    },
)
LAG_SUMMARY = resource(
    "KafkaConsumerGroupLagSummary",
    {
        "consumer_group_id": TEXT,
        "max_lag": OFFSET,
        "total_lag": OFFSET,
        "max_lag_consumer_id": TEXT,
        "max_lag_instance_id": TEXT_OR_NULL,
        "max_lag_client_id": TEXT,
        "max_lag_topic_name": TEXT,
        "max_lag_partition_id": ID,
        "max_lag_consumer": LINK,
        "max_lag_partition": LINK,
    },
)


def _group(request: RestRequest, group: Group) -> dict[str, Any]:
    place = Place(request, "consumer-groups", group.group_id)
    coordinator = _coordinator(request, group.group_id)
    return place.describe(
        "KafkaConsumerGroup",
        consumer_group_id=group.group_id,
        is_simple=group.is_simple,
        partition_assignor=group.assignor,
        state=_STATES.get(group.state, "UNKNOWN"),
        type=group.type,
        is_mixed_consumer_group=group.is_mixed,
        coordinator=None if coordinator < 0 else Place(request).link("brokers", coordinator),
        consumers=place.link("consumers"),
        lag_summary=place.link("lag-summary"),
    )


def _coordinator(request: RestRequest, group_id: str) -> int:
    topic = request.broker.image.topic(CONSUMER_OFFSETS)
    if topic is None or not topic.partitions:
        return -1
    return topic.partitions[coordinator_partition(group_id, len(topic.partitions))].leader


async def list_consumer_groups(request: RestRequest) -> web.StreamResponse:
    """List the groups of the cluster."""
    groups = (_group(request, group) for group in await list_groups(request))
    return await Place(request, "consumer-groups").list("KafkaConsumerGroupList", groups)


async def get_consumer_group(request: RestRequest) -> web.StreamResponse:
    """Describe a group."""
    return request.answer(_group(request, await describe_group(request)))


def _consumer(request: RestRequest, group: Group, member: GroupMember) -> dict[str, Any]:
    place = Place(request, "consumer-groups", group.group_id, "consumers", member.consumer_id)
    return place.describe(
        "KafkaConsumer",
        consumer_group_id=group.group_id,
        consumer_id=member.consumer_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        assignments=place.link("assignments"),
    )


async def list_consumers(request: RestRequest) -> web.StreamResponse:
    """List the consumers of a group."""
    group = await describe_group(request)
    place = Place(request, "consumer-groups", group.group_id, "consumers")
    consumers = [_consumer(request, group, member) for member in group.members]
    return await place.list("KafkaConsumerList", consumers)


async def _find_consumer(request: RestRequest) -> tuple[Group, GroupMember]:
    group = await describe_group(request)
    consumer_id = request.path["consumer_id"]
    for member in group.members:
        if member.consumer_id == consumer_id:
            return group, member
    raise ProblemError(404, f"there is no consumer {consumer_id}", code=40403)


async def get_consumer(request: RestRequest) -> web.StreamResponse:
    """Describe a consumer."""
    return request.answer(_consumer(request, *await _find_consumer(request)))


def _assignment(
    request: RestRequest, group: Group, member: GroupMember, partition: TopicPartition
) -> dict[str, Any]:
    topic, index = partition
    root = Place(request)
    place = Place(
        request,
        *("consumer-groups", group.group_id, "consumers", member.consumer_id),
        *("assignments", topic, "partitions", index),
    )
    return place.describe(
        "KafkaConsumerAssignment",
        consumer_group_id=group.group_id,
        consumer_id=member.consumer_id,
        topic_name=topic,
        partition_id=index,
        partition=root.link("topics", topic, "partitions", index),
        lag=root.link("consumer-groups", group.group_id, "lags", topic, "partitions", index),
    )


async def list_assignments(request: RestRequest) -> web.StreamResponse:
    """List the partitions that a consumer has."""
    group, member = await _find_consumer(request)
    place = Place(
        request, "consumer-groups", group.group_id, "consumers", member.consumer_id, "assignments"
    )
    found = [_assignment(request, group, member, each) for each in sorted(member.partitions)]
    return await place.list("KafkaConsumerAssignmentList", found)


async def get_assignment(request: RestRequest) -> web.StreamResponse:
    """Describe the assignment of a partition to a consumer."""
    group, member = await _find_consumer(request)
    partition = (request.path["topic_name"], request.path["partition_id"])
    if partition not in member.partitions:
        raise ProblemError(404, "the consumer has no such partition", code=40402)
    return request.answer(_assignment(request, group, member, partition))


async def _lags(request: RestRequest, *only: TopicPartition) -> list[dict[str, Any]]:
    """Return the lags of a group, by topic and partition."""
    group = await describe_group(request)
    committed = await committed_offsets(request, group.group_id)
    owners = {partition: each for each in group.members for partition in each.partitions}
    wanted = sorted(each for each in committed if not only or each in only)
    # A topic that was deleted meanwhile has no end offset.
    wanted = [each for each in wanted if request.broker.image.partition(*each) is not None]
    ends = await in_turns(
        [find_offset(request, topic, index, LATEST) for topic, index in wanted], _OFFSETS_AT_ONCE
    )
    return [
        _lag(
            request,
            group.group_id,
            partition,
            offsets=(committed[partition], end),
            owner=owners.get(partition),
        )
        for partition, end in zip(wanted, ends, strict=True)
    ]


def _lag(
    request: RestRequest,
    group_id: str,
    partition: TopicPartition,
    *,
    offsets: tuple[int, int],
    owner: GroupMember | None,
) -> dict[str, Any]:
    topic, index = partition
    current, end = offsets
    place = Place(request, "consumer-groups", group_id, "lags", topic, "partitions", index)
    return place.describe(
        "KafkaConsumerLag",
        consumer_group_id=group_id,
        topic_name=topic,
        partition_id=index,
        current_offset=current,
        log_end_offset=end,
        lag=max(end - current, 0),
        consumer_id="" if owner is None else owner.consumer_id,
        instance_id=None if owner is None else owner.instance_id,
        client_id="" if owner is None else owner.client_id,
    )


async def list_lags(request: RestRequest) -> web.StreamResponse:
    """List how far a group lags in each partition."""
    place = Place(request, "consumer-groups", request.path["consumer_group_id"], "lags")
    return await place.list("KafkaConsumerLagList", await _lags(request))


async def get_lag(request: RestRequest) -> web.StreamResponse:
    """Tell how far a group lags in a partition."""
    lags = await _lags(request, (request.path["topic_name"], request.path["partition_id"]))
    if not lags:
        raise ProblemError(404, "the group has no offset of this partition", code=40402)
    return request.answer(lags[0])


async def get_lag_summary(request: RestRequest) -> web.StreamResponse:
    """Tell how far a group lags in total, and in which partition most."""
    group_id = request.path["consumer_group_id"]
    lags = await _lags(request)
    if not lags:
        raise ProblemError(404, f"the group {group_id} has no offsets")
    most = max(lags, key=lambda each: int(each["lag"]))
    root = Place(request)
    place = Place(request, "consumer-groups", group_id, "lag-summary")
    return request.answer(
        place.describe(
            "KafkaConsumerGroupLagSummary",
            consumer_group_id=group_id,
            max_lag=most["lag"],
            total_lag=sum(each["lag"] for each in lags),
            max_lag_consumer_id=most["consumer_id"],
            max_lag_instance_id=most["instance_id"],
            max_lag_client_id=most["client_id"],
            max_lag_topic_name=most["topic_name"],
            max_lag_partition_id=most["partition_id"],
            max_lag_consumer=root.link(
                "consumer-groups", group_id, "consumers", most["consumer_id"]
            ),
            max_lag_partition=root.link(
                "topics", most["topic_name"], "partitions", most["partition_id"]
            ),
        )
    )


OPERATIONS = (
    Operation(
        "listConsumerGroups",
        "GET",
        _GROUPS,
        "List the consumer groups.",
        list_consumer_groups,
        {200: Answer("The groups.", list_of("KafkaConsumerGroupList", GROUP))},
    ),
    Operation(
        "getConsumerGroup",
        "GET",
        _GROUP,
        "Describe a consumer group.",
        get_consumer_group,
        {200: Answer("The group.", GROUP)},
    ),
    Operation(
        "listConsumers",
        "GET",
        _CONSUMERS,
        "List the consumers of a group.",
        list_consumers,
        {200: Answer("The consumers.", list_of("KafkaConsumerList", CONSUMER))},
    ),
    Operation(
        "getConsumer",
        "GET",
        _CONSUMER,
        "Describe a consumer of a group.",
        get_consumer,
        {200: Answer("The consumer.", CONSUMER)},
    ),
    Operation(
        "listConsumerAssignments",
        "GET",
        f"{_CONSUMER}/assignments",
        "List the partitions that a consumer has.",
        list_assignments,
        {200: Answer("The assignments.", list_of("KafkaConsumerAssignmentList", ASSIGNMENT))},
    ),
    Operation(
        "getConsumerAssignment",
        "GET",
        f"{_CONSUMER}/assignments/{{topic_name}}/partitions/{{partition_id}}",
        "Describe the assignment of a partition.",
        get_assignment,
        {200: Answer("The assignment.", ASSIGNMENT)},
    ),
    Operation(
        "listConsumerLags",
        "GET",
        f"{_GROUP}/lags",
        "List how far a group lags in each partition.",
        list_lags,
        {200: Answer("The lags.", list_of("KafkaConsumerLagList", LAG))},
    ),
    Operation(
        "getConsumerLag",
        "GET",
        f"{_GROUP}/lags/{{topic_name}}/partitions/{{partition_id}}",
        "Tell how far a group lags in a partition.",
        get_lag,
        {200: Answer("The lag.", LAG)},
    ),
    Operation(
        "getConsumerGroupLagSummary",
        "GET",
        f"{_GROUP}/lag-summary",
        "Tell how far a group lags in all, and where most.",
        get_lag_summary,
        {200: Answer("The summary.", LAG_SUMMARY)},
    ),
)
