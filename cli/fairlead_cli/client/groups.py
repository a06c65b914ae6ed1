"""Consumer groups through the Kafka protocol: their description, offsets, and deletion.

This module converts librdkafka's objects, so that verbs do not use them.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from fairlead_cli.advice import cluster_arguments
from fairlead_cli.client.connection import (
    REQUEST_TIMEOUT_S,
    build_error,
    kafka_errors,
)
from fairlead_cli.client.consumer_groups import GroupProgress, MemberProgress, read_progress
from fairlead_cli.client.coordinators import settle
from fairlead_cli.client.group_listing import list_groups
from fairlead_cli.client.places import Place
from fairlead_cli.errors import CliError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from concurrent.futures import Future

    from confluent_kafka import KafkaError
    from confluent_kafka.admin import AdminClient

# librdkafka sends a request for each group: at most this number at a time.
ASKED_AT_ONCE = 500
# Most members that an error message names.
NAMED_MAX = 10
STATE_NAMES = {
    "PREPARING_REBALANCING": "PreparingRebalance",
    "COMPLETING_REBALANCING": "CompletingRebalance",
    "STABLE": "Stable",
    "DEAD": "Dead",
    "EMPTY": "Empty",
}
MISSING_GROUP_NAMES = ("GROUP_ID_NOT_FOUND",)


class Committed(NamedTuple):
    """A committed offset: the next record to read. The epoch is None if the client sent none."""

    offset: int
    leader_epoch: int | None
    metadata: str = ""
    """The application's text with the offset, if it was read (`read_commit_metadata`)."""


@dataclass(frozen=True, slots=True)
class Member:
    """`instance_id` is None for a dynamic member; `host` is the address it connects from."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[Place, ...]
    progress: MemberProgress | None = None
    """For members of a `consumer` group, if the coordinator returns it."""


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group as its coordinator sees it. State `Dead` means that the group does not exist.

    `kind` is the protocol: `classic`, or `consumer` for that of KIP-848.
    """

    group: str
    state: str
    kind: str
    is_simple: bool
    assignor: str
    coordinator: tuple[int, str, int] | None
    members: tuple[Member, ...]
    progress: GroupProgress | None = None
    """For a `consumer` group, if the coordinator returns it."""

    @property
    def exists(self) -> bool:
        return self.state != "Dead"


def name_state(state: Any) -> str:
    """Return Kafka's name of a state; `Unknown` for a state that this client does not know."""
    return STATE_NAMES.get(getattr(state, "name", ""), "Unknown")


def name_kind(kind: Any) -> str:
    """Return `classic` or `consumer`; an older broker names no type, and has only classic."""
    name = getattr(kind, "name", "UNKNOWN")
    return "classic" if name == "UNKNOWN" else str(name).lower()


def describe_groups(admin: AdminClient, groups: list[str]) -> list[GroupDescription]:
    """Describe groups, in the given order; a group that does not exist is `Dead`."""
    described: list[GroupDescription] = []
    for begin in range(0, len(groups), ASKED_AT_ONCE):
        part = groups[begin : begin + ASKED_AT_ONCE]
        with kafka_errors("cannot describe consumer groups"):
            futures = admin.describe_consumer_groups(part, request_timeout=REQUEST_TIMEOUT_S)
        described += [read_description(admin, group, futures[group]) for group in part]
    return add_progress(described)


def add_progress(described: list[GroupDescription]) -> list[GroupDescription]:
    """Add what librdkafka does not return of `consumer` groups, from their coordinators."""
    asked = defaultdict(list)
    for group in described:
        if group.kind == "consumer" and group.coordinator is not None:
            asked[group.coordinator[1:]].append(group.group)
    progress: dict[str, GroupProgress] = {}
    for (host, port), groups in asked.items():
        progress |= read_progress(host, port, groups)
    return [
        with_progress(group, progress[group.group]) if group.group in progress else group
        for group in described
    ]


def with_progress(group: GroupDescription, progress: GroupProgress) -> GroupDescription:
    """Return the group with the progress that its coordinator returned a moment later."""
    members = tuple(
        replace(member, progress=progress.members.get(member.member_id)) for member in group.members
    )
    return replace(group, state=progress.state, members=members, progress=progress)


def describe_group(admin: AdminClient, group: str) -> GroupDescription:
    """Return one group."""
    (description,) = describe_groups(admin, [group])
    return description


def read_description(admin: AdminClient, group: str, future: Any) -> GroupDescription:
    """Return the answer for one group; newer brokers return an error instead of `Dead`."""
    from confluent_kafka import KafkaException

    def ask() -> Any:
        return admin.describe_consumer_groups([group], request_timeout=REQUEST_TIMEOUT_S)[group]

    try:
        found = settle(future, ask)
    except KafkaException as exception:
        error = exception.args[0]
        if error.name() in MISSING_GROUP_NAMES:
            return GroupDescription(group, "Dead", "classic", True, "", None, ())
        raise build_error(f"cannot describe group '{group}'", error) from exception
    node = found.coordinator
    members = tuple(sorted((read_member(each) for each in found.members), key=member_order))
    return GroupDescription(
        group,
        name_state(getattr(found, "state", None)),
        name_kind(getattr(found, "type", None)),
        bool(found.is_simple_consumer_group),
        found.partition_assignor or "",
        None if node is None else (int(node.id), str(node.host), int(node.port)),
        members,
    )


def read_member(member: Any) -> Member:
    """Convert a member. Java shows a member's host as `/10.0.0.7`; the slash is removed."""
    assignment = member.assignment.topic_partitions if member.assignment is not None else []
    return Member(
        member.member_id,
        member.group_instance_id or None,
        member.client_id,
        member.host.removeprefix("/"),
        tuple(sorted(Place(at.topic, at.partition) for at in assignment)),
    )


def member_order(member: Member) -> tuple[str, str, str]:
    """Return the sort key of a member: static ones by their names, others by client id."""
    return (member.instance_id or "", member.client_id, member.member_id)


def read_committed(admin: AdminClient, group: str) -> dict[Place, Committed]:
    """Return every committed offset of a group; empty if the group does not exist."""
    return read_committed_of(admin, [group])[group]


def read_committed_of(admin: AdminClient, groups: list[str]) -> dict[str, dict[Place, Committed]]:
    """Return the offsets of many groups, with several requests at a time."""
    committed = {}
    for begin in range(0, len(groups), ASKED_AT_ONCE):
        part = groups[begin : begin + ASKED_AT_ONCE]
        futures = {group: ask_committed(admin, group) for group in part}
        for group, future in futures.items():
            committed[group] = take_committed(admin, group, future)
    return committed


def ask_committed(admin: AdminClient, group: str) -> Future[Any]:
    """Send one OffsetFetch for all partitions of a group."""
    from confluent_kafka import ConsumerGroupTopicPartitions

    request = [ConsumerGroupTopicPartitions(group)]
    with kafka_errors(f"cannot read the offsets of group '{group}'"):
        futures = admin.list_consumer_group_offsets(request, request_timeout=REQUEST_TIMEOUT_S)
    answer: Future[Any] = futures[group]
    return answer


def take_committed(admin: AdminClient, group: str, future: Future[Any]) -> dict[Place, Committed]:
    """Return the answer of `ask_committed`; repeat the request while the coordinator moves."""
    from confluent_kafka import KafkaException

    what = f"cannot read the offsets of group '{group}'"
    try:
        answer = settle(future, lambda: ask_committed(admin, group), find_first_error)
    except KafkaException as exception:
        if exception.args[0].name() in MISSING_GROUP_NAMES:
            return {}
        raise build_error(what, exception.args[0]) from exception
    committed = {}
    for at in answer.topic_partitions:
        place = Place(at.topic, at.partition)
        if at.error is not None:
            raise build_error(f"{what}, {place}", at.error)
        if at.offset >= 0:
            has_epoch = at.leader_epoch is not None and at.leader_epoch >= 0
            epoch = at.leader_epoch if has_epoch else None
            committed[place] = Committed(at.offset, epoch)
    return dict(sorted(committed.items()))


def write_committed(
    admin: AdminClient, group: str, offsets: dict[Place, int]
) -> dict[Place, KafkaError]:
    """Set offsets of a group without members; return the refusals by partition."""
    from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition

    what = f"cannot set the offsets of group '{group}'"
    wanted = [TopicPartition(at.topic, at.partition, offset) for at, offset in offsets.items()]

    def ask() -> Any:
        request = [ConsumerGroupTopicPartitions(group, wanted)]
        return admin.alter_consumer_group_offsets(request, request_timeout=REQUEST_TIMEOUT_S)[group]

    with kafka_errors(what):
        answer = settle(ask(), ask, find_first_error)
    return {
        Place(at.topic, at.partition): at.error
        for at in answer.topic_partitions
        if at.error is not None
    }


def find_first_error(answer: Any) -> KafkaError | None:
    """Return an error of a single partition inside an answer."""
    return next((at.error for at in answer.topic_partitions if at.error is not None), None)


def delete_groups(admin: AdminClient, groups: Iterable[str]) -> dict[str, KafkaError | None]:
    """Delete groups with their offsets; return the error of each group, None if it is deleted."""
    from confluent_kafka import KafkaException

    outcome: dict[str, KafkaError | None] = {}
    for group in groups:

        def ask(name: str = group) -> Any:
            return admin.delete_consumer_groups([name], request_timeout=REQUEST_TIMEOUT_S)[name]

        try:
            settle(ask(), ask)
            outcome[group] = None
        except KafkaException as exception:
            outcome[group] = exception.args[0]
    return outcome


def require_group(admin: AdminClient, group: str) -> GroupDescription:
    """Return a group that exists; CliError names the most similar one if it does not."""
    found = describe_group(admin, group)
    if found.exists:
        return found
    raise build_unknown_group_error(admin, group)


def build_unknown_group_error(admin: AdminClient, group: str) -> CliError:
    """Return an error that names the most similar group."""
    from difflib import get_close_matches

    listings, _ = list_groups(admin)
    close = get_close_matches(group, [listing.group for listing in listings], n=1)
    nearest = f"Did you mean '{close[0]}'? " if close else ""
    return CliError(
        f"group '{group}' does not exist",
        hint=f"{nearest}See what there is:  fairlead group list{cluster_arguments()}",
    )


def build_members_error(what: str, group: GroupDescription) -> CliError:
    """Return the error for a group that must have no members; it names them and what to do."""
    count = len(group.members)
    lines = [f"  {describe_member(member)}" for member in group.members[:NAMED_MAX]]
    if count > NAMED_MAX:
        lines.append(f"  and {count - NAMED_MAX} more")
    if any(member.instance_id is not None for member in group.members):
        wait = (
            "A static member that has ended stays a member until its session times out, "
            "45 s unless its application says otherwise."
        )
    else:
        wait = "One that died without a word goes when its session times out."
    stop = "Stop these applications, then try again." if lines else "Try again in a moment."
    members = "\n".join(lines)
    return CliError(
        f"{what}: group '{group.group}' is {group.state} and has "
        f"{count} member{'' if count == 1 else 's'}",
        hint=f"{members}\n{stop} {wait}" if lines else stop,
    )


def describe_member(member: Member) -> str:
    """Return one line about a member: its name, its host, its partitions."""
    name = member.instance_id or member.member_id
    kind = "instance" if member.instance_id is not None else "member"
    count = len(member.partitions)
    reads = f"{count} partition{'' if count == 1 else 's'}"
    return f"{kind} {name} (client {member.client_id}, host {member.host}, {reads})"
