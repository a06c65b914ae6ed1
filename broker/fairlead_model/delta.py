"""The changes of a cluster image; `fairlead_model.codec` encodes them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from fairlead_model.broker import BrokerRegistration
from fairlead_model.features import FinalizedFeatures
from fairlead_model.ids import BrokerId, TopicId
from fairlead_model.partition import PartitionRegistration
from fairlead_model.security.acl import AclBinding
from fairlead_model.security.client_quota import QuotaEntity, Quotas
from fairlead_model.security.scram import ScramCredential, ScramMechanism
from fairlead_model.topic import TopicHeader


@dataclass(frozen=True, slots=True)
class BrokerChanged:
    """A broker is new, or its registration has changed."""

    registration: BrokerRegistration


@dataclass(frozen=True, slots=True)
class BrokerRemoved:
    """A broker was removed from the cluster."""

    broker_id: BrokerId


@dataclass(frozen=True, slots=True)
class TopicChanged:
    """A topic is new, or its header has changed; comes before the changes of its partitions."""

    header: TopicHeader


@dataclass(frozen=True, slots=True)
class TopicRemoved:
    """A topic was removed completely."""

    topic_id: TopicId


@dataclass(frozen=True, slots=True)
class PartitionChanged:
    """A partition is new, or its registration has changed."""

    topic_id: TopicId
    index: int
    partition: PartitionRegistration


@dataclass(frozen=True, slots=True)
class BrokerConfigsChanged:
    """Dynamic configs of one broker (its id as text) or of all (`CLUSTER_WIDE`)."""

    broker: str
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class GroupConfigsChanged:
    """Configs of one group, whether or not it exists; empty if the group has none any more."""

    group_id: str
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class FeaturesChanged:
    """The finalized features have changed."""

    features: FinalizedFeatures


@dataclass(frozen=True, slots=True)
class AclChanged:
    """An access rule was added or removed."""

    rule: AclBinding
    is_removed: bool = False


@dataclass(frozen=True, slots=True)
class CredentialChanged:
    """A user's SCRAM credential for a mechanism has changed, or was removed (None)."""

    user: str
    mechanism: ScramMechanism
    credential: ScramCredential | None


@dataclass(frozen=True, slots=True)
class ClientQuotaChanged:
    """The quotas of an entity have changed; empty if it has none any more."""

    entity: QuotaEntity
    quotas: Quotas


Change: TypeAlias = (
    BrokerChanged
    | BrokerRemoved
    | TopicChanged
    | TopicRemoved
    | PartitionChanged
    | BrokerConfigsChanged
    | GroupConfigsChanged
    | FeaturesChanged
    | AclChanged
    | CredentialChanged
    | ClientQuotaChanged
)


@dataclass(frozen=True, slots=True)
class ClusterDelta:
    """Changes in the order in which they are applied."""

    changes: tuple[Change, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changes)
