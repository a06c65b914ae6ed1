"""The largest number of bytes that lines of tables can reach. Pure.

A line is counted as large as decisions that are never refused can make it: elections, changes of
in-sync sets, fencing, a deletion. So there is always room for these once the line was accepted.
"""

from dataclasses import replace
from functools import lru_cache
from typing import Final

from fairlead_controller.decisions.state import CountersChanged
from fairlead_controller.decisions.tables import lines
from fairlead_controller.decisions.tables.stored_table import line_bytes
from fairlead_model.broker import BrokerRegistration
from fairlead_model.ids import BrokerId
from fairlead_model.partition import PartitionRegistration
from fairlead_model.topic import TopicHeader, TopicState

DIRECTORY_ID_BYTES_MAX: Final = 64
"""Bytes of a disk's incarnation in a line; brokers make ids of 22 characters."""
REGISTRATION_BYTES_MAX: Final = 8 << 10
"""Bytes of a broker's line; one with three listeners has some 1,000."""

_EPOCH_MAX: Final = (1 << 63) - 1
_INT_MAX: Final = (1 << 31) - 1
_HOLDER_BYTES: Final = len(f"{_INT_MAX},")
_HOLDERS_BYTES_MAX: Final = 20_000
"""Brokers that have to confirm a deletion: as many as the table of the cluster has room for."""
_CACHED_ASSIGNMENTS: Final = 4096


def partition_bytes(topic_id: bytes, index: int, partition: PartitionRegistration) -> int:
    """Count a partition's line; it depends on nothing but which brokers the record names.

    So it grows only where a reassignment begins or is queued, and that may be refused.
    """
    named = partition.replicas
    if partition.queued_target or partition.unconfirmed_removals:
        named = tuple(
            dict.fromkeys((*named, *partition.queued_target, *partition.unconfirmed_removals))
        )
    return len(lines.partition_key(topic_id, index)) + _record_bytes(named)


@lru_cache(_CACHED_ASSIGNMENTS)
def _record_bytes(replicas: tuple[BrokerId, ...]) -> int:
    largest = PartitionRegistration(
        replicas=replicas,
        isr=replicas,
        leader=max((*replicas, 10)),
        leader_epoch=_EPOCH_MAX,
        partition_epoch=_EPOCH_MAX,
        elr=replicas,
        last_known_elr=replicas,
        adding_replicas=replicas,
        removing_replicas=replicas,
        directories=("x" * DIRECTORY_ID_BYTES_MAX,) * len(replicas),
        min_insync_replicas=_INT_MAX,
        unconfirmed_removals=replicas,
        queued_target=replicas,
    )
    return line_bytes("", lines.partition_line(largest))


def header_bytes(header: TopicHeader, replication_factor: int) -> int:
    """Count the line of a topic's header, its deletion by all holders included."""
    largest = replace(
        header,
        partition_count=_INT_MAX,
        state=TopicState.DELETING,
        deletion_protection=False,
        unconfirmed_deletions=frozenset(),
    )
    holders = header.partition_count * replication_factor * _HOLDER_BYTES
    line = line_bytes(lines.topic_key(header.topic_id), lines.header_line(largest))
    return line + min(holders, _HOLDERS_BYTES_MAX)


def broker_bytes(registration: BrokerRegistration) -> int:
    """Count a broker's line, whatever the controller makes of its flags."""
    largest = replace(
        registration,
        broker_epoch=_EPOCH_MAX,
        fenced=False,
        in_controlled_shutdown=False,
        is_clean=False,
        previous_broker_epoch=_EPOCH_MAX,
        is_recovered_whole=False,
        min_insync_replicas=_INT_MAX,
        is_cordoned=True,
        allows_unclean_election=True,
    )
    return line_bytes(lines.broker_key(registration.broker_id), lines.broker_line(largest))


def counters_bytes() -> int:
    """Count the line of the counters, at their highest."""
    highest = CountersChanged(_EPOCH_MAX, _EPOCH_MAX)
    return line_bytes(lines.COUNTERS_KEY, lines.counters_line(highest))


def is_fitting_directory_id(directory_id: str) -> bool:
    """Tell whether partitions have room for this directory id."""
    return line_bytes("", lines.dump_line(directory_id)) <= DIRECTORY_ID_BYTES_MAX + line_bytes(
        "", lines.dump_line("")
    )
