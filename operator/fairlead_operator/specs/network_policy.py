"""The NetworkPolicy of brokers: who may come in, by port. Pure.

Nothing is said about traffic out of brokers: they only call each other and the operator, and a
policy on egress would have to know the cluster's DNS.
"""

from fairlead_controller.kube.kinds import NETWORK_POLICY
from fairlead_operator.settings import OperatorSettings
from fairlead_operator.specs.names import (
    CLIENT_PORT,
    COMPONENT_LABEL,
    HTTP_PORT,
    INTERNAL_PORT,
    broker_selector,
    cluster_labels,
    network_policy_name,
)
from fairlead_operator.specs.views import ClusterView, Manifest, build_child


def build_network_policy(cluster: ClusterView, settings: OperatorSettings) -> Manifest | None:
    """Give the policy, or None where the LogCluster wants none."""
    if not cluster.spec.network_policy.enabled:
        return None
    manifest = build_child(
        NETWORK_POLICY, cluster, network_policy_name(cluster.name), cluster_labels(cluster.name)
    )
    clients = [CLIENT_PORT, *(listener.port for listener in cluster.spec.listeners)]
    brokers = {"podSelector": {"matchLabels": broker_selector(cluster.name)}}
    operator = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": settings.namespace}},
        "podSelector": {
            "matchLabels": {"app.kubernetes.io/name": "fairlead", COMPONENT_LABEL: "operator"}
        },
    }
    manifest["spec"] = {
        "podSelector": {"matchLabels": broker_selector(cluster.name)},
        "policyTypes": ["Ingress"],
        "ingress": [
            {"ports": [_tcp(port) for port in clients]},
            {"ports": [_tcp(INTERNAL_PORT)], "from": [brokers, operator]},
            {"ports": [_tcp(HTTP_PORT)], "from": [{"namespaceSelector": {}}]},
        ],
    }
    return manifest


def _tcp(port: int) -> Manifest:
    return {"port": port, "protocol": "TCP"}
