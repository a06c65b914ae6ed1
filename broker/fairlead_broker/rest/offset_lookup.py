"""Where a partition begins and ends, and the offset of a timestamp: answered by its leader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairlead_broker.rest.problems import raise_code
from fairlead_wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

if TYPE_CHECKING:
    from fairlead_broker.local_replicas import PartitionKey
    from fairlead_broker.rest.calls import KafkaCalls

EARLIEST: Final = -2
LATEST: Final = -1


async def look_up_offset(
    kafka: KafkaCalls,
    key: PartitionKey,
    timestamp: int,
    isolation_level: int = 0,
    *,
    deadline_s: float,
) -> int:
    """Return an offset of a partition from its leader, -1 if none fits; KafkaError."""
    topic, index = key

    def build(timeout_ms: int) -> ListOffsetsRequest:
        asked = ListOffsetsTopic(topic, [ListOffsetsPartition(index, timestamp=timestamp)])
        return ListOffsetsRequest(-1, isolation_level, [asked], timeout_ms)

    response: ListOffsetsResponse = await kafka.ask_leader(
        key, build, _code_of, deadline_s=deadline_s
    )
    raise_code(_code_of(response))
    return response.topics[0].partitions[0].offset


def _code_of(response: ListOffsetsResponse) -> int:
    return response.topics[0].partitions[0].error_code
