"""A topic: its header and its partitions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from fairlead_model.ids import BrokerId, TopicId, is_internal_topic
from fairlead_model.partition import PartitionRegistration


class TopicState(StrEnum):
    """States of a topic in its header; brokers receive only `live` and `deleting`."""

    MAKING = "making"
    LIVE = "live"
    DELETING = "deleting"


class TopicOrigin(StrEnum):
    """Who manages the topic: who created it, or the first resource that adopted it."""

    KAFKA = "kafka"
    RESOURCE = "resource"
    INTERNAL = "internal"


@dataclass(frozen=True, slots=True)
class TopicHeader:
    """What all partitions of a topic share. Written last at creation, first at deletion."""

    name: str
    topic_id: TopicId
    partition_count: int
    state: TopicState = TopicState.LIVE
    configs: Mapping[str, str] = field(default_factory=dict)
    """Overrides only: for an absent config the brokers' default applies."""
    origin: TopicOrigin = TopicOrigin.KAFKA
    resource: str = ""
    """Name of the Topic resource that declares the topic now; empty if none does."""
    reclaim_policy: str = "Retain"
    deletion_protection: bool = False
    unconfirmed_deletions: frozenset[BrokerId] = frozenset()
    """While `deleting`: brokers that may still hold data of the topic."""


@dataclass(frozen=True, slots=True)
class TopicImage:
    """A topic and its partitions; `partitions[i]` is partition i."""

    header: TopicHeader
    partitions: tuple[PartitionRegistration, ...] = ()

    @property
    def name(self) -> str:
        """The topic's name."""
        return self.header.name

    @property
    def topic_id(self) -> TopicId:
        """The topic's id, which no other topic ever gets."""
        return self.header.topic_id

    @property
    def configs(self) -> Mapping[str, str]:
        """The topic's config overrides."""
        return self.header.configs

    @property
    def is_internal(self) -> bool:
        """True for a topic with state of the cluster itself."""
        return is_internal_topic(self.header.name)

    @property
    def replication_factor(self) -> int:
        """Replicas of the first partition, without those that a reassignment is adding."""
        return len(self.partitions[0].original_replicas) if self.partitions else 0
