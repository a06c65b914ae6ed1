"""The kinds of Kubernetes resources that Fairlead reads or writes, and where the API keeps them."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class ResourceKind:
    """One kind of resource in one version; the group of the core API is empty."""

    group: str
    version: str
    kind: str
    plural: str
    is_namespaced: bool = True

    @property
    def api_version(self) -> str:
        """The `apiVersion` of a manifest."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(
        self, namespace: str | None = None, name: str | None = None, subresource: str | None = None
    ) -> str:
        """Return the path of an object or, without a name, of the collection.

        Without a namespace, the collection is that of all namespaces. ValueError for an object of a
        namespaced kind without its namespace, and for a namespace of a kind that has none.
        """
        parts = ["/apis", self.group, self.version] if self.group else ["/api", self.version]
        if namespace:
            if not self.is_namespaced:
                raise ValueError(f"{self.kind} {name or ''} is in no namespace, not in {namespace}")
            parts += ["namespaces", namespace]
        elif name and self.is_namespaced:
            raise ValueError(f"{self.kind} {name} needs a namespace")
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/".join(parts)


POD: Final = ResourceKind("", "v1", "Pod", "pods")
NODE: Final = ResourceKind("", "v1", "Node", "nodes", is_namespaced=False)
NAMESPACE: Final = ResourceKind("", "v1", "Namespace", "namespaces", is_namespaced=False)
SECRET: Final = ResourceKind("", "v1", "Secret", "secrets")
SERVICE_ACCOUNT: Final = ResourceKind("", "v1", "ServiceAccount", "serviceaccounts")
CONFIG_MAP: Final = ResourceKind("", "v1", "ConfigMap", "configmaps")
SERVICE: Final = ResourceKind("", "v1", "Service", "services")
PERSISTENT_VOLUME_CLAIM: Final = ResourceKind(
    "", "v1", "PersistentVolumeClaim", "persistentvolumeclaims"
)
EVENT: Final = ResourceKind("events.k8s.io", "v1", "Event", "events")
LEASE: Final = ResourceKind("coordination.k8s.io", "v1", "Lease", "leases")
STATEFUL_SET: Final = ResourceKind("apps", "v1", "StatefulSet", "statefulsets")
POD_DISRUPTION_BUDGET: Final = ResourceKind(
    "policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets"
)
ROLE_BINDING: Final = ResourceKind("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings")
CERTIFICATE: Final = ResourceKind("cert-manager.io", "v1", "Certificate", "certificates")
"""Of cert-manager, if it is installed."""
SCALED_OBJECT: Final = ResourceKind("keda.sh", "v1alpha1", "ScaledObject", "scaledobjects")
"""Of KEDA, if it is installed."""
NETWORK_POLICY: Final = ResourceKind("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies")

GROUP: Final = "fairlead.io"
VERSION: Final = "v1alpha1"

LOG_CLUSTER: Final = ResourceKind(GROUP, VERSION, "LogCluster", "logclusters")
BROKER_POOL: Final = ResourceKind(GROUP, VERSION, "BrokerPool", "brokerpools")
TOPIC: Final = ResourceKind(GROUP, VERSION, "Topic", "topics")
PARTITION_TABLE: Final = ResourceKind(GROUP, VERSION, "PartitionTable", "partitiontables")
CLUSTER_STATE: Final = ResourceKind(GROUP, VERSION, "ClusterState", "clusterstates")
FAILOVER_DRILL: Final = ResourceKind(GROUP, VERSION, "FailoverDrill", "failoverdrills")
CONSUMER_GROUP: Final = ResourceKind(GROUP, VERSION, "ConsumerGroup", "consumergroups")
STREAM_JOB: Final = ResourceKind(GROUP, VERSION, "StreamJob", "streamjobs")
REBALANCE: Final = ResourceKind(GROUP, VERSION, "Rebalance", "rebalances")
USER: Final = ResourceKind(GROUP, VERSION, "User", "users")
