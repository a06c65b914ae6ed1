"""What the controller decides on: the cluster image and what only the controller keeps.

Immutable like the image. Decisions are made on the pending state, which may be ahead of what the
store has confirmed; replies wait for the store.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, TypeAlias

from fairlead_controller.election import NO_FACTS, LogFacts
from fairlead_controller.loads import BrokerLoad, update_loads
from fairlead_controller.observations import (
    LogsReported,
    Observations,
    ReplicasOffline,
)
from fairlead_model.cluster import (
    CLUSTER_WIDE,
    Change,
    ClusterImage,
    TopicChanged,
    TopicImage,
    TopicRemoved,
    TopicState,
)
from fairlead_model.ids import BrokerId, TopicId, collision_key
from fairlead_model.partition import PartitionRegistration
from fairlead_model.sharded_map import ShardedMap

FIRST_BROKER_EPOCH: Final = 1


@dataclass(frozen=True, slots=True)
class CountersChanged:
    """Numbers that are never given twice; durable before anybody sees one."""

    next_broker_epoch: int
    next_producer_id: int


@dataclass(frozen=True, slots=True)
class BrokerConfirmed:
    """A broker known from the store has shown this controller that it is the one recorded.

    Not durable: the next controller asks again.
    """

    broker_id: BrokerId


@dataclass(frozen=True, slots=True)
class BrokerDraining:
    """A broker begins or ends to give its leaders to others. Not durable."""

    broker_id: BrokerId
    is_draining: bool


@dataclass(frozen=True, slots=True)
class Intent:
    """Something that is about to be done which no compare-and-swap fences."""

    action: str
    target: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class IntentChanged:
    """An intent that holds from now on; None: it was carried out or given up."""

    intent_id: str
    intent: Intent | None


Observation: TypeAlias = BrokerConfirmed | BrokerDraining | ReplicasOffline | LogsReported
"""What the controller has heard and does not keep: the next one hears it again."""

ControllerChange: TypeAlias = Change | CountersChanged | IntentChanged | Observation

NOT_PUBLISHED: Final = (
    CountersChanged,
    IntentChanged,
    BrokerConfirmed,
    BrokerDraining,
    ReplicasOffline,
    LogsReported,
)
"""Changes that are the controller's alone; brokers hear of the others."""

UNCLEAN_ELECTION: Final = "unclean.leader.election.enable"


@dataclass(frozen=True, slots=True)
class ControllerState:
    """One moment of the controller's knowledge."""

    image: ClusterImage
    controller_epoch: int = 0
    counters: CountersChanged = CountersChanged(FIRST_BROKER_EPOCH, 0)
    unconfirmed: frozenset[BrokerId] = frozenset()
    """Brokers known from the store that this controller has not heard of yet."""
    loads: Mapping[BrokerId, BrokerLoad] = field(default_factory=dict)
    """Replicas and preferred leaders per broker, for placement."""
    collisions: ShardedMap[str, str] = field(default_factory=ShardedMap)
    """Names that hold '.' or '_', by what they share with names that collide."""
    declared: ShardedMap[str, TopicId] = field(default_factory=ShardedMap)
    """Topics by the name of the Topic resource that declares them."""
    observations: Observations = field(default_factory=Observations)
    """What brokers have reported of their replicas."""
    draining: frozenset[BrokerId] = frozenset()
    """Brokers that lead only what nobody else can."""
    intents: Mapping[str, Intent] = field(default_factory=dict)
    """Open intents by id."""

    def is_electable(self, broker_id: BrokerId) -> bool:
        """Tell whether a leader may be elected on this broker now."""
        return broker_id not in self.unconfirmed and self.image.is_live(broker_id)

    def is_preferable(self, broker_id: BrokerId) -> bool:
        """Tell whether a broker may lead, and is not to be spared."""
        return broker_id not in self.draining and self.is_electable(broker_id)

    def electability(self, topic_id: bytes, index: int) -> Callable[[BrokerId], bool]:
        """Give what tells whether a broker may lead this partition now."""
        offline = self.observations.offline_replicas(topic_id, index)
        if not offline:
            return self.is_electable
        return lambda broker_id: broker_id not in offline and self.is_electable(broker_id)

    def allows_unclean_election(self, topic: TopicImage) -> bool:
        """Tell whether a topic would rather lose records than wait for its replicas."""
        cluster_wide = self.image.broker_configs.get(CLUSTER_WIDE, {})
        value = topic.configs.get(UNCLEAN_ELECTION) or cluster_wide.get(UNCLEAN_ELECTION, "false")
        return value.strip().lower() == "true"

    def log_facts(
        self, topic_id: bytes, index: int, partition: PartitionRegistration
    ) -> Mapping[BrokerId, LogFacts]:
        """Give how far the logs of a leaderless partition go, as far as that is known."""
        if partition.has_leader:
            return NO_FACTS
        return self.observations.log_facts(topic_id, index, partition, self.image.brokers)

    def apply(self, changes: Iterable[ControllerChange]) -> "ControllerState":
        """Give the state after changes; costs what they name."""
        cluster_changes: list[Change] = []
        observed: list[Change | ReplicasOffline | LogsReported] = []
        counters, unconfirmed = self.counters, self.unconfirmed
        draining, intents = self.draining, self.intents
        for change in changes:
            if isinstance(change, CountersChanged):
                counters = change
            elif isinstance(change, BrokerConfirmed):
                unconfirmed -= {change.broker_id}
            elif isinstance(change, BrokerDraining):
                others = draining - {change.broker_id}
                draining = others | {change.broker_id} if change.is_draining else others
            elif isinstance(change, IntentChanged):
                intents = {key: each for key, each in intents.items() if key != change.intent_id}
                if change.intent is not None:
                    intents[change.intent_id] = change.intent
            elif isinstance(change, ReplicasOffline | LogsReported):
                observed.append(change)
            else:
                cluster_changes.append(change)
                observed.append(change)
        image = self.image.apply(cluster_changes)
        return replace(
            self,
            image=image,
            counters=counters,
            unconfirmed=unconfirmed,
            draining=draining,
            intents=intents,
            loads=update_loads(self.loads, self.image, image, cluster_changes),
            collisions=self._apply_to_collisions(cluster_changes),
            declared=self._apply_to_declared(cluster_changes),
            observations=self.observations.updated(image, observed),
        )

    def _apply_to_collisions(self, changes: list[Change]) -> ShardedMap[str, str]:
        edits: dict[str, str | None] = {}
        for change in changes:
            if isinstance(change, TopicRemoved):
                topic = self.image.topics_by_id.get(change.topic_id)
                name, is_gone = ("" if topic is None else topic.name), True
                if topic is not None and topic.header.state is TopicState.DELETING:
                    continue  # the name was given up when the deletion began
            elif isinstance(change, TopicChanged):
                name, is_gone = change.header.name, change.header.state is TopicState.DELETING
                known = self.image.topics_by_id.get(change.header.topic_id)
                if is_gone and known is not None and known.header.state is TopicState.DELETING:
                    continue
            else:
                continue
            if "." in name or "_" in name:
                edits[collision_key(name)] = None if is_gone else name
        return self.collisions.edited(edits)

    def _apply_to_declared(self, changes: list[Change]) -> ShardedMap[str, TopicId]:
        held: dict[bytes, str] = {}
        edits: dict[str, TopicId | None] = {}
        for change in changes:
            if not isinstance(change, TopicChanged):
                continue  # a topic is removed after its deletion, which has let go of it
            header = change.header
            known = self.image.topics_by_id.get(header.topic_id)
            before = "" if known is None else known.header.resource
            before = held.get(header.topic_id, before)
            if before != header.resource:
                if edits.get(before, self.declared.get(before)) == header.topic_id:
                    edits[before] = None
                if header.resource:
                    edits[header.resource] = header.topic_id
            held[header.topic_id] = header.resource
        return self.declared.edited(edits)

    def colliding_name(self, name: str) -> str | None:
        """Find a topic whose name differs from this one only in '.' and '_'."""
        if "." not in name and "_" not in name:
            return None
        other = self.collisions.get(collision_key(name))
        return None if other == name else other


def initial_state(
    image: ClusterImage,
    *,
    controller_epoch: int,
    counters: CountersChanged,
    intents: Mapping[str, Intent] = MappingProxyType({}),
) -> ControllerState:
    """Give the state of a controller that has just loaded an image from its store."""
    bare = ControllerState(
        image=ClusterImage(cluster_id=image.cluster_id),
        controller_epoch=controller_epoch,
        counters=counters,
        unconfirmed=frozenset(image.brokers),
        intents=intents,
    )
    return bare.apply(image.changes_from_nothing())
