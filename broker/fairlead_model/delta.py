"""The changes that a cluster image can undergo; `fairlead_model.codec` gives them bytes."""

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
    """A broker is new or has another registration."""

    registration: BrokerRegistration


@dataclass(frozen=True, slots=True)
class BrokerRemoved:
    """A broker was taken out of the cluster."""

    broker_id: BrokerId


@dataclass(frozen=True, slots=True)
class TopicChanged:
    """A topic is new or has another header; comes before the changes of its partitions."""

    header: TopicHeader


@dataclass(frozen=True, slots=True)
class TopicRemoved:
    """Nothing of a topic is left anywhere."""

    topic_id: TopicId


@dataclass(frozen=True, slots=True)
class PartitionChanged:
    """A partition is new or has another record."""

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
    """Configs of one group, whether it exists or not; empty for none any more."""

    group_id: str
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class FeaturesChanged:
    """Features have other levels in force."""

    features: FinalizedFeatures


@dataclass(frozen=True, slots=True)
class AclChanged:
    """A rule is new, or there is no such rule any more."""

    rule: AclBinding
    is_removed: bool = False


@dataclass(frozen=True, slots=True)
class CredentialChanged:
    """A user has another SCRAM credential for a mechanism, or none any more."""

    user: str
    mechanism: ScramMechanism
    credential: ScramCredential | None


@dataclass(frozen=True, slots=True)
class ClientQuotaChanged:
    """An entity has other quotas; empty for none any more."""

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
    """Changes in the order in which they hold."""

    changes: tuple[Change, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changes)
