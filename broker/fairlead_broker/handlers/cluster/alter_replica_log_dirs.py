"""AlterReplicaLogDirs (key 34), versions 1-2.

Behaviour: each replica of this broker that is named is copied to the log directory in the
background, and served from where it is until then; DescribeLogDirs tells how far it is. The answer
comes at once. The directory that it is in calls a move back. REPLICA_NOT_AVAILABLE for one that is
not here yet, UNKNOWN_TOPIC_OR_PARTITION where the topic has none: it will be made in that
directory. LOG_DIR_NOT_FOUND for a path that is not one of `log.dirs`, made absolute,
INVALID_REPLICA_ASSIGNMENT for a cordoned directory (KIP-1066). KAFKA_STORAGE_ERROR where the
directory, the replica, or for a new move any directory is offline. INVALID_TOPIC_EXCEPTION where
the name leaves no room for that of the copy. A repeated request changes nothing and succeeds.
Versions:  2 flexible.
Missing:   nothing.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from fairlead_broker.api_registry import handles
from fairlead_broker.authorization import Operation, needs_cluster
from fairlead_broker.handlers.named_partitions import count_named
from fairlead_broker.limits import PARTITIONS_PER_REQUEST_MAX
from fairlead_wire.api_keys import ApiKey
from fairlead_wire.errors import ErrorCode, KafkaError, RemoteProtocolError
from fairlead_wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

if TYPE_CHECKING:
    from fairlead_broker.api_registry import RequestContext

logger = logging.getLogger(__name__)


def _refuse(
    request: AlterReplicaLogDirsRequest, context: RequestContext, code: ErrorCode
) -> AlterReplicaLogDirsResponse:
    return _answer(dict.fromkeys(_wanted(request), code))


@handles(
    ApiKey.ALTER_REPLICA_LOG_DIRS, versions=(1, 2), access=needs_cluster(Operation.ALTER, _refuse)
)
def alter_replica_log_dirs(
    request: AlterReplicaLogDirsRequest, context: RequestContext
) -> AlterReplicaLogDirsResponse:
    """Ask for each replica; of one that is named twice the last directory counts, as in Kafka."""
    wanted = _wanted(request)
    moves, failed = context.broker.log_directories.moves, context.broker.replicas.failed
    codes = {}
    for key, path in wanted.items():
        codes[key] = ErrorCode.NONE
        try:
            moves.ask(key, path, failed=failed)
        except KafkaError as error:
            codes[key] = error.code
            is_there = context.broker.image.partition(*key) is not None
            if error.code is ErrorCode.REPLICA_NOT_AVAILABLE and not is_there:
                codes[key] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            logger.info("%s-%d is not moved to %s: %s", *key, path, error)
    return _answer(codes)


def _wanted(request: AlterReplicaLogDirsRequest) -> dict[tuple[str, int], str]:
    """Return the directory by replica."""
    topics = [(each.path, topic) for each in request.dirs for topic in each.topics]
    if count_named(topic.partitions for _, topic in topics) > PARTITIONS_PER_REQUEST_MAX:
        raise RemoteProtocolError("AlterReplicaLogDirs names too many partitions")
    return {(topic.name, index): path for path, topic in topics for index in topic.partitions}


def _answer(codes: dict[tuple[str, int], ErrorCode]) -> AlterReplicaLogDirsResponse:
    topics: dict[str, AlterReplicaLogDirTopicResult] = {}
    for (name, index), code in codes.items():
        topics.setdefault(name, AlterReplicaLogDirTopicResult(name)).partitions.append(
            AlterReplicaLogDirPartitionResult(index, code)
        )
    return AlterReplicaLogDirsResponse(results=list(topics.values()))
