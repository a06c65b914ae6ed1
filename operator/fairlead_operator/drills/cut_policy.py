"""The NetworkPolicy by which a drill isolates a broker's pod. Pure.

Policies can only allow traffic, and a pod may use what any of its policies allows. So the pod gets
a label that takes it out of its cluster's own policy (`specs.network_policy`) and into the drill's,
which allows what is not cut. Health checks and metrics always work.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from fairlead_kube.kinds import FAILOVER_DRILL, NETWORK_POLICY
from fairlead_model.resources.failover_drill import CutFrom
from fairlead_operator.specs.names import (
    COMPONENT_LABEL,
    CUT_LABEL,
    HTTP_PORT,
    INTERNAL_PORT,
    OPERATOR_PORT,
    broker_selector,
)
from fairlead_operator.specs.network_policy import build_operator_peer

Manifest = dict[str, Any]
POLICY_NAME_MAX: Final = 253
_DNS: Final = {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]}


def cut_policy_name(drill_name: str) -> str:
    """Return the name of a drill's policy."""
    return f"drill-{drill_name}"[:POLICY_NAME_MAX].rstrip("-.")


def build_cut_policy(
    drill: Mapping[str, Any],
    cluster: str,
    cut: CutFrom,
    *,
    client_ports: Sequence[int],
    operator_namespace: str,
) -> Manifest:
    """Return the policy of the pods with the drill's label; it is deleted with the drill."""
    metadata = drill["metadata"]
    brokers = {"podSelector": {"matchLabels": broker_selector(cluster)}}
    drills = {"podSelector": {"matchLabels": {COMPONENT_LABEL: "drill"}}}
    operator = build_operator_peer(operator_namespace)
    inside: list[Manifest] = []
    if cut in {"Clients", "Controller"}:
        inside.append(brokers)
    if cut in {"Clients", "Brokers"}:
        inside.append(operator)
    ingress: list[Manifest] = [{"ports": [_tcp(HTTP_PORT)], "from": [{"namespaceSelector": {}}]}]
    if inside:
        ingress.append({"ports": [_tcp(INTERNAL_PORT)], "from": inside})
    if cut in {"Brokers", "Controller"}:
        ingress.append({"ports": [_tcp(port) for port in client_ports]})
        asking = [drills, operator] if cut == "Brokers" else [drills]
        ingress.append({"ports": [_tcp(OPERATOR_PORT)], "from": asking})
    elif cut == "Clients":
        ingress.append({"ports": [_tcp(OPERATOR_PORT)], "from": [operator]})
    spec: Manifest = {
        "podSelector": {"matchLabels": {CUT_LABEL: metadata["uid"]}},
        "policyTypes": ["Ingress"],
        "ingress": ingress,
    }
    if cut != "Clients":
        # Brokers connect only to each other and to the operator, by name.
        spec["policyTypes"] = ["Ingress", "Egress"]
        spec["egress"] = [] if cut == "All" else [{"to": inside}, _DNS]
    return {
        "apiVersion": NETWORK_POLICY.api_version,
        "kind": NETWORK_POLICY.kind,
        "metadata": {
            "name": cut_policy_name(metadata["name"]),
            "namespace": metadata["namespace"],
            "labels": {
                "app.kubernetes.io/name": "fairlead",
                "app.kubernetes.io/instance": cluster,
                "app.kubernetes.io/managed-by": "fairlead-operator",
                COMPONENT_LABEL: "drill",
            },
            "ownerReferences": [
                {
                    "apiVersion": FAILOVER_DRILL.api_version,
                    "kind": FAILOVER_DRILL.kind,
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
        },
        "spec": spec,
    }


def _tcp(port: int) -> Manifest:
    return {"port": port, "protocol": "TCP"}
