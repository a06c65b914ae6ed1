"""The planner's input: a cluster's state and measurements. Pure."""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from fairlead_controller.decisions.balance.facts import BalancedBroker, BalancedPartition
from fairlead_controller.decisions.state import ControllerState


@dataclass(frozen=True, slots=True)
class DiskUse:
    """The disks of one broker; sizes are None where it does not tell them."""

    total_bytes: int | None
    free_bytes: int | None
    sizes: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """Bytes by topic and partition."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes a second that leaders of a topic on one broker receive and send to consumers."""

    bytes_in: float
    bytes_out: float


@dataclass(frozen=True, slots=True)
class PartitionLoad:
    """The load of one partition."""

    size: int = 0
    """Bytes of one replica."""
    bytes_in: float = 0.0
    """Bytes a second that producers write to it."""
    bytes_out: float = 0.0
    """Bytes a second that consumers read from it."""


_NO_LOAD: Final = PartitionLoad()


def build_brokers(state: ControllerState, disks: Mapping[int, DiskUse]) -> list[BalancedBroker]:
    """Return the brokers; shares follow the sizes of disks if every broker reports its own."""
    image, closed = state.image, state.closed
    totals = {each: disks[each].total_bytes for each in image.brokers if each in disks}
    is_known = len(totals) == len(image.brokers) and all(totals.values())
    # Where brokers share an address, as on a laptop, no two of them are apart.
    return [
        BalancedBroker(
            broker_id,
            host=broker.host_name,
            rack=broker.rack,
            capacity=(totals[broker_id] or 1) if is_known else 1,
            free_bytes=disks[broker_id].free_bytes if broker_id in disks else None,
            is_cordoned=broker_id in closed,
        )
        for broker_id, broker in sorted(image.brokers.items())
    ]


def build_partitions(
    state: ControllerState,
    waiting: Collection[tuple[str, int]],
    disks: Mapping[int, DiskUse],
    traffic: Mapping[tuple[int, str], Traffic],
) -> list[BalancedPartition]:
    """Return the partitions; those that move or wait for it, or miss replicas, stay.

    Counters are of topics: the partitions of one that a broker leads share its traffic evenly.
    """
    image = state.image
    led = Counter(
        (partition.leader, topic.name) for topic in image.topics() for partition in topic.partitions
    )
    loads = {}
    for topic in image.topics():
        for index, partition in enumerate(topic.partitions):
            at = (topic.name, index)
            known = [disks[each].sizes.get(at, 0) for each in partition.replicas if each in disks]
            home = disks.get(partition.leader)
            size = home.sizes.get(at, 0) if home is not None else max(known, default=0)
            rates = traffic.get((partition.leader, topic.name))
            together = led[partition.leader, topic.name]
            loads[at] = PartitionLoad(
                size,
                bytes_in=rates.bytes_in / together if rates else 0.0,
                bytes_out=rates.bytes_out / together if rates else 0.0,
            )
    return build_loaded_partitions(state, waiting, loads)


def build_loaded_partitions(
    state: ControllerState,
    staying: Collection[tuple[str, int]],
    loads: Mapping[tuple[str, int], PartitionLoad],
) -> list[BalancedPartition]:
    """Return the partitions with what each of them weighs; those that miss replicas stay, too."""
    partitions = []
    for topic in state.image.topics():
        for index, partition in enumerate(topic.partitions):
            at = (topic.name, index)
            load = loads.get(at, _NO_LOAD)
            partitions.append(
                BalancedPartition(
                    topic.name,
                    index,
                    partition.replicas,
                    partition.leader,
                    load.size,
                    bytes_in=load.bytes_in,
                    bytes_out=load.bytes_out,
                    is_fixed=at in staying or partition.is_under_replicated,
                )
            )
    return partitions
