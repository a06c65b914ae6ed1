"""The offsets of a group: those that are committed, and commits of a member or of no member.

A coordinator on another broker knows this broker but not the client, so this broker authorizes the
client.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, NamedTuple

from fairlead_broker.authorization import Operation, ResourceType
from fairlead_broker.rest.problems import error_code, raise_code
from fairlead_wire.errors import ErrorCode, KafkaError
from fairlead_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from fairlead_wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from fairlead_broker.rest.calls import KafkaCalls
    from fairlead_broker.rest.instances.positions import TopicPartition
    from fairlead_wire.message import Message

PAUSE_S: Final = 0.1
NO_MEMBER: Final = ""
NO_EPOCH: Final = -1
PASSING: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)
"""Errors of a coordinator that is not ready yet: the request is sent again."""


class Committed(NamedTuple):
    """An offset that a group has committed, which is the next one to read, and its metadata."""

    offset: int
    metadata: str = ""


class GroupOffsets:
    """The offsets of one group."""

    def __init__(self, kafka: KafkaCalls, group_id: str) -> None:
        self._kafka = kafka
        self._group_id = group_id

    async def committed(
        self, partitions: Iterable[TopicPartition], deadline_s: float
    ) -> dict[TopicPartition, Committed]:
        """Return the committed offsets, once no open transaction may change them.

        KafkaError.
        """
        by_topic: dict[str, list[int]] = {}
        for topic, index in partitions:
            self._kafka.require(Operation.DESCRIBE, ResourceType.TOPIC, topic)
            by_topic.setdefault(topic, []).append(index)
        asked = [OffsetFetchRequestTopics(name, partition_indexes=each)
                 for name, each in by_topic.items()]  # fmt: skip
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(self._group_id, topics=asked)], require_stable=True
        )
        response: OffsetFetchResponse = await self._ask(request, _fetch_code, deadline_s)
        raise_code(_fetch_code(response))
        return {
            (topic.name, each.partition_index): Committed(
                each.committed_offset, each.metadata or ""
            )
            for topic in response.groups[0].topics
            for each in topic.partitions
            if each.committed_offset >= 0
        }

    async def commit(
        self,
        offsets: Mapping[TopicPartition, Committed],
        deadline_s: float,
        *,
        member: tuple[str, int] = (NO_MEMBER, NO_EPOCH),
    ) -> None:
        """Commit offsets with a member's id and epoch; KafkaError for the first error."""
        by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
        for (topic, index), each in offsets.items():
            self._kafka.require(Operation.READ, ResourceType.TOPIC, topic)
            by_topic.setdefault(topic, []).append(
                OffsetCommitRequestPartition(index, each.offset, committed_metadata=each.metadata)
            )
        if not by_topic:
            return
        member_id, epoch = member
        request = OffsetCommitRequest(
            self._group_id,
            epoch,
            member_id,
            topics=[OffsetCommitRequestTopic(name, partitions=each)
                    for name, each in by_topic.items()],
        )  # fmt: skip
        response: OffsetCommitResponse = await self._ask(request, _commit_code, deadline_s)
        code = _commit_code(response)
        if code:
            where = ", ".join(f"{topic}-{index}" for topic, index in _refused(response))
            known = error_code(code)
            raise KafkaError(known, f"{where} cannot be committed: {known.description}")

    async def _ask(self, request: Message, code_of: Callable[[Any], int], deadline_s: float) -> Any:
        """Send a request to the coordinator until it is ready, or until the deadline."""
        await self._kafka.have_offsets_topic_made(self._group_id)
        loop = asyncio.get_running_loop()
        while True:
            response = await self._kafka.ask_coordinator(
                self._group_id, lambda _: request, code_of, deadline_s=deadline_s
            )
            code = error_code(code_of(response))
            is_passing = code in PASSING or self._is_unheard_of(code, response)
            if not is_passing or loop.time() >= deadline_s:
                return response
            await asyncio.sleep(PAUSE_S)

    def _is_unheard_of(self, code: ErrorCode, response: Any) -> bool:
        """Tell whether the coordinator refuses new partitions that only this broker knows yet."""
        is_commit = isinstance(response, OffsetCommitResponse)
        if not is_commit or code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return False
        image = self._kafka.broker.image
        return all(image.partition(*key) is not None for key in _refused(response))


def _fetch_code(response: OffsetFetchResponse) -> int:
    group = response.groups[0]
    codes = (each.error_code for topic in group.topics for each in topic.partitions)
    return group.error_code or next(filter(None, codes), 0)


def _commit_code(response: OffsetCommitResponse) -> int:
    """Return NOT_COORDINATOR if any error is that, to ask the new coordinator; else the first."""
    codes = [each.error_code for topic in response.topics for each in topic.partitions]
    if ErrorCode.NOT_COORDINATOR in codes:
        return ErrorCode.NOT_COORDINATOR
    return next(filter(None, codes), 0)


def _refused(response: OffsetCommitResponse) -> list[TopicPartition]:
    return [
        (topic.name, each.partition_index)
        for topic in response.topics
        for each in topic.partitions
        if each.error_code
    ]
