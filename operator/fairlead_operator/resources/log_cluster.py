"""LogCluster: what all brokers of a cluster share, and the cluster's health."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from fairlead_model.failover_drill import CLUSTER_NAME
from fairlead_model.resource_reading import ManifestForm, RootRule, read_manifest
from fairlead_model.resource_shape import Bound, ConfigMap, Rule, Text, Whole
from fairlead_model.resources import PARTITIONS_MAX
from fairlead_operator.resources.broker_settings import broker_setting_problem
from fairlead_operator.resources.condition import COUNT, Conditions, ObservedGeneration
from fairlead_operator.resources.definition import (
    AGE,
    READY,
    READY_REASON,
    Column,
    ResourceDefinition,
)

ListenerType: TypeAlias = Literal["NodePort", "LoadBalancer"]
ReclaimPolicy: TypeAlias = Literal["Retain", "Delete"]
ImagePullPolicy: TypeAlias = Literal["Always", "IfNotPresent", "Never"]
LISTENERS_MAX: Final = 8
PLACEHOLDERS: Final = (
    "brokerId",
    "ordinal",
    "pod",
    "pool",
    "cluster",
    "namespace",
    "hostIP",
    "nodePort",
)
"""What the advertised templates of a listener may name in braces."""

_PLACEHOLDER: Final = "|".join(PLACEHOLDERS)
_PLACEHOLDERS_SHOWN: Final = " ".join(f"{{{name}}}" for name in PLACEHOLDERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """A way to the brokers from outside the Kubernetes cluster."""

    RULES: ClassVar = (
        Rule(
            cel="self.type == 'NodePort' || !has(self.nodePortBase)",
            message="only listeners of type NodePort take a nodePortBase: leave it out",
            field="nodePortBase",
            holds=lambda listener: listener.type == "NodePort" or listener.node_port_base is None,
        ),
    )

    name: Annotated[
        str,
        "Name of the listener, unique in the cluster; Services are called after it.",
        Text(
            maximum=20,
            minimum=1,
            pattern="[a-z][a-z0-9]*",
            hint="a listener's name has lower case letters and digits and begins with a letter",
        ),
    ]
    type: Annotated[
        ListenerType, "NodePort: a port of every node. LoadBalancer: an address a broker."
    ]
    port: Annotated[
        int,
        "Port that the brokers listen on inside their pods, unique in the cluster.",
        Whole(9095, 9199),
    ]
    node_port_base: Annotated[
        int | None,
        "Node port of the bootstrap Service; broker N has the one N + 1 above it. Default: "
        "Kubernetes chooses.",
        Whole(1, 65_535),
    ] = None
    advertised_host_template: Annotated[
        str | None,
        "Host that clients are told for a broker, such as broker-{brokerId}.example.com. "
        f"Placeholders: {_PLACEHOLDERS_SHOWN}. Default: {{hostIP}}, or what the balancer says.",
        Text(
            maximum=253,
            minimum=1,
            pattern=rf"([A-Za-z0-9.:-]|\{{({_PLACEHOLDER})\}})+",
            hint=f"a host may name these placeholders, and no others: {_PLACEHOLDERS_SHOWN}",
        ),
    ] = None
    advertised_port_template: Annotated[
        str | None,
        "Port that clients are told for a broker: a number, {nodePort}, or digits and {brokerId} "
        "or {ordinal}, such as 3{brokerId}. Default: the node port, or the listener's port.",
        Text(
            maximum=32,
            minimum=1,
            pattern=r"([0-9]|\{(brokerId|ordinal|nodePort)\})+",
            hint="a port has digits and the placeholders {brokerId}, {ordinal} and {nodePort} only",
        ),
    ] = None
    annotations: Annotated[
        Mapping[Annotated[str, Text(316)], Annotated[str, Text(1024)]],
        "Annotations of the listener's Services, for load balancers and external DNS.",
        Bound(32),
    ] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDefaults:
    """Counts of topics that do not say."""

    partitions: Annotated[int, "Partitions of a topic.", Whole(1, PARTITIONS_MAX)] = 1
    replication_factor: Annotated[int, "Replicas of each partition.", Whole(1, 32_767)] = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Drills:
    """Failover drills."""

    enabled: Annotated[
        bool, "Let FailoverDrills kill, stop and delete the brokers of this cluster."
    ] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkPolicySettings:
    """The NetworkPolicy of the brokers."""

    enabled: Annotated[
        bool, "Let in only what brokers need: clients, each other, the operator and metrics."
    ] = True


def _has_unique_ports(spec: Any) -> bool:
    ports = Counter(listener.port for listener in spec.listeners)
    return all(count == 1 for count in ports.values())


def _has_unique_names(spec: Any) -> bool:
    names = Counter(listener.name for listener in spec.listeners)
    return all(count == 1 for count in names.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class LogClusterSpec:
    """What all brokers of a cluster share; BrokerPools of the same namespace bring the brokers."""

    RULES: ClassVar = (
        Rule(
            cel="!has(self.listeners) || "
            "self.listeners.all(a, self.listeners.exists_one(b, a.name == b.name))",
            message="two listeners have the same name: give each one its own",
            field="listeners",
            holds=_has_unique_names,
        ),
        Rule(
            cel="!has(self.listeners) || "
            "self.listeners.all(a, self.listeners.exists_one(b, a.port == b.port))",
            message="two listeners have the same port: give each one its own",
            field="listeners",
            holds=_has_unique_ports,
        ),
    )

    image: Annotated[
        str | None,
        "Container image of the brokers. Default: the one that the operator was installed with.",
        Text(maximum=512, minimum=1),
    ] = None
    image_pull_policy: Annotated[
        ImagePullPolicy | None, "When nodes pull the image. Default: as Kubernetes does."
    ] = None
    image_pull_secrets: Annotated[
        tuple[Annotated[str, Text(253, 1)], ...],
        "Names of Secrets of this namespace that let nodes pull the image.",
        Bound(8),
    ] = ()
    config: Annotated[
        Mapping[str, str | None],
        "Settings of all brokers, under Kafka's names (server.properties). What is named here "
        "holds, what is not has its default; null says nothing about a setting.",
        ConfigMap(problem=broker_setting_problem),
    ] = field(default_factory=dict)
    defaults: Annotated[TopicDefaults, "Counts of topics that do not say."] = field(
        default_factory=TopicDefaults
    )
    listeners: Annotated[
        tuple[Listener, ...],
        "Ways to the brokers from outside the Kubernetes cluster. Inside it, clients use port 9092 "
        "of the Service NAME-bootstrap.",
        Bound(LISTENERS_MAX),
    ] = ()
    reclaim_policy: Annotated[
        ReclaimPolicy,
        "What happens to the cluster's metadata (PartitionTables, ClusterState) and volumes when "
        "this LogCluster is deleted. Retain: they stay, and a LogCluster of the same name takes "
        "them up again.",
    ] = "Retain"
    pause_reconciliation: Annotated[
        bool,
        "Leave pods, Services and topics as they are, whatever the resources say. Elections and "
        "failover go on.",
    ] = False
    drills: Annotated[Drills, "Failover drills."] = field(default_factory=Drills)
    network_policy: Annotated[NetworkPolicySettings, "The NetworkPolicy of the brokers."] = field(
        default_factory=NetworkPolicySettings
    )

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> "LogClusterSpec":
        """Read a LogCluster; ManifestError lists all that is wrong with it."""
        return read_manifest(manifest, ManifestForm("LogCluster", cls, _ROOT_RULES))


_ROOT_RULES: Final[tuple[RootRule[LogClusterSpec], ...]] = (
    RootRule(
        cel="self.metadata.name.size() <= 32 && "
        "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
        message="metadata.name becomes part of the names of Services: at most 32 characters, lower "
        "case letters, digits and '-', begun by a letter; make it anew under another name",
        field="metadata.name",
        holds=lambda name, _: is_cluster_name(name),
    ),
)


def is_cluster_name(name: str) -> bool:
    """Tell whether a LogCluster may be called so."""
    return (
        len(name) <= CLUSTER_NAME.maximum and re.fullmatch(CLUSTER_NAME.pattern, name) is not None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerStatus:
    """The controller that decides for the cluster."""

    pod: Annotated[str, "Pod that it runs in.", Text(253)] = ""
    epoch: Annotated[int | None, "Its controller epoch.", COUNT] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogClusterStatus:
    """The cluster as its controller sees it."""

    conditions: Conditions = ()
    observed_generation: ObservedGeneration = None
    brokers: Annotated[int | None, "Brokers that there should be.", COUNT] = None
    brokers_ready: Annotated[int | None, "Brokers that are registered and serve.", COUNT] = None
    topics: Annotated[int | None, "Topics.", COUNT] = None
    partitions: Annotated[int | None, "Partitions of all topics.", COUNT] = None
    under_replicated: Annotated[
        int | None, "Partitions with fewer replicas in sync than they should have.", COUNT
    ] = None
    offline: Annotated[int | None, "Partitions without a leader.", COUNT] = None
    controller: Annotated[
        ControllerStatus | None, "The controller that decides for the cluster."
    ] = None
    bootstrap: Annotated[str, "Address for clients inside the Kubernetes cluster.", Text(512)] = ""
    cluster_id: Annotated[str, "Kafka's id of the cluster.", Text(64)] = ""


LOG_CLUSTER: Final = ResourceDefinition(
    kind="LogCluster",
    plural="logclusters",
    short_names=("lc",),
    description="A Fairlead cluster: a Kafka-compatible log of brokers, which BrokerPools of the "
    "same namespace bring, under one controller.",
    spec=LogClusterSpec,
    status=LogClusterStatus,
    root_rules=_ROOT_RULES,
    columns=(
        Column("Brokers", ".status.brokers", "integer"),
        Column("Ready Brokers", ".status.brokersReady", "integer"),
        Column("Topics", ".status.topics", "integer"),
        Column("Under-Replicated", ".status.underReplicated", "integer"),
        Column("Offline", ".status.offline", "integer"),
        Column("Controller", ".status.controller.pod"),
        Column("Ready", READY),
        AGE,
        Column("Reason", READY_REASON, is_wide=True),
        Column("Partitions", ".status.partitions", "integer", is_wide=True),
        Column("Epoch", ".status.controller.epoch", "integer", is_wide=True),
        Column("Bootstrap", ".status.bootstrap", is_wide=True),
    ),
    example="""\
apiVersion: fairlead.io/v1alpha1
kind: LogCluster
metadata:
  name: demo
spec:
  config:
    min.insync.replicas: 2
    auto.create.topics.enable: false
  defaults:
    partitions: 6
    replicationFactor: 3
  listeners:
    - name: outside
      type: NodePort
      port: 9095
      nodePortBase: 31090 # bootstrap at 31090, broker 0 at 31091, broker 1 at 31092 …
""",
)
