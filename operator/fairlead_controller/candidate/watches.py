"""What a candidate knows of the Kubernetes cluster: LogClusters and their pools, Secrets and Pods,
and Nodes.

Kept up before the Lease is held, too, so that winning it is enough to act.
"""

import base64
import binascii
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from fairlead_controller.candidate.broker_arrivals import expected_brokers
from fairlead_controller.candidate.drains import PlanDrains
from fairlead_controller.candidate.machines import is_cordoned, is_leaving, located, plan_drains
from fairlead_controller.candidate.session_gate import ClusterKey
from fairlead_controller.kube.client import KubeClient
from fairlead_controller.kube.informer import Informer
from fairlead_controller.kube.kinds import BROKER_POOL, LOG_CLUSTER, NODE, POD, SECRET
from fairlead_controller.kube.object_changes import ObjectChange
from fairlead_model.broker import BrokerRegistration
from fairlead_model.ids import BrokerId
from fairlead_model.session_protocol import parse_secret

logger = logging.getLogger(__name__)

CLUSTER_LABEL: Final = "fairlead.io/cluster"
SECRET_KEY: Final = "secret"  # noqa: S105 (a name)


class Watches:
    """The informers of one process."""

    def __init__(
        self,
        client: KubeClient,
        watch_namespace: str,
        *,
        on_clusters: Callable[[], None],
        on_machines: Callable[[], None],
    ) -> None:
        """`on_machines`: a pod has begun to go, or a node has been cordoned or uncordoned."""
        self._on_clusters = on_clusters
        self._on_machines = on_machines
        namespace = watch_namespace or None
        self.clusters = Informer(
            client, LOG_CLUSTER, namespace=namespace, on_change=lambda _: on_clusters()
        )
        self.pools = Informer(client, BROKER_POOL, namespace=namespace)
        self.secrets = Informer(client, SECRET, namespace=namespace, label_selector=CLUSTER_LABEL)
        self.pods = Informer(
            client,
            POD,
            namespace=namespace,
            label_selector=CLUSTER_LABEL,
            on_change=self._on_pod,
        )
        self.nodes = Informer(client, NODE, on_change=self._on_node)

    @property
    def by_kind(self) -> Mapping[str, Informer]:
        """All informers by the kind that they follow."""
        return {
            "LogCluster": self.clusters,
            "BrokerPool": self.pools,
            "Secret": self.secrets,
            "Pod": self.pods,
            "Node": self.nodes,
        }

    @property
    def required(self) -> Mapping[str, Informer]:
        """Those without which nothing works; Nodes may be out of reach for a namespaced role."""
        return {kind: each for kind, each in self.by_kind.items() if kind != "Node"}

    def find_secret(self, key: ClusterKey) -> bytes | None:
        """Give the session secret of a cluster, if there is one that can be used.

        That of an earlier LogCluster of the name is not: Kubernetes is about to delete it.
        """
        namespace, cluster = key
        manifest = self.secrets.objects.get((namespace, f"{cluster}-session"))
        if manifest is not None and not _may_belong(manifest, self.clusters.objects.get(key)):
            return None
        encoded = None if manifest is None else (manifest.get("data") or {}).get(SECRET_KEY)
        if not encoded:
            return None
        try:
            return parse_secret(base64.b64decode(encoded, validate=True))
        except (ValueError, binascii.Error) as error:
            logger.warning("the session Secret of %s/%s cannot be used: %s", *key, error)
            return None

    def locate(self, asking: BrokerRegistration) -> BrokerRegistration:
        """Add the zone of its node to a registration."""
        return located(asking, self.nodes.objects.get(("", asking.host_name)))

    def expected_brokers(self, key: ClusterKey) -> frozenset[BrokerId]:
        """Give the ids of the brokers that a cluster's pools ask for."""
        pools = [pool for (namespace, _), pool in self.pools.objects.items() if namespace == key[0]]
        return expected_brokers(pools, key[1])

    def drains_of(self, key: ClusterKey) -> PlanDrains:
        """Give what tells which brokers of a cluster have to be drained now."""

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
    """Tell whether a Secret is no other LogCluster's; one that people made has no owner."""
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
