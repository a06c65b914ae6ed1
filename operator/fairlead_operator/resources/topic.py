"""Topic: what `fairlead_model.resources.topic_manifest` reads, as Kubernetes stores it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Final

from fairlead_model.ids import INTERNAL_TOPICS, TOPIC_NAME_LENGTH_MAX
from fairlead_model.resources.failover_drill import CLUSTER_NAME
from fairlead_model.resources.resource_reading import RootRule
from fairlead_model.resources.resource_shape import ConfigMap, Rule, Text, Whole
from fairlead_model.resources.topic_manifest import PARTITIONS_MAX
from fairlead_operator.resources.condition import COUNT, Conditions, ObservedGeneration
from fairlead_operator.resources.definition import (
    AGE,
    READY,
    READY_REASON,
    Column,
    ResourceDefinition,
)
from fairlead_operator.resources.log_cluster import NAMESPACE, NAMESPACE_HINT, ReclaimPolicy

_NAME: Final = "(has(self.spec.topicName) ? self.spec.topicName : self.metadata.name)"
_OLD_NAME: Final = "(has(oldSelf.spec.topicName) ? oldSelf.spec.topicName : oldSelf.metadata.name)"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFields:
    """A topic as it should be."""

    RULES: ClassVar = (
        Rule(
            cel="!has(oldSelf.clusterName) || !has(self.clusterName) || "
            "self.clusterName == oldSelf.clusterName",
            message="a topic cannot move to another cluster: make a new Topic there",
            field="clusterName",
        ),
        Rule(
            cel="(has(oldSelf.clusterNamespace) ? oldSelf.clusterNamespace : '') == "
            "(has(self.clusterNamespace) ? self.clusterNamespace : '')",
            message="a topic cannot move to another cluster: make a new Topic there",
            field="clusterNamespace",
        ),
        Rule(
            cel="!has(self.clusterNamespace) || has(self.clusterName)",
            message="clusterNamespace needs clusterName: set clusterName, too",
            field="clusterName",
        ),
        Rule(
            cel="!has(oldSelf.partitions) || "
            "(has(self.partitions) && self.partitions >= oldSelf.partitions)",
            message="partitions can be added, never removed: set at least the present number, or "
            "make a new topic and move the records there",
            field="partitions",
        ),
        Rule(
            cel="!has(self.topicName) || "
            f"!(self.topicName in {sorted((*INTERNAL_TOPICS, '.', '..'))!r})",
            message="this name belongs to the cluster itself: choose another topicName",
            field="topicName",
        ),
    )

    cluster_name: Annotated[
        str | None,
        "LogCluster that the topic lives in; it cannot be changed. Default: the only "
        "LogCluster of the namespace; the operator then writes its name here.",
        CLUSTER_NAME,
    ] = None
    cluster_namespace: Annotated[
        str | None,
        "Namespace of that LogCluster, if it is not the Topic's own: its spec.topicNamespaces "
        "has to name the Topic's namespace. It cannot be changed.",
        Text(63, 1, pattern=NAMESPACE, hint=NAMESPACE_HINT),
    ] = None
    topic_name: Annotated[
        str | None,
        "The topic's name for Kafka clients, if it is not metadata.name: it may have upper "
        "case letters and '_'. It cannot be changed.",
        Text(
            maximum=TOPIC_NAME_LENGTH_MAX,
            minimum=1,
            pattern="[a-zA-Z0-9._-]+",
            hint="a topic's name has letters, digits, '.', '_' and '-' only",
        ),
    ] = None
    partitions: Annotated[
        int | None,
        "Number of partitions; it may only grow. Default: defaults.partitions of the LogCluster.",
        Whole(1, PARTITIONS_MAX),
    ] = None
    replication_factor: Annotated[
        int | None,
        "Number of replicas of each partition; a change adds replicas or removes some. "
        "Default: defaults.replicationFactor of the LogCluster for a new topic.",
        Whole(1, 32_767),
    ] = None
    config: Annotated[
        Mapping[str, str | None],
        "Settings of the topic, under Kafka's names, such as retention.ms. A setting that is "
        "named here has this value, and any other has its default. null leaves a setting as it "
        "is (write it with kubectl apply --server-side: plain kubectl apply drops nulls).",
        ConfigMap(),
    ] = field(default_factory=dict)
    reclaim_policy: Annotated[
        ReclaimPolicy,
        "What happens to the topic when this resource is deleted. Retain: the topic stays as "
        "it is, and a new Topic of the same name manages it again. Delete: the topic is "
        "deleted with all its records.",
    ] = "Retain"
    deletion_protection: Annotated[
        bool, "Refuse to delete the topic, whoever asks. To delete it, set this to false first."
    ] = False
    paused: Annotated[
        bool,
        "Leave the topic as it is, whatever else this resource says. The operator still updates "
        "the status, and still carries out a deletion.",
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicStatus:
    """The topic as the controller sees it."""

    conditions: Conditions = ()
    observed_generation: ObservedGeneration = None
    topic_id: Annotated[str, "Kafka's id of the topic.", Text(22)] = ""
    topic_name: Annotated[
        str, "The topic's name for Kafka clients.", Text(TOPIC_NAME_LENGTH_MAX)
    ] = ""
    partitions: Annotated[int | None, "Partitions that the topic has.", COUNT] = None
    replication_factor: Annotated[int | None, "Replicas of each partition.", COUNT] = None
    under_replicated: Annotated[
        int | None, "Partitions with fewer in-sync replicas than replicas.", COUNT
    ] = None
    offline: Annotated[int | None, "Partitions without a leader.", COUNT] = None
    reassigning: Annotated[
        int | None, "Partitions whose replicas are being reassigned, or wait for that.", COUNT
    ] = None
    leaders: Annotated[str, "How many partitions each broker leads, as ID:COUNT.", Text(1024)] = ""


TOPIC: Final = ResourceDefinition(
    kind="Topic",
    plural="topics",
    short_names=("ft",),
    description="A topic of a LogCluster: its partitions, replicas and settings.",
    spec=TopicFields,
    status=TopicStatus,
    root_rules=(
        RootRule(
            cel=f"has(self.spec.topicName) || self.metadata.name.size() <= {TOPIC_NAME_LENGTH_MAX}",
            message=f"a topic's name has at most {TOPIC_NAME_LENGTH_MAX} characters, and "
            "metadata.name has more: set spec.topicName",
            field="spec.topicName",
        ),
        RootRule(
            cel=f"{_NAME} == {_OLD_NAME}",
            message="a topic cannot be renamed: make a new Topic with the new name",
            field="spec.topicName",
        ),
    ),
    columns=(
        Column("Partitions", ".status.partitions", "integer"),
        Column("RF", ".status.replicationFactor", "integer", "Replication factor"),
        Column("Under-Replicated", ".status.underReplicated", "integer"),
        Column("Offline", ".status.offline", "integer"),
        Column("Ready", READY),
        AGE,
        Column("Reassigning", ".status.reassigning", "integer", is_wide=True),
        Column("Reason", READY_REASON, is_wide=True),
        Column("Cluster", ".spec.clusterName", is_wide=True),
        Column("Topic", ".status.topicName", is_wide=True),
        Column("Leaders", ".status.leaders", is_wide=True),
        Column("Topic Id", ".status.topicId", is_wide=True),
    ),
    example="""\
apiVersion: fairlead.io/v1alpha1
kind: Topic
metadata:
  name: orders
spec:
  clusterName: demo
  topicName: shop.Orders # default: metadata.name
  partitions: 6
  replicationFactor: 3
  config:
    min.insync.replicas: 2
    retention.ms: 604800000
    max.message.bytes: null # left as it is
""",
)
