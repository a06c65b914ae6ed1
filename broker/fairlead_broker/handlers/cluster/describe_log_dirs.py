"""DescribeLogDirs (key 35), versions 1-5.

Behaviour: each log directory of this broker with all replicas in it, or the requested ones (a
replica that is not here is left out, as in Kafka). An offline replica is still listed with the size
it had. A replica that moves to another directory is listed there, too, as a future replica, with
the copied bytes and its lag in offsets. A directory that has failed, or cannot be read, answers
KAFKA_STORAGE_ERROR and nothing else.
Versions:  2 flexible · 3 top-level error · 4 total and usable bytes of the disk · 5 whether it is
           cordoned (KIP-1066).
Missing:   nothing.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from fairlead_broker.api_registry import handles
from fairlead_broker.authorization import Operation, needs_cluster
from fairlead_broker.handlers.named_partitions import count_named
from fairlead_broker.limits import PARTITIONS_PER_REQUEST_MAX
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, RemoteProtocolError
from fairlead_wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fairlead_broker.api_registry import RequestContext
    from fairlead_broker.replication.partition import Partition


_ERROR_SINCE = 3


def _refuse(
    request: DescribeLogDirsRequest, context: RequestContext, code: ErrorCode
) -> DescribeLogDirsResponse:
    """Tell nothing; before version 3 there is no place for the error (as in Kafka)."""
    return DescribeLogDirsResponse(
        error_code=code if context.version >= _ERROR_SINCE else ErrorCode.NONE
    )


@handles(
    ApiKey.DESCRIBE_LOG_DIRS, versions=(1, 5), access=needs_cluster(Operation.DESCRIBE, _refuse)
)
def describe_log_dirs(
    request: DescribeLogDirsRequest, context: RequestContext
) -> DescribeLogDirsResponse:
    """Answer from memory and one `statvfs` for each directory."""
    directories = context.broker.log_directories
    found: dict[str, dict[str, list[DescribeLogDirsPartition]]] = {}
    for partition in _asked(request, context.broker.partitions):
        _topic(found, directories.home(partition.log).path, partition).append(
            DescribeLogDirsPartition(
                partition_index=partition.index,
                partition_size=partition.log.size,
                offset_lag=0,
            )
        )
        move = directories.moves.under_way.get((partition.topic, partition.index))
        if move is not None and not move.is_switched:
            _topic(found, move.target.path, partition).append(
                DescribeLogDirsPartition(
                    partition_index=partition.index,
                    partition_size=move.copied_bytes,
                    offset_lag=move.offset_lag,
                    is_future_key=True,
                )
            )
    results = [
        _failed(path) if path in directories.failures else _described(path, found.get(path, {}))
        for path in directories.paths
    ]
    for each in results:
        each.is_cordoned = each.log_dir in directories.cordoned
    return DescribeLogDirsResponse(results=results)


def _topic(
    found: dict[str, dict[str, list[DescribeLogDirsPartition]]], path: str, partition: Partition
) -> list[DescribeLogDirsPartition]:
    return found.setdefault(path, {}).setdefault(partition.topic, [])


def _described(
    path: str, topics: dict[str, list[DescribeLogDirsPartition]]
) -> DescribeLogDirsResult:
    try:
        disk = os.statvfs(path)
    except OSError:
        return _failed(path)
    return DescribeLogDirsResult(
        log_dir=path,
        topics=[
            DescribeLogDirsTopic(name=name, partitions=partitions)
            for name, partitions in topics.items()
        ],
        total_bytes=disk.f_blocks * disk.f_frsize,
        usable_bytes=disk.f_bavail * disk.f_frsize,
    )


def _failed(path: str) -> DescribeLogDirsResult:
    return DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=path)


def _asked(
    request: DescribeLogDirsRequest, partitions: dict[tuple[str, int], Partition]
) -> Iterable[Partition]:
    if request.topics is None:
        return [partition for _, partition in sorted(partitions.items())]
    if count_named(topic.partitions for topic in request.topics) > PARTITIONS_PER_REQUEST_MAX:
        raise RemoteProtocolError("DescribeLogDirs names too many partitions")
    keys = sorted({(topic.topic, index) for topic in request.topics for index in topic.partitions})
    return [partitions[key] for key in keys if key in partitions]
