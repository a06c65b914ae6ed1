"""Requests to one broker about its log directories: their contents, and moves between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fairlead_cli.errors import CliError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fairlead_cli.client.answering import Address
    from fairlead_wire.messages.describe_log_dirs import DescribeLogDirsResponse

DESCRIBE_VERSION_MAX: Final = 5
ALTER_VERSION: Final = 2


def find_broker(addresses: str, broker_id: int) -> Address:
    """Return a broker's address: only this broker knows its disks. CliError if not in service."""
    from fairlead_cli.client.answering import Address
    from fairlead_cli.client.connection import build_admin, fetch_metadata

    found = fetch_metadata(build_admin(addresses)).brokers.get(broker_id)
    if found is None:
        raise CliError(f"broker {broker_id} is not in service")
    return Address(found.host.strip("[]"), found.port)


def try_moves(at: Address, targets: Mapping[tuple[str, int], str]) -> dict[tuple[str, int], str]:
    """Ask for the target folder of each replica; return the refusals with their reasons."""
    from fairlead_cli.client.wire_call import call_broker
    from fairlead_cli.wire_exchange import explain_error
    from fairlead_wire.messages.alter_replica_log_dirs import (
        AlterReplicaLogDir,
        AlterReplicaLogDirsRequest,
        AlterReplicaLogDirTopic,
    )

    wanted: dict[str, dict[str, list[int]]] = {}
    for (topic, index), target in targets.items():
        wanted.setdefault(target, {}).setdefault(topic, []).append(index)
    request = AlterReplicaLogDirsRequest(
        [
            AlterReplicaLogDir(
                target,
                [AlterReplicaLogDirTopic(topic, indexes) for topic, indexes in topics.items()],
            )
            for target, topics in wanted.items()
        ]
    )
    reply = call_broker(at.host, at.port, request, ALTER_VERSION)
    return {
        (topic.topic_name, each.partition_index): explain_error(each.error_code)
        for topic in reply.results
        for each in topic.partitions
        if each.error_code
    }


def newest_describe_version(at: Address) -> int:
    """Return the newest version of DescribeLogDirs that this broker and this command know."""
    from fairlead_cli.client.survey import newest_version
    from fairlead_wire.messages.describe_log_dirs import DescribeLogDirsRequest

    found = newest_version(at, DescribeLogDirsRequest.API_KEY, DESCRIBE_VERSION_MAX)
    if found is None:
        raise CliError("this broker does not tell of its log directories (DescribeLogDirs)")
    return found


def describe(at: Address) -> DescribeLogDirsResponse:
    """Return a broker's log directories. CliError."""
    from fairlead_cli.client.wire_call import call_broker
    from fairlead_cli.wire_exchange import explain_error
    from fairlead_wire.messages.describe_log_dirs import DescribeLogDirsRequest

    request = DescribeLogDirsRequest(topics=None)
    reply: DescribeLogDirsResponse = call_broker(
        at.host, at.port, request, newest_describe_version(at)
    )
    if reply.error_code:
        raise CliError(f"it does not tell what it holds: {explain_error(reply.error_code)}")
    return reply
