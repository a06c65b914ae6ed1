"""The broker configs of consumer groups and of transactions, whose state is in internal topics."""

from typing import Final

from fairlead_model.configs.config_key import (
    INT_MAX,
    ConfigKey,
    ConfigType,
    int_key,
    long_key,
)

_BOOLEAN = ConfigType.BOOLEAN
_LIST = ConfigType.LIST
_STRING = ConfigType.STRING


def _protocols_problem(text: str) -> str | None:
    """Refuse a list without `classic`: KIP-848's groups could not go back to it (Kafka's rule)."""
    return None if "classic" in text else "the classic protocol cannot be switched off"


def _assignors_problem(text: str) -> str | None:
    names = [name.strip() for name in text.split(",") if name.strip()]
    return None if names and len(set(names)) == len(names) else "at least one, each once"


_GROUPS = (
    int_key(
        "group.min.session.timeout.ms",
        6_000,
        "Smallest session.timeout.ms that a member may ask for.",
    ),
    int_key(
        "group.max.session.timeout.ms",
        1_800_000,
        "Largest session.timeout.ms that a member may ask for.",
    ),
    int_key(
        "group.initial.rebalance.delay.ms",
        3_000,
        "How long the first rebalance of an empty group waits for more members.",
    ),
    int_key("group.max.size", INT_MAX, "Members that a group may have.", 1),
    int_key(
        "group.consumer.session.timeout.ms",
        45_000,
        "Time without heartbeats after which a member of KIP-848's protocol is removed from "
        "its group.",
        1,
    ),
    int_key(
        "group.consumer.min.session.timeout.ms",
        45_000,
        "Smallest consumer.session.timeout.ms that a group may have.",
        1,
    ),
    int_key(
        "group.consumer.max.session.timeout.ms",
        60_000,
        "Largest consumer.session.timeout.ms that a group may have.",
        1,
    ),
    int_key(
        "group.consumer.heartbeat.interval.ms",
        5_000,
        "How often members of KIP-848's protocol are told to send heartbeats.",
        1,
    ),
    int_key(
        "group.consumer.min.heartbeat.interval.ms",
        5_000,
        "Smallest consumer.heartbeat.interval.ms that a group may have.",
        1,
    ),
    int_key(
        "group.consumer.max.heartbeat.interval.ms",
        15_000,
        "Largest consumer.heartbeat.interval.ms that a group may have.",
        1,
    ),
    int_key(
        "group.consumer.assignment.interval.ms",
        1_000,
        "Shortest time between two assignments of a group of KIP-848's protocol; 0: no wait.",
    ),
    int_key(
        "group.consumer.min.assignment.interval.ms",
        0,
        "Smallest consumer.assignment.interval.ms that a group may have.",
    ),
    int_key(
        "group.consumer.max.assignment.interval.ms",
        15_000,
        "Largest consumer.assignment.interval.ms that a group may have.",
    ),
    int_key("offset.metadata.max.bytes", 4_096, "Largest metadata of a committed offset."),
    int_key(
        "offsets.commit.timeout.ms", 5_000, "How long a commit waits until it is replicated.", 1
    ),
    int_key(
        "offsets.load.buffer.size",
        5_242_880,
        "Bytes that the broker reads at once when it loads groups.",
        1,
    ),
    int_key(
        "offsets.retention.minutes",
        10_080,
        "How long offsets stay after their group has become empty, or after the last commit of "
        "a standalone consumer.",
        1,
    ),
    long_key(
        "offsets.retention.check.interval.ms",
        600_000,
        "How often the broker looks for old offsets.",
        1,
    ),
)

_CONSUMER_GROUPS = (
    ConfigKey(
        "group.coordinator.rebalance.protocols",
        _LIST,
        "classic,consumer",
        "Protocols that groups may use; consumer is the protocol of KIP-848.",
        choices=("classic", "consumer"),
        check=_protocols_problem,
    ),
    ConfigKey(
        "group.consumer.assignors",
        _LIST,
        "uniform,range",
        "Assignors that members of KIP-848's protocol may ask for; the first is the default.",
        choices=("uniform", "range"),
        check=_assignors_problem,
    ),
    int_key(
        "group.consumer.max.size",
        INT_MAX,
        "Most members that a group of KIP-848's protocol may have.",
        1,
    ),
    ConfigKey(
        "group.consumer.migration.policy",
        _STRING,
        "bidirectional",
        "Which groups with members may change between the classic protocol and KIP-848's.",
        choices=("bidirectional", "upgrade", "downgrade", "disabled"),
    ),
    int_key(
        "group.consumer.regex.refresh.interval.ms",
        600_000,
        "How often the topics that match a regular expression are looked up again.",
        10_000,
    ),
)

_TRANSACTIONS = (
    int_key("transaction.state.log.num.partitions", 50, "Partitions of __transaction_state.", 1),
    # Kafka's default is 3, which no cluster of one broker can have.
    int_key(
        "transaction.state.log.replication.factor", 1, "Replicas of __transaction_state.", 1, 32_767
    ),
    int_key(
        "transaction.state.log.min.isr",
        2,
        "In-sync replicas that __transaction_state needs for a write; never more than it has "
        "replicas.",
        1,
    ),
    int_key(
        "transaction.state.log.segment.bytes",
        104_857_600,
        "Segment size of __transaction_state.",
        1024,
    ),
    int_key(
        "transaction.state.log.load.buffer.size",
        5_242_880,
        "Bytes that the broker reads at once when it loads transactional ids.",
        1,
    ),
    int_key(
        "transaction.max.timeout.ms",
        900_000,
        "Largest transaction.timeout.ms of a producer; with 2147483647 a transaction never "
        "times out.",
        1,
    ),
    int_key(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        10_000,
        "How often the broker looks for transactions that have timed out.",
        1,
    ),
    int_key(
        "transactional.id.expiration.ms",
        604_800_000,
        "How long the broker keeps a transactional id that is not in use.",
        1,
    ),
    int_key(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        3_600_000,
        "How often the broker looks for transactional ids that are not in use.",
        1,
    ),
    ConfigKey(
        "transaction.partition.verification.enable",
        _BOOLEAN,
        "true",
        "Ask a transaction's coordinator before the broker appends its first batch. If this is "
        "off, a late batch of a client of transaction version 1 may open a transaction that "
        "nobody ends.",
        is_dynamic=True,
    ),
)

COORDINATOR_CONFIGS: Final = (*_GROUPS, *_CONSUMER_GROUPS, *_TRANSACTIONS)
