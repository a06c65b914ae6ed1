"""The status of a ConsumerGroup: the state of the group and of its reset. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from fairlead_model.resources.hibernation import HIBERNATED
from fairlead_operator.conditions import (
    find_condition,
    set_condition,
    set_paused,
    without_condition,
)
from fairlead_operator.consumer_groups.group_resource import GroupResource
from fairlead_operator.consumer_groups.group_sight import ABSENT, GroupSight, lag_by_topic
from fairlead_operator.consumer_groups.reset_record import (
    ResetRecord,
    build_reset_status,
    past_resets,
)
from fairlead_operator.resources.consumer_group import MEMBERS_SHOWN_MAX, TOPICS_SHOWN_MAX

READY: Final = "Ready"
COORDINATOR_MOVES: Final = "CoordinatorNotAvailable"
OFFSET_RESET: Final = "OffsetReset"
FIGURES: Final = ("lag", "lagMax", "committedPartitions", "uncommittedPartitions", "topics")
"""Fields that change with every record; they are written once a refresh at most."""
_SEEN: Final = (
    "state",
    "protocol",
    "assignor",
    "coordinator",
    "members",
    "memberList",
    *FIGURES,
)
_TEXT_MAX: Final = 255
PAUSED_MESSAGE: Final = "paused is true, here or in the LogCluster: resets wait until it is false"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The content of a condition; `holds` is None if unknown."""

    holds: bool | None
    reason: str
    message: str


FOLLOWED: Final = Verdict(True, "Ready", "the group exists, and the operator watches it")
NOT_FOUND: Final = Verdict(
    False,
    "GroupNotFound",
    "the cluster knows no such group: it begins with its first member or committed offset",
)


def judge_reset(
    record: ResetRecord | None, repeated_id: str, wish_id: str, past: Collection[str]
) -> Verdict | None:
    """Return the condition `OffsetReset`; None if there never was a reset.

    `wish_id` is the reset that the spec requests, and `past` are those that are over. If the group
    has not been read since, the record is of an earlier reset.
    """
    is_earlier = record is not None and record.is_over and wish_id not in {"", record.id}
    if is_earlier and wish_id in past:
        repeated_id = wish_id
    if repeated_id:
        text = (
            f"the reset {repeated_id} has ended and is not carried out again: for another reset "
            "write another id"
        )
        return Verdict(False, "AlreadyOver", text)
    if is_earlier:
        # Otherwise a client that waits for the condition would see the success of an earlier reset.
        text = f"the reset {wish_id} waits until the group can be read and is not paused"
        return Verdict(False, "NotBegun", text)
    if record is None:
        return None
    match record.phase:
        case "Done":
            return Verdict(True, "Done", f"the reset {record.id}: {record.message}")
        case "Waiting":
            return Verdict(False, record.reason or "WaitingForEmptyGroup", record.message)
        case "Committing":
            return Verdict(False, "Committing", record.message)
        case "Failed":
            return Verdict(False, record.reason or "Failed", record.message)


def build_group_status(
    resource: GroupResource,
    before: Mapping[str, Any],
    ready: Verdict,
    now: datetime,
    *,
    sight: GroupSight | None,
    record: ResetRecord | None,
    repeated_id: str = "",
    is_seen_kept: bool = False,
    are_figures_kept: bool = False,
    is_paused: bool = False,
) -> dict[str, Any]:
    """Return the status; equal to the one before if nothing has changed.

    `is_seen_kept` keeps the last known state of a group that cannot be read now, and
    `are_figures_kept` keeps its lag, which is not to be written yet.
    """
    conditions = before.get("conditions") or []
    past = past_resets(before, record)
    wish_id = "" if resource.reset is None else resource.reset.id
    reset = judge_reset(record, repeated_id, wish_id, past)
    for type, verdict in ((READY, ready), (OFFSET_RESET, reset)):
        if verdict is None:
            conditions = without_condition(conditions, type)
            continue
        conditions = set_condition(
            conditions,
            type,
            verdict.holds,
            verdict.reason,
            verdict.message,
            generation=resource.generation,
            now=now,
        )
    conditions = set_paused(
        conditions,
        PAUSED_MESSAGE if is_paused else "",
        generation=resource.generation,
        now=now,
    )
    status: dict[str, Any] = {
        "conditions": list(conditions),
        "observedGeneration": resource.generation,
        "groupId": resource.group_id,
    }
    if sight is not None:
        status |= _describe(sight)
    elif is_seen_kept:
        status |= {name: before[name] for name in _SEEN if name in before}
    if are_figures_kept:
        for name in FIGURES:
            status.pop(name, None)
        status |= {name: before[name] for name in FIGURES if name in before}
    if record is not None:
        status["lastReset"] = build_reset_status(record)
    if past:
        status["pastResets"] = past
    return status


def _describe(sight: GroupSight) -> dict[str, Any]:
    """Describe the state of a group."""
    topics = lag_by_topic(sight)
    largest = sorted(topics, key=lambda topic: (-topic.total, topic.name))[:TOPICS_SHOWN_MAX]
    members = sorted(sight.members, key=lambda each: (each.client_id, each.member_id))
    status: dict[str, Any] = {
        "state": sight.state if sight.is_known else ABSENT,
        "members": len(members),
        "committedPartitions": len(sight.committed),
        "uncommittedPartitions": sight.uncommitted,
        "memberList": [
            {
                "clientId": member.client_id[:_TEXT_MAX],
                "memberId": member.member_id[:_TEXT_MAX],
                "instanceId": member.instance_id[:_TEXT_MAX],
                "host": member.host[:_TEXT_MAX],
                "partitions": len(member.partitions),
            }
            for member in members[:MEMBERS_SHOWN_MAX]
        ],
        "topics": [
            {
                "name": topic.name,
                "partitions": topic.partitions,
                "lag": topic.total,
                "lagMax": topic.worst,
            }
            for topic in sorted(largest, key=lambda topic: topic.name)
        ],
    }
    if topics:
        status["lag"] = sum(topic.total for topic in topics)
        status["lagMax"] = max(topic.worst for topic in topics)
    if sight.is_known:
        status |= {"protocol": sight.protocol, "assignor": sight.assignor[:_TEXT_MAX]}
        if sight.coordinator is not None:
            status["coordinator"] = sight.coordinator
    return status


def turned_bad(before: Mapping[str, Any], ready: Verdict) -> bool:
    """Tell whether an Event should report that a group is not followed.

    A group that does not exist yet needs none, nor does a coordinator that moves or loads, as in
    every new cluster.
    """
    if ready.holds or ready.reason in {NOT_FOUND.reason, COORDINATOR_MOVES, HIBERNATED}:
        return False
    known = find_condition(before.get("conditions") or [], READY)
    return known is None or known.get("reason") != ready.reason
