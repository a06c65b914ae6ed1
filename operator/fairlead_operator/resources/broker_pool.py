"""BrokerPool: brokers of one size and place, as many as `replicas` says."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Final, TypeAlias

from fairlead_model.resources.failover_drill import CLUSTER_NAME
from fairlead_model.resources.resource_reading import ManifestForm, RootRule, read_manifest
from fairlead_model.resources.resource_shape import (
    Bound,
    ConfigMap,
    Opaque,
    Quantity,
    Rule,
    Text,
    Whole,
)
from fairlead_operator.resources.broker_settings import pool_setting_problem
from fairlead_operator.resources.condition import COUNT, Conditions, ObservedGeneration
from fairlead_operator.resources.definition import (
    AGE,
    READY,
    READY_REASON,
    Column,
    ResourceDefinition,
    ScalePaths,
)
from fairlead_operator.resources.storage import (
    FIRST_GROWS_CEL,
    LOG_DIRECTORIES_VARIABLE,
    NEVER_REMOVED,
    ONLY_GROWS,
    OTHERS_GROW_CEL,
    VOLUME_ID_MAX,
    VOLUMES_MAX,
    VOLUMES_STAY_CEL,
    Storage,
)

BROKERS_MAX: Final = 1_000
BROKER_ID_MAX: Final = 999_999
OWN_ENVIRONMENT: Final = (
    "FAIRLEAD_ID_BASE",
    "HOST_IP",
    "NODE_NAME",
    "POD_IP",
    "POD_NAME",
    "POD_UID",
)
"""Variables that the operator sets itself."""
POOL_NAME_LENGTH_MAX: Final = 51
"""Of cluster and pool together: a StatefulSet's revision label adds a dash and ten characters."""

_LABEL_VALUE: Final = Text(63)
_Amounts: TypeAlias = Annotated[
    Mapping[str, Annotated[str, Quantity()]],
    "Amounts by name, such as cpu and memory.",
    Bound(16),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodResources:
    """What the broker's container requests, and how much it may use at most."""

    requests: _Amounts = field(default_factory=dict)
    limits: _Amounts = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentVariable:
    """A variable of the broker's container."""

    RULES: ClassVar = (
        Rule(
            cel=f"!(self.name in {list(OWN_ENVIRONMENT)!r})",
            message="the operator sets this variable itself: leave it out",
            field="name",
            holds=lambda variable: variable.name not in OWN_ENVIRONMENT,
        ),
        Rule(
            cel="!has(self.value) || !has(self.valueFrom)",
            message="a variable has a value or a valueFrom, not both",
            holds=lambda variable: variable.value is None or variable.value_from is None,
        ),
    )

    name: Annotated[
        str,
        "Name of the variable.",
        Text(
            256,
            1,
            "[A-Za-z_][A-Za-z0-9_]*",
            "a variable's name has letters, digits and '_' and does not begin with a digit",
        ),
    ]
    value: Annotated[str | None, "Value of the variable.", Text(32_768)] = None
    value_from: Annotated[
        Mapping[str, Any] | None,
        "Where the variable's value comes from, as in a Pod.",
        Opaque(4),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTemplate:
    """What the pods of a pool have in addition to what the operator gives them."""

    labels: Annotated[
        Mapping[str, Annotated[str, _LABEL_VALUE]], "Labels of the pods.", Bound(32)
    ] = field(default_factory=dict)
    annotations: Annotated[
        Mapping[str, Annotated[str, Text(4096)]], "Annotations of the pods.", Bound(32)
    ] = field(default_factory=dict)
    node_selector: Annotated[
        Mapping[str, Annotated[str, _LABEL_VALUE]],
        "Labels that nodes of the pods must have.",
        Bound(16),
    ] = field(default_factory=dict)
    tolerations: Annotated[
        tuple[Annotated[Mapping[str, Any], Opaque(8)], ...],
        "Tolerations of the pods, as in a Pod.",
        Bound(16),
    ] = ()
    affinity: Annotated[
        Mapping[str, Any] | None, "Affinity of the pods, as in a Pod.", Opaque(8)
    ] = None
    topology_spread_constraints: Annotated[
        tuple[Annotated[Mapping[str, Any], Opaque(16)], ...],
        "How the pods spread over nodes and zones, as in a Pod. Default: evenly over nodes.",
        Bound(8),
    ] = ()
    priority_class_name: Annotated[str | None, "PriorityClass of the pods.", Text(253, 1)] = None
    env: Annotated[
        tuple[EnvironmentVariable, ...],
        "Further environment variables of the broker's container.",
        Bound(64, key="name"),
    ] = ()
    pod_spec: Annotated[
        Mapping[str, Any] | None,
        "Strategic merge patch of the pods' spec, for everything that has no field here: "
        "volumes, further containers, a service account, another security context. The "
        "broker's container is called broker; its command cannot be changed.",
        Opaque(64),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPoolSpec:
    """How many brokers, with which ids, volumes and places."""

    RULES: ClassVar = (
        Rule(
            cel="self.clusterName == oldSelf.clusterName",
            message="a pool cannot change to another cluster: make a new pool there",
            field="clusterName",
            holds_change=lambda old, new: old.cluster_name == new.cluster_name,
        ),
        Rule(
            cel="self.idBase == oldSelf.idBase",
            message="idBase cannot be changed, because brokers are known by their ids: make a new "
            "pool with another idBase",
            field="idBase",
            holds_change=lambda old, new: old.id_base == new.id_base,
        ),
        Rule(
            cel=f"self.idBase + self.replicas <= {BROKER_ID_MAX + 1}",
            message=f"broker ids end at {BROKER_ID_MAX}: idBase + replicas must not be above "
            f"{BROKER_ID_MAX + 1}",
            field="replicas",
            holds=lambda spec: spec.id_base + spec.replicas <= BROKER_ID_MAX + 1,
        ),
        Rule(
            cel="!has(self.storage.volumes) || !has(self.template) || !has(self.template.env) || "
            f"!self.template.env.exists(e, e.name == '{LOG_DIRECTORIES_VARIABLE}')",
            message=f"with storage.volumes the operator sets {LOG_DIRECTORIES_VARIABLE} itself: "
            "leave it out",
            field="template.env",
            holds=lambda spec: (
                not spec.storage.volumes
                or all(each.name != LOG_DIRECTORIES_VARIABLE for each in spec.template.env)
            ),
        ),
    )

    cluster_name: Annotated[
        str,
        "LogCluster of the same namespace that the brokers belong to; it cannot be changed.",
        CLUSTER_NAME,
    ]
    replicas: Annotated[int, "Number of brokers.", Whole(0, BROKERS_MAX)]
    id_base: Annotated[
        int,
        "Id of the pool's first broker; the next brokers have the next ids. It cannot be "
        "changed, and two pools of a cluster must not have the same ids.",
        Whole(0, BROKER_ID_MAX),
    ] = 0
    storage: Annotated[Storage, "The volume of each broker, or its volumes."]
    resources: Annotated[
        PodResources | None,
        "Resource requests and limits of the broker's container. A broker is one process and "
        "uses one core; leave memory for the page cache.",
    ] = None
    rack: Annotated[
        str | None,
        "Failure domain of the brokers; replicas are spread over racks. Default: the zone of the "
        "node that a broker runs on.",
        Text(63, 1),
    ] = None
    config: Annotated[
        Mapping[str, str | None],
        "Settings of these brokers, in addition to those of the LogCluster; null means the "
        "LogCluster's value.",
        ConfigMap(problem=pool_setting_problem),
    ] = field(default_factory=dict)
    paused: Annotated[
        bool,
        "Leave the pool's pods, volumes and Services as they are, whatever its spec and that of "
        "the LogCluster say. Elections and failover go on.",
    ] = False
    template: Annotated[
        PodTemplate, "What the pods have in addition to what the operator gives them."
    ] = field(default_factory=PodTemplate)

    @classmethod
    def from_manifest(cls, manifest: Mapping[str, Any]) -> "BrokerPoolSpec":
        """Read a BrokerPool; ManifestError lists all its problems."""
        return read_manifest(manifest, ManifestForm("BrokerPool", cls, _ROOT_RULES))


_ROOT_RULES: Final[tuple[RootRule[BrokerPoolSpec], ...]] = (
    RootRule(
        cel="!self.metadata.name.contains('.') && "
        f"self.metadata.name.size() + self.spec.clusterName.size() <= {POOL_NAME_LENGTH_MAX}",
        message="metadata.name and clusterName together name the pods: at most "
        f"{POOL_NAME_LENGTH_MAX} characters, without '.'; create the pool again under another name",
        field="metadata.name",
        holds=lambda name, spec: (
            "." not in name and len(name) + len(spec.cluster_name) <= POOL_NAME_LENGTH_MAX
        ),
    ),
    RootRule(cel=FIRST_GROWS_CEL, message=ONLY_GROWS, field="spec.storage"),
    RootRule(cel=OTHERS_GROW_CEL, message=ONLY_GROWS, field="spec.storage.volumes"),
    RootRule(cel=VOLUMES_STAY_CEL, message=NEVER_REMOVED, field="spec.storage.volumes"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeStatus:
    """One of several volumes of the pool's brokers."""

    id: Annotated[int, "Number of the volume.", Whole(0, VOLUME_ID_MAX)]
    size: Annotated[str, "The largest size that one of its claims asks for.", Text(32)]
    claims: Annotated[int, "Claims for it that exist.", COUNT]
    bound: Annotated[int, "Claims that have their volume.", COUNT]
    drained_on: Annotated[
        tuple[Annotated[int, Whole(0, BROKER_ID_MAX)], ...],
        "Ids of brokers that hold no replica on this volume and place none on it "
        "(cordoned.log.dirs). When all brokers of the pool are listed, the volume may be removed.",
        Bound(BROKERS_MAX),
    ] = ()
    failed_on: Annotated[
        tuple[Annotated[int, Whole(0, BROKER_ID_MAX)], ...],
        "Ids of brokers whose volume has failed, and which run without it.",
        Bound(BROKERS_MAX),
    ] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPoolStatus:
    """The pool's pods and brokers."""

    conditions: Conditions = ()
    observed_generation: ObservedGeneration = None
    replicas: Annotated[int | None, "Pods that exist.", COUNT] = None
    ready_replicas: Annotated[int | None, "Brokers that are registered and serve.", COUNT] = None
    updated_replicas: Annotated[int | None, "Pods that run with the present settings.", COUNT] = (
        None
    )
    selector: Annotated[str, "Label selector of the pods, for autoscalers.", Text(512)] = ""
    broker_ids: Annotated[
        tuple[Annotated[int, Whole(0, BROKER_ID_MAX)], ...],
        "Ids of the pool's brokers.",
        Bound(BROKERS_MAX),
    ] = ()
    draining: Annotated[
        tuple[Annotated[int, Whole(0, BROKER_ID_MAX)], ...],
        "Ids of brokers that the operator removes once other brokers have all replicas that "
        "they hold.",
        Bound(BROKERS_MAX),
    ] = ()
    storage_size: Annotated[
        str,
        "The largest size that a claim for the pool's volume asks for; with several volumes, "
        "for the volume with the id 0.",
        Text(32),
    ] = ""
    volumes: Annotated[
        tuple[VolumeStatus, ...],
        "Claims and sizes of each volume, if spec.storage names several.",
        Bound(2 * VOLUMES_MAX, key="id"),
    ] = ()


BROKER_POOL: Final = ResourceDefinition(
    kind="BrokerPool",
    plural="brokerpools",
    short_names=("bp",),
    description="Brokers of a LogCluster that share size, placement and settings. They are a "
    "StatefulSet, whose rolling restarts wait until every partition can do without the "
    "next broker.",
    spec=BrokerPoolSpec,
    status=BrokerPoolStatus,
    root_rules=_ROOT_RULES,
    scale=ScalePaths(".spec.replicas", ".status.replicas", ".status.selector"),
    columns=(
        Column("Cluster", ".spec.clusterName"),
        Column("Brokers", ".spec.replicas", "integer"),
        Column("Ready Brokers", ".status.readyReplicas", "integer"),
        Column("Updated", ".status.updatedReplicas", "integer"),
        Column("Ready", READY),
        AGE,
        Column("Reason", READY_REASON, is_wide=True),
        Column("Id Base", ".spec.idBase", "integer", is_wide=True),
        Column("Storage", ".status.storageSize", is_wide=True),
        Column("Rack", ".spec.rack", is_wide=True),
    ),
    example="""\
apiVersion: fairlead.io/v1alpha1
kind: BrokerPool
metadata:
  name: brokers
spec:
  clusterName: demo
  replicas: 3
  storage:
    size: 10Gi
  resources:
    requests: {cpu: "1", memory: 1Gi}
    limits: {memory: 2Gi}
""",
)
