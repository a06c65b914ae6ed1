"""Delete a group's offsets of a topic, but not the group itself (OffsetDelete, KIP-496)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlead_cli.client.wire_call import call_broker
from fairlead_cli.errors import CliError
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fairlead_cli.client.groups import GroupDescription
    from fairlead_cli.client.places import Place

VERSION = 0
HINTS = {
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "Members of the group read this topic: stop them first.",
    ErrorCode.NOT_COORDINATOR: "The group has just moved to another broker: try again.",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "Try again in a moment.",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "Try again in a moment.",
}


def delete_offsets(group: GroupDescription, places: Iterable[Place]) -> None:
    """Delete these committed offsets; CliError names the first refusal."""
    if group.coordinator is None:
        raise CliError(f"group '{group.group}' has no coordinator", hint="Try again in a moment.")
    by_topic: dict[str, list[OffsetDeleteRequestPartition]] = {}
    for place in places:
        by_topic.setdefault(place.topic, []).append(OffsetDeleteRequestPartition(place.partition))
    topics = [OffsetDeleteRequestTopic(topic, parts) for topic, parts in by_topic.items()]
    _, host, port = group.coordinator
    reply = call_broker(host, port, OffsetDeleteRequest(group.group, topics), VERSION)
    what = f"cannot delete offsets of group '{group.group}'"
    if reply.error_code != ErrorCode.NONE:
        raise build_refusal(what, reply.error_code)
    for topic in reply.topics:
        for partition in topic.partitions:
            if partition.error_code != ErrorCode.NONE:
                place_name = f"{topic.name}-{partition.partition_index}"
                raise build_refusal(f"{what}, {place_name}", partition.error_code)


def build_refusal(what: str, code: int) -> CliError:
    """Return the error for a code in words; the code may be newer than this client."""
    try:
        error = ErrorCode(code)
    except ValueError:
        return CliError(f"{what}: error {code}")
    words = error.description.rstrip(".")
    return CliError(f"{what}: {words} ({error.name})", hint=HINTS.get(error))
