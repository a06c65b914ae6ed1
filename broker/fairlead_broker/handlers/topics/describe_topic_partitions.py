"""DescribeTopicPartitions (key 75), version 0.

Behaviour: topics in the order of their names (no names: all), partitions in order, at most
`response_partition_limit` (and `DESCRIBED_PARTITIONS_MAX`) of them; the cursor in the reply says
where to go on. Like Metadata, with the eligible leader replicas besides.
Versions:  0 flexible from the start.
Missing:   nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import islice
from typing import TYPE_CHECKING, Final

from fairlead_broker.api_registry import handles
from fairlead_broker.authorization import Access, Operation, ResourceType
from fairlead_broker.handlers.topics.metadata import leader_error, live_endpoints, offline_replicas
from fairlead_broker.limits import DESCRIBED_PARTITIONS_MAX, TOPICS_PER_REQUEST_MAX
from fairlead_model.ids import ZERO_TOPIC_ID, is_internal_topic, is_legal_topic_name
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, RemoteProtocolError
from fairlead_wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    ResponseCursor,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from fairlead_broker.api_registry import RequestContext
    from fairlead_model.cluster import ClusterImage, TopicImage


@handles(ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions=(0, 0), access=Access.BY_RESOURCE)
def describe_topic_partitions(
    request: DescribeTopicPartitionsRequest, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    """Answer from the image, one page."""
    if len(request.topics) > TOPICS_PER_REQUEST_MAX:
        raise RemoteProtocolError(f"DescribeTopicPartitions names {len(request.topics)} topics")
    image = context.broker.image
    live = live_endpoints(image, context.listener)
    first_name, first_index = "", 0
    names = {topic.name for topic in request.topics}
    if request.cursor is not None:
        first_name, first_index = request.cursor.topic_name, request.cursor.partition_index
        if first_index < 0 or (names and first_name not in names):
            return _refuse_cursor(names)
    denied = {name for name in names if not _may(context.may, name, context)}
    ordered: Iterable[str]
    if names:
        ordered = sorted(name for name in names if name >= first_name)
    else:
        ordered = (
            name
            for name in _names_from(first_name, image)
            if _may(context.would_allow, name, context)
        )
    room = min(max(request.response_partition_limit, 1), DESCRIBED_PARTITIONS_MAX)
    response = DescribeTopicPartitionsResponse()
    for name in ordered:
        topic = image.topic(name)
        if name in denied:
            response.topics.append(_refused(name))
            continue
        if topic is None:
            unknown = _unknown(name)
            unknown.topic_authorized_operations = context.authorized_operations(
                ResourceType.TOPIC, name
            )
            response.topics.append(unknown)
            continue
        start = first_index if name == first_name else 0
        if room == 0:
            response.next_cursor = ResponseCursor(topic_name=name, partition_index=start)
            break
        end = min(start + room, len(topic.partitions))
        described = _describe(topic, range(start, end), image, live)
        described.topic_authorized_operations = context.authorized_operations(
            ResourceType.TOPIC, name
        )
        response.topics.append(described)
        room -= max(end - start, 0)
        if end < len(topic.partitions):
            response.next_cursor = ResponseCursor(topic_name=name, partition_index=end)
            break
    return response


def _refuse_cursor(names: set[str]) -> DescribeTopicPartitionsResponse:
    """Refuse a cursor that no reply has given."""
    return DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponseTopic(
                error_code=ErrorCode.INVALID_REQUEST, name=name, topic_id=ZERO_TOPIC_ID
            )
            for name in sorted(names)
        ]
    )


def _may(
    may: Callable[[Operation, ResourceType, str], bool], name: str, context: RequestContext
) -> bool:
    return context.authorizer is None or may(Operation.DESCRIBE, ResourceType.TOPIC, name)


class _SortedNames:
    """All names of an image in order: to sort 50,000 of them for each page takes long."""

    def __init__(self) -> None:
        self._source: object = None
        self._sorted: list[str] = []

    def of(self, image: ClusterImage) -> list[str]:
        """Return the names, sorted anew only where a topic has come or gone."""
        if self._source is not image.names:
            self._source, self._sorted = image.names, sorted(image.names)
        return self._sorted


_SORTED_NAMES: Final = _SortedNames()


def _names_from(first_name: str, image: ClusterImage) -> Iterator[str]:
    """Walk all names in order, from one on."""
    ordered = _SORTED_NAMES.of(image)
    return islice(ordered, bisect_left(ordered, first_name), None)


def _refused(name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name, topic_id=ZERO_TOPIC_ID
    )


def _unknown(name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if is_legal_topic_name(name)
        else ErrorCode.INVALID_TOPIC_EXCEPTION,
        name=name,
        topic_id=ZERO_TOPIC_ID,
        is_internal=is_internal_topic(name),
    )


def _describe(
    topic: TopicImage, indexes: range, image: ClusterImage, live: Mapping[int, object]
) -> DescribeTopicPartitionsResponseTopic:
    partitions = []
    for index in indexes:
        partition = topic.partitions[index]
        partitions.append(
            DescribeTopicPartitionsResponsePartition(
                error_code=leader_error(partition, live, image),
                partition_index=index,
                leader_id=partition.leader if partition.leader in live else -1,
                leader_epoch=partition.leader_epoch,
                replica_nodes=list(partition.replicas),
                isr_nodes=list(partition.isr),
                eligible_leader_replicas=list(partition.elr),
                last_known_elr=list(partition.last_known_elr),
                offline_replicas=offline_replicas(partition, live),
            )
        )
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=partitions,
    )
