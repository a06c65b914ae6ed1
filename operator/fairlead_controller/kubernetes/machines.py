"""What Pods and Nodes say about brokers: which ones will stop, and where they run. Pure.

A registration names its pod by uid and its node by name, so pods' names are not interpreted: a pod
that replaces another pod has another uid.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from fairlead_model.broker import BrokerRegistration
from fairlead_model.ids import BrokerId

ZONE_LABEL: Final = "topology.kubernetes.io/zone"

Manifest = Mapping[str, Any]


def plan_drains(
    brokers: Iterable[BrokerRegistration],
    *,
    leaving_pods: Mapping[str, str],
    cordoned_nodes: Iterable[str],
) -> dict[BrokerId, str]:
    """Return the brokers whose leaders have to move, and the reasons.

    `leaving_pods` has the pods that are being deleted, uid to name.
    """
    nodes = set(cordoned_nodes)
    drains: dict[BrokerId, str] = {}
    for broker in brokers:
        if broker.pod_uid and broker.pod_uid in leaving_pods:
            drains[broker.broker_id] = f"pod {leaving_pods[broker.pod_uid]} is being deleted"
        elif broker.host_name in nodes:
            drains[broker.broker_id] = f"node {broker.host_name} is unschedulable"
    return drains


def is_leaving(pod: Manifest) -> bool:
    """Tell whether a pod is being deleted."""
    return bool(pod["metadata"].get("deletionTimestamp"))


def is_cordoned(node: Manifest) -> bool:
    """Tell whether a node is cordoned: it is being drained, or soon will be."""
    return bool((node.get("spec") or {}).get("unschedulable"))


def located(asking: BrokerRegistration, node: Manifest | None) -> BrokerRegistration:
    """Return a registration with its node's zone as rack, unless the broker names one."""
    if asking.rack or node is None:
        return asking
    zone = (node["metadata"].get("labels") or {}).get(ZONE_LABEL)
    return replace(asking, rack=zone) if zone else asking
