"""Whether the tables are older than what was seen of them, for example restored from a copy. Pure.

There are two witnesses. The first is the tables themselves: the table of the cluster is sealed
before the others, and records when all of them are. The second is each broker when it registers: it
reports the epochs of the controllers that it has followed, how many writes of the tables it was
told of (which its disk remembers), the broker epoch that it was registered with, and for each
replica the highest leader epoch that its log or its image holds. All of these only rise, and the
store has each of them before any broker does.

The finding of either witness is certain: no crash leaves tables like that.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from fairlead_controller.decisions.state import ControllerState
from fairlead_controller.decisions.tables import lines
from fairlead_controller.decisions.tables.history import MetadataHistory
from fairlead_controller.decisions.tables.stored_table import HighestSeen, StoredTable
from fairlead_controller.decisions.tables.table_plan import CLUSTER_TABLE
from fairlead_model.broker import BrokerRegistration
from fairlead_model.codec import CodecError, text, whole
from fairlead_model.ids import NO_BROKER_EPOCH
from fairlead_model.metadata_seen import NOTHING_SEEN, MetadataSeen

NO_PARTITION_EPOCH = -1
NO_CONTROLLER_EPOCH = -1


@dataclass(frozen=True, slots=True)
class ReplicaTestimony:
    """What a broker knows of one of its replicas."""

    topic_id: bytes
    topic: str
    index: int
    leader_epoch: int
    partition_epoch: int = NO_PARTITION_EPOCH
    """The epoch of its image; NO_PARTITION_EPOCH from a broker that knows only its disk."""


@dataclass(frozen=True, slots=True)
class BrokerTestimony:
    """What a broker has seen in the past, as it reports when it registers."""

    controller_epoch: int = NO_CONTROLLER_EPOCH
    """The highest epoch that this process has followed."""
    broker_epoch: int = NO_BROKER_EPOCH
    """The epoch that this process was registered with."""
    replicas: tuple[ReplicaTestimony, ...] = ()
    metadata: MetadataSeen = NOTHING_SEEN
    """How far its disk remembers that the metadata had come."""

    @property
    def followed_epoch(self) -> int:
        """The highest controller epoch that this broker has followed, as a process or before."""
        return max(self.controller_epoch, self.metadata.controller_epoch)

    def highest_seen(self, asking: BrokerRegistration) -> HighestSeen:
        """Return what has to be exceeded if these tables are to be used all the same."""
        return HighestSeen(
            self.followed_epoch,
            max(self.broker_epoch, asking.previous_broker_epoch),
            max((seen.leader_epoch for seen in self.replicas), default=-1),
            max((seen.partition_epoch for seen in self.replicas), default=-1),
        )


def read_testimony(value: object) -> BrokerTestimony:
    """Read a testimony; raise CodecError if it is malformed.

    As msgpack has it: [controller epoch, broker epoch, [[topic id, name, [index, leader epoch,
    partition epoch, index, …]], …], [controller epoch, writes]]. The last element is missing from
    brokers that do not remember it.
    """
    if value is None:
        return BrokerTestimony()
    if not isinstance(value, list) or len(value) < 3 or not isinstance(value[2], list):
        raise CodecError("a testimony has two epochs and a list of topics")
    replicas: list[ReplicaTestimony] = []
    for topic in value[2]:
        if not isinstance(topic, list) or len(topic) < 3 or not isinstance(topic[0], bytes):
            raise CodecError("a testimony names a topic by id and name")
        name, numbers = text(topic[1]), topic[2]
        if not isinstance(numbers, list) or len(numbers) % 3:
            raise CodecError("a testimony has three numbers for each replica")
        for at in range(0, len(numbers), 3):
            index, leader_epoch, partition_epoch = (
                whole(number, minimum=-1) for number in numbers[at : at + 3]
            )
            replicas.append(ReplicaTestimony(topic[0], name, index, leader_epoch, partition_epoch))
    return BrokerTestimony(
        whole(value[0], minimum=-1),
        whole(value[1], minimum=-1),
        tuple(replicas),
        _read_metadata(value[3]) if len(value) > 3 else NOTHING_SEEN,
    )


def _read_metadata(value: object) -> MetadataSeen:
    if not isinstance(value, list) or len(value) < 2:
        raise CodecError("what was seen of the metadata is two numbers")
    return MetadataSeen(whole(value[0], minimum=-1), whole(value[1], minimum=-1))


def rolled_back_tables(tables: Mapping[str, StoredTable]) -> str:
    """Say what shows that one table is older than the others; empty if nothing does."""
    cluster = tables[CLUSTER_TABLE]
    noted = cluster.lines.get(lines.ROLLED_BACK_KEY)
    if noted is not None:
        return lines.parse_line(lines.ROLLED_BACK_KEY, noted, lambda record: str(record["reason"]))
    sealed = cluster.lines.get(lines.SEALED_KEY)
    if sealed is None:
        return ""
    epoch = lines.parse_line(lines.SEALED_KEY, sealed, lambda record: int(record["epoch"]))
    for name, table in sorted(tables.items()):
        if table.controller_epoch > cluster.controller_epoch:
            return (
                f"table {name} has controller epoch {table.controller_epoch}, table "
                f"{CLUSTER_TABLE} has {cluster.controller_epoch}: table {CLUSTER_TABLE} went back "
                "in time"
            )
        if table.controller_epoch < epoch:
            return (
                f"table {name} has controller epoch {table.controller_epoch}, though all tables "
                f"had {epoch} before: table {name} went back in time"
            )
    return ""


def contradiction(
    state: ControllerState,
    asking: BrokerRegistration,
    testimony: BrokerTestimony,
    *,
    history: MetadataHistory,
    has_heard: bool,
) -> str:
    """Say what a broker has seen that is newer than a state; empty if nothing is.

    `state` holds all that this broker can have heard of before it asked, `history` what the reigns
    before this one can have told it; `has_heard` tells whether the broker has registered in this
    reign before.
    """
    if testimony.followed_epoch >= state.controller_epoch and not has_heard:
        return (
            f"broker {asking.broker_id} has followed controller epoch {testimony.followed_epoch} "
            f"before, the tables knew of {state.controller_epoch - 1} at most"
        )
    if found := history.problem(testimony.metadata):
        return f"broker {asking.broker_id} {found}"
    broker_id, known = asking.broker_id, state.image.brokers.get(asking.broker_id)
    # After a restore that was made safe, a broker's record has no start id until it registers.
    is_recorded = known is not None and bool(known.start_id)
    latest = max(asking.previous_broker_epoch, testimony.broker_epoch)
    recorded = known.broker_epoch if known is not None else NO_BROKER_EPOCH
    if latest >= state.counters.next_broker_epoch or (is_recorded and latest > recorded):
        return (
            f"broker {broker_id} was registered with broker epoch {latest}, the tables know of "
            f"{recorded}, and of {state.counters.next_broker_epoch - 1} at most"
        )
    for seen in testimony.replicas:
        topic = state.image.topics_by_id.get(seen.topic_id)
        place = f"{seen.topic}-{seen.index} (replica of broker {broker_id})"
        if topic is None or seen.index >= len(topic.partitions):
            if is_recorded and testimony.broker_epoch == recorded:
                return f"{place} is served, and no table knows of it"
            # A disk alone may hold what was deleted, if a power loss undid that; so may a process
            # that another one of its id has followed.
            continue
        record = topic.partitions[seen.index]
        if seen.leader_epoch > record.leader_epoch:
            return (
                f"{place} has leader epoch {seen.leader_epoch}, its record in the tables "
                f"{record.leader_epoch}"
            )
        if seen.partition_epoch > record.partition_epoch:
            return (
                f"{place} has partition epoch {seen.partition_epoch}, its record in the tables "
                f"{record.partition_epoch}"
            )
    return ""
