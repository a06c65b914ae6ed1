"""The cluster image: everything that brokers must agree on. It decides nothing.

The controller and every broker hold the same `ClusterImage` and apply the same `ClusterDelta`s.
An image is immutable; the cost of `apply` depends on the delta, not on the size of the cluster.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from fairlead_model.broker import BrokerRegistration, Endpoint
from fairlead_model.delta import (
    AclChanged,
    BrokerChanged,
    BrokerConfigsChanged,
    BrokerRemoved,
    Change,
    ClientQuotaChanged,
    ClusterDelta,
    CredentialChanged,
    FeaturesChanged,
    GroupConfigsChanged,
    PartitionChanged,
    TopicChanged,
    TopicRemoved,
)
from fairlead_model.features import NO_FEATURES_SET, FinalizedFeatures
from fairlead_model.ids import BrokerId, TopicId
from fairlead_model.partition import PartitionRegistration
from fairlead_model.security.acl import AclBinding
from fairlead_model.security.client_quota import QuotaEntity, Quotas
from fairlead_model.security.scram import ScramCredential, ScramMechanism
from fairlead_model.sharded_map import ShardedMap
from fairlead_model.topic import TopicHeader, TopicImage, TopicOrigin, TopicState

__all__ = [
    "CLUSTER_WIDE",
    "AclChanged",
    "BrokerChanged",
    "BrokerConfigsChanged",
    "BrokerRegistration",
    "BrokerRemoved",
    "Change",
    "ClientQuotaChanged",
    "ClusterDelta",
    "ClusterImage",
    "CredentialChanged",
    "Endpoint",
    "FeaturesChanged",
    "GroupConfigsChanged",
    "PartitionChanged",
    "TopicChanged",
    "TopicHeader",
    "TopicImage",
    "TopicOrigin",
    "TopicRemoved",
    "TopicState",
    "empty_image",
]

CLUSTER_WIDE: Final = ""
"""Key of the broker configs of all brokers."""

_NOWHERE: Final[ShardedMap[bytes, tuple[int, ...]]] = ShardedMap()


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """Everything that brokers must agree on, at one moment."""

    cluster_id: str = ""
    brokers: Mapping[BrokerId, BrokerRegistration] = field(default_factory=dict)
    broker_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    group_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By group id, of the groups that have configs."""
    acls: ShardedMap[AclBinding, bool] = field(default_factory=ShardedMap)
    """Every access rule: a set, so the values mean nothing."""
    credentials: ShardedMap[tuple[ScramMechanism, str], ScramCredential] = field(
        default_factory=ShardedMap, repr=False
    )
    """By mechanism and user."""
    client_quotas: ShardedMap[QuotaEntity, Quotas] = field(default_factory=ShardedMap)
    """By entity, of the entities that have quotas."""
    topics_by_id: ShardedMap[bytes, TopicImage] = field(default_factory=ShardedMap)
    """Every topic, also topics that are being created or deleted."""
    names: ShardedMap[str, TopicId] = field(default_factory=ShardedMap)
    """Names in use; the name of a topic that is being deleted is free."""
    replicas_by_broker: Mapping[BrokerId, ShardedMap[bytes, tuple[int, ...]]] = field(
        default_factory=dict
    )
    """Reverse index: broker → topic id → indexes of the partitions with a replica on the broker."""
    deleting: Mapping[bytes, TopicHeader] = field(default_factory=dict)
    features: FinalizedFeatures = NO_FEATURES_SET

    def topic(self, name: str) -> TopicImage | None:
        """Return a topic by its name; None if there is none or it is being deleted."""
        topic_id = self.names.get(name)
        return None if topic_id is None else self.topics_by_id[topic_id]

    def topic_by_id(self, topic_id: bytes) -> TopicImage | None:
        """Return a topic by its id; None if there is none or it is being deleted."""
        topic = self.topics_by_id.get(topic_id)
        if topic is None or topic.header.state is TopicState.DELETING:
            return None
        return topic

    def topic_name(self, topic_id: bytes) -> str | None:
        """Return the name of the topic with an id."""
        topic = self.topic_by_id(topic_id)
        return None if topic is None else topic.header.name

    def partition(self, name: str, index: int) -> PartitionRegistration | None:
        """Return the registration of a partition."""
        topic = self.topic(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            return None
        return topic.partitions[index]

    def topics(self) -> Iterator[TopicImage]:
        """Walk all topics that are not being deleted, in no order."""
        for topic_id in self.names.values():
            yield self.topics_by_id[topic_id]

    def replicas_of(self, broker_id: BrokerId) -> Iterator[tuple[TopicImage, int]]:
        """Walk the partitions with a replica on a broker, by topic id; no deleted topics."""
        held = self.replicas_by_broker.get(broker_id, _NOWHERE)
        for topic_id in sorted(held):
            topic = self.topics_by_id[topic_id]
            if topic.header.state is not TopicState.DELETING:
                for index in held[topic_id]:
                    yield topic, index

    def configs_of_broker(self, broker_id: BrokerId) -> Mapping[str, str]:
        """Return the dynamic configs that are set for this one broker."""
        return self.broker_configs.get(str(broker_id), {})

    def apply(self, delta: ClusterDelta | Iterable[Change]) -> "ClusterImage":
        """Return the image after a delta; this image does not change.

        ValueError if the delta does not fit: a partition of an unknown topic, a gap in the
        numbering, a name that another topic has.
        """
        changes = delta.changes if isinstance(delta, ClusterDelta) else tuple(delta)
        if not changes:
            return self
        builder = _ImageBuilder(self)
        for change in changes:
            builder.apply(change)
        return builder.build()

    def changes_from_nothing(self) -> Iterator[Change]:
        """Walk the changes that turn an empty image of the same cluster into this image."""
        if self.features.epoch:
            yield FeaturesChanged(self.features)
        yield from (BrokerChanged(registration) for registration in self.brokers.values())
        for broker, configs in self.broker_configs.items():
            yield BrokerConfigsChanged(broker, configs)
        for group_id, configs in self.group_configs.items():
            yield GroupConfigsChanged(group_id, configs)
        yield from _security_changes(self, _NOBODY)
        for topic_id in sorted(self.topics_by_id):
            yield from _topic_changes(self.topics_by_id[topic_id])

    def changes_since(self, older: "ClusterImage") -> Iterator[Change]:
        """Walk the changes that turn an older image into this image; costs O(partitions)."""
        if older.features != self.features:
            yield FeaturesChanged(self.features)
        for broker_id in older.brokers.keys() - self.brokers.keys():
            yield BrokerRemoved(broker_id)
        for broker_id, registration in self.brokers.items():
            if older.brokers.get(broker_id) != registration:
                yield BrokerChanged(registration)
        for broker in older.broker_configs.keys() | self.broker_configs.keys():
            configs = self.broker_configs.get(broker, {})
            if older.broker_configs.get(broker, {}) != configs:
                yield BrokerConfigsChanged(broker, configs)
        if older.group_configs is not self.group_configs:
            for group_id in older.group_configs.keys() | self.group_configs.keys():
                configs = self.group_configs.get(group_id, {})
                if older.group_configs.get(group_id, {}) != configs:
                    yield GroupConfigsChanged(group_id, configs)
        yield from _security_changes(self, older)
        # A name has to be free before it is used again: removed and deleted topics go first.
        for topic_id in sorted(older.topics_by_id.keys() - self.topics_by_id.keys()):
            yield TopicRemoved(TopicId(topic_id))
        ordered = sorted(self.topics_by_id.items(), key=_deleting_first)
        for topic_id, topic in ordered:
            yield from _topic_changes(topic, older.topics_by_id.get(topic_id))

    def is_live(self, broker_id: BrokerId) -> bool:
        """Tell whether a broker is registered and may lead."""
        registration = self.brokers.get(broker_id)
        return registration is not None and registration.may_lead


def _security_changes(image: ClusterImage, older: ClusterImage) -> Iterator[Change]:
    if image.acls is not older.acls:
        for rule in image.acls:
            if rule not in older.acls:
                yield AclChanged(rule)
        for rule in older.acls:
            if rule not in image.acls:
                yield AclChanged(rule, is_removed=True)
    if image.credentials is not older.credentials:
        for (mechanism, user), credential in image.credentials.items():
            if older.credentials.get((mechanism, user)) != credential:
                yield CredentialChanged(user, mechanism, credential)
        for mechanism, user in older.credentials:
            if (mechanism, user) not in image.credentials:
                yield CredentialChanged(user, mechanism, None)
    yield from _quota_changes(image, older)


def _quota_changes(image: ClusterImage, older: ClusterImage) -> Iterator[Change]:
    if image.client_quotas is not older.client_quotas:
        for entity, quotas in image.client_quotas.items():
            if older.client_quotas.get(entity) != quotas:
                yield ClientQuotaChanged(entity, quotas)
        for entity in older.client_quotas:
            if entity not in image.client_quotas:
                yield ClientQuotaChanged(entity, {})


def _deleting_first(item: tuple[bytes, TopicImage]) -> tuple[bool, bytes]:
    return (item[1].header.state is not TopicState.DELETING, item[0])


def _topic_changes(topic: TopicImage, older: TopicImage | None = None) -> Iterator[Change]:
    if older is topic:
        return
    if older is None or older.header != topic.header:
        yield TopicChanged(topic.header)
    known = older.partitions if older is not None else ()
    for index, partition in enumerate(topic.partitions):
        if index >= len(known) or known[index] != partition:
            yield PartitionChanged(topic.topic_id, index, partition)


def empty_image(cluster_id: str) -> ClusterImage:
    """Return the image of a cluster that has nothing yet."""
    return ClusterImage(cluster_id=cluster_id)


_NOBODY: Final = ClusterImage()
"""An image without rules, users and quotas."""


class _ImageBuilder:
    """The next image under construction; fields of the old image are copied as late as possible."""

    def __init__(self, image: ClusterImage) -> None:
        self._image = image
        self._brokers = dict(image.brokers)
        self._broker_configs = dict(image.broker_configs)
        self._group_configs: dict[str, Mapping[str, str]] | None = None
        self._acls: dict[AclBinding, bool | None] = {}
        self._credentials: dict[tuple[ScramMechanism, str], ScramCredential | None] = {}
        self._client_quotas: dict[QuotaEntity, Quotas | None] = {}
        self._deleting = dict(image.deleting)
        self._features = image.features
        self._headers: dict[bytes, TopicHeader] = {}
        self._partitions: dict[bytes, list[PartitionRegistration]] = {}
        self._removed: set[bytes] = set()
        self._names: dict[str, TopicId | None] = {}
        self._replicas: dict[int, dict[bytes, set[int] | None]] = {}

    def apply(self, change: Change) -> None:
        """Apply one change; ValueError if it does not fit the image."""
        if isinstance(change, PartitionChanged):
            self._change_partition(change)
        elif isinstance(change, TopicChanged):
            self._change_topic(change.header)
        elif isinstance(change, TopicRemoved):
            self._remove_topic(change.topic_id)
        elif isinstance(change, BrokerChanged):
            self._brokers[change.registration.broker_id] = change.registration
        elif isinstance(change, BrokerRemoved):
            self._brokers.pop(change.broker_id, None)
        elif isinstance(change, BrokerConfigsChanged):
            self._change_broker_configs(change)
        elif isinstance(change, FeaturesChanged):
            self._features = change.features
        elif isinstance(change, GroupConfigsChanged):
            self._change_group_configs(change)
        elif isinstance(change, AclChanged):
            self._acls[change.rule] = None if change.is_removed else True
        elif isinstance(change, ClientQuotaChanged):
            self._client_quotas[change.entity] = change.quotas or None
        else:
            self._credentials[change.mechanism, change.user] = change.credential

    def build(self) -> ClusterImage:
        """Return the new image."""
        image = self._image
        topics: dict[bytes, TopicImage | None] = dict.fromkeys(self._removed)
        for topic_id in self._headers.keys() | self._partitions.keys():
            partitions = self._partitions.get(topic_id)
            topics[topic_id] = TopicImage(
                header=self._header(topic_id),
                partitions=image.topics_by_id[topic_id].partitions
                if partitions is None
                else tuple(partitions),
            )
        return ClusterImage(
            cluster_id=image.cluster_id,
            brokers=self._brokers,
            broker_configs=self._broker_configs,
            group_configs=image.group_configs
            if self._group_configs is None
            else self._group_configs,
            acls=image.acls.edited(self._acls),
            credentials=image.credentials.edited(self._credentials),
            client_quotas=image.client_quotas.edited(self._client_quotas),
            topics_by_id=image.topics_by_id.edited(topics),
            names=image.names.edited(self._names),
            replicas_by_broker=self._build_replicas(),
            deleting=self._deleting,
            features=self._features,
        )

    def _build_replicas(self) -> dict[int, ShardedMap[bytes, tuple[int, ...]]]:
        replicas = dict(self._image.replicas_by_broker)
        for broker_id, topics in self._replicas.items():
            known: ShardedMap[bytes, tuple[int, ...]] = replicas.get(broker_id, ShardedMap())
            edited = known.edited(
                {
                    topic_id: tuple(sorted(held)) if held else None
                    for topic_id, held in topics.items()
                }
            )
            if edited:
                replicas[broker_id] = edited
            else:
                replicas.pop(broker_id, None)
        return replicas

    def _header(self, topic_id: bytes) -> TopicHeader:
        header = self._headers.get(topic_id)
        if header is None:
            topic = self._image.topics_by_id.get(topic_id)
            if topic is None or topic_id in self._removed:
                raise ValueError(f"a change names topic id {topic_id.hex()}, which is unknown")
            header = topic.header
        return header

    def _change_topic(self, header: TopicHeader) -> None:
        topic_id = header.topic_id
        if topic_id not in self._headers and topic_id not in self._image.topics_by_id:
            self._partitions[topic_id] = []
        self._removed.discard(topic_id)
        self._headers[topic_id] = header
        owner = self._names.get(header.name, self._image.names.get(header.name))
        if header.state is TopicState.DELETING:
            self._deleting[topic_id] = header
            if owner == topic_id:
                self._names[header.name] = None
        elif owner is None:
            self._names[header.name] = topic_id
        elif owner != topic_id:
            raise ValueError(f"two topics would have the name {header.name!r}")

    def _remove_topic(self, topic_id: TopicId) -> None:
        header = self._header(topic_id)
        for index, partition in enumerate(self._partition_list(topic_id)):
            self._index_replicas(topic_id, index, partition.replicas, ())
        self._headers.pop(topic_id, None)
        self._partitions.pop(topic_id, None)
        self._deleting.pop(topic_id, None)
        self._removed.add(topic_id)
        if self._names.get(header.name, self._image.names.get(header.name)) == topic_id:
            self._names[header.name] = None

    def _partition_list(self, topic_id: bytes) -> list[PartitionRegistration]:
        partitions = self._partitions.get(topic_id)
        if partitions is None:
            self._header(topic_id)
            partitions = list(self._image.topics_by_id[topic_id].partitions)
            self._partitions[topic_id] = partitions
        return partitions

    def _change_partition(self, change: PartitionChanged) -> None:
        partitions = self._partition_list(change.topic_id)
        if change.index < len(partitions):
            held = partitions[change.index].replicas
            partitions[change.index] = change.partition
        elif change.index == len(partitions):
            held = ()
            partitions.append(change.partition)
        else:
            raise ValueError(f"partition {change.index} comes after {len(partitions) - 1}")
        if held != change.partition.replicas:
            self._index_replicas(change.topic_id, change.index, held, change.partition.replicas)

    def _index_replicas(
        self, topic_id: bytes, index: int, held: tuple[int, ...], holds: tuple[int, ...]
    ) -> None:
        for broker_id in held:
            if broker_id not in holds:
                self._indexes(broker_id, topic_id).discard(index)
        for broker_id in holds:
            if broker_id not in held:
                self._indexes(broker_id, topic_id).add(index)

    def _indexes(self, broker_id: int, topic_id: bytes) -> set[int]:
        topics = self._replicas.setdefault(broker_id, {})
        indexes = topics.get(topic_id)
        if indexes is None:
            known = self._image.replicas_by_broker.get(broker_id)
            indexes = set(known.get(topic_id, ())) if known is not None else set()
            topics[topic_id] = indexes
        return indexes

    def _change_broker_configs(self, change: BrokerConfigsChanged) -> None:
        if change.configs:
            self._broker_configs[change.broker] = change.configs
        else:
            self._broker_configs.pop(change.broker, None)

    def _change_group_configs(self, change: GroupConfigsChanged) -> None:
        if self._group_configs is None:
            self._group_configs = dict(self._image.group_configs)
        if change.configs:
            self._group_configs[change.group_id] = change.configs
        else:
            self._group_configs.pop(change.group_id, None)
