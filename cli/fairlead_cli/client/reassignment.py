"""Reassignments over the Kafka API (KIP-455), which librdkafka's Python client does not have."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fairlead_cli.client.wire_call import call_any
from fairlead_cli.errors import CliError
from fairlead_cli.wire_exchange import explain_error, name_error
from fairlead_wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from fairlead_wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

ALTER_VERSION = 1
LIST_VERSION = 0


class Ongoing(NamedTuple):
    """A partition that is being reassigned, or waits for it."""

    replicas: list[int]
    adding: list[int]
    removing: list[int]


class Refusal(NamedTuple):
    """Why the replicas of a partition do not change."""

    error: str
    message: str


def alter_reassignments(
    addresses: str, topic: str, targets: Mapping[int, Sequence[int] | None]
) -> dict[int, Refusal]:
    """Set the target replicas of partitions, or cancel with None; return the refusals."""
    named = {(topic, index): replicas for index, replicas in targets.items()}
    return {index: refusal for (_, index), refusal in alter_many(addresses, named).items()}


def alter_many(
    addresses: str, targets: Mapping[tuple[str, int], Sequence[int] | None]
) -> dict[tuple[str, int], Refusal]:
    """Set or cancel the targets of partitions of several topics, in one request."""
    topics: dict[str, list[ReassignablePartition]] = {}
    for (topic, index), replicas in sorted(targets.items()):
        wanted = None if replicas is None else list(replicas)
        topics.setdefault(topic, []).append(ReassignablePartition(index, wanted))
    request = AlterPartitionReassignmentsRequest(
        topics=[ReassignableTopic(topic, partitions) for topic, partitions in topics.items()]
    )
    reply = call_any(addresses, request, ALTER_VERSION)
    if reply.error_code:
        why = explain_error(reply.error_code, reply.error_message)
        raise CliError(f"cannot move replicas: {why}")
    return {
        (response.name, each.partition_index): Refusal(
            name_error(each.error_code), each.error_message or name_error(each.error_code)
        )
        for response in reply.responses
        for each in response.partitions
        if each.error_code
    }


def list_reassignments(
    addresses: str, topic: str, partitions: Collection[int]
) -> dict[int, Ongoing]:
    """Return those of a topic's partitions that are being reassigned, or wait for it."""
    named = [ListPartitionReassignmentsTopics(topic, sorted(partitions))]
    return {index: ongoing for (_, index), ongoing in _list(addresses, named).items()}


def list_all_reassignments(addresses: str) -> dict[tuple[str, int], Ongoing]:
    """Return every partition that is being reassigned, or waits for it, by topic and index."""
    return _list(addresses, None)


def _list(
    addresses: str, named: list[ListPartitionReassignmentsTopics] | None
) -> dict[tuple[str, int], Ongoing]:
    request = ListPartitionReassignmentsRequest(topics=named)
    reply = call_any(addresses, request, LIST_VERSION)
    if reply.error_code:
        why = explain_error(reply.error_code, reply.error_message)
        raise CliError(f"cannot look at what moves: {why}")
    return {
        (response.name, each.partition_index): Ongoing(
            each.replicas, each.adding_replicas, each.removing_replicas
        )
        for response in reply.topics
        for each in response.partitions
    }


def read_targets(
    addresses: str, topic: str, replicas: Mapping[int, Sequence[int]]
) -> dict[int, list[int]]:
    """Return the replicas of partitions after the present reassignments."""
    ongoing = list_reassignments(addresses, topic, replicas.keys())
    return {
        index: [each for each in ongoing[index].replicas if each not in ongoing[index].removing]
        if index in ongoing
        else list(known)
        for index, known in replicas.items()
    }
