"""Finds brokers with replicas that restored metadata does not have. Pure.

A partition may have moved since the copy was made. Its new holders are none of the replicas that
the copy names, and those that it names may hold next to nothing. So, after a confirmation or an
import:

* a broker that registers for the first time since then, and reports a replica of a partition that
  awaits recovery, is a replica of it, and one that may hold acknowledged records;
* such a partition gets no leader before every broker that the copy knows has registered: until then
  it is not known who else holds it. A broker that is drained and holds nothing is not waited for.

A registration is the first one where the broker's record has no start (`forgotten_start`).
"""

from collections.abc import Iterator

from fairlead_controller.decisions.events import RegisterBroker
from fairlead_controller.decisions.state import ControllerState
from fairlead_model.broker import BrokerRegistration
from fairlead_model.cluster import PartitionChanged, TopicImage
from fairlead_model.ids import BrokerId
from fairlead_model.partition import PartitionRegistration


def holders_found(
    state: ControllerState, known: BrokerRegistration | None, event: RegisterBroker
) -> list[PartitionChanged]:
    """Return the records that name a registering broker because it reports a replica.

    `known` is the broker's record before. A partition that names it as removed is left as it is.
    """
    if known is not None and known.start_id:
        return []
    broker_id = event.registration.broker_id
    changes: dict[tuple[bytes, int], PartitionChanged] = {}
    for topic_id, index in event.held:
        topic = state.image.topic_by_id(topic_id)
        if topic is None or not 0 <= index < len(topic.partitions):
            continue
        partition = topic.partitions[index]
        named = (*partition.replicas, *partition.unconfirmed_removals)
        if partition.awaits_recovery and broker_id not in named:
            record = _with_holder(partition, broker_id, event.registration.directory_id)
            changes[topic_id, index] = PartitionChanged(topic.topic_id, index, record)
    return list(changes.values())


def _with_holder(
    partition: PartitionRegistration, broker_id: BrokerId, directory_id: str
) -> PartitionRegistration:
    directories = partition.directories or ("",) * len(partition.replicas)
    return partition.changed(
        replicas=(*partition.replicas, broker_id),
        last_known_elr=(*partition.last_known_elr, broker_id),
        directories=(*directories, directory_id),
    )


def unheard_brokers(state: ControllerState) -> Iterator[BrokerId]:
    """Walk the brokers that have not said what they hold since a confirmation or an import."""
    for broker_id, broker in state.image.brokers.items():
        if not broker.start_id and not _is_drained(state, broker_id):
            yield broker_id


def awaits_testimony(state: ControllerState) -> bool:
    """Tell whether anybody is unheard."""
    return next(unheard_brokers(state), None) is not None


def _is_drained(state: ControllerState, broker_id: BrokerId) -> bool:
    if broker_id not in state.cordoned:
        return False
    return next(iter(state.image.replicas_of(broker_id)), None) is None


def awaiting_recovery(state: ControllerState) -> Iterator[tuple[TopicImage, int]]:
    """Visit partitions of which no broker is known to have all records, in the order of topics."""
    for topic in sorted(state.image.topics(), key=lambda topic: topic.topic_id):
        for index, partition in enumerate(topic.partitions):
            if partition.awaits_recovery:
                yield topic, index
