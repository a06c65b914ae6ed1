"""The state of the controller: the cluster image and facts that only the controller keeps.

Immutable like the image. Decisions are made on the pending state, which may be ahead of what the
store has confirmed; replies wait for the store.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final, TypeAlias

from fairlead_controller.decisions.broker_loads import BrokerLoad, update_loads
from fairlead_controller.decisions.cluster_limits import ClusterLimits
from fairlead_controller.decisions.leader_election import NO_FACTS, LogFacts
from fairlead_controller.decisions.observations import (
    LogsReported,
    Observations,
    ReplicasFull,
    ReplicasOffline,
)
from fairlead_controller.decisions.running_reassignments import Moves
from fairlead_model.cluster import (
    CLUSTER_WIDE,
    BrokerChanged,
    BrokerConfigsChanged,
    BrokerRemoved,
    Change,
    ClusterImage,
    PartitionChanged,
    TopicChanged,
    TopicImage,
    TopicRemoved,
    TopicState,
)
from fairlead_model.configs.config_values import BROKER_DRAIN, BROKER_FENCE
from fairlead_model.ids import BrokerId, TopicId, collision_key
from fairlead_model.partition import PartitionRegistration
from fairlead_model.security.client_quota import Quotas
from fairlead_model.sharded_map import ShardedMap

FIRST_BROKER_EPOCH: Final = 1


@dataclass(frozen=True, slots=True)
class CountersChanged:
    """Numbers that are never given twice; durable before anybody sees one."""

    next_broker_epoch: int
    next_producer_id: int


@dataclass(frozen=True, slots=True)
class BrokerConfirmed:
    """A broker known from the store has registered with this controller.

    Not durable: the next controller asks again.
    """

    broker_id: BrokerId


@dataclass(frozen=True, slots=True)
class BrokerDraining:
    """A broker begins or stops to drain its leaders. Not durable."""

    broker_id: BrokerId
    is_draining: bool


@dataclass(frozen=True, slots=True)
class BrokerLeaving:
    """A broker is about to be fenced, and leaves its partitions in parts until then.

    Not durable: the next controller hears from the broker, or fences it.
    """

    broker_id: BrokerId
    is_leaving: bool = True
    """False if it stays after all: the order to fence it was taken back."""


@dataclass(frozen=True, slots=True)
class MinimumSpread:
    """Whether every partition has the effective `min.insync.replicas`.

    Not durable: the first decision of the next controller looks at all of them.
    """

    is_complete: bool


@dataclass(frozen=True, slots=True)
class Intent:
    """An act that no compare-and-swap fences, announced before it is done."""

    action: str
    target: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class IntentChanged:
    """A new intent; None if it was carried out or given up."""

    intent_id: str
    intent: Intent | None


@dataclass(frozen=True, slots=True)
class DeclaredUser:
    """What a User resource declares, besides the rules and the credential of its principal."""

    principal: str
    """All rules of this principal, and all credentials of its name, are the resource's."""
    revision: str = ""
    """Which password its credential verifies, as the operator calls it; empty without one."""
    quotas: Quotas | None = None
    """The client quotas that it declares for the user; None if it leaves them to others."""
    exceeds_defaults: bool = False
    """Whether they may be above the default quotas of the cluster."""


@dataclass(frozen=True, slots=True)
class UserDeclared:
    """What a User resource declares from now on; None if it declares nothing any more."""

    resource: str
    user: DeclaredUser | None
    lets_go: bool = False
    """Whether it gives up what it declared before, which is removed in the same decision."""


Observation: TypeAlias = (
    BrokerConfirmed
    | BrokerDraining
    | BrokerLeaving
    | ReplicasOffline
    | ReplicasFull
    | LogsReported
    | MinimumSpread
)
"""What brokers report to the controller; not durable: they report it to the next one again."""

ControllerChange: TypeAlias = (
    Change | CountersChanged | IntentChanged | UserDeclared | Observation | ClusterLimits
)

NOT_PUBLISHED: Final = (
    CountersChanged,
    IntentChanged,
    UserDeclared,
    BrokerConfirmed,
    BrokerDraining,
    BrokerLeaving,
    ReplicasOffline,
    ReplicasFull,
    LogsReported,
    MinimumSpread,
    ClusterLimits,
)
"""Changes that only the controller sees; brokers are sent all others."""

UNCLEAN_ELECTION: Final = "unclean.leader.election.enable"


@dataclass(frozen=True, slots=True)
class ControllerState:
    """The controller's knowledge at one moment."""

    image: ClusterImage
    controller_epoch: int = 0
    counters: CountersChanged = CountersChanged(FIRST_BROKER_EPOCH, 0)
    unconfirmed: frozenset[BrokerId] = frozenset()
    """Brokers known from the store that have not registered in this reign yet."""
    departed: frozenset[BrokerId] = frozenset()
    """Brokers that were unregistered in this reign after they had registered in it."""
    loads: Mapping[BrokerId, BrokerLoad] = field(default_factory=dict)
    """Replicas and preferred leaders per broker, for placement."""
    collisions: ShardedMap[str, str] = field(default_factory=ShardedMap)
    """Names that contain '.' or '_', by the form that colliding names share."""
    declared: ShardedMap[str, TopicId] = field(default_factory=ShardedMap)
    """Topics by the name of the Topic resource that declares them."""
    users: ShardedMap[str, DeclaredUser] = field(default_factory=ShardedMap)
    """What User resources declare, by the name of the resource."""
    principals: ShardedMap[str, str] = field(default_factory=ShardedMap)
    """The User resource that declares a principal, by the principal."""
    observations: Observations = field(default_factory=Observations)
    """What brokers have reported of their replicas."""
    draining: frozenset[BrokerId] = frozenset()
    """Brokers that are about to stop: they lead only what no other broker can lead."""
    leaving: frozenset[BrokerId] = frozenset()
    """Brokers in service that are about to be fenced; nobody elects them any more."""
    cordoned: frozenset[BrokerId] = frozenset()
    """Brokers that get no new replicas, and whose replicas move away (`BROKER_DRAIN`)."""
    ordered_out: frozenset[BrokerId] = frozenset()
    """Brokers that a person has fenced, until that is taken back (`BROKER_FENCE`)."""
    shut: frozenset[BrokerId] = frozenset()
    """Brokers whose log directories take nothing new; what they have stays (KIP-1066)."""
    moves: Moves = field(default_factory=Moves)
    """Partitions that are being reassigned."""
    intents: Mapping[str, Intent] = field(default_factory=dict)
    """Open intents by id."""
    limits: ClusterLimits = field(default_factory=ClusterLimits)
    partition_count: int = 0
    """Of all topics, also those being deleted."""
    is_minimum_spread: bool = True
    """Whether every partition has the effective `min.insync.replicas`; else some are left."""

    def check_room(self, *, new_topics: int = 0, new_partitions: int = 0) -> None:
        """Raise RefusedError, which names the limit, if so many more are too many."""
        self.limits.check_room(
            len(self.image.topics_by_id),
            self.partition_count,
            new_topics=new_topics,
            new_partitions=new_partitions,
        )

    def is_electable(self, broker_id: BrokerId) -> bool:
        """Tell whether a leader may be elected on this broker now."""
        if broker_id in self.unconfirmed or broker_id in self.leaving:
            return False
        return self.image.is_live(broker_id)

    @property
    def spared(self) -> frozenset[BrokerId]:
        """Brokers that lead only what no other broker can lead."""
        return self.draining | self.cordoned if self.cordoned else self.draining

    @property
    def closed(self) -> frozenset[BrokerId]:
        """Brokers that get no new replicas."""
        if self.ordered_out or self.shut:
            return self.cordoned | self.ordered_out | self.shut
        return self.cordoned

    def is_preferable(self, broker_id: BrokerId) -> bool:
        """Tell whether a broker may lead and is not draining."""
        return broker_id not in self.spared and self.is_electable(broker_id)

    def electability(self, topic_id: bytes, index: int) -> Callable[[BrokerId], bool]:
        """Return the predicate that tells whether a broker may lead this partition now."""
        offline = self.observations.offline_replicas(topic_id, index)
        if not offline:
            return self.is_electable
        return lambda broker_id: broker_id not in offline and self.is_electable(broker_id)

    def allows_unclean_election(self, topic: TopicImage) -> bool:
        """Tell whether the topic's configs allow an unclean election, and nothing withholds it."""
        if self.limits.withholds_unclean:
            return False
        cluster_wide = self.image.broker_configs.get(CLUSTER_WIDE, {})
        value = topic.configs.get(UNCLEAN_ELECTION) or cluster_wide.get(UNCLEAN_ELECTION)
        if value is None:
            return do_settings_allow_unclean_election(self.image)
        return value.strip().lower() == "true"

    def log_facts(
        self, topic_id: bytes, index: int, partition: PartitionRegistration
    ) -> Mapping[BrokerId, LogFacts]:
        """Return how far the logs of a leaderless partition go, as far as brokers have reported."""
        if partition.has_leader:
            return NO_FACTS
        return self.observations.log_facts(topic_id, index, partition, self.image.brokers)

    def apply(self, changes: Iterable[ControllerChange]) -> "ControllerState":
        """Return the state after changes; the cost depends on what they name."""
        cluster_changes: list[Change] = []
        observed: list[Change | ReplicasOffline | ReplicasFull | LogsReported] = []
        changes = tuple(changes)
        users, principals = self._apply_to_users(changes)
        counters, unconfirmed, departed = self.counters, self.unconfirmed, self.departed
        draining, intents, limits = self.draining, self.intents, self.limits
        is_minimum_spread = self.is_minimum_spread
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
            elif isinstance(change, ClusterLimits):
                limits = change
            elif isinstance(change, MinimumSpread):
                is_minimum_spread = change.is_complete
            elif isinstance(change, ReplicasOffline | ReplicasFull | LogsReported):
                observed.append(change)
            elif not isinstance(change, UserDeclared | BrokerLeaving):
                cluster_changes.append(change)
                observed.append(change)
                if isinstance(change, BrokerRemoved):
                    if change.broker_id not in unconfirmed:
                        departed |= {change.broker_id}
                    unconfirmed -= {change.broker_id}
        image = self.image.apply(cluster_changes)
        cordoned, ordered_out, shut = self._apply_to_closed(cluster_changes)
        return replace(
            self,
            image=image,
            counters=counters,
            unconfirmed=unconfirmed,
            departed=departed,
            draining=draining,
            leaving=self._apply_to_leaving(changes),
            cordoned=cordoned,
            ordered_out=ordered_out,
            shut=shut,
            moves=self.moves.updated(image, cluster_changes),
            intents=intents,
            limits=limits,
            is_minimum_spread=is_minimum_spread,
            partition_count=self.partition_count + _growth(self.image, image, cluster_changes),
            loads=update_loads(self.loads, self.image, image, cluster_changes),
            collisions=self._apply_to_collisions(cluster_changes),
            declared=self._apply_to_declared(cluster_changes),
            users=users,
            principals=principals,
            observations=self.observations.updated(image, observed),
        )

    def _apply_to_leaving(self, changes: Iterable[ControllerChange]) -> frozenset[BrokerId]:
        leaving = self.leaving
        for change in changes:
            if isinstance(change, BrokerLeaving):
                others = leaving - {change.broker_id}
                leaving = others | {change.broker_id} if change.is_leaving else others
            elif isinstance(change, BrokerRemoved):
                leaving -= {change.broker_id}
            elif isinstance(change, BrokerChanged) and change.registration.fenced:
                leaving -= {change.registration.broker_id}
        return leaving

    def _apply_to_closed(
        self, changes: list[Change]
    ) -> tuple[frozenset[BrokerId], frozenset[BrokerId], frozenset[BrokerId]]:
        """Return `cordoned`, `ordered_out` and `shut`."""
        cordoned, ordered_out, shut = self.cordoned, self.ordered_out, self.shut
        for change in changes:
            if isinstance(change, BrokerConfigsChanged) and change.broker != CLUSTER_WIDE:
                named = {int(change.broker)}
                cordoned = cordoned | named if is_drained(change) else cordoned - named
                is_out = is_ordered_out(change)
                ordered_out = ordered_out | named if is_out else ordered_out - named
            elif isinstance(change, BrokerChanged):
                named = {change.registration.broker_id}
                shut = shut | named if change.registration.is_cordoned else shut - named
            elif isinstance(change, BrokerRemoved):
                shut -= {change.broker_id}
        return cordoned, ordered_out, shut

    def _apply_to_collisions(self, changes: list[Change]) -> ShardedMap[str, str]:
        edits: dict[str, str | None] = {}
        has_name: dict[bytes, bool] = {}
        for change in changes:
            if isinstance(change, TopicRemoved):
                topic = self.image.topics_by_id.get(change.topic_id)
                name, is_gone = ("" if topic is None else topic.name), True
                if topic is not None and topic.header.state is TopicState.DELETING:
                    continue  # the name was given up when the deletion began
            elif isinstance(change, TopicChanged):
                name, is_gone = change.header.name, change.header.state is TopicState.DELETING
                topic_id = change.header.topic_id
                known = self.image.topics_by_id.get(topic_id)
                was_live = known is not None and known.header.state is not TopicState.DELETING
                had_name = has_name.get(topic_id, was_live)
                has_name[topic_id] = not is_gone
                if is_gone and not had_name:
                    continue  # the deletion goes on, or is told of by a store that is loaded
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

    def _apply_to_users(
        self, changes: tuple[ControllerChange, ...]
    ) -> tuple[ShardedMap[str, DeclaredUser], ShardedMap[str, str]]:
        edits: dict[str, DeclaredUser | None] = {}
        owners: dict[str, str | None] = {}
        for change in changes:
            if not isinstance(change, UserDeclared):
                continue
            before = edits.get(change.resource, self.users.get(change.resource))
            if before is not None and owners.get(before.principal) in (None, change.resource):
                owners[before.principal] = None
            if change.user is not None:
                owners[change.user.principal] = change.resource
            edits[change.resource] = change.user
        return self.users.edited(edits), self.principals.edited(owners)

    def colliding_name(self, name: str) -> str | None:
        """Return a topic whose name differs from this one only in '.' and '_'."""
        if "." not in name and "_" not in name:
            return None
        other = self.collisions.get(collision_key(name))
        return None if other == name else other


def is_drained(change: BrokerConfigsChanged) -> bool:
    """Tell whether dynamic configs of a broker ask to move all that it holds away."""
    return change.configs.get(BROKER_DRAIN, "false").strip().lower() == "true"


def is_ordered_out(change: BrokerConfigsChanged) -> bool:
    """Tell whether dynamic configs of a broker ask to keep it out of service."""
    return bool(change.configs.get(BROKER_FENCE, "").strip())


def _growth(before: ClusterImage, after: ClusterImage, changes: Iterable[Change]) -> int:
    """Count the partitions that changes add, less those that they remove."""
    touched = {
        change.topic_id for change in changes if isinstance(change, PartitionChanged | TopicRemoved)
    }
    return sum(_partitions_of(after, each) - _partitions_of(before, each) for each in touched)


def _partitions_of(image: ClusterImage, topic_id: bytes) -> int:
    topic = image.topics_by_id.get(topic_id)
    return 0 if topic is None else len(topic.partitions)


def do_settings_allow_unclean_election(image: ClusterImage) -> bool:
    """Tell whether the settings of all brokers allow it, also of those that are away.

    Brokers whose settings disagree lose no record that one of them promised to keep.
    """
    brokers = image.brokers.values()
    return bool(brokers) and all(broker.allows_unclean_election for broker in brokers)


def initial_state(
    image: ClusterImage,
    *,
    controller_epoch: int,
    counters: CountersChanged,
    intents: Mapping[str, Intent] = MappingProxyType({}),
    users: Iterable[UserDeclared] = (),
) -> ControllerState:
    """Return the state of a controller that has just loaded an image from its store."""
    bare = ControllerState(
        image=ClusterImage(cluster_id=image.cluster_id),
        controller_epoch=controller_epoch,
        counters=counters,
        unconfirmed=frozenset(image.brokers),
        intents=intents,
    )
    return bare.apply([*image.changes_from_nothing(), *users])
