"""Reassignments that the operator's process requests, as Kafka clients do over the session.

    POST …/assignment     {"topics": ["orders"] or null}
    POST …/reassignments  {"partitions": [{"topic", "partition", "replicas": [2, 1] or null}]}
    POST …/elections      {"partitions": [{"topic", "partition"}]}

The first request is answered with where partitions are (`fairlead_controller.views.assignment`),
the others with the refused partitions: `refused`, a list of topic, partition, reason and message.
Replicas of null cancel a reassignment; elections are of preferred leaders.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from fairlead_controller.controller import Controller
from fairlead_controller.decisions.events import AlterReassignments, ElectOnRequest
from fairlead_controller.views.assignment import build_assignment
from fairlead_model.session.calls import (
    AlterReassignmentsCall,
    ElectablePartition,
    ElectionType,
    ElectLeadersCall,
    ReassignablePartition,
)
from fairlead_model.session.refusals import RefusalCode

PARTITIONS_PER_REQUEST_MAX: Final = 10_000
"""As many as Kafka accepts in one request."""
PARTITIONS_PER_DECISION_MAX: Final = 1_000
"""Partitions of a request that are decided at once; brokers are heard before the next ones are."""

_Part = TypeVar("_Part", ReassignablePartition, ElectablePartition)


class ReassignmentRequestError(ValueError):
    """The request is malformed."""


async def tell_assignment(controller: Controller, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return where partitions are; in a thread, because it may visit all of them."""
    topics = request.get("topics")
    if topics is not None and not _is_list_of(topics, str):
        raise ReassignmentRequestError('"topics" has to be a list of names, or null')
    return await asyncio.to_thread(build_assignment, controller.committed, topics)


async def alter_reassignments(controller: Controller, request: Mapping[str, Any]) -> dict[str, Any]:
    """Begin reassignments, or cancel them; return the refusals."""
    partitions = [
        ReassignablePartition(topic=topic, index=index, replicas=_replicas(item))
        for topic, index, item in _partitions(request)
    ]
    results: list[Any] = []
    for part in _parts(partitions):
        call = AlterReassignmentsCall(partitions=part, allow_replication_factor_change=False)
        results += (await controller.submit(AlterReassignments(call)))["partitions"]
    return {"refused": _refused(results)}


async def elect_preferred(controller: Controller, request: Mapping[str, Any]) -> dict[str, Any]:
    """Elect preferred leaders; return the partitions for which that is impossible."""
    partitions = [
        ElectablePartition(topic=topic, index=index) for topic, index, _ in _partitions(request)
    ]
    results: list[Any] = []
    for part in _parts(partitions):
        call = ElectLeadersCall(partitions=part, election_type=ElectionType.PREFERRED)
        results += (await controller.submit(ElectOnRequest(call)))["partitions"]
    refused = _refused(results)
    not_needed = RefusalCode.ELECTION_NOT_NEEDED.name
    return {"refused": [each for each in refused if each["reason"] != not_needed]}


def _parts(partitions: Sequence[_Part]) -> Iterator[list[_Part]]:
    """Cut what a request asks for into parts, at least one."""
    for first in range(0, max(len(partitions), 1), PARTITIONS_PER_DECISION_MAX):
        yield list(partitions[first : first + PARTITIONS_PER_DECISION_MAX])


def _partitions(request: Mapping[str, Any]) -> list[tuple[str, int, Mapping[str, Any]]]:
    items: Any = request.get("partitions")
    if not _is_list_of(items, dict) or len(items) > PARTITIONS_PER_REQUEST_MAX:
        raise ReassignmentRequestError(
            f'"partitions" has to be a list of up to {PARTITIONS_PER_REQUEST_MAX} objects'
        )
    read = []
    for item in items:
        topic, index = item.get("topic"), item.get("partition")
        if not isinstance(topic, str) or not isinstance(index, int):
            raise ReassignmentRequestError("each partition has a topic and a number")
        read.append((topic, index, item))
    if len({(topic, index) for topic, index, _ in read}) != len(read):
        # Parts of a request are decided one by one: a partition must not be in two of them.
        raise ReassignmentRequestError("a partition is named more than once in the request")
    return read


def _replicas(item: Mapping[str, Any]) -> list[int] | None:
    replicas = item.get("replicas")
    if replicas is None:
        return None
    if not _is_list_of(replicas, int):
        raise ReassignmentRequestError('"replicas" has to be a list of broker ids, or null')
    return list(replicas)


def _is_list_of(value: Any, kind: type) -> bool:
    return isinstance(value, list) and all(isinstance(each, kind) for each in value)


def _refused(results: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "topic": each["topic"],
            "partition": each["index"],
            "reason": RefusalCode(each["error_code"]).name,
            "message": each["error_message"] or RefusalCode(each["error_code"]).name,
        }
        for each in results
        if each["error_code"]
    ]
