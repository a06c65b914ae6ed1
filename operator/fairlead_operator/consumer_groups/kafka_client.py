"""librdkafka's admin client behind `GroupClient`: its threads work, futures return here.

A process imports it only once it has a ConsumerGroup to read.
"""

import asyncio
from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from fairlead_operator.consumer_groups.group_client import (
    BrokersUnreachableError,
    CommitFailed,
    CommitOutcome,
    Committed,
    GroupBusy,
    LogOffsets,
    LogPoint,
)
from fairlead_operator.consumer_groups.group_sight import (
    DEAD,
    GroupProblem,
    GroupSight,
    Member,
    Place,
)

if TYPE_CHECKING:
    from concurrent.futures import Future

REQUEST_TIMEOUT_S: Final = 10.0
GRACE_S: Final = 5.0
"""By how much librdkafka may exceed a requested time-out."""
OFFSET_FETCHES_MAX: Final = 32
"""Groups whose offsets are requested at a time; this protocol has one group per request."""
_CRITICAL: Final = 2
"""Syslog's number. Conditions show failed connections; the log need not every second."""

_UNREACHABLE: Final = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._DESTROY,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError.REQUEST_TIMED_OUT,
    }
)
_ASK_AGAIN: Final = _UNREACHABLE | {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
}
_BUSY: Final = frozenset(
    {
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.NON_EMPTY_GROUP,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.UNKNOWN_MEMBER_ID,
    }
)
_UNKNOWN_PLACE: Final = frozenset(
    {
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)
_STATES: Final = {
    "PREPARING_REBALANCING": "PreparingRebalance",
    "COMPLETING_REBALANCING": "CompletingRebalance",
}


class KafkaGroupClient:
    """The client of one cluster; connects at the first request. `settings` are librdkafka's."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._admin: Any = AdminClient(
            {
                **settings,
                "client.id": "fairlead-operator",
                "log_level": _CRITICAL,
                "reconnect.backoff.max.ms": 2_000,
                "socket.connection.setup.timeout.ms": 5_000,
                "socket.keepalive.enable": True,
            }
        )

    async def look(self, group_ids: Sequence[str]) -> Mapping[str, GroupSight | GroupProblem]:
        """Read groups: one call for all states, one per group for offsets, one for all ends."""
        described = await _settled(
            self._admin.describe_consumer_groups(list(group_ids), request_timeout=REQUEST_TIMEOUT_S)
        )
        known = {
            group_id: answer
            for group_id, answer in described.items()
            if not isinstance(answer, KafkaException) or _code(answer) in _NO_GROUP
        }
        committed = await self._committed(known)
        places = {
            place
            for offsets in committed.values()
            if not isinstance(offsets, KafkaException)
            for place in offsets
        }
        ends = (await self.log_offsets(places, LogPoint.END)).offsets if places else {}
        seen: dict[str, GroupSight | GroupProblem] = {}
        for group_id in group_ids:
            group = described[group_id]
            offsets = committed.get(group_id, group)
            if isinstance(offsets, KafkaException):
                seen[group_id] = GroupProblem(_text(offsets))
            else:
                seen[group_id] = _sight(group, offsets, ends)
        return seen

    async def _committed(
        self, group_ids: Iterable[str]
    ) -> dict[str, dict[Place, int] | KafkaException]:
        turns = asyncio.Semaphore(OFFSET_FETCHES_MAX)

        async def fetch(group_id: str) -> dict[Place, int] | KafkaException:
            async with turns:
                request = [ConsumerGroupTopicPartitions(group_id)]
                answers = await _settled(
                    self._admin.list_consumer_group_offsets(
                        request, request_timeout=REQUEST_TIMEOUT_S
                    )
                )
            answer = answers[group_id]
            if isinstance(answer, KafkaException):
                return {} if _code(answer) in _NO_GROUP else answer
            failed = [entry.error for entry in answer.topic_partitions if entry.error is not None]
            if failed:
                return KafkaException(failed[0])
            return {
                (entry.topic, entry.partition): entry.offset
                for entry in answer.topic_partitions
                if entry.offset >= 0
            }

        names = list(group_ids)
        return dict(zip(names, await asyncio.gather(*map(fetch, names)), strict=True))

    async def partition_counts(self, topics: Collection[str]) -> Mapping[str, int]:
        """Return the number of partitions of each topic that exists."""
        if not topics:
            return {}
        answers = await _settled(
            self._admin.describe_topics(
                TopicCollection(sorted(topics)), request_timeout=REQUEST_TIMEOUT_S
            )
        )
        counts = {}
        for name, answer in answers.items():
            if not isinstance(answer, KafkaException):
                counts[name] = len(answer.partitions)
            elif _code(answer) not in _UNKNOWN_PLACE:
                raise BrokersUnreachableError(f"topic {name}: {_text(answer)}")
        return counts

    async def log_offsets(self, places: Collection[Place], point: LogPoint | int) -> LogOffsets:
        """Return offsets of logs, with one request to each leader."""
        if point is LogPoint.START:
            spec = OffsetSpec.earliest()
        elif point is LogPoint.END:
            spec = OffsetSpec.latest()
        else:
            spec = OffsetSpec.for_timestamp(point)
        found = LogOffsets()
        if not places:
            return found
        request = {TopicPartition(*place): spec for place in places}
        answers = await _settled(
            self._admin.list_offsets(request, request_timeout=REQUEST_TIMEOUT_S)
        )
        for entry, answer in answers.items():
            place = (entry.topic, entry.partition)
            if not isinstance(answer, KafkaException):
                found.offsets[place] = answer.offset
            elif _code(answer) in _UNKNOWN_PLACE:
                found.unknown.add(place)
            else:
                found.failed[place] = _text(answer)
        return found

    async def commit(self, group_id: str, offsets: Mapping[Place, int]) -> CommitOutcome:
        """Set offsets of a group without members."""
        entries = [TopicPartition(*place, offset) for place, offset in sorted(offsets.items())]
        answers = await _settled(
            self._admin.alter_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group_id, entries)],
                request_timeout=REQUEST_TIMEOUT_S,
            )
        )
        (answer,) = answers.values()
        if isinstance(answer, KafkaException):
            errors = {_code(answer): _text(answer)}
        else:
            errors = {
                entry.error.code(): f"{entry.topic}-{entry.partition}: {entry.error.str()}"
                for entry in answer.topic_partitions
                if entry.error is not None
            }
        if not errors:
            return Committed()
        if errors.keys() & _ASK_AGAIN:
            raise BrokersUnreachableError("; ".join(errors.values()))
        if errors.keys() <= _BUSY:
            return GroupBusy()
        return CommitFailed("; ".join(errors.values()))

    async def close(self) -> None:
        """Close all connections; librdkafka may need a moment for it, in a thread."""
        admin, self._admin = [self._admin], None
        await asyncio.to_thread(admin.clear)


_NO_GROUP: Final = frozenset({KafkaError.GROUP_ID_NOT_FOUND})


async def _settled(futures: Mapping[Any, "Future[Any]"]) -> dict[Any, Any]:
    """Wait for all answers; return errors as exceptions among them.

    Raise BrokersUnreachableError if all answers are such errors.
    """
    waiting: list[Awaitable[Any]] = [asyncio.wrap_future(future) for future in futures.values()]
    try:
        async with asyncio.timeout(REQUEST_TIMEOUT_S + GRACE_S):
            results = await asyncio.gather(*waiting, return_exceptions=True)
    except TimeoutError as error:
        raise BrokersUnreachableError("librdkafka has not answered in time") from error
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, KafkaException):
            raise result
    failures = [result for result in results if isinstance(result, KafkaException)]
    is_silence = all(_code(failure) in _UNREACHABLE for failure in failures)
    if failures and len(failures) == len(results) and is_silence:
        raise BrokersUnreachableError(_text(failures[0]))
    return dict(zip(futures, results, strict=True))


def _code(error: KafkaException) -> int:
    return int(error.args[0].code())


def _text(error: KafkaException) -> str:
    return str(error.args[0].str())


def state_name(group: Any) -> str:
    """Return Kafka's name of a group's state.

    librdkafka has no names for two states of KIP-848's protocol. A group passes through both on the
    way to Stable, and Reconciling is the one that lasts.
    """
    name = group.state.name
    if name == "UNKNOWN" and group.type is ConsumerGroupType.CONSUMER:
        return "Reconciling"
    return _STATES.get(name) or name.title().replace("_", "")


def _sight(group: Any, committed: Mapping[Place, int], ends: Mapping[Place, int]) -> GroupSight:
    log_ends = {place: ends[place] for place in committed if place in ends}
    if isinstance(group, KafkaException):
        return GroupSight(DEAD, committed=committed, log_ends=log_ends)
    return GroupSight(
        state=state_name(group),
        protocol=group.type.name.title(),
        assignor=group.partition_assignor or "",
        coordinator=None if group.coordinator is None else group.coordinator.id,
        members=tuple(
            Member(
                client_id=member.client_id or "",
                member_id=member.member_id or "",
                instance_id=member.group_instance_id or "",
                host=(member.host or "").removeprefix("/"),
                partitions=tuple(
                    (entry.topic, entry.partition)
                    for entry in (member.assignment.topic_partitions if member.assignment else ())
                ),
            )
            for member in group.members
        ),
        committed=committed,
        log_ends=log_ends,
    )
