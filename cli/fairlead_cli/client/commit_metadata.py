"""The metadata that applications committed with their offsets.

Read with a Kafka request: librdkafka copies these texts without their terminating byte, so its
Python client reads the memory behind them, or fails.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from fairlead_cli.client.connection import REQUEST_TIMEOUT_S
from fairlead_cli.client.coordinators import PASSING, RETRY_PAUSE_S
from fairlead_cli.client.groups import describe_group
from fairlead_cli.client.places import Place
from fairlead_cli.client.wire_call import call_broker
from fairlead_cli.errors import CliError
from fairlead_cli.wire_exchange import name_error
from fairlead_wire.errors import ErrorCode
from fairlead_wire.messages.offset_fetch import OffsetFetchRequest

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

    from fairlead_cli.client.groups import GroupDescription

# Every broker since Kafka 2.1 has this version, and newer ones still have it.
VERSION = 5


def read_commit_metadata(admin: AdminClient, group: GroupDescription) -> dict[Place, str]:
    """Return the metadata by partition; repeat while the coordinator moves. CliError."""
    deadline = time.monotonic() + REQUEST_TIMEOUT_S
    while True:
        reply = fetch_offsets(group)
        name = name_error(reply.error_code)
        if name not in PASSING:
            break
        if time.monotonic() >= deadline:
            raise CliError(
                f"the coordinator of group '{group.group}' does not answer: {name}",
                hint="Try again in a moment.",
            )
        time.sleep(RETRY_PAUSE_S)
        group = describe_group(admin, group.group)
    if reply.error_code != ErrorCode.NONE:
        raise CliError(f"cannot read the offsets of group '{group.group}': {name}")
    return {
        # librdkafka's Python client commits the terminating byte along with the text.
        Place(topic.name, partition.partition_index): partition.metadata.removesuffix("\0")
        for topic in reply.topics
        for partition in topic.partitions
        if partition.metadata
    }


def fetch_offsets(group: GroupDescription) -> Any:
    """Send one OffsetFetch request for all partitions."""
    if group.coordinator is None:
        raise CliError(f"group '{group.group}' has no coordinator", hint="Try again in a moment.")
    _, host, port = group.coordinator
    request = OffsetFetchRequest(group_id=group.group, topics=None)
    return call_broker(host, port, request, VERSION)
