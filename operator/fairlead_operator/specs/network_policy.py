"""The NetworkPolicy of brokers: who may connect, by port. Pure.

It has no egress rules: brokers only call each other and the operator, and a policy would have to
know the cluster's DNS.
"""

from fairlead_kube.kinds import NETWORK_POLICY
from fairlead_operator.settings import OperatorSettings
from fairlead_operator.specs.names import (
    COMPONENT_LABEL,
    CUT_LABEL,
    HTTP_PORT,
    INTERNAL_PORT,
    OPERATOR_PORT,
    REST_PORT,
    broker_selector,
    cluster_labels,
    network_policy_name,
)
from fairlead_operator.specs.views import ClusterView, Manifest, build_child


def build_network_policy(cluster: ClusterView, settings: OperatorSettings) -> Manifest | None:
    """Return the policy, or None if the LogCluster has it off."""
    if not cluster.spec.network_policy.enabled:
        return None
    manifest = build_child(
        NETWORK_POLICY, cluster, network_policy_name(cluster.name), cluster_labels(cluster.name)
    )
    clients = [listener.port for listener in cluster.spec.client_listeners]
    if cluster.spec.rest.enabled:
        clients.append(REST_PORT)
    brokers = {"podSelector": {"matchLabels": broker_selector(cluster.name)}}
    operator = build_operator_peer(settings.namespace)
    manifest["spec"] = {
        # Policies only add permissions, so a drill can isolate only pods that this one does not
        # select.
        "podSelector": {
            "matchLabels": broker_selector(cluster.name),
            "matchExpressions": [{"key": CUT_LABEL, "operator": "DoesNotExist"}],
        },
        "policyTypes": ["Ingress"],
        "ingress": [
            {"ports": [_tcp(port) for port in clients]},
            {"ports": [_tcp(INTERNAL_PORT)], "from": [brokers, operator]},
            {"ports": [_tcp(HTTP_PORT)], "from": [{"namespaceSelector": {}}]},
        ],
    }
    if cluster.spec.is_secured:
        drills = {"podSelector": {"matchLabels": {COMPONENT_LABEL: "drill"}}}
        rule = {"ports": [_tcp(OPERATOR_PORT)], "from": [operator, drills]}
        manifest["spec"]["ingress"].append(rule)
    return manifest


def build_operator_peer(namespace: str) -> Manifest:
    """Return the operator's pods as a policy's peer."""
    return {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "podSelector": {
            "matchLabels": {"app.kubernetes.io/name": "fairlead", COMPONENT_LABEL: "operator"}
        },
    }


def _tcp(port: int) -> Manifest:
    return {"port": port, "protocol": "TCP"}
