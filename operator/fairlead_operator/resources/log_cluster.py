"""LogCluster: what all brokers of a cluster share, and the cluster's health."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from fairlead_model.ids import TOPIC_NAME_LENGTH_MAX
from fairlead_model.resources.failover_drill import CLUSTER_NAME
from fairlead_model.resources.resource_reading import ManifestForm, RootRule, read_manifest
from fairlead_model.resources.resource_shape import Bound, ConfigMap, Rule, Text, Whole
from fairlead_model.resources.topic_manifest import PARTITIONS_MAX
from fairlead_model.web_origin import ORIGIN_HINT, ORIGIN_PATTERN
from fairlead_operator.resources.broker_settings import broker_setting_problem
from fairlead_operator.resources.condition import COUNT, Conditions, ObservedGeneration
from fairlead_operator.resources.definition import (
    AGE,
    READY,
    READY_REASON,
    Column,
    ResourceDefinition,
)
from fairlead_operator.resources.ip_families import (
    COUNT_CEL,
    FAMILY_RULES,
    FIRST_STAYS,
    IpFamily,
    IpFamilyPolicy,
    has_same_first,
)
from fairlead_operator.resources.listener import (
    DEFAULT_LISTENER,
    Authentication,
    Listener,
    ListenerTls,
)
from fairlead_operator.resources.maintenance_window import MaintenanceWindow
from fairlead_operator.resources.user_policy import UserPolicy

ReclaimPolicy: TypeAlias = Literal["Retain", "Delete"]
ImagePullPolicy: TypeAlias = Literal["Always", "IfNotPresent", "Never"]
LISTENERS_MAX: Final = 8
WINDOWS_MAX: Final = 32
_HOST: Final = r"[A-Za-z0-9.-]+"
_HOST_HINT: Final = "a host is a name without a scheme and a port"
_SUPER_USER_HINT: Final = "a user's name has no semicolon"
NAMESPACE: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
NAMESPACE_HINT: Final = "a namespace has lower case letters, digits and '-'"
TOPIC_NAMESPACES_MAX: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDefaults:
    """Partitions and replicas of topics that do not set them."""

    partitions: Annotated[int, "Partitions of a topic.", Whole(1, PARTITIONS_MAX)] = 1
    replication_factor: Annotated[int, "Replicas of each partition.", Whole(1, 32_767)] = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicNamespace:
    """What the Topics of one namespace may have in this cluster."""

    name: Annotated[
        str,
        "The namespace, unique in the list.",
        Text(63, 1, pattern=NAMESPACE, hint=NAMESPACE_HINT),
    ]
    topic_prefix: Annotated[
        str | None,
        "How the names of its topics begin, such as 'shop.'. With a prefix, its Topics may also "
        "manage topics with such names that exist already.",
        Text(
            maximum=TOPIC_NAME_LENGTH_MAX - 1,
            minimum=1,
            pattern="[a-zA-Z0-9._-]+",
            hint="a topic's name has letters, digits, '.', '_' and '-' only",
        ),
    ] = None
    topics_max: Annotated[
        int | None, "Most topics that it may declare in this cluster. Default: no limit.", COUNT
    ] = None
    partitions_max: Annotated[
        int | None, "Most partitions of these topics together. Default: no limit.", COUNT
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RestSettings:
    """The HTTP API of the brokers."""

    RULES: ClassVar = (
        Rule(
            cel="!has(self.authentication) || (has(self.tls) && self.tls.enabled)",
            message="passwords, certificates and tokens need TLS: add tls",
            field="authentication",
            holds=lambda rest: rest.authentication is None or rest.is_tls,
        ),
    )

    enabled: Annotated[
        bool,
        "Serve records and topics by HTTP, at port 8082 of each broker and of the Service "
        "NAME-bootstrap.",
    ] = False
    tls: Annotated[ListenerTls | None, "TLS. Default: connections are not encrypted (http://)."] = (
        None
    )
    authentication: Annotated[
        Authentication | None,
        "How clients authenticate: with a password (scram-sha-512) by HTTP Basic, a "
        "certificate (tls), or a token (oauth) by Bearer. Default: clients do not "
        "authenticate; all are User:ANONYMOUS.",
    ] = None
    allowed_hosts: Annotated[
        tuple[Annotated[str, Text(253, 1, pattern=_HOST, hint=_HOST_HINT)], ...],
        "Further names that requests may have in the Host header, such as that of an Ingress. "
        "localhost, IP addresses, and the names of the pods and of NAME-bootstrap are always "
        "allowed.",
        Bound(32),
    ] = ()
    allowed_origins: Annotated[
        tuple[Annotated[str, Text(300, 1, pattern=ORIGIN_PATTERN, hint=ORIGIN_HINT)], ...],
        "Origins of web pages that may use the HTTP API (CORS), such as https://example.com or "
        "http://[::1]:3000.",
        Bound(32),
    ] = ()

    @property
    def is_tls(self) -> bool:
        """Whether it uses TLS."""
        return self.tls is not None and self.tls.enabled

    @property
    def is_secured(self) -> bool:
        """Whether it is served over TLS, and so may require authentication."""
        return self.enabled and self.is_tls


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
        bool,
        "Accept only connections that brokers need: from clients, other brokers, the "
        "operator and Prometheus.",
    ] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    """What StreamJobs that read this cluster need."""

    driver_account: Annotated[
        bool,
        "Create the ServiceAccount NAME-spark, with which drivers of StreamJobs create their "
        "executors in this namespace, and its RoleBinding. An account of this name that "
        "somebody else has made is left as it is.",
    ] = True
    namespaces: Annotated[
        tuple[Annotated[str, Text(63, 1, pattern=NAMESPACE, hint=NAMESPACE_HINT)], ...],
        "Other namespaces whose StreamJobs may read this cluster. The jobs run there, with "
        "ServiceAccounts that exist there.",
        Bound(TOPIC_NAMESPACES_MAX),
    ] = ()
    service_accounts: Annotated[
        tuple[Annotated[str, Text(253, 1)], ...],
        "Other ServiceAccounts of this namespace that StreamJobs may name. A job has all "
        "permissions of its account.",
        Bound(32),
    ] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Authorization:
    """Who may do what."""

    type: Annotated[
        Literal["simple"], "simple: Kafka's access rules, which Users and kafka-acls.sh make."
    ] = "simple"
    super_users: Annotated[
        tuple[Annotated[str, Text(256, 1, pattern=r"[^;]+", hint=_SUPER_USER_HINT)], ...],
        "Names of users who may do everything, whatever rules say. The user of a certificate is "
        "its common name.",
        Bound(32),
    ] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateAuthority:
    """The authority of a cluster, in the Secrets NAME-ca (its certificate) and NAME-ca-key."""

    overlap_days: Annotated[
        int,
        "Days for which an old and a new authority are both trusted: once before the new one "
        "issues certificates, and again before the old one is removed. Clients have to load "
        "the new NAME-ca within this time.",
        Whole(0, 365),
    ] = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class InterBroker:
    """Connections of brokers to each other and to the controller."""

    tls: Annotated[
        bool,
        "Encrypt these connections, with a certificate of the cluster's authority on both "
        "sides: replication, requests that one broker forwards to another, and each broker's "
        "session with the controller. It cannot be changed, because brokers with TLS and "
        "brokers without it could not replicate to each other while brokers restart one by one.",
    ] = False


def _has_unique_ports(spec: Any) -> bool:
    ports = Counter(listener.port for listener in spec.listeners)
    return all(count == 1 for count in ports.values())


def _has_unique_names(spec: Any) -> bool:
    names = Counter(listener.name for listener in spec.listeners)
    return all(count == 1 for count in names.values())


_PEER_TLS: Final = "has({0}.interBroker) && has({0}.interBroker.tls) && {0}.interBroker.tls"


def _leaves_controller_alone(spec: Any) -> bool:
    names = [listener.name for listener in spec.listeners]
    return not (spec.inter_broker.tls and "controller" in names)


def _keeps_first_families(old: Any, new: Any) -> bool:
    before = {listener.name: listener.ip_families for listener in old.listeners}
    return all(
        has_same_first(before.get(listener.name, ()), listener.ip_families)
        for listener in new.listeners
    )


def _has_unique_namespaces(spec: Any) -> bool:
    names = Counter(each.name for each in spec.topic_namespaces)
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
        Rule(
            cel="!has(self.topicNamespaces) || "
            "self.topicNamespaces.all(a, self.topicNamespaces.exists_one(b, a.name == b.name))",
            message="a namespace is listed twice: give it one entry",
            field="topicNamespaces",
            holds=_has_unique_namespaces,
        ),
        Rule(
            cel=f"({_PEER_TLS.format('self')}) == ({_PEER_TLS.format('oldSelf')})",
            message="interBroker.tls cannot be changed, because brokers with and without TLS "
            "cannot replicate to each other: make a new cluster",
            field="interBroker",
            holds_change=lambda old, new: old.inter_broker.tls == new.inter_broker.tls,
        ),
        Rule(
            cel=f"!({_PEER_TLS.format('self')}) || !has(self.listeners) || "
            "!self.listeners.exists(a, a.name == 'controller')",
            message="with interBroker.tls, CONTROLLER is the controller's listener: give the "
            "listener of clients another name",
            field="listeners",
            holds=_leaves_controller_alone,
        ),
        *FAMILY_RULES,
        Rule(
            cel=f"{COUNT_CEL.format('self')} == 0 || {COUNT_CEL.format('oldSelf')} == 0 || "
            "self.ipFamilies[0] == oldSelf.ipFamilies[0]",
            message=f"{FIRST_STAYS} cluster",
            field="ipFamilies",
            holds_change=lambda old, new: has_same_first(old.ip_families, new.ip_families),
        ),
        Rule(
            cel="!has(self.listeners) || !has(oldSelf.listeners) || "
            "self.listeners.all(a, oldSelf.listeners.all(b, a.name != b.name || "
            f"{COUNT_CEL.format('a')} == 0 || {COUNT_CEL.format('b')} == 0 || "
            "a.ipFamilies[0] == b.ipFamilies[0]))",
            message=f"{FIRST_STAYS} listener",
            field="listeners",
            holds_change=_keeps_first_families,
        ),
    )

    image: Annotated[
        str | None,
        "Container image of the brokers. Default: the image that the operator was installed "
        "with when the cluster was created. A later release of the operator keeps that image "
        "(status.brokerImage); see version.",
        Text(maximum=512, minimum=1),
    ] = None
    version: Annotated[
        str | None,
        "Release that the brokers are to run. If it is the release of the operator, the "
        "brokers restart one after the other with the operator's image. Without it, or with "
        "another release, they keep the image that they have.",
        Text(maximum=64, minimum=1),
    ] = None
    image_pull_policy: Annotated[
        ImagePullPolicy | None, "When nodes pull the image. Default: that of Kubernetes."
    ] = None
    image_pull_secrets: Annotated[
        tuple[Annotated[str, Text(253, 1)], ...],
        "Names of Secrets of this namespace that let nodes pull the image.",
        Bound(8),
    ] = ()
    config: Annotated[
        Mapping[str, str | None],
        "Settings of all brokers, under Kafka's names (server.properties). A setting that is "
        "named here has this value, and any other has its default; null leaves a setting as it "
        "is. A dynamic setting changes while brokers run, unless a BrokerPool names it, too. "
        "Any other setting restarts the brokers.",
        ConfigMap(problem=broker_setting_problem),
    ] = field(default_factory=dict)
    defaults: Annotated[
        TopicDefaults, "Partitions and replicas of topics that do not set them."
    ] = field(default_factory=TopicDefaults)
    listeners: Annotated[
        tuple[Listener, ...],
        "Listeners by which clients reach the brokers. Inside Kubernetes clients bootstrap at "
        "the Service NAME-bootstrap, which has a port for each listener of type Internal. If "
        "no listener is of this type, brokers have one without TLS at port 9092.",
        Bound(LISTENERS_MAX),
    ] = ()
    ip_family_policy: Annotated[
        IpFamilyPolicy | None,
        "ipFamilyPolicy of all Services of the cluster except those of listeners that set "
        "their own, as in a Service of Kubernetes. Default: SingleStack, as in Kubernetes.",
    ] = None
    ip_families: Annotated[
        tuple[IpFamily, ...],
        "IP families of these Services; the first one cannot be changed. Default: Kubernetes "
        "chooses by the policy.",
        Bound(2),
    ] = ()
    inter_broker: Annotated[
        InterBroker, "Connections of brokers to each other and to the controller."
    ] = field(default_factory=InterBroker)
    authorization: Annotated[
        Authorization | None,
        "Access rules (ACLs). Default: brokers apply them as soon as any listener "
        "authenticates clients, and there are no super users.",
    ] = None
    certificate_authority: Annotated[
        CertificateAuthority | None,
        "The authority that issues the certificates of brokers and users.",
    ] = None
    reclaim_policy: Annotated[
        ReclaimPolicy,
        "What happens to the cluster's metadata (PartitionTables, ClusterState) and volumes "
        "when this LogCluster is deleted. Retain: they stay, and a new LogCluster of the same "
        "name uses them again.",
    ] = "Retain"
    maintenance_windows: Annotated[
        tuple[MaintenanceWindow, ...],
        "Times at which the operator may restart running brokers for a new image, new settings "
        "or another pod template. Default: at any time. Brokers that do not run are started at "
        "any time.",
        Bound(WINDOWS_MAX),
    ] = ()
    fenced_brokers: Annotated[
        tuple[Annotated[int, Whole(0, 2_147_483_647)], ...],
        "Ids of brokers to keep out of service: they lead no partition, are in no in-sync set "
        "and get no new replicas. Their pods and volumes stay as they are. The controller will "
        "fence a broker that partitions need only once they can do without it.",
        Bound(64),
    ] = ()
    deletion_protection: Annotated[
        bool,
        "Refuse to delete the cluster, whoever asks; its brokers keep running. To delete it, set "
        "this to false first.",
    ] = False
    topic_namespaces: Annotated[
        tuple[TopicNamespace, ...],
        "Other namespaces whose Topics may name this cluster, and the limits of each. Topics of a "
        "namespace without an entry are refused. The cluster's own namespace needs an entry only "
        "if it has limits.",
        Bound(TOPIC_NAMESPACES_MAX),
    ] = ()
    paused: Annotated[
        bool,
        "Leave pods, Services, topics and offsets of groups as they are, whatever the resources "
        "say. Elections and failover go on, and so do deletions.",
    ] = False
    pause_reconciliation: Annotated[bool, "The older name of paused; either one pauses."] = False
    hibernated: Annotated[
        bool,
        "Stop all brokers in good order once all replicas are in sync, and delete their pods. "
        "Volumes, metadata, addresses, Secrets, Topics and Users stay; false starts the "
        "brokers again.",
    ] = False
    drills: Annotated[Drills, "Failover drills."] = field(default_factory=Drills)
    rest: Annotated[RestSettings, "The HTTP API of the brokers."] = field(
        default_factory=RestSettings
    )
    network_policy: Annotated[NetworkPolicySettings, "The NetworkPolicy of the brokers."] = field(
        default_factory=NetworkPolicySettings
    )
    user_policy: Annotated[UserPolicy, "What Users of this cluster may allow."] = field(
        default_factory=UserPolicy
    )
    spark: Annotated[SparkSettings, "What StreamJobs that read this cluster need."] = field(
        default_factory=SparkSettings
    )

    @property
    def inside_listeners(self) -> tuple[Listener, ...]:
        """Listeners of clients inside Kubernetes: those of type Internal, or else the default."""
        declared = tuple(each for each in self.listeners if each.is_inside)
        return declared or (DEFAULT_LISTENER,)

    @property
    def outside_listeners(self) -> tuple[Listener, ...]:
        """Listeners with their own Services."""
        return tuple(each for each in self.listeners if not each.is_inside)

    @property
    def client_listeners(self) -> tuple[Listener, ...]:
        """All listeners of clients."""
        return (*self.inside_listeners, *self.outside_listeners)

    @property
    def authority_overlap_days(self) -> int:
        """Days for which an old and a new authority are both trusted."""
        return (self.certificate_authority or CertificateAuthority()).overlap_days

    @property
    def is_secured(self) -> bool:
        """Whether any listener uses TLS or authentication, or requests are authorized."""
        return (
            self.authorization is not None
            or self.rest.is_secured
            or any(each.is_secured for each in self.listeners)
        )

    @property
    def has_certificates(self) -> bool:
        """Whether brokers have certificates: for listeners, or for each other."""
        return self.is_secured or self.inter_broker.tls

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> "LogClusterSpec":
        """Read a LogCluster; ManifestError lists all its problems."""
        return read_manifest(manifest, ManifestForm("LogCluster", cls, _ROOT_RULES))


_ROOT_RULES: Final[tuple[RootRule[LogClusterSpec], ...]] = (
    RootRule(
        cel="self.metadata.name.size() <= 32 && "
        "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
        message="metadata.name becomes part of the names of Services: at most 32 characters, lower "
        "case letters, digits and '-', beginning with a letter and ending with a letter or digit; "
        "create the cluster under another name",
        field="metadata.name",
        holds=lambda name, _: is_cluster_name(name),
    ),
)


def is_cluster_name(name: str) -> bool:
    """Tell whether a LogCluster may have this name."""
    return (
        len(name) <= CLUSTER_NAME.maximum and re.fullmatch(CLUSTER_NAME.pattern, name) is not None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerStatus:
    """The controller that decides for the cluster."""

    pod: Annotated[str, "Pod that the controller runs in.", Text(253)] = ""
    epoch: Annotated[int | None, "Its controller epoch.", COUNT] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogClusterStatus:
    """The cluster as its controller sees it."""

    conditions: Conditions = ()
    observed_generation: ObservedGeneration = None
    brokers: Annotated[int | None, "Brokers that the cluster should have.", COUNT] = None
    brokers_ready: Annotated[int | None, "Brokers that are registered and serve.", COUNT] = None
    topics: Annotated[int | None, "Number of topics.", COUNT] = None
    partitions: Annotated[int | None, "Partitions of all topics together.", COUNT] = None
    under_replicated: Annotated[
        int | None, "Partitions with fewer in-sync replicas than replicas.", COUNT
    ] = None
    offline: Annotated[int | None, "Partitions without a leader.", COUNT] = None
    controller: Annotated[
        ControllerStatus | None, "The controller that decides for the cluster."
    ] = None
    bootstrap: Annotated[str, "Address for clients inside the Kubernetes cluster.", Text(512)] = ""
    cluster_id: Annotated[str, "Kafka's id of the cluster.", Text(64)] = ""
    broker_image: Annotated[str, "Image that the operator gives to the brokers.", Text(512)] = ""
    config_generation: Annotated[
        int | None, "Generation of the spec whose settings all brokers use.", COUNT
    ] = None
    restarts_wait_until: Annotated[
        str,
        "When the next maintenance window begins, while brokers wait for it to restart.",
        Text(32),
    ] = ""


LOG_CLUSTER: Final = ResourceDefinition(
    kind="LogCluster",
    plural="logclusters",
    short_names=("lc",),
    description="A Fairlead cluster: a Kafka-compatible log. BrokerPools of the same namespace "
    "add its brokers, and one controller manages it.",
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
        Column("Hibernated", '.status.conditions[?(@.type=="Hibernated")].status'),
        AGE,
        Column("Reason", READY_REASON, is_wide=True),
        Column("Partitions", ".status.partitions", "integer", is_wide=True),
        Column("Epoch", ".status.controller.epoch", "integer", is_wide=True),
        Column("Bootstrap", ".status.bootstrap", is_wide=True),
        Column("Restarts Wait Until", ".status.restartsWaitUntil", is_wide=True),
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
