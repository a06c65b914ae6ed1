"""What a candidate knows of Kubernetes: LogClusters and their pools, Secrets, Pods and Nodes.

The informers also run before this process holds the Lease, so that it can act at once when it does.
"""

import base64
import binascii
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

from fairlead_controller.kubernetes.broker_arrivals import expected_brokers
from fairlead_controller.kubernetes.cluster_tls import SECRET_SUFFIX
from fairlead_controller.kubernetes.drains import PlanDrains
from fairlead_controller.kubernetes.machines import is_cordoned, is_leaving, located, plan_drains
from fairlead_controller.kubernetes.session_gate import ClusterKey
from fairlead_kube.client import KubeClient
from fairlead_kube.informer import Informer
from fairlead_kube.kinds import BROKER_POOL, LOG_CLUSTER, NODE, POD, SECRET
from fairlead_kube.object_changes import ObjectChange
from fairlead_model.broker import BrokerRegistration
from fairlead_model.ids import BrokerId
from fairlead_model.session.session_protocol import parse_secret

logger = logging.getLogger(__name__)

CLUSTER_LABEL: Final = "fairlead.io/cluster"
SECRET_KEY: Final = "secret"  # noqa: S105 (a name)


class Watches:
    """The informers of one process."""

    def __init__(
        self,
        client: KubeClient,
        namespaces: Collection[str],
        *,
        on_clusters: Callable[[], None],
        on_machines: Callable[[], None],
    ) -> None:
        """`namespaces`: where LogClusters are, empty for all.

        `on_machines`: called when a pod is being deleted, or a node was cordoned or uncordoned.
        """
        self._on_clusters = on_clusters
        self._on_machines = on_machines
        self.clusters = Informer(
            client, LOG_CLUSTER, namespaces=namespaces, on_change=lambda _: on_clusters()
        )
        self.pools = Informer(client, BROKER_POOL, namespaces=namespaces)
        self.secrets = Informer(client, SECRET, namespaces=namespaces, label_selector=CLUSTER_LABEL)
        self.pods = Informer(
            client,
            POD,
            namespaces=namespaces,
            label_selector=CLUSTER_LABEL,
            on_change=self._on_pod,
        )
        self.nodes = Informer(client, NODE, on_change=self._on_node)

    @property
    def by_kind(self) -> Mapping[str, Informer]:
        """All informers, by the kind that they follow."""
        return {
            "LogCluster": self.clusters,
            "BrokerPool": self.pools,
            "Secret": self.secrets,
            "Pod": self.pods,
            "Node": self.nodes,
        }

    @property
    def required(self) -> Mapping[str, Informer]:
        """The informers that must work; a namespaced role may have no access to Nodes."""
        return {kind: each for kind, each in self.by_kind.items() if kind != "Node"}

    @property
    def expected(self) -> Mapping[str, Informer]:
        """The informers that should be up to date: Nodes only where they may be read at all."""
        return self.required if self.nodes.is_refused else self.by_kind

    def find_secret(self, key: ClusterKey) -> bytes | None:
        """Return the session secret of a cluster, if there is a usable one.

        A Secret of an earlier LogCluster of this name is not usable: Kubernetes is about to delete
        it.
        """
        manifest = self._find_own(key, "session")
        encoded = None if manifest is None else (manifest.get("data") or {}).get(SECRET_KEY)
        if not encoded:
            return None
        try:
            return parse_secret(base64.b64decode(encoded, validate=True))
        except (ValueError, binascii.Error) as error:
            logger.warning("the session Secret of %s/%s cannot be used: %s", *key, error)
            return None

    def find_tls(self, key: ClusterKey) -> Mapping[str, Any] | None:
        """Return the Secret with the certificate that a cluster's brokers are shown."""
        return self._find_own(key, SECRET_SUFFIX)

    def wants_tls(self, key: ClusterKey) -> bool:
        """Tell whether a LogCluster says that its brokers come over TLS."""
        spec = self.clusters.objects.get(key, {}).get("spec") or {}
        return bool((spec.get("interBroker") or {}).get("tls"))

    def _find_own(self, key: ClusterKey, suffix: str) -> Mapping[str, Any] | None:
        namespace, cluster = key
        manifest = self.secrets.objects.get((namespace, f"{cluster}-{suffix}"))
        if manifest is None or not _may_belong(manifest, self.clusters.objects.get(key)):
            return None
        return manifest

    def locate(self, asking: BrokerRegistration) -> BrokerRegistration:
        """Return a registration with the zone of the broker's node."""
        return located(asking, self.nodes.objects.get(("", asking.host_name)))

    def expected_brokers(self, key: ClusterKey) -> frozenset[BrokerId] | None:
        """Return the ids of the brokers that a cluster's pools want; None if they are unknown.

        A pool that has not been listed, or may not be, must not be considered absent.
        """
        if not self.pools.is_synced or self.pools.is_hidden(key[0]):
            return None
        pools = [pool for (namespace, _), pool in self.pools.objects.items() if namespace == key[0]]
        return expected_brokers(pools, key[1])

    def drains_of(self, key: ClusterKey) -> PlanDrains:
        """Return a function that returns the brokers of a cluster that have to be drained now."""

        def plan(brokers: Iterable[BrokerRegistration]) -> Mapping[BrokerId, str]:
            leaving = {
                pod["metadata"]["uid"]: name
                for (namespace, name), pod in self.pods.objects.items()
                if namespace == key[0]
                and pod["metadata"]["labels"].get(CLUSTER_LABEL) == key[1]
                and is_leaving(pod)
            }
            cordoned = [name for (_, name), node in self.nodes.objects.items() if is_cordoned(node)]
            return plan_drains(brokers, leaving_pods=leaving, cordoned_nodes=cordoned)

        return plan

    def _on_pod(self, change: ObjectChange) -> None:
        if _is_flipped(change, is_leaving):
            self._on_machines()

    def _on_node(self, change: ObjectChange) -> None:
        if _is_flipped(change, is_cordoned):
            self._on_machines()


def _may_belong(secret: Mapping[str, Any], cluster: Mapping[str, Any] | None) -> bool:
    """Tell whether a Secret belongs to no other LogCluster; one made by people has no owner."""
    owners = [
        owner["uid"]
        for owner in secret.get("metadata", {}).get("ownerReferences") or ()
        if owner.get("kind") == LOG_CLUSTER.kind
    ]
    return not owners or cluster is None or cluster["metadata"]["uid"] in owners


def _is_flipped(change: ObjectChange, is_so: Callable[[Mapping[str, Any]], bool]) -> bool:
    before = change.old is not None and is_so(change.old)
    after = change.new is not None and is_so(change.new)
    return before != after
