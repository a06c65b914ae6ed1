"""Topics, partitions and offsets for several operations of v3 and v2."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairlead_broker.rest.offset_lookup import look_up_offset
from fairlead_broker.rest.problems import (
    UNKNOWN_PARTITION,
    ProblemError,
    raise_code,
    unknown_topic,
)
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    RequestCursor,
    TopicRequest,
)

if TYPE_CHECKING:
    from fairlead_broker.rest.request import RestRequest

_ABSENT: Final = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION}
)


async def describe_topics(
    request: RestRequest, *names: str
) -> list[DescribeTopicPartitionsResponseTopic]:
    """Return topics with all their partitions; without names, all that the client may see."""
    topics: list[DescribeTopicPartitionsResponseTopic] = []
    cursor: RequestCursor | None = None
    while True:
        response: DescribeTopicPartitionsResponse = await request.kafka.ask(
            DescribeTopicPartitionsRequest([TopicRequest(name) for name in names], cursor=cursor)
        )
        for topic in response.topics:
            if topics and topics[-1].name == topic.name:
                topics[-1].partitions += topic.partitions
            else:
                topics.append(topic)
        following = response.next_cursor
        if following is None:
            return topics
        cursor = RequestCursor(following.topic_name, following.partition_index)
        await request.slices.rest()


async def describe_topic(
    request: RestRequest, name: str | None = None
) -> DescribeTopicPartitionsResponseTopic:
    """Return the topic `name`, or that of the path; ProblemError 404 if it does not exist."""
    name = name or request.path["topic_name"]
    topic = (await describe_topics(request, name))[0]
    if topic.error_code in _ABSENT:
        raise unknown_topic(name)
    raise_code(topic.error_code)
    return topic


async def describe_partition(
    request: RestRequest,
) -> tuple[DescribeTopicPartitionsResponseTopic, DescribeTopicPartitionsResponsePartition]:
    """Return the partition of the path; ProblemError 404 if it does not exist."""
    topic = await describe_topic(request)
    index = request.path["partition_id"]
    if index >= len(topic.partitions):
        message = f"there is no partition {index} of {topic.name}"
        raise ProblemError(404, message, code=UNKNOWN_PARTITION)
    return topic, topic.partitions[index]


async def find_offset(
    request: RestRequest, topic: str, index: int, timestamp: int, isolation_level: int = 0
) -> int:
    """Return an offset of a partition from its leader, -1 if none fits; KafkaError."""
    return await look_up_offset(
        request.kafka, (topic, index), timestamp, isolation_level, deadline_s=request.deadline_s
    )
