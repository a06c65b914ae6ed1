"""The topic of a drill: created for it, balanced before every fault, deleted after it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from fairlead_cli.client.connection import UNKNOWN_TOPIC_NAMES, build_error

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

TOPIC_PREFIX = "fairlead-drill-"
REPLICATION_FACTOR_MAX = 3
REQUEST_TIMEOUT_S = 15.0
ELECTION_TIMEOUT_S = 2.0


def create_drill_topic(
    admin: AdminClient, topic: str, *, partitions: int, replication_factor: int
) -> None:
    """Create a topic in which a majority of replicas must acknowledge, without retention.

    If the topic exists, an earlier attempt of this drill created it before a time-out.
    """
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import NewTopic

    config = {
        "min.insync.replicas": str(replication_factor // 2 + 1),
        "retention.ms": "-1",
        "retention.bytes": "-1",
    }
    request = NewTopic(
        topic, num_partitions=partitions, replication_factor=replication_factor, config=config
    )
    future = admin.create_topics([request], request_timeout=REQUEST_TIMEOUT_S)[topic]
    try:
        future.result()
    except KafkaException as exception:
        error = exception.args[0]
        if error.name() != "TOPIC_ALREADY_EXISTS":
            what = f"cannot create topic '{topic}' for the drill"
            raise build_error(what, error) from exception


def delete_drill_topic(admin: AdminClient, topic: str) -> None:
    """Delete the topic and its records; that it does not exist is no error."""
    from confluent_kafka import KafkaException

    future = admin.delete_topics([topic], request_timeout=REQUEST_TIMEOUT_S)[topic]
    try:
        future.result()
    except KafkaException as exception:
        error = exception.args[0]
        if error.name() not in UNKNOWN_TOPIC_NAMES:
            raise build_error(f"cannot delete the drill's topic '{topic}'", error) from exception


_NOT_TO_BE_HAD = frozenset({"_UNSUPPORTED_FEATURE", "CLUSTER_AUTHORIZATION_FAILED"})


def elect_preferred(admin: AdminClient, topic: str) -> bool:
    """Ask for preferred leaders; False if the cluster does not know the request, or refuses it.

    The right for it (ALTER of the cluster) would also allow changes of access rules.
    """
    from confluent_kafka import ElectionType, KafkaException, TopicPartition

    with suppress(KafkaException):
        metadata = admin.list_topics(topic=topic, timeout=ELECTION_TIMEOUT_S)
        partitions = [TopicPartition(topic, p) for p in metadata.topics[topic].partitions]
        # Without options: confluent-kafka 2.16 fails with every documented option.
        future = admin.elect_leaders(ElectionType.PREFERRED, partitions)
        try:
            future.result(ELECTION_TIMEOUT_S)
        except TimeoutError:
            return True  # The cluster is slow, but supports it.
        except KafkaException as exception:
            error = exception.args[0]
            if error.name() in _NOT_TO_BE_HAD:
                return False
            if not error.retriable():
                raise build_error("cannot balance the drill's topic", error) from exception
    return True
